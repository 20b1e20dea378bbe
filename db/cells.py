"""Cells of a table as numbers or words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from sweeps.scalars import parse_number

TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_WHOLE = r"^[-+]?[0-9]{1,15}$"


@dataclass(frozen=True)
class Numbers:
    """A column as numbers [n], missing ones null, and the cells that are none: their rows from 0, as written.

    NaN and infinities stay as they are.
    """

    values: pl.Series
    bad: dict[int, str]


def numbers(column: pl.Series, missing: Collection[str] = ()) -> Numbers:
    """The numbers of a column, whole ones as integers if all are; see `sweeps.scalars.parse_number` for spellings.

    Empty cells and the words of `missing` are missing. true and false are 1 and 0.
    """
    if column.dtype == pl.Boolean:
        return Numbers(column.cast(pl.Int64), {})
    if column.dtype.is_numeric():
        return Numbers(column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64, strict=False), {})
    text = words(column, missing)
    present = text.is_not_null()
    if bool((text.str.contains(_WHOLE) | ~present).all()):
        return Numbers(text.cast(pl.Int64), {})
    values = text.cast(pl.Float64, strict=False)
    bad: dict[int, str] = {}
    fixed: dict[int, float] = {}
    for index in (values.is_null() & present).arg_true():
        number = _spelled(text[index])
        if number is None:
            bad[index] = text[index]
        else:
            fixed[index] = number
    return Numbers(values.scatter(list(fixed), list(fixed.values())) if fixed else values, bad)


def words(column: pl.Series, missing: Collection[str] = ()) -> pl.Series:
    """A column as text without spaces around it; empty cells and the words of `missing` are null."""
    text = column.cast(pl.String).str.strip_chars()
    return text.set(text.is_in(["", *missing]), None)


def as_it_is(column: pl.Series, missing: Collection[str] = ()) -> pl.Series:
    """A column as numbers if all its cells are numbers as Python writes them, else as words."""
    if column.dtype.is_nested():
        return words(
            pl.Series(column.name, [None if item is None else str(item) for item in column.to_list()]), missing
        )
    found = numbers(column, missing)
    if not found.bad and (column.dtype != pl.String or _plain(column, missing)):
        return found.values
    return words(column, missing)


def _plain(column: pl.Series, missing: Collection[str]) -> bool:
    """Whether no cell needs more than a float's own spelling, or true and false, to be a number."""
    text = words(column, missing).drop_nulls()
    if bool(text.is_in([*TRUE, *FALSE]).all()):
        return True
    return bool(text.cast(pl.Float64, strict=False).is_not_null().all())


def _spelled(text: str) -> float | None:
    if text in TRUE or text in FALSE:
        return float(text in TRUE)
    return parse_number(text)
