"""What a table of results says of itself that can't be right, or needs a word: units and repeated rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

# Where values of known axes lie; three decades beyond, they are in another unit.
WINDOWS: dict[str, tuple[float, float]] = {
    "n_params": (1e3, 1e15),
    "tokens": (1e4, 1e17),
    "unique_tokens": (1e4, 1e17),
    "flops": (1e9, 1e30),
    "lr": (1e-8, 1e2),
}
DECADES_BEYOND = 3
_UNITS = {"n_params": (1e9, 1e6, 1e3), "flops": (1e21, 1e18, 1e15, 1e12, 1e9), "lr": ()}
_TOKEN_UNITS = (1e9, 1e12, 1e6)
NAMES = {1e3: "thousands", 1e6: "millions", 1e9: "billions", 1e12: "trillions"}

# Titles that name a unit, and the unit.
_TITLES = (
    (re.compile(r"(?:_bn?|_billions?|\((?:B|billions?)\))$", re.I), 1e9),
    (re.compile(r"(?:_t|_trillions?|\((?:T|trillions?)\))$", re.I), 1e12),
    (re.compile(r"(?:_millions?|\((?:M|millions?)\))$", re.I), 1e6),
    (re.compile(r"(?:_thousands?|\((?:K|thousands?)\))$", re.I), 1e3),
)
_POWER_TITLE = re.compile(r"(?:_|\()1e([0-9]{1,2})\)?$", re.I)


@dataclass(frozen=True)
class Warned:
    """A sentence about a column, and whether it ends the reading."""

    text: str
    fatal: bool


def unit_of_title(title: str) -> float | None:
    """The unit that a column's title names: 1e9 for `tokens_b` and `Size (B)`, 1e21 for `FLOPs (1E21)`."""
    if (power := _POWER_TITLE.search(title)) is not None:
        return float(f"1e{power[1]}")
    return next((unit for pattern, unit in _TITLES if pattern.search(title)), None)


def short(number: float) -> str:
    """A power of ten as people write it: `1e9`."""
    return f"{number:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def span(values: pl.Series) -> str:
    """`2 … 128`: the smallest and the largest finite value of a column."""
    finite = values.cast(pl.Float64).drop_nulls()
    finite = finite.filter(finite.is_finite())
    if not len(finite):
        return "no numbers"
    low, high = float(finite.min()), float(finite.max())  # type: ignore[arg-type]
    return f"{low:.6g}" if low == high else f"{low:.6g} … {high:.6g}"


def window(name: str, values: pl.Series) -> Warned | None:
    """A word on a known axis whose positive values lie outside where such values lie; None if all is well."""
    if name not in WINDOWS:
        return None
    low, high = WINDOWS[name]
    positive = values.cast(pl.Float64).drop_nulls()
    positive = positive.filter(positive.is_finite() & (positive > 0))
    if not len(positive):
        return None
    least, most = float(positive.min()), float(positive.max())  # type: ignore[arg-type]
    if low <= least and most <= high:
        return None
    beyond = least < low / 10**DECADES_BEYOND or most > high * 10**DECADES_BEYOND
    text = f"column {name}: {span(positive)}, where {short(low)} … {short(high)} is usual"
    return Warned(f"{text}.{_proposal(name, least, most)}", beyond)


def _proposal(name: str, least: float, most: float) -> str:
    """The unit that would bring values to where such values lie, if all of them lie below."""
    low, high = WINDOWS[name]
    if most >= low:
        return ""
    for unit in _UNITS.get(name, _TOKEN_UNITS):
        if low <= least * unit and most * unit <= high:
            called = NAMES.get(unit, f"units of {short(unit)}")
            return f" If these are {called}, write unit: {short(unit)}."
    return ""


def repeated(frame: pl.DataFrame, place: Sequence[str], values: Sequence[str]) -> pl.Series:
    """Which rows [n] repeat an earlier row: the same place and the same values."""
    keys = [*place, *values]
    first = pl.int_range(pl.len()).over(keys) == 0
    measured = pl.any_horizontal(pl.col(values).is_not_null())
    return frame.select((~first & measured).alias("repeated")).to_series()
