"""The ledger in numbers and words, and its whole life from a launch to a score."""

from __future__ import annotations

import io
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.optimize import brentq
from typer.testing import CliRunner

from db.errors import StoreError
from db.store import RunRecord, Selection, Store
from launchers.launch import launch
from launchers.plan import plan_sweep
from scaling import ledger
from scaling.analysis import analyse
from scaling.findings import Cell, CellOptimum
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.ledger import Distance, Tally, distance, needs, sentences, span, summary, target, wilson
from scaling.rows import Rows
from sweeps.load import load, loads

RUNNER = CliRunner()


def row(number: int = 0, **more: Any) -> dict[str, Any]:
    """A row of `Store.ledger`: a scored prediction whose interval held."""
    base = {
        "prediction": number, "sweep": "s", "fit": "f", "law": "power", "of": "loss", "at": f'{{"width":{number}}}',
        "group": "{}", "made": 1.0, "value": 1.0, "lo": 0.9, "hi": 1.1, "level": 0.95, "decades": 0.5,
        "status": "scored", "observed": 1.01, "stderr": 0.003, "error": 0.01, "inside": True, "log_score": 2.0,
        "lead": 7200.0, "superseded": False, "task": None, "tune": None, "waits": None, "basis": "parameters",
        "runs": None, "objective": '{"name":"huber"}', "code": None, "shared": None, "z": 0.2,
    }  # fmt: skip
    return {**base, **more}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    floats = ("decades", "observed", "stderr", "error", "log_score", "lead", "lo", "hi", "level", "z")
    types: dict[str, Any] = dict.fromkeys(floats, pl.Float64) | {"inside": pl.Boolean}
    types |= dict.fromkeys(("task", "tune", "waits", "runs", "code", "shared"), pl.String)
    return pl.DataFrame(list(rows) or [row()], schema_overrides=types).head(len(rows))


