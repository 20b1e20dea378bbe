"""How much less one recipe costs than another for the same response: C_a(l) / C_b(l) from their frontier laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.answers.additive import powers_of
from scaling.answers.asked import Asked, Goal, asked, interval_of
from scaling.answers.invert import costs
from scaling.answers.plain import present
from scaling.answers.shared import SharedTest, amplitudes, likelihood_ratio, recipe_parameters
from scaling.arrays import Floats
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.intervals import Interval, generator

POINTS = 25
BEYOND = 1.05  # of the cheapest and the dearest row's cost


TestShared = Callable[[Fit, Fit], SharedTest]


@dataclass(frozen=True)
class Point:
    """At `response` a costs `cost_a` and b costs `cost_b`, both by their laws; `ratio` is cost_a / cost_b.

    `outside` names the fits whose rows don't reach that cost.
    """

    response: float
    ratio: Interval | None
    cost_a: float | None
    cost_b: float | None
    outside: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        ratio = {} if self.ratio is None else {"ratio": self.ratio.to_json()}
        return present({"response": self.response, **ratio, "cost_a": self.cost_a, "cost_b": self.cost_b,
                        "outside": list(self.outside)})  # fmt: skip


@dataclass(frozen=True)
class Leverage:
    """How many times less b costs than a for the same response, as a curve and at the measured rows.

    `curve` is law against law over the responses that both fits have seen. `from_a` takes a's rows at their measured
    cost and response against b's law, `from_b` a's law against b's rows: published "leverages" mean one or the
    other, and they differ; the noise of that one row is not in their intervals. `constant` is the leverage at any
    response, where floor and exponents may be shared. `paired`: draws of both fits belong together.
    """

    a: str
    b: str
    cost: str
    level: float
    paired: bool
    curve: tuple[Point, ...]
    from_a: tuple[Point, ...]
    from_b: tuple[Point, ...]
    shared: SharedTest | None
    constant: Interval | None
    why: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers at full precision; what was refused is absent."""
        return present({
            "a": self.a, "b": self.b, "cost": self.cost, "level": self.level, "paired": self.paired,
            "curve": [p.to_json() for p in self.curve], "from_a": [p.to_json() for p in self.from_a],
            "from_b": [p.to_json() for p in self.from_b],
            "shared": None if self.shared is None else self.shared.to_json(),
            "constant": None if self.constant is None else self.constant.to_json(), "why": list(self.why),
        })  # fmt: skip


def leverage(
    a: Fit,
    b: Fit,
    responses: Sequence[float] | Floats | None = None,
    *,
    names: tuple[str, str] = ("a", "b"),
    cost: str | None = None,
    at: Mapping[str, float] | None = None,
    goal: Goal = "min",
    level: float | None = None,
    test_shared: TestShared | None = None,
) -> Leverage:
    """The compute leverage of b over a at `responses`, by default over those that both fits have seen.

    Costs are those of the cheapest place that reaches a response: for a law over one input its value, else the
    frontier under `cost` (by default 6 n_params tokens) with the inputs in `at` given. Draws are joint where the fits
    resampled the same places with the same seed, else independent. `test_shared` replaces the test of shared floor
    and exponents (by default: do the draws of their differences contain 0).

    Raises AnalysisError for a refused fit, or fits whose costs are not in one unit.
    """
    one, other = (asked(fit, cost, at=at, goal=goal, level=level) for fit in (a, b))
    if one.cost.text != other.cost.text:
        raise AnalysisError(
            f"leverage needs one unit of cost: {names[0]} costs {one.cost.text}, {names[1]} {other.cost.text}."
        )
    return _Levering(one, other, names, test_shared).run(responses)


