"""The ledger: predictions are stored before their runs, scored once, and never changed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db import schema
from db.errors import StoreError
from db.ledger import Observation
from db.scoring import Prediction, judge, mean_and_error
from db.store import Design, RunRecord, Selection, Store

TASK = "models.lm:train"
WORKER = Path(__file__).with_name("ledger_worker.py")
SEEDED = Design(replicates={"seed": "seed"})
WIDTHS = (16, 32, 64)


class Sweep:
    """A sweep over width and seed in a store, and the logs of its runs."""

    def __init__(self, store: Store, runs_dir: Path, name: str = "small", **base: Any) -> None:
        self.store, self.runs_dir, self.name, self.base = store, runs_dir, name, base
        self.cells: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
        self.version = 0

    def add(self, width: int, seeds: Sequence[int] = (0, 1), **extra: Any) -> list[str]:
        """Cells at a width; `extra` enters coordinates and configuration."""
        ids = []
        for seed in seeds:
            coords = {"width": width, "seed": seed, **extra}
            config = {"model": {"width": width, "depth": 2}, "seed": seed, "steps": 100, **extra, **self.base}
            self.cells.append((coords, {}, config))
            ids.append(run_of(config))
        return ids

    def derive(self, name: str, values: Sequence[Any]) -> None:
        self.cells = [(c, {**d, name: v}, f) for (c, d, f), v in zip(self.cells, values, strict=True)]

    def launch(self, text: str = "text") -> None:
        records = [
            RunRecord(run_of(config), 1, TASK, config, n_params=100.0 * config["model"]["width"])
            for _, _, config in self.cells
        ]
        cells = [Selection(run_of(config), coords, derived) for coords, derived, config in self.cells]
        self.version = self.store.register(self.name, text, None, TASK, records, cells, [])

    def run(self, ids: Sequence[str], values: Sequence[float], ended: float, status: str = "done") -> None:
        """Whole logs of runs with these final losses, ingested."""
        for run, value in zip(ids, values, strict=True):
            write(self.runs_dir, run, value, ended, status)
        self.store.ingest(self.runs_dir, ids)

    def predict(self, *items: dict[str, Any], fits: Sequence[dict[str, Any]] | None = None, **more: Any) -> list[int]:
        more = {"design": SEEDED} | more
        found = [fit()] if fits is None else fits
        return self.store.record_predictions(self.name, self.version, "data", found, items, **more).predictions


def run_of(config: dict[str, Any]) -> str:
    from sweeps.identity import run_id

    return run_id(TASK, config)


def write(runs_dir: Path, run: str, value: float, ended: float, status: str = "done", *, part: str = "all") -> None:
    """A log of two steps and an end, or only its `beginning`, or its `end`; NaN is written as a log writes it."""
    folder = runs_dir / run
    folder.mkdir(parents=True, exist_ok=True)
    shown: Any = value if math.isfinite(value) else "nan"
    lines = [
        {"e": "start", "attempt": 1, "from_step": None, "t": ended - 10},
        {"e": "log", "t": ended - 5, "step": 1, "m": {"loss": value + 1 if math.isfinite(value) else 9.0}},
        {"e": "log", "t": ended - 1, "step": 2, "m": {"loss": shown}},
        {"e": "end", "t": ended, "status": status, "reason": None, "error": None, "seconds": 10.0},
    ]
    chosen = {"all": lines, "beginning": lines[:-1], "end": lines[-1:]}[part]
    with (folder / "events.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in chosen))


def fit(value: float = 2.0, group: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    params = {"A": {"value": value, "lo": 1.0, "hi": 3.0}, "alpha": {"value": 1 / 3}}
    objective = {"name": "huber", "residual": "log", "delta": 0.0123456789012345, "value": 1e-5}
    rows = {"x": list(WIDTHS), "y": [2.5, 2.2, 2.0], "cells": ["a", "b", "c"]}
    return {"name": "f", "law": "power", "formula": "A*x^-alpha", "of": "loss", "over": "width", "n": 3,
            "group": group or {}, "status": "ok", "objective": objective, "params": params, "rows": rows,
            **more}  # fmt: skip


def prediction(value: float = 1.5, at: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"fit": "f", "law": "power", "of": "loss", "at": at or {"width": 256}, "group": {}, "value": value,
            "lo": 1.4, "hi": 1.62, "level": 0.95, "held_out": False, "basis": "parameters + run noise",
            "run_noise": True, "decades": 0.6, "beyond": "width", "assumptions": "the law holds", **more}  # fmt: skip


@pytest.fixture
def small(store: Store, tmp_path: Path) -> Sweep:
    """A sweep of three finished widths."""
    return begun(store, tmp_path / "runs")


def begun(store: Store, runs_dir: Path, **base: Any) -> Sweep:
    sweep = Sweep(store, runs_dir, **base)
    ids = [run for width in WIDTHS for run in sweep.add(width)]
    sweep.launch()
    sweep.run(ids, [2.5, 2.5, 2.2, 2.2, 2.0, 2.0], time.time() - 1000)
    return sweep


def later() -> float:
    return time.time() + 1000


def only(store: Store, sweep: str | None = None) -> dict[str, Any]:
    (row,) = store.ledger(sweep).rows(named=True)
    return row


# the life of a prediction


def test_a_prediction_waits_for_all_its_runs_and_is_scored_once(small: Sweep) -> None:
    store = small.store
    before = time.time()
    small.predict(prediction(), code={"commit": "abc"})
    row = only(store)
    assert (row["status"], row["sweep"], row["law"], row["of"], row["at"]) == (
        "open", "small", "power", "loss", '{"width":256}',
    )  # fmt: skip
    assert before <= row["made"] <= time.time()
    assert json.loads(row["objective"])["delta"] == 0.0123456789012345
    assert json.loads(row["code"]) == {"commit": "abc"}
    assert (row["decades"], row["beyond"], row["assumptions"]) == (0.6, "width", "the law holds")
    assert row["formula"] == "A*x^-alpha"
    assert len(row["rows_hash"]) == 64
    assert json.loads(row["waits"]) == {}
    assert json.loads(row["shared"]) == {"model.depth": 2, "steps": 100}
    assert store.score_predictions() == 0

    ids = small.add(256, seeds=(0, 1, 2))
    small.launch("text with 256")
    end = later()
    small.run(ids[:2], [1.55, 1.65], end)
    assert store.score_predictions() == 0  # one replicate is queued
    waits = json.loads(only(store)["waits"])
    assert waits == {"done": sorted(ids[:2]), "queued": ids[2:]}
    small.run(ids[2:], [1.60], end + 50)
    assert store.score_predictions() == 1
    row = only(store)
    assert row["status"] == "scored"
    assert row["observed"] == pytest.approx(1.6, rel=1e-12)
    assert row["stderr"] == pytest.approx(0.05 / math.sqrt(3))
    assert (row["n"], row["diverged"]) == (3, 0)
    assert row["error"] == pytest.approx(1.6 / 1.5 - 1)
    assert row["inside"] is True
    assert row["finished"] == end
    assert row["lead"] == pytest.approx(end - row["made"])
    assert json.loads(row["runs"]) == sorted(ids)
    assert row["waits"] is None

    small.run(small.add(256, seeds=(3,)), [9.0], end + 99)
    small.launch("one more seed")
    small.run(ids[:0], [], end)
    assert store.score_predictions() == 0
    assert only(store) == row


def test_a_prediction_keeps_its_time_and_is_stored_once(small: Sweep) -> None:
    store = small.store
    first = small.predict(prediction())
    row = only(store)
    # The same fit with another drawing and other remarks, told in other digits by another machine.
    again = [fit(2.0 * (1 + 1e-9), curve=[1, 2], why=["new words"])]
    assert small.predict(prediction(1.5 * (1 - 1e-9), assumptions="new words"), fits=again) == first
    assert only(store) | {"fit_id": 0} == row | {"fit_id": 0}
    assert small.predict(prediction(), prediction(), fits=[fit()]) == first * 2
    others = [
        small.predict(prediction(level=0.9)),
        small.predict(prediction(1.5001)),
        small.predict(prediction(), fits=[fit(2.001)]),
        small.predict(prediction(), fits=[fit(rows={"x": list(WIDTHS), "y": [2.5, 2.2, 2.1]})]),
        small.predict(prediction(at={"width": 512})),
    ]
    assert len({*first, *(key for keys in others for key in keys)}) == 6


def test_constants_are_stored_once_at_full_precision_and_quoted_by_id(small: Sweep) -> None:
    store = small.store
    small.predict(prediction(), prediction(1.2, {"width": 512}), fits=[fit(2.0000000000000004)])
    small.predict(prediction(1.1, {"width": 1024}), fits=[fit(2.0000000000000004)])
    ledger = store.ledger()
    assert ledger["fit_id"].n_unique() == 1
    store.save_analysis("small", small.version, "data", [fit(2.0000000000000004)], [prediction()], design=SEEDED)
    kept = store.fits("small")
    assert kept["id"].to_list() == ledger["fit_id"].unique().to_list()
    assert json.loads(kept["content"][0])["params"]["A"]["value"] == 2.0000000000000004
    assert store.predictions("small").select("id", "fit_id").row(0) == ledger.select("prediction", "fit_id").row(0)


def test_a_new_fit_does_not_touch_what_an_older_one_said(small: Sweep) -> None:
    store = small.store
    small.predict(prediction(1.5), fits=[fit(2.0)])
    small.predict(prediction(1.6, lo=1.58, hi=1.62), fits=[fit(2.1)])
    small.predict(prediction(1.7, lo=1.6, hi=1.8, law="other", fit="g"), fits=[fit(2.1, name="g", law="other")])
    frame = store.ledger()
    assert frame.select("fit", "value", "superseded").rows() == [("f", 1.5, True), ("f", 1.6, False), ("g", 1.7, False)]
    ids = small.add(256)
    small.launch("256")
    small.run(ids, [1.61, 1.63], later())
    assert store.score_predictions() == 3
    after = store.ledger()
    assert after["status"].unique().to_list() == ["scored"]
    assert after.select(frame.columns[:20]).equals(frame.select(frame.columns[:20]))
    assert after["inside"].to_list() == [True, True, True]


# kinds


def test_what_was_known_is_no_prediction(small: Sweep) -> None:
    store = small.store
    small.predict(prediction(2.0, {"width": 64}, lo=1.9, hi=2.1))  # ended long ago
    assert only(store)["status"] == "made after"
    assert store.score_predictions() == 1
    row = only(store)
    assert (row["status"], row["observed"], row["inside"]) == ("made after", 2.0, True)
    assert row["lead"] < 0

    ids = small.add(128)
    small.launch("128")
    small.run(ids, [1.8, 1.8], later())  # a worker whose clock is ahead: it is there all the same
    small.predict(prediction(1.8, {"width": 128}))
    ids = small.add(256)
    small.launch("256")
    small.predict(prediction())
    small.run(ids, [1.5, 1.5], time.time() - 100)  # not ingested when it was predicted, but over
    assert store.score_predictions() == 2
    assert store.ledger()["status"].to_list() == ["made after"] * 3


def test_one_replicate_that_was_known_is_enough(small: Sweep) -> None:
    ids = small.add(256)
    small.launch("256")
    small.run(ids[:1], [1.5], time.time() - 10)
    small.predict(prediction())
    small.run(ids[1:], [1.5], later())
    assert small.store.score_predictions() == 1
    assert only(small.store)["status"] == "made after"


def test_held_out_values_are_kept_apart(small: Sweep) -> None:
    store = small.store
    small.predict(prediction(2.0, {"width": 64}, lo=1.9, hi=2.1, held_out=True, observed=2.2))
    row = only(store)
    assert (row["status"], row["observed"], row["inside"], row["lead"]) == ("held out", 2.2, False, None)
    assert row["error"] == pytest.approx(0.1)
    assert store.score_predictions() == 0


def test_diverged_targets_are_counted_apart(small: Sweep) -> None:
    store = small.store
    small.predict(prediction(), prediction(1.2, {"width": 512}))
    ids, more = small.add(256), small.add(512)
    small.launch("more")
    end = later()
    small.run(ids, [math.nan, math.nan], end, "diverged")
    small.run(more[:1], [1.2], end)
    small.run(more[1:], [math.nan], end, "diverged")
    assert store.score_predictions() == 2
    rows = store.ledger().select("status", "n", "diverged", "observed", "inside").rows()
    assert rows == [("diverged", 0, 2, None, None), ("diverged", 1, 1, None, None)]


def test_a_failed_run_says_nothing(small: Sweep) -> None:
    store = small.store
    small.predict(prediction())
    ids = small.add(256)
    small.launch("256")
    small.run(ids, [1.5, 1.6], later(), "failed")
    assert store.score_predictions() == 0
    assert json.loads(only(store)["waits"]) == {"failed": sorted(ids)}
    write(small.runs_dir, ids[0], 1.5, later())
    store.ingest(small.runs_dir, ids)
    assert store.score_predictions() == 1
    assert only(store).items() >= {"status": "scored", "n": 1, "observed": 1.5, "stderr": None}.items()


def test_a_run_without_the_metric_scores_nothing(small: Sweep) -> None:
    small.predict(prediction(of="accuracy"), fits=[fit(of="accuracy")])
    ids = small.add(256)
    small.launch("256")
    small.run(ids, [1.5, 1.6], later())
    assert small.store.score_predictions() == 0
    assert only(small.store)["status"] == "open"


def test_the_logged_value_is_the_one_that_the_fit_used(small: Sweep) -> None:
    best = Design("best", "max", {"seed": "seed"})
    small.predict(prediction(), design=best)
    ids = small.add(256)
    small.launch("256")
    small.run(ids, [1.5, 1.7], later())
    small.store.score_predictions()
    assert only(small.store)["observed"] == pytest.approx(2.6)  # the larger of both steps


# which runs answer


def test_a_run_of_another_sweep_answers_if_it_is_the_same_experiment(small: Sweep) -> None:
    store = small.store
    small.predict(prediction())
    for name, base in [("longer", {"steps": 200}), ("new key", {"dropout": 0.1})]:
        other = Sweep(store, small.runs_dir, name, **base)
        ids = other.add(256, seeds=(0,))
        other.launch(name)
        other.run(ids, [1.5], later())
        assert store.score_predictions() == 0, name
    other = Sweep(store, small.runs_dir, "big")
    ids = other.add(256, seeds=(7,))
    other.cells = [({}, {}, config) for _, _, config in other.cells]  # a single run: its sweep has no axes
    other.launch("big")
    other.run(ids, [1.5], later())
    assert store.score_predictions() == 1
    row = only(store, "small")
    assert json.loads(row["runs"]) == ids


def test_an_edited_sweep_does_not_answer_for_what_it_was(small: Sweep) -> None:
    small.predict(prediction())
    edited = Sweep(small.store, small.runs_dir, "small", steps=200)
    ids = edited.add(256)
    edited.launch("steps: 200")
    edited.run(ids, [1.5, 1.5], later())
    assert small.store.score_predictions() == 0
    assert json.loads(only(small.store)["waits"]) == {}


def test_groups_are_told_apart_by_their_configuration(store: Store, tmp_path: Path) -> None:
    sweep = Sweep(store, tmp_path)
    for rule in "ab":
        for width in WIDTHS:
            sweep.add(width, (0,), rule=rule)
    sweep.launch()
    at = {"width": 256}
    sweep.predict(
        prediction(at=at, group={"rule": "a"}), prediction(at=at, group={"rule": "b"}),
        fits=[fit(group={"rule": "a"}), fit(group={"rule": "b"})],
    )  # fmt: skip
    other = Sweep(store, tmp_path, "other")
    ids = other.add(256, (0,), rule="b")
    other.cells = [({"width": 256}, {}, config) for _, _, config in other.cells]  # does not say its rule
    other.launch()
    other.run(ids, [1.5], later())
    assert store.score_predictions() == 1
    assert store.ledger("small").select("group", "status").rows() == [
        ('{"rule":"a"}', "open"),
        ('{"rule":"b"}', "scored"),
    ]


def test_settings_tied_to_the_place_are_known_to_the_own_sweep_only(store: Store, tmp_path: Path) -> None:
    sweep = Sweep(store, tmp_path)
    for width in WIDTHS:
        sweep.add(width, (0,))
    sweep.cells = [(c, {}, f | {"batch": 2 * f["model"]["width"]}) for c, _, f in sweep.cells]
    sweep.launch()
    sweep.predict(prediction())
    other = Sweep(store, tmp_path, "other", batch=8)
    ids = other.add(256, (0,))
    other.launch()
    other.run(ids, [1.5], later())
    assert store.score_predictions() == 0
    edited = Sweep(store, tmp_path, "small", batch=4 * 256)
    ids = edited.add(256, (0,))
    edited.launch("another rule for batch")
    edited.run(ids, [1.5], later())
    assert store.score_predictions() == 0
    sweep.base = {"batch": 512}
    ids = sweep.add(256, (0,))
    sweep.launch("256")
    sweep.run(ids, [1.5], later())
    assert store.score_predictions() == 1
    assert json.loads(only(store, "small")["runs"]) == ids


@pytest.mark.parametrize("place", [{"tokens": 25600}, {"n_params": 25600.0}, {"width": 256, "tokens": 25600.0}])
def test_a_place_may_be_a_derived_value_or_a_fact(store: Store, tmp_path: Path, place: dict[str, Any]) -> None:
    sweep = Sweep(store, tmp_path)
    for width in WIDTHS:
        sweep.add(width, (0,))
    sweep.derive("tokens", [100 * width for width in WIDTHS])
    sweep.launch()
    sweep.predict(prediction(at=place))
    ids = sweep.add(256, (0,))
    sweep.derive("tokens", [100 * width for width in (*WIDTHS, 256)])
    sweep.launch("256")
    sweep.run(ids, [1.5], later())
    assert store.score_predictions() == 1
    assert json.loads(only(store)["runs"]) == ids


def test_a_tuned_optimum_is_scored_by_what_an_analysis_found(store: Store, tmp_path: Path) -> None:
    design = Design(replicates={"seed": "seed"}, tune={"lr": "lr"})
    sweep = Sweep(store, tmp_path)
    for width in WIDTHS:
        for lr in (0.1, 0.2, 0.4):
            sweep.add(width, (0,), lr=lr)
    sweep.launch()
    items = prediction(0.2, of="lr.optimum", lo=0.1, hi=0.4, run_noise=False), prediction()
    sweep.predict(*items, fits=[fit()], design=design)
    ids = [run for lr in (0.15, 0.3, 0.8) for run in sweep.add(256, (0, 1), lr=lr)]
    sweep.launch("256")
    end = later()
    sweep.run(ids[:4], [1.6, 1.6, 1.5, 1.5], end)
    found = [
        Observation("lr.optimum", 0.25, 0.05, 4, ids[:4]),
        Observation("loss", 1.49, 0.01, 4, ids[:4]),
        Observation("loss", 9.9, 0.01, 1, ids[:1]),
        Observation("loss", 1.2, 0.01, 5, [*ids[:4], "elsewhere"]),
    ]
    assert store.score_predictions(found) == 0  # two are queued
    sweep.run(ids[4:], [math.nan, math.nan], end, "diverged")  # as it should be on the steep side
    assert store.score_predictions() == 0  # no run alone is an optimum
    assert store.score_predictions(found) == 2
    rows = store.ledger().select("status", "observed", "stderr", "n", "diverged").rows()
    assert rows == [("scored", 0.25, 0.05, 4, 0), ("scored", 1.49, 0.01, 4, 0)]
    z = store.ledger()["z"][0]
    side = math.log(0.4 / 0.2) / 1.959963984540054
    assert z == pytest.approx(math.log(0.25 / 0.2) / math.hypot(side, 0.05 / 0.25))


def test_a_sweep_without_runs_waits_for_nothing(store: Store) -> None:
    version = store.register("table", "text", None, "none", [], [], [])
    store.record_predictions("table", version, "h", [fit()], [prediction(), prediction(at={"depth": 2})])
    assert store.score_predictions() == 0
    assert store.ledger("table")["task"].to_list() == [None, None]


def test_empty_ledgers_and_unknown_names(store: Store) -> None:
    assert len(store.ledger()) == 0
    assert store.score_predictions() == 0
    with pytest.raises(StoreError, match="no sweep 'nothing'"):
        store.ledger("nothing")
    with pytest.raises(StoreError, match="no sweep 'nothing'"):
        store.record_predictions("nothing", 1, "h", [], [])
    store.register("s", "t", None, TASK, [], [], [])
    with pytest.raises(StoreError, match="sweep 's' has no version 999"):
        store.record_predictions("s", 999, "h", [], [])


# many processes


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_many_processes_store_and_score_once(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    runs_dir = tmp_path / "runs"
    with Store.open(url) as store:
        small = begun(store, runs_dir)
        ids = small.add(256)
        small.launch("256")
    content = tmp_path / "what.json"
    content.write_text(json.dumps([[fit()], [prediction(1.5 + i / 100, lo=1.4, hi=1.7 + i) for i in range(20)]]))
    arguments = [url, small.name, small.version, content]
    recorded = _workers("record", *arguments, count=4)
    assert recorded == _workers("record", *arguments) * 4
    with Store.open(url) as store:
        assert len(store.ledger()) == 20
        small.store = store
        for run, value in zip(ids, (1.5, 1.6), strict=True):
            write(runs_dir, run, value, later())
    counts = _workers("score", url, runs_dir, ",".join(ids), count=4)
    assert sum(counts) == 20
    with Store.open(url) as store:
        frame = store.ledger()
        assert frame["status"].to_list() == ["scored"] * 20
        assert frame["observed"].to_list() == [1.55] * 20
        assert len(store.fits(small.name)) == 0  # recorded apart from an analysis


def _workers(command: str, *arguments: object, count: int = 1) -> list[Any]:
    """What each of `count` processes printed."""
    line = [sys.executable, str(WORKER), command, *map(str, arguments)]
    started = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * count
    return [json.loads(output) for output in outputs]


# the order of arrival


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_order_of_ingest_does_not_change_the_ledger(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Logs come in instalments, in any order, with scoring in between: the ledger ends the same."""
    outcomes = data.draw(st.lists(st.sampled_from(["done", "diverged", "failed"]), min_size=6, max_size=6))
    steps = data.draw(st.permutations([*((i, part) for i in range(6) for part in (0, 1)), *["score"] * 4]))
    end, folder = later(), tmp_path_factory.mktemp("order")
    ledgers = [
        _arrived(outcomes, end, order, folder / str(number))
        for number, order in enumerate((steps, [(i, part) for i in range(6) for part in (0, 1)]))
    ]
    assert ledgers[0].equals(ledgers[1])