def shown(frame: pl.DataFrame, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(ledger.render(frame))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


# Wilson


@settings(deadline=None)  # scipy is imported in the first example
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_ends_are_where_the_score_test_just_accepts(counts: tuple[int, int], level: float) -> None:
    """The ends solve |hits/n - p| = z sqrt(p (1 - p) / n)."""
    from scipy.stats import norm

    hits, n = counts
    z = norm.ppf((1 + level) / 2)

    def excess(p: float) -> float:
        return (hits / n - p) ** 2 - z * z * p * (1 - p) / n

    lo, hi = wilson(hits, n, level)
    assert lo == (0.0 if hits == 0 else pytest.approx(brentq(excess, 0, hits / n - 1e-9, xtol=1e-14), abs=1e-9))
    assert hi == (1.0 if hits == n else pytest.approx(brentq(excess, hits / n + 1e-9, 1, xtol=1e-14), abs=1e-9))


def test_wilson_against_published_numbers() -> None:
    """Newcombe 1998 (Statist. Med. 17, 857), table I, method 3."""
    published = {
        (81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611), (1, 29): (0.0061, 0.1718),
    }  # fmt: skip
    for counts, ends in published.items():
        assert wilson(*counts) == pytest.approx(ends, abs=5e-5)


# summing up


def test_only_true_predictions_enter_coverage() -> None:
    frame = table(
        *(row(i, inside=i < 10, error=(-1) ** i * i / 100, log_score=float(i)) for i in range(12)),
        row(20, status="held out", inside=False),
        row(21, status="made after"),
        row(22, status="diverged", observed=None, error=None, inside=None, log_score=None),
        row(23, status="open", observed=None, error=None, inside=None, log_score=None),
    )
    found = summary(frame)
    assert found.counts == {"scored": 12, "held out": 1, "made after": 1, "diverged": 1, "open": 1}
    (overall,) = found.overall
    lo, hi = wilson(10, 12)
    assert overall == Tally("all", 0.95, 12, 12, 12, 10, 10 / 12, lo, hi, 0.055, pytest.approx(0.055), 5.5)
    assert [(t.name, t.n) for t in found.by_kind] == [("scored", 12), ("held out", 1), ("made after", 1)]
    assert sentences(found) == [
        "12 predictions scored; 95 % intervals held 10 of 12 (83 % [55, 95]).",
        "Absolute error: median 5.5 %, mean 5.5 %.",
        "Apart from these, 1 held-out value; 95 % intervals held 0 of 1: too few to judge (needs >= 5).",
        "1 prediction made after the run was known: not counted.",
        "1 prediction whose run diverged.",
        "1 prediction open.",
    ]


def test_bins_of_distance() -> None:
    decades = [0.0, 1e-9, 0.999, 1.0, 2.0, 2.001, None, 0.0]
    found = summary(table(*(row(i, decades=d) for i, d in enumerate(decades)))).by_distance
    assert [(t.name, t.n) for t in found] == [
        ("inside the data", 2), ("up to 1 decade", 2), ("1 to 2 decades", 2), ("beyond 2 decades", 1), ("unknown", 1),
    ]  # fmt: skip


def test_levels_and_laws_are_not_mixed() -> None:
    frame = table(
        *(row(i, law="power") for i in range(5)),
        *(row(i, law="chinchilla", level=0.8, inside=False) for i in range(5, 10)),
        row(10, law="power", inside=None, log_score=None, lo=None, hi=None),
    )
    found = summary(frame)
    assert [(t.name, t.level, t.judged, t.inside) for t in found.by_law] == [
        ("chinchilla", 0.8, 5, 0), ("power", None, 0, 0), ("power", 0.95, 5, 5),
    ]  # fmt: skip
    said = sentences(found)
    assert said[:3] == [
        "1 prediction scored; none had an interval.",
        "5 predictions scored; 80 % intervals held 0 of 5 (0 % [0, 43]).",
        "5 predictions scored; 95 % intervals held 5 of 5 (100 % [57, 100]).",
    ]
    assert said[3] == "The intervals are too narrow."
    assert found.by_law[1].log_score is None


def test_too_few_to_judge_and_wide_intervals_are_said() -> None:
    few = summary(table(row(0), row(1)))
    assert few.overall[0].coverage is None
    assert sentences(few)[0] == "2 predictions scored; 95 % intervals held 2 of 2: too few to judge (needs >= 5)."
    wide = summary(table(*(row(i, level=0.5) for i in range(20))))
    assert "The intervals are wider than they need to be." in sentences(wide)
    same = summary(table(*(row(i, at='{"width":9}') for i in range(6))))
    assert same.overall[0].targets == 1
    assert any("6 predictions have 1 target:" in text for text in sentences(same))
    assert sentences(summary(table())) == ["No prediction has been recorded yet."]


@given(st.permutations(range(9)))
def test_the_order_of_rows_means_nothing(order: list[int]) -> None:
    rows = [row(i, error=0.1 / (i + 1), inside=i % 3 != 0, decades=i / 3, law=f"law{i % 2}") for i in range(9)]
    assert summary(table(*(rows[i] for i in order))) == summary(table(*rows))


# words


def test_what_would_score_an_open_prediction() -> None:
    open_row = row(5, status="open", task="m:train", tune="[]", waits="{}")
    assert needs(open_row) == "a run of m:train at width 5, otherwise as fitted"
    assert needs(open_row | {"tune": '["lr"]'}) == "runs over lr of m:train at width 5, otherwise as fitted"
    waits = {"done": ["a"], "queued": ["b", "c"], "failed": ["d"]}
    assert needs(open_row | {"waits": json.dumps(waits)}) == "its runs to end: 1 failed, 2 queued"
    assert needs(open_row | {"waits": '{"done":["a"]}'}) == "its run to have logged loss"
    assert "(lr not settled there yet)" in needs(open_row | {"waits": '{"done":["a"]}', "tune": '["lr"]'})
    assert needs(open_row | {"task": None}) == "nothing: its sweep has no runs"
    assert target(row(5, group='{"rule":"a"}')) == "loss at width 5, a"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (90, "1.5 min"), (3600 * 12, "12 h"), (-7200, "-2.0 h"), (86400 * 9, "9.0 d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_terminal_of_80_columns_shows_every_number() -> None:
    frame = table(
        *(row(i, of="val_loss", law="E + A/n_params^alpha + B/tokens^beta", inside=i > 1) for i in range(6)),
        row(7, sweep="another_sweep", status="diverged", observed=None, error=None, inside=None, superseded=True),
        row(8, status="open", task="models.lm:train", tune="[]", waits="{}", value=1.5, lo=1.25, hi=1.75,
            observed=None, error=None),
        row(9, status="made after", error=-0.25, lead=-90.0), row(10, status="held out", lead=None),
    )  # fmt: skip
    text = shown(frame)
    assert max(map(len, text.splitlines())) <= 80
    for part in ("1.00 [0.90, 1.10]", "1.0100 ± 0.0030", "+1 % out", "2.0 h", "diverged", "1.50 [1.25, 1.75]", "-25 %",
                 "-1.5 min", "67 % [30, 90]", "4/6 of 95 %"):  # fmt: skip
        assert part in text, part
    assert "[bold]" in shown(table(row(of="[bold]")))


# distance


def fitted(text: str, inputs: tuple[str, ...], x: Any, cost: Any = None) -> Any:
    law = law_over(text, inputs)
    x = np.atleast_2d(np.asarray(x, dtype=float))
    y = 1 + (x**-0.3).sum(axis=0)
    return fit_law(law, Rows(x, y, cost=None if cost is None else np.asarray(cost, dtype=float)), draws=0)


def test_distance_of_a_law_over_one_input_is_along_it() -> None:
    fit = fitted("power", ("width",), [16, 32, 64, 128])
    assert distance(fit, np.array([1280.0])) == Distance(pytest.approx(1.0), "width")
    assert distance(fit, np.array([1.6])) == Distance(pytest.approx(1.0), "width")
    assert distance(fit, np.array([64.0])) == Distance(0.0, "width")
    costly = fitted("power", ("width",), [16, 32, 64, 128], cost=[3e3 * w**2 for w in (16, 32, 64, 128)])
    assert distance(costly, np.array([1280.0])) == Distance(pytest.approx(2.0), "cost")


def test_distance_is_of_cost_where_cost_is_known() -> None:
    n, d = np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11])
    x = np.array([n.ravel(), d.ravel()])
    fit = fitted("chinchilla", ("n_params", "tokens"), x)
    assert distance(fit, np.array([1e10, 1e12])) == Distance(pytest.approx(2.0), "cost")
    assert distance(fit, np.array([1e10, 1e9])) == Distance(pytest.approx(1.0), "n_params")  # dear nowhere, yet new
    assert distance(fit, np.array([1e8, 1e10])).decades == 0
    own = fitted("chinchilla", ("n_params", "tokens"), x, cost=7 * x[0] ** 1.1 * x[1])
    far = math.log10(7 * 1e10**1.1 * 1e12) - math.log10(7 * 1e9**1.1 * 1e11)
    assert distance(own, np.array([1e10, 1e12])) == Distance(pytest.approx(far), "cost")
    unknown = fitted("E + A/width^alpha + B/depth^beta", ("depth", "width"), x / 1e6)
    assert distance(unknown, np.array([1e4, 1e6])) == Distance(pytest.approx(1.0), "depth")


