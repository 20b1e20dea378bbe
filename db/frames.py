"""Rows into polars frames, every column with its type given: none is guessed from the first rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

INT64 = 2**63


def from_rows(rows: Iterable[Sequence[Any]], schema: dict[str, Any]) -> pl.DataFrame:
    """A frame from tuples in the order of `schema`."""
    return pl.DataFrame(list(map(tuple, rows)), schema=schema, orient="row", strict=True)


def series(name: str, values: list[Any]) -> pl.Series:
    """A column of values from JSON.

    Integers stay integers, integers mixed with floats become floats, booleans stay booleans; anything mixed
    with text becomes text, as JSON would write it. Missing values are null. Without any value: Float64.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        whole = kinds == {int} and all(value is None or -INT64 <= value < INT64 for value in values)
        return pl.Series(name, values if whole else _map(_float, values), pl.Int64 if whole else pl.Float64)
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    return pl.Series(name, _map(_text, values), pl.String)


def _map(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def from_objects(objects: Sequence[dict[str, Any]]) -> list[pl.Series]:
    """One column per key of the objects, in the order in which keys appear."""
    names = dict.fromkeys(name for item in objects for name in item)
    return [series(name, [item.get(name) for item in objects]) for name in names]
