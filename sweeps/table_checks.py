"""What a spec over a table of results must satisfy, as far as it shows without the table."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from typing import Any

from sweeps.errors import ExpressionError
from sweeps.expressions import FUNCTIONS, compile_expression
from sweeps.plan import CycleError, topological
from sweeps.schema import FACTS, ROLES, Alternatives, Grid, LocalLauncher, Replicates, Spec
from sweeps.source import KeyPath

Problem = tuple[KeyPath, str]

# Columns of a frame of results that a table's columns can't be called.
RESERVED = ("run", "status", "outcome", "true", "false", "null")
# Sections that say how cells are made and run.
_OF_TASKS = {
    "base": "a table's rows are as they are",
    "solve": "a table's rows are as they are; `derive` computes columns",
    "zip": "a table's rows are as they are",
    "launcher": "nothing is run",
}
_BARE: dict[str, Any] = {
    "axes": Grid(), "tune": Grid(), "compare": Alternatives(values=[]), "replicates": Replicates(values=[]),
}  # fmt: skip


def shape(spec: Spec) -> Iterator[Problem]:
    """The sections of a spec over a table, and the names in them."""
    yield from _sections(spec)
    yield from _entries(spec)
    yield from _names(spec)


def expressions(spec: Spec) -> Iterator[Problem]:
    """Expressions that can't be read, and values that need each other."""
    assert spec.results is not None
    for key, text in _texts(spec):
        try:
            compile_expression(text)
        except ExpressionError as error:
            yield key, str(error)
    try:
        derived_order(spec)
    except CycleError as error:
        yield ("derive", error.names[0]), str(error)
    except ExpressionError:
        return  # told already


def predictable(spec: Spec) -> list[str]:
    """The names that a place to predict may have."""
    inputs = [name for law in _laws(spec) for name in law.inputs]
    return list(dict.fromkeys([*spec.axes, *spec.compare, *spec.derive, *inputs, *FACTS]))


def derived_order(spec: Spec) -> list[str]:
    """The names of `derive`, each after those it reads. Raises CycleError, ExpressionError."""
    names = {name: compile_expression(entry.expr).names for name, entry in spec.derive.items()}
    for name, used in names.items():
        if name in used:
            raise CycleError([name])
    return topological({name: set(used) & names.keys() for name, used in names.items()})


def _sections(spec: Spec) -> Iterator[Problem]:
    table = spec.results
    assert table is not None
    for section, why in _OF_TASKS.items():
        if getattr(spec, section) and (section != "launcher" or spec.launcher != LocalLauncher()):
            yield (section,), f"has no meaning in a spec with `results`: {why}"
    if (table.path is None) == (table.query is None):
        yield ("results",), "expected a `path`, or a `query` and its `store`"
    if table.query is not None and table.store is None:
        yield ("results", "query"), "needs the `store` it asks, such as sqlite:///results/sweeplaw.db"
    if table.path is not None and table.store is not None:
        yield ("results", "store"), "goes with a `query`, not with a `path`"
    if table.counts is not None and (table.counts.all_rows is None) == (table.counts.column is None):
        yield ("results", "counts"), "expected one word for all rows, or the `column` that says it"
    if table.counts is not None and table.counts.values and table.counts.column is None:
        yield ("results", "counts", "values"), "means nothing without the `column`"


def _entries(spec: Spec) -> Iterator[Problem]:
    for role in ROLES:
        for name, entry in getattr(spec, role).items():
            if entry != _BARE[role]:
                yield (role, name), f"its values are those of the column; write {role}: [{name}]"
    for name, derived in spec.derive.items():
        if derived.path is not None:
            yield ("derive", name, "path"), "has no meaning in a spec with `results`: a table's rows are as they are"


def _names(spec: Spec) -> Iterator[Problem]:
    assert spec.results is not None
    taken: dict[str, str] = {}
    for section in ROLES:
        for name in getattr(spec, section):
            if name in taken:
                yield (section, name), f"the name `{name}` is taken by `{taken[name]}`"
            taken.setdefault(name, section)
    for name in spec.results.columns:
        if name in spec.derive:
            yield ("derive", name), f"the name `{name}` is taken by `results.columns`"
    for section, names in (("results.columns", spec.results.columns), *((s, getattr(spec, s)) for s in NAMED)):
        for name in names:
            if name in RESERVED or keyword.iskeyword(name) or name in FUNCTIONS:
                yield (*section.split("."), name), f"the name `{name}` is reserved; give the column another one"
    if spec.fit is not None and spec.fit.of in taken:
        yield ("fit", "of"), f"`{spec.fit.of}` is under `{taken[spec.fit.of]}`, so it can't be what is fitted"


NAMED = (*ROLES, "derive")


def _laws(spec: Spec) -> list[Any]:
    return spec.fit.laws if spec.fit is not None else []


def _texts(spec: Spec) -> Iterator[tuple[KeyPath, str]]:
    """Every expression of the spec with its place."""
    assert spec.results is not None
    for index, text in enumerate(spec.results.where):
        yield ("results", "where", index), text
    if spec.results.schedule is not None:
        yield ("results", "schedule"), spec.results.schedule
    for name, derived in spec.derive.items():
        yield ("derive", name, "expr"), derived.expr
    for index, text in enumerate(spec.where):
        yield ("where", index), text
    if spec.fit is not None:
        if isinstance(spec.fit.hold_out, str):
            yield ("fit", "hold_out"), spec.fit.hold_out
        if spec.fit.cost is not None:
            yield ("fit", "cost"), spec.fit.cost
    for index, law in enumerate(_laws(spec)):
        for key in ("where", "hold_out"):
            if isinstance(text := getattr(law, key), str):
                yield ("fit", "laws", index, key), text
