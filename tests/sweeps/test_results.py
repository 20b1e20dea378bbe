"""Specs over a table of results: what may be said, and what is said about mistakes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from sweeps import json_schema
from sweeps.errors import SpecError
from sweeps.load import loads
from sweeps.schema import Column, Counts, Grid
from sweeps.source import read_text

SPEC = """\
name: s
results:
  path: t.csv
  columns: {n_params: Model Size, flops: {column: FLOPs (1E21), unit: 1e21}}
  where: loss < 4.5
  missing: NA
  counts: all
axes: [n_params, tokens]
compare: [recipe]
tune: [lr]
replicates: [seed]
derive: {tokens: flops / (6 * n_params)}
fit:
  of: loss
  cluster: run_name
  cost: 6 * n_params * tokens
  isoflop: {}
  laws:
    - {law: chinchilla, over: [n_params, tokens], objective: {huber: 1e-3}, where: flops < 1e21}
predict: {n_params: [1e9, 7e9], tokens: 1e12}
"""


def error_of(text: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        loads(text, overrides, "s.yaml")
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert SPEC.count(old) == 1
    return SPEC.replace(old, new)


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads(json_schema.PATH.read_text(encoding="utf-8")))


def test_short_forms_are_written_out() -> None:
    spec = loads(SPEC).spec
    assert spec.results is not None
    assert spec.task is None
    assert spec.results.columns["n_params"] == Column(column="Model Size")
    assert spec.results.where == ["loss < 4.5"]
    assert spec.results.missing == ["NA"]
    assert spec.results.counts == Counts(all_rows="all")
    assert (list(spec.axes), list(spec.compare), list(spec.tune), list(spec.replicates)) == (
        ["n_params", "tokens"], ["recipe"], ["lr"], ["seed"],
    )  # fmt: skip
    assert spec.axes["n_params"] == Grid()
    assert spec.fit is not None
    assert spec.fit.isoflop is not None
    assert (spec.fit.isoflop.degree, spec.fit.isoflop.within) == (3, 0.05)
    assert [p["n_params"] for p in spec.predict] == [1e9, 7e9]


def test_overrides_reach_the_table() -> None:
    loaded = loads(SPEC, ["results.path=other.parquet", "axes=[n_params]", "results.columns.n_params=Params"])
    assert loaded.spec.results is not None
    assert loaded.spec.results.path == "other.parquet"
    assert list(loaded.spec.axes) == ["n_params"]
    assert loaded.spec.results.columns["n_params"].column == "Params"


WRONG = [
    (
        ("results:\n  path: t.csv", "task: m:f\nresults:\n  path: t.csv"),
        "s.yaml:4:3: results: a spec has a `task` that is run or a table of `results`, not both",
    ),
    (
        ("axes: [n_params, tokens]", "axes: {n_params: [1, 2], tokens: {}}"),
        "s.yaml:8:18: axes.n_params: its values are those of the column; write axes: [n_params]",
    ),
    (
        ("axes: [n_params, tokens]", "axes: {n_params: {path: a.b}, tokens: {}}"),
        "s.yaml:8:18: axes.n_params: its values are those of the column; write axes: [n_params]",
    ),
    (
        ("replicates: [seed]", "replicates: {seed: 3}"),
        "s.yaml:11:20: replicates.seed: its values are those of the column; write replicates: [seed]",
    ),
    (
        ("path: t.csv", "pth: t.csv"),
        "s.yaml:3:3: results.pth: unknown key; did you mean `path`?",
    ),
    (
        ("  path: t.csv\n", ""),
        "s.yaml:3:3: results: expected a `path`, or a `query` and its `store`",
    ),
    (
        ("path: t.csv", "path: t.csv\n  store: sqlite:///x.db"),
        "s.yaml:4:10: results.store: goes with a `query`, not with a `path`",
    ),
    (
        ("path: t.csv", "query: SELECT 1"),
        "s.yaml:3:10: results.query: needs the `store` it asks, such as sqlite:///results/sweeplaw.db",
    ),
    (
        ("counts: all", "counts: some"),
        "s.yaml:7:11: results.counts.all_rows: expected 'all', 'no_embedding' or 'matrices_and_head', found the text "
        "'some'",
    ),
    (
        ("counts: all", "counts: {values: {x: all}}"),
        "s.yaml:7:11: results.counts: expected one word for all rows, or the `column` that says it\n"
        "s.yaml:7:20: results.counts.values: means nothing without the `column`",
    ),
    (
        ("unit: 1e21", "unit: 0"),
        "s.yaml:4:71: results.columns.flops.unit: expected a number above 0, found the number 0",
    ),
    (
        ("derive: {tokens: flops", "solve: {d: d == 3}\nderive: {tokens: flops"),
        "s.yaml:12:8: solve: has no meaning in a spec with `results`: a table's rows are as they are; `derive` "
        "computes columns",
    ),
    (
        ("compare: [recipe]", "compare: [recipe]\nlauncher: {workers: 2}"),
        "s.yaml:10:11: launcher: has no meaning in a spec with `results`: nothing is run",
    ),
    (
        ("{tokens: flops / (6 * n_params)}", "{tokens: {expr: flops, path: tokens}}"),
        "s.yaml:12:38: derive.tokens.path: has no meaning in a spec with `results`: a table's rows are as they are",
    ),
    (
        ("{tokens: flops / (6 * n_params)}", "{tokens: flops / compute, compute: tokens * 6}"),
        "s.yaml:12:18: derive.tokens: they need each other: tokens -> compute -> tokens",
    ),
    (
        ("flops / (6 * n_params)", "flops / (6 *"),
        "s.yaml:12:18: derive.tokens.expr: `flops / (6 *` can't be read: '(' was never closed at character 9",
    ),
    (
        ("compare: [recipe]", "compare: [tokens]"),
        "s.yaml:9:10: compare.tokens: the name `tokens` is taken by `axes`",
    ),
    (
        ("compare: [recipe]", "compare: [status]"),
        "s.yaml:9:10: compare.status: the name `status` is reserved; give the column another one",
    ),
    (
        ("of: loss", "of: n_params"),
        "s.yaml:14:7: fit.of: `n_params` is under `axes`, so it can't be what is fitted",
    ),
    (
        ("over: [n_params, tokens]", "over: [n_params, n_params]"),
        "s.yaml:19:31: fit.laws.0.over: `n_params` is there twice",
    ),
    (
        ("objective: {huber: 1e-3}", "objective: {l2: 1}"),
        "s.yaml:19:62: fit.laws.0.objective: `l2` has no constant; `huber`, `student`, `envelope` have one",
    ),
    (
        ("objective: {huber: 1e-3}", "search: start"),
        "s.yaml:19:59: fit.laws.0.search: `start` means the neighbourhood of a `start`, such as {E: 1.7, alpha: 0.3}",
    ),
    (
        ("objective: {huber: 1e-3}", "freeze: {E: 1}, tie: {E: A}"),
        "s.yaml:19:76: fit.laws.0.tie.E: `E` is frozen as well",
    ),
    (
        ("objective: {huber: 1e-3}", "bounds: {E: [3, 1]}"),
        "s.yaml:19:63: fit.laws.0.bounds.E: expected [low, high] with low < high, found [3, 1]",
    ),
    (
        ("where: flops < 1e21", "where: flops = 1e21"),
        "s.yaml:19:84: fit.laws.0.where: `flops = 1e21` can't be read: `=` compares nothing; write `==`",
    ),
    (
        ("predict: {n_params: [1e9, 7e9], tokens: 1e12}", "predict: {params: 1e9}"),
        "s.yaml:20:19: predict.0.params: there is no axis `params`; did you mean `n_params`?",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said.partition(": ")[2][:45] for _, said in WRONG])
def test_a_mistake_is_one_sentence_with_its_place(change: tuple[str, str], said: str) -> None:
    assert error_of(changed(*change)) == said


def test_a_list_of_names_needs_a_table() -> None:
    assert error_of("name: s\ntask: m:f\naxes: [width, depth]\n") == (
        "s.yaml:3:7: axes: expected a mapping of names to values (a list names columns of a table, in a spec with "
        "`results`), found a list"
    )


def test_a_spec_needs_a_task_or_a_table() -> None:
    assert error_of("name: s\n") == (
        "s.yaml:1:1: task: missing: what to run, as module:function, such as models.lm:train; or `results`, a table "
        "that exists"
    )


def test_the_laws_of_a_task_may_be_over_several_names() -> None:
    text = """\