# from an analysis to the store

SPEC = """
name: small
task: mine.train:train
base: {steps: 3}
axes: {width: [8, 16, 32, 64, 128, 256]}
replicates: {seed: {path: data.seed, values: 2}}
fit:
  of: loss
  select: best
  bootstrap: 100
  laws:
    - {law: power_offset, over: width}
    - {law: power, over: width, name: plain}
  hold_out: {width: 256}
predict:
  - {width: 512}
launcher: {kind: local, workers: 1, threads: 1}
"""
TRAIN = """
def train(config, run):
    noise = (config["width"] * 7 + config["data"]["seed"] * 13) % 11 - 5
    for step in range(1, config["steps"] + 1):
        run.log(step, loss=1.5 + 4 * config["width"] ** -0.5 + 1 / step + 1e-3 * noise)
"""


def measured(widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)) -> pl.DataFrame:
    rows = [
        {
            "run": f"{w}-{s}",
            "status": "done",
            "width": w,
            "seed": s,
            "loss": 1.5 + 4 * w**-0.5 + 1e-3 * (w * 7 % 11) * s,
        }
        for w in widths
        for s in (0, 1)
    ]
    return pl.DataFrame(rows).with_columns(pl.lit(None, pl.Float64).alias(c) for c in ("n_params", "flops", "tokens"))


