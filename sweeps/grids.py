"""The values of an axis and the settings of an alternative, from their declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from sweeps import paths
from sweeps.errors import SweeplawError, described, shown
from sweeps.paths import Parts
from sweeps.schema import Alternatives, Grid

MAX_VALUES = 10_000

Number = int | float


class GridError(SweeplawError):
    """An axis whose values make no sense; `part` is the key or index the problem is at, if there is one."""

    def __init__(self, problem: str, part: tuple[str | int, ...] = ()) -> None:
        super().__init__(problem)
        self.part = part


def axis_values(grid: Grid) -> list[Number]:
    """The numbers of an axis, in order; empty for an axis by `expr`.

    `log2: [4, 6]` gives 16, 32, 64: integers where all exponents are whole and not negative. Raises
    GridError for no or several ways of giving values, an empty axis, values that aren't finite numbers, and
    values that are equal.
    """
    given = [way for way in ("values", "log2", "log10", "expr") if getattr(grid, way) is not None]
    if len(given) != 1:
        said = " and ".join(f"`{way}`" for way in given) or "none of them"
        raise GridError(f"expected exactly one of `values`, `log2`, `log10` and `expr`, found {said}")
    if grid.expr is not None:
        return []
    if grid.values is not None:
        return _numbers(grid.values)
    return _powers(given[0], grid.log2 or grid.log10 or [])


def _numbers(values: list[Any]) -> list[Number]:
    if not values:
        raise GridError("an empty axis: expected at least one value", ("values",))
    if len(values) > MAX_VALUES:
        raise GridError(f"{len(values)} values; at most {MAX_VALUES} are allowed", ("values",))
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GridError(
                f"expected a number, found {described(value)}; alternatives that are no numbers go under `compare`",
                ("values", index),
            )
        if not math.isfinite(value):
            raise GridError(f"expected a finite number, found {value}", ("values", index))
    refuse_repeats(values)
    return values


def refuse_repeats(values: list[Any]) -> None:
    """Raises GridError if two values are equal (1 and 1.0 are, true and 1 are not)."""
    seen: dict[tuple[bool, Any], int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault((isinstance(value, bool), value), index)
        if first != index:
            raise GridError(f"{described(value)} is there twice", ("values", index))


def _powers(way: str, bounds: list[float]) -> list[Number]:
    if len(bounds) not in (2, 3):
        raise GridError(f"expected [low, high] or [low, high, step] exponents, found {len(bounds)} numbers", (way,))
    low, high, step = (*bounds, 1)[:3]
    if not all(math.isfinite(bound) for bound in bounds) or step <= 0 or high < low:
        raise GridError("expected low <= high and a step above 0", (way,))
    # Exact decimals: 0.1 + 0.2 is 0.3 for the person who wrote it.
    start, end, stride = (Fraction(repr(bound)) for bound in (low, high, step))
    count = (end - start) / stride
    if count.denominator != 1:
        raise GridError(f"steps of {step} from {low} don't reach {high}", (way,))
    if count >= MAX_VALUES:
        raise GridError(f"{shown(int(count) + 1, 12)} values; at most {MAX_VALUES} are allowed", (way,))
    limit = 1000 if way == "log2" else 300
    if max(abs(low), abs(high)) > limit:
        raise GridError(f"exponents beyond ±{limit} don't fit a float", (way,))
    exponents = [start + stride * index for index in range(int(count) + 1)]
    whole = all(e.denominator == 1 and e >= 0 for e in exponents)
    return [_power(2 if way == "log2" else 10, e, whole) for e in exponents]


def _power(base: int, exponent: Fraction, whole: bool) -> Number:
    if whole:
        return int(base ** int(exponent))
    if base == 10 and exponent.denominator == 1:
        return float(f"1e{int(exponent)}")  # the float that `1e-5` in a spec is
    return float(float(base) ** float(exponent))


def bundle(settings: dict[str, Any]) -> Iterator[tuple[Parts, Any]]:
    """The places and values that named settings set; keys may be dotted or nested. Lists are values."""
    for key, value in settings.items():
        parts = paths.split(key)
        if isinstance(value, dict) and value:
            for inner, item in bundle(value):
                yield parts + inner, item
        else:
            yield parts, value


def choices(name: str, alternatives: Alternatives) -> list[tuple[Any, list[tuple[Parts, Any]]]]:
    """The alternatives in order: label, and the places and values it sets.

    Raises GridError if there are none, a listed value isn't a scalar, or one is there twice.
    """
    values = alternatives.values
    if not values:
        raise GridError("nothing to compare: expected at least one alternative", ("values",))
    if isinstance(values, dict):
        return [(label, list(bundle(settings))) for label, settings in values.items()]
    for index, value in enumerate(values):
        if isinstance(value, dict | list):
            raise GridError(
                f"expected text, a number, true, false or null, found {described(value)}; to set several things, or a "
                "list, give them a label: `values: {label: {path: value}}`",
                ("values", index),
            )
    refuse_repeats(values)
    place = paths.split(alternatives.path or name)
    return [(value, [(place, value)]) for value in values]
