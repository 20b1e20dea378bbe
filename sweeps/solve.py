"""The value at which an equation holds, for a difference that is monotone in it."""

from __future__ import annotations

import math
from collections.abc import Callable

from sweeps.errors import shown

Sides = Callable[[float], tuple[float, float]]
MAX_ROUNDS = 200
PRECISION = 1e-12  # relative, of a value that need not be whole


class NoSolution(Exception):
    """Why an equation has no usable solution, as a sentence."""


def solve(
    name: str, equation: str, sides: Sides, *, low: float, high: float, multiple: int | None, tolerance: float
) -> int | float:
    """x in [low, high] where both `sides(x)` are equal; a multiple of `multiple` unless that is None.

    Bracketing: interpolation of the log ratio over log x (exact for power laws), halved where that is slow.
    Raises NoSolution when nothing is bracketed or rounding misses by more than `tolerance`, relative.
    """
    search = _Search(sides, low, high, multiple)
    below, above = search.bracket(name, equation)
    x = search.narrow(below, above)
    miss = abs(search.gap(x))
    if miss > math.log1p(tolerance):
        left, right = sides(x)
        raise NoSolution(
            f"`{shown(equation)}` is missed by {math.expm1(miss):.1%} at the nearest {name} = {x:g} "
            f"({left:.6g} against {right:.6g}); allowed: {tolerance:.1%}"
        )
    return x


class _Search:
    """Works on counts k, with x = k * multiple, or on x itself."""

    def __init__(self, sides: Sides, low: float, high: float, multiple: int | None) -> None:
        self._sides, self._multiple = sides, multiple
        self.low = low if multiple is None else max(1, math.ceil(low / multiple)) * multiple
        self.high = high if multiple is None else math.floor(high / multiple) * multiple
        self._gaps: dict[float, float] = {}

    def gap(self, x: float) -> float:
        """log(left / right) at x, or the plain difference of signs where a side is not positive."""
        if x not in self._gaps:
            left, right = self._sides(x)
            positive = left > 0 and right > 0
            self._gaps[x] = math.log(left / right) if positive else math.copysign(math.inf, left - right)
            if left == right:
                self._gaps[x] = 0.0
        return self._gaps[x]

    def bracket(self, name: str, equation: str) -> tuple[float, float]:
        if self.low > self.high:
            raise NoSolution(f"`{shown(equation)}`: no {name} between low and high")
        if self.gap(self.low) * self.gap(self.high) > 0:
            (l1, r1), (l2, r2) = self._sides(self.low), self._sides(self.high)
            raise NoSolution(
                f"`{shown(equation)}` has no solution: {l1:.4g} against {r1:.4g} at {name} = {self.low:g}, "
                f"{l2:.4g} against {r2:.4g} at {name} = {self.high:g}"
            )
        return self.low, self.high

    def narrow(self, below: float, above: float) -> float:
        """The end of the narrowest bracket with the smaller gap."""
        interpolate = True
        for _ in range(MAX_ROUNDS):
            if self.gap(below) == 0 or self.gap(above) == 0 or self._narrow_enough(below, above):
                break
            width = math.log(above / below)
            middle = self._middle(below, above, interpolate)
            if self.gap(below) * self.gap(middle) <= 0:
                above = middle
            else:
                below = middle
            interpolate = math.log(above / below) < 0.5 * width
        return min((below, above), key=lambda x: abs(self.gap(x)))

    def _narrow_enough(self, below: float, above: float) -> bool:
        if self._multiple is None:
            return above / below - 1 < PRECISION
        return above - below <= self._multiple

    def _middle(self, below: float, above: float, interpolate: bool) -> float:
        low, high = math.log(below), math.log(above)
        at = 0.5
        first, last = self.gap(below), self.gap(above)
        if interpolate and math.isfinite(first) and math.isfinite(last):
            at = first / (first - last)
        x = math.exp(low + min(max(at, 1e-6), 1 - 1e-6) * (high - low))
        if self._multiple is None:
            return x
        count = round(x / self._multiple)
        return min(max(count * self._multiple, below + self._multiple), above - self._multiple)
