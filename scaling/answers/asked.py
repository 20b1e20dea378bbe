"""What a question says besides the fit: cost, given inputs, limits, and whether small or large responses are good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.answers.cost import Cost, cost_over
from scaling.answers.search import MOST_FREE, Task
from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.intervals import Interval, ends
from scaling.laws import Law

Goal = Literal["min", "max"]
REPEATED = ("unique_tokens", "tokens")  # no more of the first than of the second


@dataclass(frozen=True)
class Limit:
    """Where an input may be: from `low` to `high`, at multiples of `multiple`, at one of `values`."""

    low: float | None = None
    high: float | None = None
    multiple: float | None = None
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        given = [v for v in (self.low, self.high, self.multiple, *self.values) if v is not None]
        if any(not (np.isfinite(v) and v > 0) for v in given):
            raise AnalysisError(f"limit {given}: expected finite numbers > 0.")
        if self.range[0] > self.range[1]:
            raise AnalysisError(f"limit from {self.low or 0:g} to {self.high or np.inf:g}: no value is allowed.")

    @property
    def discrete(self) -> bool:
        return self.multiple is not None or bool(self.values)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest allowed value."""
        low, high = self.low or 0.0, self.high or np.inf
        if self.values:
            allowed = [v for v in self.values if low <= v <= high]
            return min(allowed, default=np.inf), max(allowed, default=0.0)
        if self.multiple is not None:
            low = self.multiple * max(1.0, float(np.ceil(low / self.multiple)))
            high = self.multiple * float(np.floor(high / self.multiple)) if np.isfinite(high) else high
        return low, high

    def near(self, value: float, count: int) -> Floats:
        """Allowed values around `value`, at most `count` on either side."""
        low, high = self.range
        if self.values:
            allowed = np.sort(np.array(self.values))
        else:
            step = self.multiple or 1.0
            allowed = step * (np.floor(value / step) + np.arange(-count + 1, count + 1))
        allowed = allowed[(allowed >= low) & (allowed <= high)]
        return np.concatenate([allowed[allowed <= value][-count:], allowed[allowed > value][:count]])


@dataclass(frozen=True)
class Asked:
    """A fit with all that a question about it needs. `parameters` [1 + b, p]: the estimate, then the draws."""

    fit: Fit
    cost: Cost
    task: Task
    given: Mapping[str, float]
    limits: Mapping[str, Limit]
    level: float
    parameters: Floats

    @property
    def law(self) -> Law:
        return self.fit.law

    @property
    def drawn(self) -> bool:
        return len(self.parameters) > 1

    def logs(self, count: int | None = None) -> Floats:
        """The task's own logarithms for each set of parameters [d, 1 + b]."""
        return np.repeat(self.task.u[:, None], len(self.parameters) if count is None else count, axis=1)

    def interval(self, values: Floats, positive: bool = True) -> Interval:
        """Estimate and interval of values [1 + b]: an end at infinity, or of a `positive` one at 0, is absent."""
        return interval_of(values, self.level, positive)

    def exact(self, u: Floats) -> Floats:
        """Places [d, ...] of logarithms u [d, ...]; given, whole and limiting values as they were written."""
        with np.errstate(over="ignore"):
            x = np.exp(u)
        for i, name in enumerate(self.law.inputs):
            limit = self.limits.get(name, Limit())
            known = [self.given[name]] if name in self.given else [*limit.range]
            known += [*limit.near(float(np.ravel(x[i])[0]), 1)] if limit.discrete else []
            for value in known:
                with np.errstate(invalid="ignore"):
                    x[i] = np.where(np.abs(x[i] - value) < 1e-9 * value, value, x[i])
        return x


