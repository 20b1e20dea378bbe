"""The values of an axis."""

from __future__ import annotations

import math
from typing import Any

from sweeps.schema import Grid

MAX_VALUES = 10_000


def grid_values(grid: Grid) -> list[Any]:
    """The listed values, or the powers of `log2` or `log10`, both ends included; whole powers are whole numbers.

    Raises ValueError for an axis that is an expression of others.
    """
    if grid.values is not None:
        return list(grid.values)
    powers, base = (grid.log2, 2) if grid.log2 is not None else (grid.log10, 10)
    if powers is None:
        raise ValueError("an axis by expression has no values of its own")
    low, high, step = [*powers, 1.0][:3]
    count = int((high - low) / step + 1e-9) + 1
    return [_power(base, low + i * step) for i in range(count)]


def _power(base: int, exponent: float) -> int | float:
    whole = float(exponent).is_integer()
    if whole and exponent >= 0:
        return int(base ** int(exponent))
    return float(f"1e{int(exponent)}") if whole and base == 10 else math.pow(base, exponent)