def test_records_name_their_fit_distance_and_assumptions() -> None:
    spec = loads(SPEC).spec
    analysis = analyse(spec, measured())
    found = ledger.records(analysis)
    assert [(r["fit_number"], r["held_out"], r["at"]) for r in found] == [
        (0, True, {"width": 256}), (0, False, {"width": 512}), (1, True, {"width": 256}), (1, False, {"width": 512}),
    ]  # fmt: skip
    assert [r["decades"] for r in found] == pytest.approx([math.log10(2), math.log10(4)] * 2)
    assert {r["beyond"] for r in found} == {"width"}
    assert found[1]["assumptions"].startswith("power_offset holds 0.6 decades of width beyond its data; interval: ")
    assert all(r["run_noise"] is ("run noise" in r["basis"]) for r in found)
    plain = analysis.to_json()["predictions"]
    assert [{k: r[k] for k in p} for r, p in zip(found, plain, strict=True)] == plain
    design = ledger.design_of(spec)
    assert (design.select, design.goal, design.replicates, design.tune) == ("best", "min", {"seed": "data.seed"}, {})


def test_observations_are_the_optima_with_their_finished_runs() -> None:
    ok: Any = SimpleNamespace(status="ok", value=0.2, lo=0.1, hi=0.4, loss=1.5, loss_stderr=0.01)
    edge: Any = SimpleNamespace(status="edge", value=0.2, lo=None, hi=None, loss=None, loss_stderr=None)
    bare: Any = SimpleNamespace(status="ok", value=0.3, lo=None, hi=None, loss=None, loss_stderr=None)
    optima = [CellOptimum(Cell({"width": w}, {"rule": "a"}, {}), "lr", o) for w, o in ((8, ok), (16, edge), (32, bare))]
    results = pl.DataFrame(
        {"run": ["d", "c", "b", "a", "e"], "status": ["done", "diverged", "done", "done", "done"],
         "width": [8, 8, 8, 8, 32], "rule": ["a", "a", "a", "b", "a"]}
    )  # fmt: skip
    analysis: Any = SimpleNamespace(optima=optima, of="loss", level=0.95)
    first, loss, last = ledger.observations(analysis, results)
    assert (first.metric, first.value, first.runs, first.n) == ("lr.optimum", 0.2, ["b", "d"], 2)
    assert first.stderr == pytest.approx(0.2 * math.log(4) / (2 * 1.959963984540054))
    assert (loss.metric, loss.value, loss.stderr, loss.runs) == ("loss", 1.5, 0.01, ["b", "d"])
    assert (last.value, last.stderr, last.runs) == (0.3, None, ["e"])


# the whole life


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text(TRAIN)
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def sweep(folder: Path, *overrides: str) -> int:
    """Launch the spec, analyse it and keep what it says; returns how many predictions were scored."""
    loaded = load(folder / "spec.yaml", overrides)
    plan = plan_sweep(loaded)
    home = folder / "results"
    with Store.open(f"sqlite:///{home / 'sweeplaw.db'}") as store:
        done = launch(plan, store, home, retry_failed=False, console=Console(file=io.StringIO()))
        results = store.results("small", "loss", "best")
        analysis = analyse(loaded.spec, results)
        code = {"commit": "abc", "dirty": False}
        return ledger.keep(store, loaded.spec, done.version, analysis, results, data_hash="h", code=code)