def _arrived(outcomes: Sequence[str], end: float, steps: Sequence[Any], folder: Path) -> pl.DataFrame:
    with Store.open("sqlite://") as store:
        small = begun(store, folder)
        small.predict(*(prediction(1.5 - i / 10, {"width": 256 * 2**i}, lo=1.1, hi=1.7) for i in range(3)))
        ids = [run for i in range(3) for run in small.add(256 * 2**i)]
        small.launch("larger")
        begun_runs: set[int] = set()
        for step in steps:
            if step == "score":
                store.score_predictions()
                continue
            i, _ = step
            part = "end" if i in begun_runs else "beginning"
            write(folder, ids[i], 1.3 + i / 50, end + i, outcomes[i], part=part)
            begun_runs.add(i)
            store.ingest(folder, [ids[i]])
        store.score_predictions()
        return store.ledger().drop("made", "lead", "scored")


# arithmetic


def test_the_score_of_a_symmetric_interval_is_that_of_a_normal_law() -> None:
    """In logarithms where all is positive, else in the values themselves; scipy is the reference."""
    from scipy.stats import norm

    q = norm.ppf(0.95)
    made = Prediction(2.0, 2.0 * math.exp(-0.1 * q), 2.0 * math.exp(0.1 * q), 0.9)
    verdict = judge(made, 2.3)
    assert verdict.z == pytest.approx(math.log(2.3 / 2.0) / 0.1)
    assert verdict.log_score == pytest.approx(norm.logpdf(math.log(2.3), math.log(2.0), 0.1))
    assert verdict.inside is bool(math.log(1.15) < 0.1 * q)
    with_error = judge(made, 2.3, stderr=0.23)
    assert with_error.z == pytest.approx(math.log(2.3 / 2.0) / math.hypot(0.1, 0.1))
    assert judge(Prediction(2.0, made.lo, made.hi, 0.9, run_noise=True), 2.3, stderr=0.23) == verdict
    linear = judge(Prediction(0.5, 0.5 - q, 0.5 + q, 0.9), -1.0, stderr=0.5)
    assert linear.z == pytest.approx(-1.5 / math.hypot(1, 0.5))
    assert linear.log_score == pytest.approx(norm.logpdf(-1.0, 0.5, math.hypot(1, 0.5)))
    assert linear.error == pytest.approx(-3.0)