name: s
task: m:f
axes: {width: [1, 2], depth: [1, 2]}
fit:
  cost: flops
  laws:
    - {law: power_multi, over: [width, depht], where: deep > 1, hold_out: {width: 3}}
"""
    assert error_of(text) == (
        "s.yaml:7:40: fit.laws.0.over.1: there is no axis, derived value or fact `depht`; did you mean `depth`?\n"
        "s.yaml:7:55: fit.laws.0.where: `deep > 1`: unknown name `deep`; did you mean `depth`?\n"
        "s.yaml:7:83: fit.laws.0.hold_out.width: the number 3 is not on the axis `width`, which has 1, 2"
    )


@pytest.mark.parametrize("text", [SPEC, SPEC.replace("counts: all", "counts: {column: c, values: {kaplan: all}}")])
def test_the_schema_for_editors_accepts_it(text: str, validator: Any) -> None:
    validator.validate(read_text(text, "s").data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("results:\n  path: t.csv", "task: m:f\nresults:\n  path: t.csv"),
        ("path: t.csv", "pth: t.csv"),
        ("axes: [n_params, tokens]", "axes: {n_params: [1, 2], tokens: [1, 2]}"),
        ("counts: all", "counts: some"),
        ("unit: 1e21", "unit: 0"),
        ("isoflop: {}", "isoflop: {degree: 4}"),
        ("objective: {huber: 1e-3}", "objective: {l2: 1e-3}"),
        ("objective: {huber: 1e-3}", "residual: sqrt"),
    ],
)
def test_the_schema_for_editors_refuses_what_the_classes_refuse(old: str, new: str, validator: Any) -> None:
    text = changed(old, new)
    error_of(text)
    assert not validator.is_valid(read_text(text, "s").data)
