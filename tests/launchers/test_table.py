"""`python -m launchers.sweep` on a spec over a table: read, fitted, stored and reported, with nothing run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from db.store import Store
from launchers.sweep import app

SPEC = """\
name: mine
question: Does the loss follow a power of the width?
results:
  path: t.csv
  columns: {val_loss: loss}
axes: [width]
compare: [recipe]
fit:
  of: val_loss
  bootstrap: 100
  laws:
    - {law: power_offset, over: width, hold_out: width == 1024}
predict: {width: 4096}
"""
WIDTHS = [16, 32, 64, 128, 256, 512, 1024]


def table(widths: list[int] = WIDTHS) -> str:
    lines = [
        f"{recipe},{width},{floor + 2.5 * width**-0.5:.9f}"
        for recipe, floor in (("old", 1.6), ("new", 1.5))
        for width in widths
    ]
    return "\n".join(["recipe,width,loss", *lines]) + "\n"


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def sweep(self, *arguments: str, rows: str | None = None, spec: str = SPEC) -> Answer:
        (self.path / "s.yaml").write_text(spec)
        (self.path / "t.csv").write_text(table() if rows is None else rows)
        result = CliRunner().invoke(app, ["s.yaml", *arguments], env={"COLUMNS": "200"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def store(self) -> Store:
        return Store.open(f"sqlite:///{self.path}/results/sweeplaw.db", create=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_a_table_is_fitted_predicted_stored_and_reported(folder: Folder) -> None:
    answer = folder.sweep("--json")
    assert answer.code == 0, answer.err
    assert answer.json["exit"] == 0
    assert answer.json["runs"]["done"] == 14
    for fit, floor in zip(answer.json["fits"], (1.5, 1.6), strict=True):
        assert fit["params"]["E"]["value"] == pytest.approx(floor, rel=1e-6)
        assert fit["params"]["alpha"]["value"] == pytest.approx(0.5, rel=1e-5)
        assert fit["n"] == 6
    held = [p for p in answer.json["predictions"] if "observed" in p]
    assert [p["at"]["width"] for p in held] == [1024, 1024]
    assert [p["value"] for p in held] == pytest.approx([p["observed"] for p in held], rel=1e-6)
    report = (folder.path / answer.json["report"]).read_text()
    assert report.startswith("<!doctype html>")
    assert "sha256" in report
    with folder.store() as store:
        assert store.sweeps()["task"].to_list() == ["results: t.csv"]
        assert len(store.fits("mine")) == 2
        assert store.results("mine", "val_loss").is_empty()  # runs are what is run; a table's rows are not


def test_the_same_table_again_adds_nothing(folder: Folder) -> None:
    first = folder.sweep("--json").json
    assert folder.sweep("--json").json == first
    with folder.store() as store:
        assert len(store.versions("mine")) == 1
        assert store.fits("mine")["analysis"].n_unique() == 1
    folder.sweep("--json", rows=table([*WIDTHS, 2048]))
    with folder.store() as store:
        assert store.fits("mine")["analysis"].n_unique() == 2


def test_the_terminal_tells_what_was_left_out(folder: Folder) -> None:
    answer = folder.sweep("+where=width > 16")
    assert answer.code == 0, answer.err
    assert "12 of 14 rows of t.csv enter; left out: 2 by `width > 16`." in answer.out
    assert "report: results/reports/mine.html" in answer.out


def test_a_dry_run_says_what_enters_and_touches_nothing(folder: Folder) -> None:
    answer = folder.sweep("--dry-run", "+where=width > 16")
    assert answer.code == 0, answer.err
    assert [line.rstrip() for line in answer.out.splitlines()] == [
        "mine Does the loss follow a power of the width?",
        "t.csv: 14 rows, 12 enter (12 done)",
        "12 cells in 2 groups; nothing is run",
        "law           of        over   rows  places  groups  held out",
        "power_offset  val_loss  width    10      10       2         2",
        "note: 12 of 14 rows of t.csv enter; left out: 2 by `width > 16`.",
    ]
    assert sorted(path.name for path in folder.path.iterdir()) == ["s.yaml", "t.csv"]


def test_a_dry_run_as_json(folder: Folder) -> None:
    data = folder.sweep("--dry-run", "--json").json
    assert len(data.pop("sha256")) == 64
    assert data == {
        "schema": 1, "sweep": "mine", "source": "t.csv", "rows": 14, "entering": 14, "statuses": {"done": 14},
        "cells": 14, "groups": 2, "counts": None, "left_out": [], "notes": [],
        "laws": [{"law": "power_offset", "of": "val_loss", "over": ["width"], "rows": 12, "places": 12, "groups": 2,
                  "clusters": None, "held_out": 2}],
    }  # fmt: skip


def test_without_a_fit_the_table_is_shown_and_remembered(folder: Folder) -> None:
    spec = SPEC[: SPEC.index("fit:")]
    answer = folder.sweep(spec=spec)
    assert answer.code == 0, answer.err
    assert "14 rows, 14 enter (14 done)" in answer.out
    with folder.store() as store:
        assert store.sweeps()["sweep"].to_list() == ["mine"]


def test_a_parquet_file_by_override(folder: Folder) -> None:
    pl.DataFrame({"width": WIDTHS, "recipe": "a", "loss": 1 + 3 * np.array(WIDTHS) ** -0.7}).write_parquet("t.parquet")
    answer = folder.sweep("results.path=t.parquet", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["fits"][0]["params"]["alpha"]["value"] == pytest.approx(0.7, rel=1e-5)


BAD = {
    "no rows": (
        "recipe,width,loss\n", (),
        "t.csv: no rows below the titles.",
    ),
    "an unknown column": (
        None, ("axes=[depth]",),
        "override 'axes=[depth]': axes.depth: no column `depth` in t.csv; did you mean `width`?",
    ),
    "a word": (
        "recipe,width,loss\nold,16,low\n", (),
        "t.csv: row 1: loss = 'low' is not a number.",
    ),
    "no value at all": (
        "recipe,width,loss\nold,16,\n", (),
        "t.csv: no row that enters (1) has a val_loss.",
    ),
    "every run diverged": (
        "recipe,width,loss\nold,16,NaN\nold,32,inf\n", (),
        "no run has finished with a val_loss: 2 diverged.",
    ),
    "an unknown law": (
        None, ("fit.laws.0.law=powr",),
        "override 'fit.laws.0.law=powr': fit.laws.0.law: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_line_and_exit_code_2(case: str, folder: Folder) -> None:
    rows, overrides, said = BAD[case]
    answer = folder.sweep(*overrides, rows=rows)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {said}")
    assert answer.err.count("\n") == 1
    assert folder.sweep("--json", *overrides, rows=rows).json["error"].startswith(said)


REFUSED = {
    "one scale": (
        table([64]), "power_offset over width: ",
    ),
    "a zero under a logarithm": (
        table().replace("new,16,2.125000000", "new,16,0"),
        "the response is 0, must be > 0 under residual: log; residual: linear takes any number.",
    ),
    "a negative response": (
        table().replace("new,16,2.125000000", "new,16,-2.66"),
        "the response is -2.66, must be > 0 under residual: log; residual: linear takes any number.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_law_that_can_not_be_fitted_is_an_answer(case: str, folder: Folder) -> None:
    rows, said = REFUSED[case]
    answer = folder.sweep("--json", rows=rows)
    assert answer.code == 0, answer.err
    fit = next(f for f in answer.json["fits"] if f["group"] == {"recipe": "new"})
    assert fit["status"] == "refused"
    assert said in " ".join(fit["why"])


def test_diverged_rows_are_counted_and_kept_out(folder: Folder) -> None:
    rows = table() + "new,2048,NaN\nold,2048,\n"
    answer = folder.sweep("--json", rows=rows)
    assert answer.json["runs"] == {"done": 14, "diverged": 1, "failed": 0, "missing": 1}