def test_a_lopsided_interval_is_a_density_with_the_right_tails() -> None:
    from scipy.integrate import quad
    from scipy.stats import norm

    q = norm.ppf(0.975)
    made = Prediction(1.0, math.exp(-0.5 * q), math.exp(0.1 * q), 0.95)
    density = lambda u: math.exp(judge(made, math.exp(u)).log_score or 0.0)  # noqa: E731
    below, above = quad(density, -6, 0)[0], quad(density, 0, 6)[0]
    assert below + above == pytest.approx(1, rel=1e-6)
    assert below / above == pytest.approx(5, rel=1e-6)
    assert judge(made, made.lo or 0).z == pytest.approx(-q)
    assert judge(made, made.hi or 0).z == pytest.approx(q)


@pytest.mark.parametrize(
    ("made", "inside"),
    [
        (Prediction(1.0), None),
        (Prediction(1.0, 0.9, 1.1), True),
        (Prediction(1.0, 1.05, 1.05, 0.95), True),
        (Prediction(1.0, 0.9, None, 0.95), None),
    ],
)
def test_what_an_interval_cannot_say_is_not_said(made: Prediction, inside: bool | None) -> None:
    verdict = judge(made, 1.05)
    assert (verdict.inside, verdict.z, verdict.log_score) == (inside, None, None)
    assert verdict.error == pytest.approx(0.05)


