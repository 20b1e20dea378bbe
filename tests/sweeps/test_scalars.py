"""What an unquoted scalar means. The right column is what the spelling means to a person."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import ScalarError
from sweeps.scalars import SUFFIXES, parse_number, parse_scalar
from sweeps.source import read_text

MEANINGS = [
    ("12", 12), ("+12", 12), ("-12", -12), ("0", 0), ("-0", 0), ("2_000_000", 2000000), ("1000000", 1000000),
    ("1e6", 1000000), ("1E6", 1000000), ("1e+6", 1000000), ("1.5e9", 1500000000), ("20e9", 20000000000),
    ("1e-3", 0.001), ("5.0e-4", 0.0005), ("1.5e-10", 1.5e-10), (".5", 0.5), ("-.5", -0.5), ("0.1", 0.1),
    ("1.", 1.0), ("1.0", 1.0), ("1e19", 1e19), ("1e300", 1e300), ("2.5e0", 2.5),
    ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
    ("abc", "abc"), ("20M", "20M"), ("1.2.3", "1.2.3"), ("695e0514", "695e0514"), ("a1b2c3d", "a1b2c3d"),
    ("models.lm:train", "models.lm:train"), ("2024-01-31", "2024-01-31"), ("v1", "v1"), ("e5", "e5"), ("-", "-"),
    ("1e", "1e"), ("--1", "--1"), ("O'Neil", "O'Neil"),
]  # fmt: skip

# Spellings that readers disagree about, and a word that the refusal must have.
REFUSED = [
    ("012", "10"), ("-017", "-17"), ("00", "zero"), ("08", "8"), ("1:30", "90"), ("12:00:00", "43200"),
    ("on", "true"), ("Off", "false"), ("yes", "true"), ("NO", "false"), ("y", "true"), ("n", "false"),
    (".inf", "null"), ("-.Inf", "null"), ("nan", "null"), (".NaN", "null"), ("inf", "null"),
    ("0x1F", "31"), ("0o17", "15"), ("0b11", "3"), ("1_0", "10"), ("1__000", "1000"), ("1,000", "1_000"),
    ("1234e56", "1.234e+59"), ("1e400", "too large"), ("1e-400", "too small"), ("\u22125", "-5"), ("None", "null"),
    ("9" * 400, "400"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), MEANINGS)
def test_a_spelling_has_one_meaning(text: str, value: object) -> None:
    found = parse_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("text", "hint"), REFUSED)
def test_a_spelling_with_two_meanings_is_refused(text: str, hint: str) -> None:
    with pytest.raises(ScalarError) as error:
        parse_scalar(text)
    assert hint in str(error.value)
    assert text in str(error.value) or len(text) > 60


@pytest.mark.parametrize(("text", "_hint"), REFUSED)
def test_quotes_make_text(text: str, _hint: str) -> None:
    assert read_text(f"a: '{text}'", "s").data == {"a": text}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_prints_is_read_back(value: float) -> None:
    found = parse_scalar(repr(value))
    assert isinstance(found, int | float)
    assert float(found) == value  # a large one may be the exact integer of those digits


@given(st.integers(-(10**200), 10**200))
def test_whole_numbers_are_read_exactly(value: int) -> None:
    assert parse_scalar(str(value)) == value
    assert type(parse_scalar(str(value))) is int


@given(st.text(alphabet="0123456789eE+-._:,xobinfatrues~", max_size=12))
def test_no_spelling_gives_a_number_that_python_reads_differently(text: str) -> None:
    try:
        value = parse_scalar(text)
    except ScalarError:
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert math.isfinite(value)
        assert float(text) == float(value)


CELLS = [
    ("12", 12.0), ("-1.5e3", -1500.0), ("1.2B", 1.2e9), ("1.2 B", 1.2e9), ("30k", 3e4), ("30K", 3e4), ("7M", 7e6),
    ("2T", 2e12), ("1G", 1e9), ("2**-7", 2.0**-7), ("2 ** 10", 1024.0), ("10^9", 1e9), ("2_000_000", 2e6), (" 3 ", 3.0),
    ("inf", math.inf), ("-Infinity", -math.inf), (".inf", math.inf),
]  # fmt: skip
NO_CELLS = [
    "",
    "x",
    "B",
    "1.2X",
    "1,5",
    "1_0",
    "7b",
    "2**",
    "0**-1",
    "10**999",
    "1e5e5",
    "2024-01-31",
    "12%",
    "1 2",
    "--1",
]


@pytest.mark.parametrize(("text", "value"), CELLS)
def test_a_cell_has_one_number(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", NO_CELLS)
def test_what_is_no_number_in_a_cell(text: str) -> None:
    assert parse_number(text) is None


def test_nan_is_a_number_in_a_cell() -> None:
    assert math.isnan(parse_number("NaN") or 0.0)


@given(st.floats(allow_nan=False), st.sampled_from(["", *SUFFIXES]))
def test_every_float_is_read_back(value: float, suffix: str) -> None:
    if not math.isfinite(value) and suffix:
        assert parse_number(f"{value!r}{suffix}") is None
    else:
        assert parse_number(f"{value!r}{suffix}") == value * SUFFIXES.get(suffix, 1)
