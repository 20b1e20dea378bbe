"""Columns of cells as numbers and words."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.cells import as_it_is, numbers, words


def texts(*cells: str | None) -> pl.Series:
    return pl.Series("c", cells, dtype=pl.String)


def test_whole_numbers_stay_whole_unless_one_is_not() -> None:
    assert numbers(texts("1", " 2 ", None)).values.to_list() == [1, 2, None]
    assert numbers(texts("1", "2")).values.dtype == pl.Int64
    assert numbers(texts("1", "2.0")).values.dtype == pl.Float64
    assert numbers(texts("1" * 16)).values.dtype == pl.Float64  # beyond what a float counts exactly


def test_missing_cells_and_cells_that_are_no_numbers() -> None:
    found = numbers(texts("1.5", "", "NA", "two", "3k"), ["NA"])
    assert found.values.to_list() == [1.5, None, None, None, 3000]
    assert found.bad == {3: "two"}


def test_truth_values_are_one_and_zero() -> None:
    assert numbers(texts("true", "False")).values.to_list() == [1, 0]
    assert as_it_is(texts("True", "false", "")).to_list() == [1, 0, None]
    assert numbers(pl.Series("c", [True, None])).values.to_list() == [1, None]


@pytest.mark.parametrize("cell", ["30k", "1_000", "2**3", "a", "1 2"])
def test_a_column_that_need_not_be_numbers_keeps_its_words(cell: str) -> None:
    assert as_it_is(texts("1", cell)).to_list() == ["1", cell]


def test_a_column_of_plain_numbers_is_numbers() -> None:
    assert as_it_is(texts("1e3", None, "-2")).to_list() == [1000, None, -2]
    assert as_it_is(pl.Series("c", [[1], None])).to_list() == ["[1]", None]


def test_words_lose_the_space_around_them() -> None:
    assert words(texts(" a b ", "  ", "-"), ["-"]).to_list() == ["a b", None, None]


@given(st.lists(st.none() | st.floats() | st.integers(-(10**20), 10**20)))
def test_numbers_are_read_as_they_were_written(values: list[float | None]) -> None:
    found = numbers(texts(*(None if value is None else repr(value) for value in values)))
    assert found.bad == {}
    for value, read in zip(values, found.values.to_list(), strict=True):
        assert read == value or (value is not None and (math.isnan(value) or read == float(value)))