def test_an_interval_beside_its_value_still_has_a_width() -> None:
    verdict = judge(Prediction(1.0, 1.01, 1.2, 0.95), 1.1)
    assert verdict.z == pytest.approx(math.log(1.1) / (math.log(1.2 / 1.01) / 2 / 1.959963984540054))
    assert judge(Prediction(0.0, -1.0, 1.0, 0.95), 0.5).error is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.randoms())
def test_the_mean_does_not_depend_on_order(values: list[float], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert mean_and_error(values) == mean_and_error(shuffled)
    import statistics

    mean, stderr = mean_and_error(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert stderr == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-9)


# stores of schema version 1


OLD = Path(__file__).with_name("data") / "v0001.db"


@pytest.fixture
def old_sqlite(tmp_path: Path) -> str:
    """A store that version 1 wrote: two analyses of one sweep, the second of the same fits with one more place."""
    file = tmp_path / "old.db"
    file.write_bytes(OLD.read_bytes())
    return f"sqlite:///{file}"


@pytest.fixture
def old_postgres(postgres_url: str) -> str:
    """The same rows in PostgreSQL, in the tables of version 1."""
    from db import connect, migrate

    address = connect.parse_url(postgres_url)
    engine = connect.make_engine(address)
    migrate.upgrade(engine, address, head="0001")
    source = sa.create_engine(f"sqlite:///{OLD}", poolclass=sa.NullPool)
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.begin() as target, source.connect() as rows:
        for table in tables.sorted_tables:
            if table.name == schema.VERSION_TABLE:
                continue
            found = [dict(row) for row in rows.execute(sa.text(f"SELECT * FROM {table.name}")).mappings()]
            booleans = [c.name for c in table.columns if isinstance(c.type, sa.Boolean)]
            found = [row | {b: None if row[b] is None else bool(row[b]) for b in booleans} for row in found]
            if found:
                target.execute(sa.insert(table), found)
            for column in table.primary_key:
                if column.server_default is not None:  # a sequence, which knows nothing of these rows
                    highest = f"(SELECT max({column.name}) FROM {table.name})"
                    call = f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), {highest})"
                    target.execute(sa.text(call))
    engine.dispose()
    return postgres_url


