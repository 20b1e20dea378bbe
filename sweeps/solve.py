"""The value at which an equation holds: a bracket, and a safeguarded secant in log space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sweeps.errors import NoValue

Number = int | float
# The two sides of the equation at a value; raises NoValue where they have none.
Sides = Callable[[Number], tuple[Number, Number]]

SCAN = 48  # values tried between low and high if an end itself is impossible
MAX_PROBES = 200
RELATIVE = 1e-13  # bracket width at which a real value is found


@dataclass(frozen=True)
class Grid:
    """The values to consider, from `low` to `high`: multiples of `multiple`, or any real number."""

    low: float
    high: float
    integer: bool = True
    multiple: int = 1

    def ends(self) -> tuple[Number, Number]:
        """The first and the last value."""
        if not self.integer:
            return self.low, self.high
        return (
            math.ceil(self.low / self.multiple) * self.multiple,
            math.floor(self.high / self.multiple) * self.multiple,
        )

    def between(self, a: Number, b: Number, guess: float) -> Number | None:
        """The value nearest to `guess` strictly between a < b; None if there is none."""
        if not self.integer:
            return guess if a < guess < b and b - a > RELATIVE * a else None
        if b - a <= self.multiple:
            return None
        nearest = round(guess / self.multiple) * self.multiple
        return min(max(nearest, int(a) + self.multiple), int(b) - self.multiple)


@dataclass(frozen=True)
class Probe:
    """The equation at one value: both sides, and a gap that is 0 where they are equal."""

    at: Number
    left: Number
    right: Number

    @property
    def logarithmic(self) -> bool:
        return 0 < self.left < math.inf and 0 < self.right < math.inf

    @property
    def gap(self) -> float:
        if self.logarithmic:
            return math.log(self.left) - math.log(self.right)
        return float(self.left) - float(self.right)

    @property
    def miss(self) -> float:
        """How far the sides are apart, relative to the right one (absolute if that is 0)."""
        return abs(self.left / self.right - 1) if self.right else abs(float(self.left))


def solve(sides: Sides, grid: Grid, tolerance: float) -> Number:
    """The value of `grid` at which the two sides are equal, within `tolerance`, relative.

    The difference of the sides must be monotone. Values where `sides` raises NoValue are taken to lie at the
    ends. Raises NoValue with the reason if nothing fits.
    """
    best = _Search(sides, grid, tolerance).best()
    if best.miss > tolerance:
        kind = "value"
        if grid.integer:
            kind = f"multiple of {grid.multiple}" if grid.multiple > 1 else "whole value"
        raise NoValue(
            f"the nearest {kind}, {best.at:.12g}, misses by {100 * best.miss:.2g} % "
            f"(the tolerance is {100 * tolerance:.2g} %)"
        )
    return best.at


class _Search:
    def __init__(self, sides: Sides, grid: Grid, tolerance: float) -> None:
        self.sides = sides
        self.grid = grid
        self.tolerance = tolerance
        self.refusal = ""

    def probe(self, at: Number) -> Probe | None:
        """The equation at a value; None if it has no value there."""
        try:
            left, right = self.sides(at)
        except NoValue as error:
            self.refusal = str(error)
            return None
        return Probe(at, left, right)

    def best(self) -> Probe:
        a, b = self.bracket()
        if a.gap * b.gap > 0:
            return self.end(a, b)
        for turn in range(MAX_PROBES):
            if a.gap == 0 or b.gap == 0:
                break
            at = self.grid.between(a.at, b.at, self.guess(a, b, turn))
            if at is None:
                break
            middle = self.probe(at)
            if middle is None:
                raise NoValue(f"{at:.12g}, which may be the value, is not possible: {self.refusal}")
            a, b = (middle, b) if (middle.gap < 0) == (a.gap < 0) else (a, middle)
        return min(a, b, key=lambda probe: abs(probe.gap))

    def end(self, a: Probe, b: Probe) -> Probe:
        """The better end if the sides are equal beyond it: rounding may have put it there."""
        best = min(a, b, key=lambda probe: abs(probe.gap))
        if best.miss <= self.tolerance and best.at not in (self.grid.low, self.grid.high):
            return best
        impossible = f"; other values are not possible: {self.refusal}" if self.refusal else ""
        raise NoValue(
            f"no value from {a.at:g} to {b.at:g} fits: the left side goes from {a.left:.4g} to {b.left:.4g}, "
            f"the right side from {a.right:.4g} to {b.right:.4g}{impossible}"
        )

    @staticmethod
    def guess(a: Probe, b: Probe, turn: int) -> float:
        """Where to look next: the secant in log space (exact for power laws), every third time the middle."""
        low, high = math.log(a.at), math.log(b.at)
        share = 0.5
        if turn % 3 != 2 and a.logarithmic and b.logarithmic:
            share = a.gap / (a.gap - b.gap)
        return math.exp(low + share * (high - low))

    def bracket(self) -> tuple[Probe, Probe]:
        first, last = self.grid.ends()
        if last < first:
            raise NoValue(f"there is no value between {self.grid.low:g} and {self.grid.high:g}")
        low, high = self.probe(first), self.probe(last)
        if low is None or high is None:
            low, high = self.narrowed(first, last, low, high)
        return low, high

    def narrowed(
        self, first: Number, last: Number, at_first: Probe | None, at_last: Probe | None
    ) -> tuple[Probe, Probe]:
        """The widest pair of values where the equation has a value, if it has none at an end."""
        tried = self.scan(first, last)
        probes = [at_first, *(self.probe(at) for at in tried[1:-1]), at_last]
        fine = [(index, probe) for index, probe in enumerate(probes) if probe is not None]
        if not fine:
            raise NoValue(f"no value from {first:g} to {last:g} is possible: {self.refusal}")
        (left, low), (right, high) = fine[0], fine[-1]
        if left > 0 and low.gap * high.gap >= 0:
            low = self.edge(low, tried[left - 1])
        if right < len(tried) - 1 and low.gap * high.gap >= 0:
            high = self.edge(high, tried[right + 1])
        return low, high

    def scan(self, first: Number, last: Number) -> list[Number]:
        """Values from `first` to `last`, about equally far apart in log space."""
        tried = [first]
        for index in range(1, SCAN):
            at = self.grid.between(tried[-1], last, first * (last / first) ** (index / SCAN))
            if at is not None:
                tried.append(at)
        return [*tried, last]

    def edge(self, inside: Probe, outside: Number) -> Probe:
        """The last value towards `outside` where the equation still has a value."""
        for _ in range(MAX_PROBES):
            a, b = sorted((inside.at, outside))
            at = self.grid.between(a, b, math.sqrt(a * b))
            if at is None or b - a <= 1e-9 * a:
                break
            middle = self.probe(at)
            if middle is None:
                outside = at
            else:
                inside = middle
        return inside
