"""What every database must do: each test runs on SQLite, on PostgreSQL and on the plain writer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from db.errors import StoreError
from db.store import RunRecord, RunStatus, Selection, Store

TASK = "models.lm:train"


def run_id(number: int) -> str:
    return f"{number:024x}"


def record(number: int, **facts: Any) -> RunRecord:
    return RunRecord(run_id(number), 1, TASK, {"number": number}, **facts)


def register(store: Store, coords: list[dict[str, Any]], name: str = "s", text: str = "text") -> list[str]:
    """Register a sweep whose cells have these coordinates, one run each; returns the run ids."""
    cells = [Selection(run_id(i), at, {}) for i, at in enumerate(coords)]
    store.register(name, text, "why?", TASK, [record(i) for i in range(len(coords))], cells, [])
    return [cell.run_id for cell in cells]


def line(kind: str, **fields: Any) -> str:
    return json.dumps({"e": kind, **fields}) + "\n"


def start(attempt: int = 1, from_step: int | None = None, t: float = 100.0, **more: Any) -> str:
    fields = {"attempt": attempt, "from_step": from_step, "t": t + attempt, "host": "h", "pid": 7, **more}
    return line("start", **fields)


def log(step: int, t: float = 200.0, **values: Any) -> str:
    return line("log", t=t, step=step, m=values)


def end(status: str = "done", seconds: float | None = 2.5, **more: Any) -> str:
    return line("end", **{"t": 300.0, "status": status, "reason": None, "error": None, "seconds": seconds, **more})


def write(folder: Path, run: str, *lines: str, mode: str = "a") -> None:
    (folder / run).mkdir(parents=True, exist_ok=True)
    with (folder / run / "events.jsonl").open(mode, encoding="utf-8") as file:
        file.write("".join(lines))


def values(store: Store, run: str, name: str = "loss") -> dict[int, float]:
    frame = store.metrics([run], [name])
    return dict(zip(frame["step"], frame["value"], strict=True))


# registering


def test_results_of_a_new_sweep_are_queued_and_typed(store: Store) -> None:
    coords = [
        {"width": 16, "lr": 1, "rule": "mup", "flag": True, "mixed": 1, "when": None},
        {"width": 32, "lr": 0.5, "rule": "hyperp", "flag": False, "mixed": "auto", "when": None},
    ]
    cells = [Selection(run_id(i), at, {"tokens": 6e21, "ratio": None}) for i, at in enumerate(coords)]
    records = [record(i, n_params=1e3, flops=6e21) for i in range(2)]
    store.register("s", "text", None, TASK, records, cells, [({"width": 64}, "too wide")])
    frame = store.results("s", "val_loss")
    assert dict(frame.schema) == {
        "run": pl.String,
        "status": pl.String,
        "width": pl.Int64,
        "lr": pl.Float64,
        "rule": pl.String,
        "flag": pl.Boolean,
        "mixed": pl.String,
        "when": pl.Float64,
        "tokens": pl.Float64,
        "ratio": pl.Float64,
        "n_params": pl.Float64,
        "flops": pl.Float64,
        "val_loss": pl.Float64,
        "seconds": pl.Float64,
    }
    assert frame.select("status", "width", "lr", "mixed", "flops", "val_loss").rows() == [
        ("queued", 16, 1.0, "1", 6e21, None),
        ("queued", 32, 0.5, "auto", 6e21, None),
    ]
    assert frame["tokens"].to_list() == [6e21, 6e21]  # the derived value, once
    assert store.infeasible("s").rows() == [(64, "too wide")]
    assert store.statuses([run_id(0), "unknown"]) == {run_id(0): RunStatus("queued", 0, None)}


def test_registering_again_changes_nothing_and_a_new_text_is_a_version(store: Store) -> None:
    cells = [Selection(run_id(i), {"i": i}, {}) for i in range(3)]
    records = [record(i) for i in range(3)]
    first = store.register("s", "one", "q", TASK, records, cells, [])
    before = store.results("s", "loss")
    assert store.register("s", "one", "q", TASK, records, cells, []) == first
    assert store.results("s", "loss").equals(before)
    second = store.register("s", "two", "q", TASK, records, cells[:1], [])
    assert second != first
    assert store.results("s", "loss")["i"].to_list() == [0]
    assert store.register("s", "one", "q", TASK, records, list(reversed(cells)), []) == first
    assert store.results("s", "loss")["i"].to_list() == [2, 1, 0]
    assert store.versions("s")["spec_text"].to_list() == ["one", "two"]
    assert store.sweeps().select("sweep", "version", "runs", "queued").rows() == [("s", first, 3, 3)]


def test_a_registered_run_keeps_its_configuration_and_learns_facts(store: Store) -> None:
    register(store, [{"i": 0}])
    other = RunRecord(run_id(0), 1, TASK, {"number": "edited"}, n_params=5.0, flops=7.0)
    store.register("s", "text", None, TASK, [other], [Selection(run_id(0), {"i": 0}, {})], [])
    again = RunRecord(run_id(0), 1, TASK, {}, n_params=99.0)
    store.register("s", "text", None, TASK, [again], [Selection(run_id(0), {"i": 0}, {})], [])
    frame = store.runs("s")
    assert json.loads(frame["config"][0]) == {"number": 0}
    assert frame.select("n_params", "flops", "tokens").rows() == [(5.0, 7.0, None)]


def test_two_sweeps_share_a_run_and_two_cells_may_too(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}], "one")
    shared = [Selection(run, {"a": 1}, {}), Selection(run, {"a": 2}, {})]
    store.register("two", "t", None, TASK, [], shared, [])
    write(tmp_path, run, start(), log(1, loss=0.5), end())
    store.ingest(tmp_path, [run])
    assert store.results("one", "loss")["loss"].to_list() == [0.5]
    assert store.results("two", "loss").select("a", "loss").rows() == [(1, 0.5), (2, 0.5)]
    assert store.sweeps().sort("sweep").select("runs", "done").rows() == [(1, 1), (1, 1)]


def test_what_cannot_be_registered_says_why_and_changes_nothing(store: Store) -> None:
    register(store, [{"a": 1}])
    with pytest.raises(StoreError, match=r"'\.\./x' isn't a run id"):
        store.register("s", "t", None, TASK, [RunRecord("../x", 1, TASK, {})], [], [])
    with pytest.raises(StoreError, match=f"selects run {run_id(77)}, which was never registered"):
        store.register("s", "other", None, TASK, [record(5)], [Selection(run_id(77), {}, {})], [])
    with pytest.raises(StoreError, match="'status' can't be the name of an axis"):
        store.register("s", "t", None, TASK, [record(0)], [Selection(run_id(0), {"status": 1}, {})], [])
    with pytest.raises(StoreError, match="can't be stored as JSON"):
        store.register("s", "t", None, TASK, [RunRecord(run_id(0), 1, TASK, {"f": len})], [], [])
    with pytest.raises(StoreError, match="flops is 'many', expected a number"):
        store.register("s", "t", None, TASK, [record(0, flops="many")], [], [])
    assert len(store.runs("s")) == 1
    assert store.statuses([run_id(5)]) == {}
    assert len(store.versions("s")) == 1


def test_text_that_postgres_refuses_comes_back_cleaned(store: Store, tmp_path: Path) -> None:
    store.register("s", "te\0xt", "\ud800?", TASK, [record(0)], [Selection(run_id(0), {"a\0": "b\0"}, {})], [])
    write(tmp_path, run_id(0), start(), log(1, **{"l\0ss": 1.5}), end(reason="bad \0 \ud800"))
    store.ingest(tmp_path, [run_id(0)])
    assert store.versions("s").select("spec_text", "question").rows() == [("te\ufffdxt", "??")]
    assert store.results("s", "l\ufffdss").select("a\0", "l\ufffdss").rows() == [("b\0", 1.5)]
    assert store.statuses([run_id(0)])[run_id(0)].reason == "bad \ufffd ?"


def test_an_unknown_sweep_is_an_error_with_the_nearest_name(store: Store) -> None:
    with pytest.raises(StoreError, match="no sweep 'hyperp_widht': it holds none yet"):
        store.results("hyperp_widht", "loss")
    register(store, [{"a": 1}], "hyperp_width")
    for query in (store.runs, store.attempts, store.metric_names, store.fits, store.predictions, store.versions):
        with pytest.raises(StoreError, match="no sweep 'hyperp_widht': did you mean 'hyperp_width'"):
            query("hyperp_widht")


# ingesting


def test_a_whole_log(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    more = {
        "device": "cpu",
        "threads": 2,
        "seed": 3,
        "code": {"commit": "abc", "dirty": True},
        "packages": {"torch": "2.13.0"},
    }
    write(
        tmp_path,
        run,
        start(**more),
        log(0, t=1.5, loss=3.0, bad="nan"),
        log(10, t=2.5, loss=2.0, bad="inf", worse="-inf"),
        line("summary", t=3.0, v={"n": 2**60 + 1, "f": 0.1, "ok": True, "corpus": "stdlib", "x": "inf"}),
        line("samples", t=3.0, name="reward", file="artifacts/reward.safetensors", n=256, bytes=1024, sha256="ab"),
        line("checkpoint", t=3.5, step=10, bytes=1000),
        end("failed", reason="it broke", error={"type": "E", "message": "m", "traceback": "tb"}, peak_bytes=5e9),
    )
    report = store.ingest(tmp_path, [run])
    assert (report.rows, report.bad_lines, report.alien_lines) == (5, 0, 0)
    frame = store.metrics([run])
    assert frame.schema == {
        "run": pl.String,
        "name": pl.String,
        "step": pl.Int64,
        "time": pl.Float64,
        "value": pl.Float64,
    }
    rows = {(name, step): (time, value) for _, name, step, time, value in frame.rows()}
    assert rows["loss", 0] == (1.5, 3.0)
    assert rows["loss", 10] == (2.5, 2.0)
    assert rows["bad", 10] == (2.5, math.inf)
    assert rows["worse", 10] == (2.5, -math.inf)
    assert math.isnan(rows["bad", 0][1])
    assert len(rows) == 5
    summary = {name: (kind, value, text) for _, name, kind, value, text in store.summaries([run]).rows()}
    assert summary == {
        "n": ("int", 2.0**60, str(2**60 + 1)),
        "f": ("float", 0.1, "0.1"),
        "ok": ("bool", 1.0, "true"),
        "corpus": ("str", None, "stdlib"),
        "x": ("str", None, "inf"),
    }
    assert store.artifacts([run]).rows() == [(run, "reward", "artifacts/reward.safetensors", 256, 1024.0, "ab", 3.0)]
    (attempt,) = store.attempts("s").to_dicts()
    expected = {
        "run": run, "attempt": 1, "status": "failed", "reason": "it broke", "started": 101.0, "ended": 300.0,
        "seconds": 2.5, "peak_bytes": 5e9, "from_step": None, "last_step": 10, "last_seen": 300.0,
        "checkpoint_step": 10, "checkpoint_bytes": 1000.0, "host": "h", "pid": 7, "device": "cpu", "threads": 2,
        "seed": 3, "commit": "abc", "dirty": True, "packages": '{"torch": "2.13.0"}', "error_type": "E",
        "error_message": "m", "traceback": "tb",
    }  # fmt: skip
    assert attempt == expected
    assert store.statuses([run]) == {run: RunStatus("failed", 1, "it broke")}
    assert store.metric_names("s") == [("bad", 1), ("loss", 1), ("worse", 1)]


def test_nothing_is_read_twice_and_a_torn_line_waits(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    whole = log(2, loss=0.25)
    write(tmp_path, run, start(), log(1, loss=0.5), whole[:9])
    assert store.ingest(tmp_path, [run]).rows == 1
    assert store.ingest(tmp_path, [run]).rows == 0
    assert store.statuses([run])[run].status == "running"
    write(tmp_path, run, whole[9:], end())
    assert store.ingest(tmp_path, [run]).rows == 1
    assert values(store, run) == {1: 0.5, 2: 0.25}
    assert store.statuses([run])[run] == RunStatus("done", 1, None)


def test_a_later_value_of_a_step_wins(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    write(tmp_path, run, start(), log(1, loss=1.0), log(1, loss=2.0), log(2, loss=3.0))
    store.ingest(tmp_path, [run])
    write(tmp_path, run, log(2, loss="nan"), log(1, loss=4.0))
    store.ingest(tmp_path, [run])
    found = values(store, run)
    assert found[1] == 4.0
    assert math.isnan(found[2])


@pytest.mark.parametrize("instalments", [1, 2])
def test_a_continued_attempt_supersedes_what_follows_its_checkpoint(
    store: Store, tmp_path: Path, instalments: int
) -> None:
    (run,) = register(store, [{"a": 1}])
    first = [start(1), *(log(step, loss=float(step)) for step in (1, 2, 3, 4)), end("interrupted", 1.0)]
    second = [start(2, from_step=2), log(3, loss=30.0), end("done", 2.0)]
    if instalments == 1:
        write(tmp_path, run, *first, *second)
    else:
        write(tmp_path, run, *first)
        store.ingest(tmp_path, [run])
        assert values(store, run) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
        write(tmp_path, run, *second)
    store.ingest(tmp_path, [run])
    assert values(store, run) == {1: 1.0, 2: 2.0, 3: 30.0}
    assert store.attempts("s").select("attempt", "status").rows() == [(1, "interrupted"), (2, "done")]
    assert store.results("s", "loss").select("status", "loss", "seconds").rows() == [("done", 30.0, 3.0)]
    write(tmp_path, run, start(3), log(1, loss=7.0))
    store.ingest(tmp_path, [run])
    assert values(store, run) == {1: 7.0}
    assert store.statuses([run])[run] == RunStatus("running", 3, None)


def test_lines_of_an_older_attempt_that_come_late_do_not_win(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    write(tmp_path, run, start(1), log(1, loss=1.0), start(2, from_step=5), log(3, loss=2.0))
    store.ingest(tmp_path, [run])
    write(tmp_path, run, start(1), log(3, loss=9.0), log(4, loss=4.0), log(6, loss=6.0))
    store.ingest(tmp_path, [run])
    assert values(store, run) == {1: 1.0, 3: 2.0, 4: 4.0}
    assert store.statuses([run])[run] == RunStatus("running", 2, None)


def test_the_runs_own_end_outranks_a_guess(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    write(tmp_path, run, start(), log(1, loss=1.0), end("interrupted", None, reason="silent for 60 s"))
    store.ingest(tmp_path, [run])
    write(tmp_path, run, end("done", 5.0))
    store.ingest(tmp_path, [run])
    assert store.statuses([run])[run] == RunStatus("done", 1, None)
    write(tmp_path, run, end("interrupted", None, reason="late guess"))
    store.ingest(tmp_path, [run])
    assert store.statuses([run])[run] == RunStatus("done", 1, None)


def test_bad_lines_are_counted_and_good_ones_kept(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    bad = [
        "garbage\n",
        "[1, 2]\n",
        "null\n",
        '{"no": "kind"}\n',
        '{"e": 3}\n',
        '{"e": {}}\n',
        "[" * 100_000 + "\n",
        log(1.5, loss=1.0),  # type: ignore[arg-type]
        log(2**63, loss=1.0),
        log(1, loss="abc"),
        log(1, loss=None),
        log(1, **{"x" * 501: 1.0}),
        '{"e":"log","t":1,"m":{"loss":1}}\n',
        '{"e":"log","t":1,"step":1,"m":[1]}\n',
        '{"e":"end","status":"bored"}\n',
        '{"e":"start","attempt":"one"}\n',
        '{"e":"samples","name":"x","file":"../../etc/passwd"}\n',
        '{"e":"summary","v":{"a":null}}\n',
    ]
    write(tmp_path, run, start(), log(0, loss=0.5), "\n", "  \n")
    for text in bad:
        write(tmp_path, run, text)
    with (tmp_path / run / "events.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\x00 binary \x80\n")
    write(tmp_path, run, log(7, loss=0.25, other="abc", third=3), '{"e":"novelty","x":1}\n')
    write(tmp_path, run, '{"e":"log","t":1,"step":8,"m":{"loss":NaN,"big":1e999}}\n')
    report = store.ingest(tmp_path, [run])
    assert report.bad_lines == len(bad) + 2
    assert report.alien_lines == 1
    assert report.bad[0] == (run, 5, "garbage")
    assert len(report.bad) == 20
    assert all(len(text) <= 200 for _, _, text in report.bad)
    found = values(store, run)
    assert math.isnan(found.pop(8))
    assert found == {0: 0.5, 7: 0.25}
    assert values(store, run, "third") == {7: 3.0}
    assert values(store, run, "big") == {8: math.inf}
    assert store.runs("s").select("bad_lines", "alien_lines").rows() == [(len(bad) + 2, 1)]
    assert store.ingest(tmp_path, [run]).bad_lines == 0


def test_a_line_behind_a_torn_one_is_kept(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    torn = log(1, loss=1.0)[:-9]
    write(tmp_path, run, start(1), torn, start(2), log(2, loss=2.0).rstrip("\n"), log(3, loss=3.0), end())
    report = store.ingest(tmp_path, [run])
    assert report.bad_lines == 1
    assert values(store, run) == {2: 2.0, 3: 3.0}
    assert store.statuses([run])[run] == RunStatus("done", 2, None)


@pytest.mark.parametrize("longer", [False, True])
def test_a_replaced_log_is_read_anew(store: Store, tmp_path: Path, longer: bool) -> None:
    (run,) = register(store, [{"a": 1}])
    lines = [start(1), log(1, loss=1.0), log(2, loss=2.0), start(2, from_step=2), log(3, loss=3.0), end()]
    write(tmp_path, run, *lines, line("summary", v={"a": 1}))
    store.ingest(tmp_path, [run])
    write(tmp_path, run, mode="w")
    assert store.ingest(tmp_path, [run]).replaced == []  # an empty file says nothing
    assert values(store, run) == {1: 1.0, 2: 2.0, 3: 3.0}
    new = [start(1, t=500.0), log(1, loss=10.0), *(log(step, loss=5.0) for step in range(20, 40) if longer)]
    write(tmp_path, run, *new, mode="w")
    report = store.ingest(tmp_path, [run])
    assert report.replaced == [run]
    assert report.rows == len(new) - 1
    assert values(store, run) == {1: 10.0} | (dict.fromkeys(range(20, 40), 5.0) if longer else {})
    assert store.statuses([run])[run] == RunStatus("running", 1, None)
    assert len(store.attempts("s")) == 1
    assert len(store.summaries([run])) == 0
    assert store.ingest(tmp_path, [run]).replaced == []


def test_a_log_cut_short_to_a_prefix_is_read_anew(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    write(tmp_path, run, start(1), log(1, loss=1.0), log(2, loss=2.0))
    store.ingest(tmp_path, [run])
    write(tmp_path, run, start(1), log(1, loss=1.0), mode="w")
    assert store.ingest(tmp_path, [run]).replaced == [run]
    assert values(store, run) == {1: 1.0}


def test_logs_that_cannot_be_ingested_are_named(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    (tmp_path / run / "events.jsonl").mkdir(parents=True)
    write(tmp_path, "unregistered", start())
    report = store.ingest(tmp_path, [run, "unregistered", run_id(9)])
    assert [name for name, _ in report.unreadable] == [run]
    assert "directory" in report.unreadable[0][1]
    assert report.unregistered == ["unregistered"]


def test_long_logs_go_in_blocks_and_endless_lines_are_skipped(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.ingest.BLOCK_BYTES", 1000)
    monkeypatch.setattr("db.ingest.BATCH_BYTES", 1500)
    runs = register(store, [{"a": 1}, {"a": 2}, {"a": 3}])
    for run in runs:
        write(tmp_path, run, start(), *(log(step, loss=step / 8) for step in range(100)))
        write(
            tmp_path, run, '{"e":"log","t":1,"step":1,"m":{"loss":1, "x": "' + "y" * 5000 + '"}}\n', log(100, loss=0.5)
        )
        write(tmp_path, run, "z" * 3000)
    report = store.ingest(tmp_path, runs)
    assert report.rows == 303
    assert report.bad_lines == 3
    assert [number for _, number, _ in report.bad] == [102, 102, 102]
    for run in runs:
        assert values(store, run) == {**{step: step / 8 for step in range(100)}, 100: 0.5}
    for run in runs:
        write(tmp_path, run, "\n", log(101, loss=0.5))
    assert store.ingest(tmp_path, runs).bad_lines == 3
    assert len(store.metrics(runs)) == 306


# queries


def test_last_and_best(store: Store, tmp_path: Path) -> None:
    runs = register(store, [{"a": i} for i in range(4)])
    write(tmp_path, runs[0], start(), *(log(s, loss=v) for s, v in enumerate([3.0, 1.0, 2.0])), end())
    write(tmp_path, runs[1], start(), log(5, loss=4.0), log(6, loss="nan"), end("diverged"))
    write(tmp_path, runs[2], start(), log(1, loss="-inf"), log(2, other=1.0))
    store.ingest(tmp_path, runs)

    def column(select: Any, goal: Any) -> list[float | None]:
        return store.results("s", "loss", select, goal)["loss"].to_list()

    assert column("last", "min") == [2.0, None, None, None]
    assert column("best", "min") == [1.0, 4.0, None, None]
    assert column("best", "max") == [3.0, 4.0, None, None]
    frame = store.results("s", "loss")
    assert frame["status"].to_list() == ["done", "diverged", "running", "queued"]
    assert store.metric_names("s") == [("loss", 3), ("other", 1)]
    with pytest.raises(StoreError, match="select is 'first'"):
        column("first", "min")


def test_a_metric_named_like_another_column(store: Store, tmp_path: Path) -> None:
    (run,) = register(store, [{"a": 1}])
    write(tmp_path, run, start(), log(1, seconds=7.0, tokens=8.0, a=9.0), end())
    store.ingest(tmp_path, [run])
    assert store.results("s", "seconds")["seconds"].to_list() == [7.0]
    assert store.results("s", "tokens")["tokens"].to_list() == [8.0]
    for name in ("a", "run", "status"):
        with pytest.raises(StoreError, match=f"metric '{name}' has the name of another column"):
            store.results("s", name)


def test_columns_that_start_empty_keep_their_type(store: Store, tmp_path: Path) -> None:
    count = 150
    runs = register(store, [{"i": i} for i in range(count + 1)])
    for run in runs[:-1]:
        write(tmp_path, run, start(), log(1, t=None, loss="nan"), end(seconds=None))  # type: ignore[arg-type]
    write(tmp_path, runs[-1], start(), log(1, t=1e9, loss=6e21), end(seconds=0.5))
    store.ingest(tmp_path, runs)
    frame = store.metrics(runs)
    assert frame["time"].to_list() == [None] * count + [1e9]
    assert frame["value"].is_nan().sum() == count
    assert frame["value"][-1] == 6e21
    assert store.results("s", "loss")["loss"].to_list() == [None] * count + [6e21]
    assert store.attempts("s")["seconds"].to_list() == [None] * count + [0.5]


def test_integers_and_round_floats(store: Store) -> None:
    big = 2**70
    coords = [{"i": 3, "f": 2.0, "big": big, "d": 1}, {"i": 4, "f": 3.0, "big": 1, "d": float("nan")}]
    register(store, coords)
    frame = store.results("s", "loss")
    assert frame["i"].to_list() == [3, 4]
    assert frame.schema["f"] == pl.Float64
    assert frame["big"].to_list() == [float(big), 1.0]
    assert math.isnan(frame["d"][1])


def test_speed_knows_only_undisturbed_finished_runs(store: Store, tmp_path: Path) -> None:
    cells = [Selection(run_id(i), {"i": i}, {}) for i in range(4)]
    records = [record(i, flops=10.0**i, tokens=5.0, n_params=3.0) for i in range(4)]
    store.register("s", "t", None, TASK, records, cells, [])
    write(tmp_path, run_id(0), start(device="cpu", threads=2), end(seconds=4.0))
    write(tmp_path, run_id(1), start(), end("failed", 4.0))
    write(tmp_path, run_id(2), start(1), end("interrupted"), start(2, from_step=3), end(seconds=1.0))
    store.ingest(tmp_path, [record.id for record in records])
    assert store.speed(TASK).rows() == [(run_id(0), 1.0, 5.0, 3.0, 4.0, 2, "cpu", "h")]
    assert len(store.speed("other")) == 0


def test_empty_answers_have_their_columns(store: Store) -> None:
    store.register("s", "t", None, TASK, [], [], [])
    assert store.results("s", "loss").columns == [
        "run", "status", "n_params", "flops", "tokens", "loss", "seconds",
    ]  # fmt: skip
    assert store.metrics([]).columns == ["run", "name", "step", "time", "value"]
    assert store.metrics(["x"], []).schema["value"] == pl.Float64
    for frame in (store.runs("s"), store.attempts("s"), store.summaries([]), store.artifacts([]), store.speed(TASK)):
        assert frame.height == 0
        assert frame.width > 3
    assert store.metric_names("s") == []
    assert store.statuses([]) == {}
    assert store.sweeps().select("runs", "queued").rows() == [(0, 0)]


# analyses


def fit(value: float) -> dict[str, Any]:
    params = {"A": {"value": value, "lo": 0.1, "hi": math.inf}, "b": {"value": 1 / 3}}
    return {"name": "f", "law": "power", "of": "val_loss", "over": "width", "group": {"rule": "mup"}, "n": 5,
            "status": "ok", "why": [], "params": params}  # fmt: skip


def prediction(value: float) -> dict[str, Any]:
    return {"fit": "f", "law": "power", "at": {"width": 4096}, "group": {"rule": "mup"}, "of": "val_loss",
            "value": value, "lo": 1.0, "hi": 3.0, "level": 0.95, "observed": None, "held_out": False}  # fmt: skip


def test_an_analysis_is_kept_for_ever_and_stored_once(store: Store) -> None:
    cells = [Selection(run_id(0), {"i": 0}, {})]
    version = store.register("s", "t", None, TASK, [record(0)], cells, [])
    store.save_analysis("s", version, "hash", [fit(1.0)], [prediction(2.0)])
    first = store.predictions("s")
    store.save_analysis("s", version, "hash", [fit(1.0)], [prediction(2.0)])
    assert store.predictions("s").drop("confirmed").equals(first.drop("confirmed"))
    store.save_analysis("s", version, "hash2", [fit(1.5), fit(2.0)], [prediction(2.5)])
    frame = store.predictions("s")
    assert frame["value"].to_list() == [2.5, 2.0]
    assert frame["latest"].to_list() == [True, False]
    assert frame.filter(pl.col("value") == 2.0)["created"].to_list() == first["created"].to_list()
    store.save_analysis("s", version, "hash", [fit(1.0)], [prediction(2.0)])
    again = store.predictions("s")
    assert again.filter("latest")["value"].to_list() == [2.0]
    assert len(again) == 2
    fits = store.fits("s")
    assert json.loads(fits.filter("latest")["content"][0]) == fit(1.0)
    assert fits.select("name", "of", "over", "group", "n").row(0) == ("f", "val_loss", "width", '{"rule":"mup"}', 5)
    assert frame.schema["held_out"] == pl.Boolean
    with pytest.raises(StoreError, match="sweep 's' has no version 999"):
        store.save_analysis("s", 999, "h", [], [])