@pytest.fixture(params=["sqlite", "postgres"])
def old_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store.open(request.getfixturevalue(f"old_{request.param}")) as store:
        yield store


def old_rows(table: str) -> list[dict[str, Any]]:
    source = sa.create_engine(f"sqlite:///{OLD}", poolclass=sa.NullPool)
    with source.connect() as connection:
        query = f"SELECT * FROM {table} ORDER BY analysis_id DESC, position"
        return [dict(row) for row in connection.execute(sa.text(query)).mappings()]


def test_an_old_store_loses_nothing(old_store: Store) -> None:
    assert len(old_store.results("old_sweep", "val_loss")) == 20
    for table, now in (("fits", old_store.fits("old_sweep")), ("predictions", old_store.predictions("old_sweep"))):
        old = old_rows(table)
        assert now["analysis"].to_list() == [row["analysis_id"] for row in old]
        assert [json.loads(text) for text in now["content"]] == [json.loads(row["content"]) for row in old]
        names = {"metric": "of", "place": "at", "groups": "group"}
        for name in set(old[0]) - {"analysis_id", "position", "content"}:
            assert now[names.get(name, name)].to_list() == [row[name] for row in old], name
    assert old_store.ledger().select("status", "at").rows() == [
        ("held out", '{"width":128}'), ("open", '{"width":256}'), ("open", '{"width":512}'),
    ]  # fmt: skip
    assert old_store.ledger()["made"].n_unique() == 2
    assert old_store.ledger()["fit_id"].null_count() == 0


