"""How much it takes to reach a response: the value of one input, or the least cost, with how sure it can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.answers.asked import Asked, Goal, Limit, asked
from scaling.answers.plain import present
from scaling.answers.roots import crossing
from scaling.answers.search import SPAN, Search
from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.intervals import Interval

Side = Literal["smallest", "largest"]
GRID = 461  # places per set of parameters, 2.7 per decade and input's unit of e
FAR = 1.5  # beyond the rows by more than this is said
BASIS = "parameters; assumes the law holds"


@dataclass(frozen=True)
class Inversion:
    """What it takes to reach `target`: `side` value of `axis` (or of the cost), the inputs there.

    `unreachable` is the share of draws under which nothing reaches it. `value` is absent where the estimate, or half
    of the draws and more, can't; its upper end is open where more of them can't than the interval leaves out.
    """

    law: str
    target: float
    axis: str
    side: Side
    level: float
    value: Interval | None
    unreachable: float
    inputs: dict[str, Interval]
    basis: str
    why: tuple[str, ...]
    within: float | None = None
    reach: float | None = None  # value over the largest one seen, or over the smallest if it is below that

    def to_json(self) -> dict[str, Any]:
        """Plain numbers at full precision; what was refused is absent."""
        return present({
            "law": self.law, "target": self.target, "axis": self.axis, "side": self.side, "level": self.level,
            **({} if self.value is None else self.value.to_json()), "unreachable": self.unreachable,
            "inputs": {k: v.to_json() for k, v in self.inputs.items()}, "basis": self.basis, "within": self.within,
            "reach": self.reach, "why": list(self.why),
        })  # fmt: skip


def invert(
    fit: Fit,
    target: float | None,
    axis: str | None = None,
    *,
    at: Mapping[str, float] | None = None,
    cost: str | None = None,
    limits: Mapping[str, Limit] | None = None,
    within: float | None = None,
    goal: Goal = "min",
    level: float | None = None,
) -> Inversion:
    """The smallest value of `axis` whose response is at most `target` (at least, for goal "max").

    All other inputs must be in `at`. Where a law gets worse along the axis, it is the largest value that still
    reaches the target. Without an axis it is the smallest cost (by default 6 n_params tokens) that reaches it, at the
    best free inputs. In place of a target, `within` 0.02 asks for 2 % from what the axis gives at its upper limit, or
    without end.

    Raises AnalysisError for a refused fit, an unknown or missing input, or a target that is no number.
    """
    if (target is None) == (within is None):
        raise AnalysisError("a target or a distance `within` the best, one of them, is needed.")
    if target is not None and not np.isfinite(target):
        raise AnalysisError(f"target {target:g}: must be a finite number.")
    if axis is None:
        if target is None:
            raise AnalysisError("`within` asks for an axis.")
        return _cheapest(asked(fit, cost, at=at, limits=limits, goal=goal, level=level), float(target))
    at = dict(at or {})
    law = fit.law
    if axis not in law.inputs:
        raise AnalysisError(f"axis {axis!r}: {law.name} has no such input.{nearest(axis, law.inputs)}")
    for name in law.inputs:
        if name not in at and name != axis:
            raise AnalysisError(f"{law.name} over {law.over}: to invert along {axis}, give a value of {name}.")
    if axis in at:
        raise AnalysisError(f"{axis} is both the axis and given.")
    text = f"{axis}*{'*'.join(n for n in law.inputs if n != axis)}" if len(law.inputs) > 1 else axis
    return _Along(asked(fit, text, at=at, limits=limits, goal=goal, level=level), axis, target, within).run()


def costs(question: Asked, target: float) -> Floats:
    """The smallest cost [1 + b] that reaches `target`, inf where nothing does, for the estimate and each draw."""
    return np.exp(_cheap_places(question, target)[1])


def _cheap_places(question: Asked, target: float) -> tuple[Floats, Floats]:
    level = np.full(len(question.parameters), question.task.sign * target)
    found = Search(question.task, question.parameters, level, cheapest=True).run()
    return found.u, found.value


def _cheapest(question: Asked, target: float) -> Inversion:
    u, value = _cheap_places(question, target)
    price = np.exp(value)
    return _answer(
        question, target, question.cost.text, side="smallest", value=price, x=question.exact(question.task.actual(u)),
        missed=np.asarray(np.isinf(price)),
    )  # fmt: skip


class _Along:
    """The crossing of the target along one input."""

    def __init__(self, question: Asked, axis: str, target: float | None, within: float | None) -> None:
        self.q, self.axis, self.target, self.within = question, axis, target, within
        self.i = question.law.inputs.index(axis)
        task = question.task
        middle = task.u[self.i]
        low, high = max(task.low[self.i], middle - SPAN), min(task.high[self.i], middle + SPAN)
        self.ticks = np.linspace(low, high, GRID)
        self.level = self._level()

    def _places(self, s: Floats) -> Floats:
        """u [d, 1 + b, k] with logarithms s [1 + b or 1, k] on the axis; what is available is all taken."""
        u = np.repeat(self.q.logs()[..., None], s.shape[-1], axis=2)
        for i in np.flatnonzero(self.q.task.free):
            u[i] = self.q.task.high[i]
        u[self.i] = s
        return u

    def _badness(self, s: Floats) -> Floats:
        return self.q.task.badness(self.q.parameters, self._places(s))

    def _level(self) -> Floats:
        """The badness to reach [1 + b]."""
        if self.within is None:
            assert self.target is not None
            return np.full(len(self.q.parameters), self.q.task.sign * self.target)
        best = self._badness(self.ticks[None, -1:])[:, 0]
        return np.asarray(best + self.within * np.abs(best))

    def run(self) -> Inversion:
        gap = self._badness(self.ticks[None]) - self.level[:, None]
        met = gap <= 0
        largest = bool(met[0, 0] and not met[0, -1])
        first = np.argmax(met[:, ::-1] if largest else met, axis=1)
        k = GRID - 1 - first if largest else first
        other = np.clip(k + (1 if largest else -1), 0, GRID - 1)
        s = crossing(self._gap, self.ticks[k], self.ticks[other])
        open_end = other == k
        s = np.where(open_end, np.inf if largest else -np.inf, s)
        missed: Bools = ~np.any(met, axis=1)
        s = np.where(missed, -np.inf if largest else np.inf, s)
        target = self.q.task.sign * float(self.level[0])
        side: Side = "largest" if largest else "smallest"
        x = self.q.exact(self.q.task.actual(self._places(s[:, None])[..., 0]))
        return _answer(self.q, target, self.axis, side=side, value=x[self.i], x=x, missed=missed, within=self.within)

    def _gap(self, s: Floats) -> Floats:
        return self._badness(s[:, None])[:, 0] - self.level


def _answer(
    q: Asked,
    target: float,
    axis: str,
    *,
    side: Side,
    value: Floats,
    x: Floats,
    missed: Bools,
    within: float | None = None,
) -> Inversion:
    """The answer for values [1 + b] at places x [d, 1 + b]; `missed` [1 + b] where nothing reaches the target."""
    unreachable = float(np.mean(missed[1:])) if q.drawn else float(missed[0])
    why = [f"The fit is weak: {reason}" for reason in q.fit.why] if q.fit.status == "weak" else []
    if not q.drawn and not why:
        why += q.fit.why or ("No intervals: the fit has no draws.",)
    tail = (1 - q.level) / 2
    of = f"{target:.4g}"
    if unreachable > tail:
        sure = f"with probability {unreachable:.0%}" if q.drawn else "by the estimate"
        why.append(f"{of} is not reachable under this law {sure}{_floor_words(q, axis)}.")
    found: Interval | None = None
    inputs: dict[str, Interval] = {}
    if not missed[0] and unreachable <= 0.5:
        if np.isfinite(value[0]) and value[0] > 0:
            found = q.interval(value)
            inputs = {n: q.interval(v) if np.ptp(v) > 0 else Interval(float(v[0]))
                      for n, v in zip(q.law.inputs, x, strict=True) if np.isfinite(v[0])}  # fmt: skip
        else:
            why.append(f"{of} is reached at every {axis} that was looked at: no {side} value.")
    reach = None if found is None else _reach(q, axis, found.value)
    if found is not None and reach is not None and not 1 / FAR < reach < FAR:
        way = f"{reach:.3g} times the largest" if reach > 1 else f"{1 / reach:.3g} times below the smallest"
        why.append(f"{axis} = {found.value:.3g} is {way} one seen: the law is taken that far.")
    return Inversion(
        q.law.name, target, axis, side, q.level, found, unreachable, inputs, BASIS, tuple(why), within, reach
    )


def _reach(q: Asked, axis: str, value: float) -> float:
    """By what factor `value` is above the largest one of the rows, or (below 1) under the smallest; 1 inside."""
    x = q.fit.rows.x
    seen = x[q.law.inputs.index(axis)] if axis in q.law.inputs else q.cost.at(x)
    return float(value / np.clip(value, seen.min(), seen.max()))


def _floor_words(q: Asked, axis: str) -> str:
    limit = q.limits.get(axis)
    if limit is not None and limit.high is not None:
        return f" with {axis} up to {limit.high:.4g}"
    return ": it lies below what the law can give" if q.task.sign > 0 else ": it lies above what the law can give"