def test_from_launch_to_score(project: Path) -> None:
    assert sweep(project) == 0
    said = RUNNER.invoke(ledger.app, ["--home", "results", "--json"])
    assert said.exit_code == 0, said.output
    data = json.loads(said.stdout)
    assert data["schema"] == 1
    assert data["counts"] == {"scored": 0, "held out": 2, "made after": 0, "diverged": 0, "open": 2}
    waiting = [p for p in data["predictions"] if p["status"] == "open"]
    assert {p["needs"] for p in waiting} == {"a run of mine.train:train at width 512, otherwise as fitted"}
    assert waiting[0]["code"] == {"commit": "abc", "dirty": False}
    assert waiting[0]["objective"]["name"] == "huber"
    assert "observed" not in waiting[0]

    assert sweep(project) == 0  # nothing new
    assert len(json.loads(RUNNER.invoke(ledger.app, ["--home", "results", "--json"]).stdout)["predictions"]) == 4

    time.sleep(0.01)
    assert sweep(project, "axes.width.values=[8, 16, 32, 64, 128, 256, 512]", "predict=[{width: 1024}]") == 2
    data = json.loads(RUNNER.invoke(ledger.app, ["--sweep", "small", "--json"]).stdout)
    assert data["sweep"] == "small"
    scored = [p for p in data["predictions"] if p["status"] == "scored"]
    truth = [1.5 + 4 * 512**-0.5 + 1 / 3 + 1e-3 * ((512 * 7 + 13 * seed) % 11 - 5) for seed in (0, 1)]
    for p, old in zip(scored, waiting, strict=True):
        assert p["value"] == old["value"]
        assert p["made"] == old["made"]
        assert p["observed"] == pytest.approx(sum(truth) / 2, rel=1e-12)
        assert p["stderr"] == pytest.approx(abs(truth[0] - truth[1]) / 2)
        assert p["error"] == pytest.approx(p["observed"] / p["value"] - 1)
        assert p["inside"] is (p["lo"] <= p["observed"] <= p["hi"])
        assert p["lead"] > 0
        assert len(p["runs"]) == p["n"] == 2
    text = RUNNER.invoke(ledger.app, [], env={"COLUMNS": "80"})
    assert "2 predictions scored; 95 % intervals held" in text.stdout
    assert "width 1024" in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80


def waiting_store(folder: Path) -> tuple[str, Path]:
    """A store with a prediction whose run has ended, which only the run's log says yet."""
    home, run = folder / "results", "a" * 24
    url = f"sqlite:///{home / 'sweeplaw.db'}"
    with Store.open(url) as store:
        records = [RunRecord(f"{w:024x}", 1, "m:train", {"width": w}) for w in (8, 16)]
        cells = [Selection(r.id, r.config, {}) for r in records]
        version = store.register("s", "t", None, "m:train", records, cells, [])
        item = {"fit": "f", "law": "power", "of": "loss", "at": {"width": 99}, "value": 2.0, "lo": 1.0, "hi": 3.0,
                "level": 0.95}  # fmt: skip
        store.record_predictions("s", version, "h", [{"name": "f"}], [item])
        records.append(RunRecord(run, 1, "m:train", {"width": 99}))
        store.register("s", "t", None, "m:train", records, [*cells, Selection(run, {"width": 99}, {})], [])
    end = time.time() + 60
    lines = [
        {"e": "start", "attempt": 1, "from_step": None, "t": end - 9},
        {"e": "log", "t": end - 1, "step": 1, "m": {"loss": 2.5}},
        {"e": "end", "t": end, "status": "done", "reason": None, "error": None, "seconds": 9.0},
    ]
    (home / "runs" / run).mkdir(parents=True)
    (home / "runs" / run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return url, home


def test_the_command_reads_the_logs_that_predictions_wait_for(tmp_path: Path) -> None:
    url, home = waiting_store(tmp_path)
    said = RUNNER.invoke(ledger.app, ["--home", str(home), "--db", url, "--json"])
    (found,) = json.loads(said.stdout)["predictions"]
    assert (found["status"], found["observed"], found["error"]) == ("scored", 2.5, 0.25)


def test_a_store_that_cannot_be_written_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("the file is read-only, so nothing can be written")

    url, home = waiting_store(tmp_path)
    monkeypatch.setattr(Store, "ingest", refuse)
    said = RUNNER.invoke(ledger.app, ["--home", str(home), "--db", url, "--json"])
    assert said.exit_code == 0, said.output
    (found,) = json.loads(said.stdout)["predictions"]
    assert found["needs"] == "its runs to end: 1 queued"
    assert "nothing was scored" in said.stderr
    assert "read-only" in said.stderr


def test_a_missing_store_and_an_unknown_sweep_are_one_line(project: Path) -> None:
    missing = RUNNER.invoke(ledger.app, ["--json"])
    assert missing.exit_code == 2
    assert "there is no database file" in json.loads(missing.stdout)["error"]
    Store.open(f"sqlite:///{project / 'results' / 'sweeplaw.db'}").close()
    unknown = RUNNER.invoke(ledger.app, ["--sweep", "smal"])
    assert unknown.exit_code == 2
    assert "no sweep 'smal'" in unknown.stderr
    empty = RUNNER.invoke(ledger.app, [])
    assert empty.stdout.strip() == "No prediction has been recorded yet."