class _Levering:
    def __init__(self, one: Asked, other: Asked, names: tuple[str, str], test: TestShared | None) -> None:
        self.one, self.other, self.names = one, other, names
        self.test = test or self._shared
        self.level = one.level
        self.paired = paired(one.fit, other.fit)
        self.order = self._order()

    def _order(self) -> Any:
        """Which draw of b belongs to each of a; None where one of them has none."""
        if not (self.one.drawn and self.other.drawn):
            return None
        count = min(len(self.one.parameters), len(self.other.parameters)) - 1
        if self.paired:
            return np.arange(count)
        return generator(self.one.fit.seed, "leverage").permutation(len(self.other.parameters) - 1)[:count]

    def run(self, responses: Sequence[float] | Floats | None) -> Leverage:
        low, high = self._seen_by_both()
        why: list[str] = []
        if responses is None:
            if low > high:
                why.append("No response was seen by both fits: no leverage without leaving the range of one.")
            responses = np.geomspace(low, high, POINTS) if 0 < low <= high else np.linspace(low, high, POINTS)
            responses = responses if low <= high else ()
        curve = tuple(self._at(float(r)) for r in responses)
        rows = [(q.cost.at(q.fit.rows.x), q.fit.rows.y) for q in (self.one, self.other)]
        from_a, from_b = (
            tuple(self._at(float(y), **{side: float(c)}) for c, y in zip(*rows[k], strict=True))
            for k, side in ((0, "cost_a"), (1, "cost_b"))
        )
        shared = self.test(self.one.fit, self.other.fit)
        why += self._words(curve, shared)
        return Leverage(*self.names, self.one.cost.text, self.level, self.paired, curve, from_a, from_b, shared,
                        self._constant(shared), tuple(why))  # fmt: skip

    def _seen_by_both(self) -> tuple[float, float]:
        a, b = self.one.fit.rows.y, self.other.fit.rows.y
        return float(max(a.min(), b.min())), float(min(a.max(), b.max()))

    def _at(self, response: float, cost_a: float | None = None, cost_b: float | None = None) -> Point:
        """The leverage at a response; a measured cost replaces that of the law."""
        ours = costs(self.one, response) if cost_a is None else np.full(len(self.one.parameters), cost_a)
        theirs = costs(self.other, response) if cost_b is None else np.full(len(self.other.parameters), cost_b)
        outside = tuple(
            name
            for name, q, c in zip(self.names, (self.one, self.other), (ours[0], theirs[0]), strict=True)
            if not self._inside(q, c)
        )
        known = [float(c) if np.isfinite(c) and c > 0 else None for c in (ours[0], theirs[0])]
        ratio = None if None in known else self._ratio(ours, theirs)
        return Point(response, ratio, known[0], known[1], outside)

    def _ratio(self, ours: Floats, theirs: Floats) -> Interval:
        """Estimate and draws of the ratio; a draw under which neither reaches the response has none."""
        if self.order is None:
            return Interval(float(ours[0] / theirs[0]))
        ours, theirs = (
            np.concatenate([v[:1], v[1:][k]]) for v, k in ((ours, slice(len(self.order))), (theirs, self.order))
        )
        with np.errstate(all="ignore"):
            return interval_of(ours / theirs, self.level)

    def _inside(self, q: Asked, cost: float) -> bool:
        seen = q.cost.at(q.fit.rows.x)
        return bool(seen.min() / BEYOND <= cost <= seen.max() * BEYOND)

    def _shared(self, a: Fit, b: Fit) -> SharedTest:
        """The likelihood ratio test where it can be had, else whether the draws of all differences contain 0."""
        apart = self._differences(a, b)
        found = likelihood_ratio(a, b, pair=self.paired, level=self.level)
        if found is not None:
            return replace(found, difference=apart)
        inside = [v.lo is not None and v.hi is not None and v.lo <= 0 <= v.hi for v in apart.values()]
        return SharedTest(bool(apart) and all(inside), "draws of the differences", None, apart)

    def _differences(self, a: Fit, b: Fit) -> dict[str, Interval]:
        """b minus a of floors and exponents, by joint draws."""
        if a.law != b.law or self.order is None:
            return {}
        ours, theirs = self.one.parameters, self.other.parameters
        theirs = np.concatenate([theirs[:1], theirs[1:][self.order]])
        apart = theirs - ours[: len(theirs)]
        scales = amplitudes(a.law) or [p.name for p in a.law.parameters if p.unit]
        return {name: interval_of(apart[:, i], self.level, positive=False)
                for i, name in enumerate(a.law.names) if name not in scales}  # fmt: skip

    def _constant(self, shared: SharedTest | None) -> Interval | None:
        """C_a / C_b of the frontiers E + K_a C^-gamma and E + K_b C^-gamma of the shared fit."""
        task = self.one.task
        if shared is None or not shared.shared or shared.together is None or not task.free.all():
            return None
        if task.cost.powers is None:
            return None
        drives = []
        for recipe in (1, 2):
            terms = powers_of(self.one.law, recipe_parameters(shared.together, self.one.law, recipe))
            if terms is None:
                return None
            drives.append(terms.lagrange(task.free, task.cost.powers[1])[1])
        return interval_of(np.exp(drives[0] - drives[1]), self.level)

    def _words(self, curve: Sequence[Point], shared: SharedTest | None) -> list[str]:
        why = [
            f"The fit of {name} is weak: {reason}"
            for name, q in zip(self.names, (self.one, self.other), strict=True)
            if q.fit.status == "weak"
            for reason in q.fit.why
        ]
        if self.order is None:
            why.append("No intervals: one of the fits has no draws.")
        if shared is not None and shared.shared:
            why.append("Floor and exponents may be shared by both: then the leverage is the same at every response.")
        elif shared is not None:
            clear = [
                k
                for k, v in (shared.difference or {}).items()
                if v.lo is not None and v.hi is not None and v.lo * v.hi > 0
            ]
            said = f" ({', '.join(clear)} differ)" if clear else ""
            why.append(f"Floor and exponents are not shared{said}: the leverage depends on the response.")
        far = sorted({name for p in curve for name in p.outside})
        if far:
            count = sum(bool(p.outside) for p in curve)
            why.append(
                f"{count} of {len(curve)} points lie beyond the costs that {' and '.join(far)} were measured at."
            )
        return why


def paired(a: Fit, b: Fit) -> bool:
    """Whether draw i of both fits resampled the same places in the same way, so that shared noise cancels.

    Draws of replicate noise are not: they would share noise that the runs did not.
    """
    alike = a.law.name == b.law.name and a.law.inputs == b.law.inputs and a.seed == b.seed
    same = a.rows.x.shape == b.rows.x.shape and np.array_equal(a.rows.x, b.rows.x)
    drawn = a.draws is not None and b.draws is not None and len(a.draws) == len(b.draws)
    methods = {a.diagnostics.method, b.diagnostics.method}
    return bool(alike and same and drawn and methods in ({"wild bootstrap"}, {"cluster bootstrap"}))