def test_an_old_prediction_is_scored_when_its_run_comes_in(old_store: Store, tmp_path: Path) -> None:
    assert old_store.score_predictions() == 1  # the held-out value
    made = old_store.ledger()["made"].max()
    assert isinstance(made, float)
    config = {"steps": 4, "model": {"depth": 2, "width": 256}, "seed": 0, "rule": "a"}
    record = RunRecord("f" * 24, 1, "mypkg.train:train", config)
    old_store.register("large", "t", None, record.task, [record], [Selection(record.id, {}, {})], [])
    write(tmp_path, record.id, 2.0, made + 3600)
    path = tmp_path / record.id / "events.jsonl"
    path.write_text(path.read_text().replace('"loss"', '"val_loss"'))
    old_store.ingest(tmp_path, [record.id])
    assert old_store.score_predictions() == 1
    frame = old_store.ledger().filter(pl.col("at") == '{"width":256}')
    assert frame.select("status", "observed", "inside", "n").rows() == [("scored", 2.0, True, 1)]


def test_an_old_analysis_done_again_adds_nothing(old_store: Store) -> None:
    """The digests of the migration are those of the code."""
    (version,) = old_store.fits("old_sweep").filter("latest")["version"].unique()
    fits = [json.loads(text) for text in old_store.fits("old_sweep").filter("latest")["content"]]
    items = [json.loads(text) for text in old_store.predictions("old_sweep").filter("latest")["content"]]
    before = old_store.ledger()
    found = old_store.record_predictions("old_sweep", version, "other data", fits, items)
    assert old_store.ledger().equals(before)
    assert found.fits == old_store.fits("old_sweep").filter("latest")["id"].to_list()
    changed = [item | {"decades": 0.3, "assumptions": "said by a later version"} for item in items]
    old_store.record_predictions("old_sweep", version, "other data", fits, changed)
    assert old_store.ledger().equals(before)
