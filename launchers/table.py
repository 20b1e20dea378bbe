"""A sweep over a table that exists: what of it enters which law, before anything is fitted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from db.tables import Table
from sweeps.errors import ExpressionError
from sweeps.expressions import compile_expression
from sweeps.load import LoadedSpec
from sweeps.schema import FitSpec, LawSpec, Spec


def preview(loaded: LoadedSpec, table: Table) -> dict[str, Any]:
    """Rows, places and groups as plain data: what enters, what is left out and why, and what each law sees."""
    spec, frame = loaded.spec, table.frame
    place = [*spec.axes, *spec.compare, *spec.tune]
    return {
        "schema": 1,
        "sweep": spec.name,
        "source": table.origin,
        "sha256": table.sha256,
        "rows": table.rows,
        "entering": len(frame),
        "statuses": dict(Counter(frame["status"])),
        "cells": frame.select(place).n_unique() if place else 1,
        "groups": frame.select(list(spec.compare)).n_unique() if spec.compare else 1,
        "counts": table.counts,
        "left_out": [{"reason": reason, "rows": rows} for reason, rows in table.left_out],
        "laws": [_law(spec, law, frame) for law in (spec.fit.laws if spec.fit else ())],
        "notes": list(table.notes),
    }


def _law(spec: Spec, law: LawSpec, frame: pl.DataFrame) -> dict[str, Any]:
    want = spec.fit or FitSpec()
    of = law.of or want.of
    metric = want.of if of.endswith(".optimum") else of
    there = pl.all_horizontal(pl.col(name).is_not_null() for name in law.inputs) & pl.col(metric).is_finite()
    rows = frame.filter(there & (pl.col("status") == "done"))
    rows = rows.filter(_true(law.where, rows))
    held = _true(law.hold_out if law.hold_out is not None else want.hold_out, rows, nothing=False)
    train = rows.filter(~held)
    return {
        "law": law.name or law.law,
        "of": of,
        "over": list(law.inputs),
        "rows": len(train),
        "places": train.select([*spec.compare, *law.inputs]).n_unique(),
        "groups": train.select(list(spec.compare)).n_unique() if spec.compare else 1,
        "clusters": None if want.cluster is None else train[want.cluster].n_unique(),
        "held_out": int(held.sum()),
    }


def _true(rule: Mapping[str, Any] | str | None, rows: pl.DataFrame, *, nothing: bool = True) -> pl.Series:
    """Which rows meet a condition or have the values of a mapping; without a rule all, or none, do."""
    if rule is None:
        return pl.Series([nothing] * len(rows), dtype=pl.Boolean)
    if isinstance(rule, str):
        expression = compile_expression(rule)
        return pl.Series([_holds(expression, row) for row in rows.rows(named=True)], dtype=pl.Boolean)
    found = [all(_same(row[name], value) for name, value in rule.items()) for row in rows.rows(named=True)]
    return pl.Series(found, dtype=pl.Boolean)


def _holds(expression: Any, row: Mapping[str, Any]) -> bool:
    try:
        return bool(expression(row))
    except ExpressionError:
        return False  # a missing value


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_same(value, item) for item in wanted)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (value, wanted))
    return math.isclose(value, wanted, rel_tol=1e-9) if numbers else bool(value == wanted)


def render(console: Console, loaded: LoadedSpec, data: Mapping[str, Any]) -> None:
    """Print a preview: what is read, what each law sees, what is left out, and what the table says of itself."""
    console.print(Text(data["sweep"], style="bold"), Text(loaded.spec.question or ""))
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(data["statuses"].items()))
    console.print(Text(f"{data['source']}: {data['rows']} rows, {data['entering']} enter ({statuses})"))
    console.print(Text(f"{_several(data['cells'], 'cell')} in {_several(data['groups'], 'group')}; nothing is run"))
    if data["laws"]:
        console.print(_laws(data["laws"]))
    for note in data["notes"]:
        console.print(Text(f"note: {note}"))


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _laws(laws: list[Mapping[str, Any]]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in ("law", "of", "over"):
        table.add_column(name, overflow="fold")
    counts = ["rows", "places", "groups", *(["clusters"] if laws[0]["clusters"] is not None else []), "held_out"]
    for name in counts:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for law in laws:
        table.add_row(
            Text(law["law"]), Text(law["of"]), Text(", ".join(law["over"])), *(str(law[name]) for name in counts)
        )
    return table