def asked(
    fit: Fit,
    cost: str | None = None,
    *,
    at: Mapping[str, float] | None = None,
    limits: Mapping[str, Limit] | None = None,
    goal: Goal = "min",
    level: float | None = None,
) -> Asked:
    """The question about `fit`; inputs in `at` are given, the others free.

    Raises AnalysisError for a refused fit, an unknown input, a given value that isn't positive, a cost that can't be
    read, an input that costs nothing and has no limit, or more free inputs than can be searched.
    """
    law, at, limits = usable(fit).law, dict(at or {}), dict(limits or {})
    for what, names in (("given", at), ("limit", limits)):
        for name in names:
            if name not in law.inputs:
                raise AnalysisError(f"{what} {name!r}: {law.name} has no such input.{nearest(name, law.inputs)}")
    for name, value in at.items():
        if not (np.isfinite(value) and value > 0):
            raise AnalysisError(f"given {name} = {value:g}: must be a finite number > 0.")
    price = cost_over(law, cost)
    cap = _cap(law)
    if cap is not None and REPEATED[0] in at:
        # so many are there: fewer are used where fewer are seen
        limits[REPEATED[0]] = Limit(high=at.pop(REPEATED[0]))
    free = np.array([name not in at for name in law.inputs])
    task = Task(law, price, free, _start(fit, at), *_ends(law, limits), 1.0 if goal == "min" else -1.0, cap)
    parameters = fit.point[None] if fit.draws is None else np.vstack([fit.point, fit.draws])
    found = Asked(fit, price, task, at, limits, fit.level if level is None else level, parameters)
    _check(found)
    return found


def usable(fit: Fit) -> Fit:
    """`fit`, if it has parameters; raises AnalysisError with its reasons otherwise."""
    if not fit.params:
        raise AnalysisError(f"{fit.law.name} over {fit.law.over} was refused: {' '.join(fit.why)}")
    return fit


def interval_of(values: Floats, level: float, positive: bool = True) -> Interval:
    """The first of `values` [1 + b] with the central interval of the rest.

    An end at infinity, or at 0 if values are `positive`, is absent; both are where too many draws have no value.
    """
    value, draws = float(values[0]), values[1:]
    if not len(draws):
        return Interval(value)
    if np.isnan(draws).mean() > (1 - level) / 2:
        return Interval(value)
    draws = draws[~np.isnan(draws)]
    if np.isfinite(draws).all():
        found = ends(draws, level)
    else:
        tail = (1 - level) / 2
        found = float(np.quantile(draws, tail, method="lower")), float(np.quantile(draws, 1 - tail, method="higher"))
    lo, hi = (v if np.isfinite(v) and (v != 0 or not positive) else None for v in found)
    return Interval(value, lo, hi)


def _cap(law: Law) -> tuple[int, int] | None:
    inner, outer = REPEATED
    return (law.inputs.index(inner), law.inputs.index(outer)) if {inner, outer} <= set(law.inputs) else None


def _start(fit: Fit, at: Mapping[str, float]) -> Floats:
    """Logarithms of what is given, and of the middle of the rows for the rest [d]."""
    middle = np.log(fit.rows.x).mean(axis=1)
    return np.array([np.log(at[n]) if n in at else m for n, m in zip(fit.law.inputs, middle, strict=True)])


def _ends(law: Law, limits: Mapping[str, Limit]) -> tuple[Floats, Floats]:
    ranges = np.array([limits.get(name, Limit()).range for name in law.inputs])
    with np.errstate(divide="ignore"):
        low, high = np.log(ranges.T)
    return low, high


def _check(asked: Asked) -> None:
    task, law = asked.task, asked.law
    idle = task.free & ~task.cost.used
    middle = task.actual(task.u[:, None])[:, :, None]
    slopes = task.badness_slopes(asked.parameters[:1], middle)[:, 0, 0]
    for i in np.flatnonzero(idle):
        name = law.inputs[i]
        if not np.isfinite(task.high[i]):
            raise AnalysisError(f"{name} costs nothing under {task.cost.text!r}: give its value or an upper limit.")
        if slopes[i] > 0:
            raise AnalysisError(f"{name} costs nothing and more of it does harm under this law: give its value.")
    count = int((task.free & task.cost.used).sum())
    if count > MOST_FREE:
        raise AnalysisError(f"{law.name}: {count} free inputs, at most {MOST_FREE} can be searched: give some of them.")
    rising = task.cost.slopes(task.u[:, None])[:, 0]
    for i in np.flatnonzero(task.free & task.cost.used):
        if not rising[i] > 0:
            raise AnalysisError(
                f"cost {task.cost.text!r} does not rise with {law.inputs[i]}: such a budget buys nothing."
            )
