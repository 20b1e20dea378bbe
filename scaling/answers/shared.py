"""Do two fits of one law share floor and exponents, so that the leverage between them is one number?"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from scaling.answers.additive import powers_of
from scaling.answers.plain import present
from scaling.arrays import Floats, Ints
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.intervals import Interval, generator
from scaling.laws import Law, law_over
from scaling.objectives import Objective, link_slopes
from scaling.resample import scattered, wild_noise
from scaling.rows import Rows
from scaling.solver import Problem, box, refine

DRAWS = 399
TAKEN = ("huber", "l2")  # objectives whose value is a likelihood's, at fixed constants
RECIPE = "recipe"  # the input that tells the fits apart: 1 and 2


@dataclass(frozen=True)
class SharedTest:
    """Whether both fits may have one floor and one set of exponents: yes, if the `p_value` of that is above 1 - level.

    `difference` has b minus a of each; `together` the fit with shared ones, over inputs divided by `unit` [d].
    """

    shared: bool
    method: str
    p_value: float | None = None
    difference: dict[str, Interval] | None = None
    together: Fit | None = None

    def to_json(self) -> dict[str, object]:
        return present({
            "shared": self.shared, "method": self.method, "p_value": self.p_value,
            "difference": {k: v.to_json() for k, v in (self.difference or {}).items()} or None,
        })  # fmt: skip


def likelihood_ratio(a: Fit, b: Fit, *, pair: bool, level: float, draws: int = DRAWS) -> SharedTest | None:
    """The bootstrap likelihood ratio test of a law with common floor and exponents, own amplitudes, against two fits.

    The statistic is the relative gain in objective of the separate fits; its distribution under the shared law comes
    from a wild bootstrap (`pair`: rows at one place share their weight), since a floor of 0 lies on a boundary. None
    where the fits are not of one law that is a sum of powers, or not of an objective that can be compared.
    """
    names = amplitudes(a.law)
    objective = _common(a, b)
    if a.law != b.law or not names or objective is None:
        return None
    unit = np.exp(np.log(np.hstack([a.rows.x, b.rows.x])).mean(axis=1))
    rows, size = _joined(a, b, unit, pair), 0 if a.draws is None else len(a.draws)
    together = fit_law(shared_law(a.law, names), rows, objective=objective, draws=size, level=level, seed=a.seed)
    if not together.params:
        return None
    problem = _problem(together.law, together.rows, replace(together.objective, name=objective.name))
    theta = together.law.encode(together.point)
    rng = generator(a.seed, "shared", a.law.name, *a.law.inputs)
    y = scattered(problem, theta, wild_noise(problem, theta, together.rows.groups, draws, rng))
    compare = _Comparison(problem, theta, (a, b), unit)
    seen = compare(together.rows.y[None])
    null = compare(y)
    p_value = float((1 + np.sum(null >= seen[0])) / (1 + np.sum(np.isfinite(null))))
    return SharedTest(p_value > 1 - level, f"likelihood ratio, {draws} wild bootstraps", p_value, None, together)


def amplitudes(law: Law) -> list[str]:
    """The parameters that only scale a term of a sum of powers; empty for other laws."""
    point = np.array([[0.5 * sum(p.start) if not p.linear else 1.0 for p in law.parameters]])
    if powers_of(law, point) is None:
        return []
    return [p.name for p in law.parameters if p.linear and p.unit]


def shared_law(law: Law, names: list[str]) -> Law:
    """`law` with an amplitude of its own for each recipe."""
    text = law.text
    for name in names:
        text = re.sub(rf"\b{name}\b", f"({name}_1*(2 - {RECIPE}) + {name}_2*({RECIPE} - 1))", text)
    bounds = {f"{name}_{k}": (0.0, np.inf) for name in names for k in (1, 2)}
    return law_over(text, (*law.inputs, RECIPE), dict(law.fixed), None, bounds)


def _common(a: Fit, b: Fit) -> Objective | None:
    one, other = a.objective, b.objective
    if one.name != other.name or one.residual != other.residual or one.name not in TAKEN:
        return None
    return one if one.delta == other.delta else replace(one, delta=None)


def _joined(a: Fit, b: Fit, unit: Floats, pair: bool) -> Rows:
    """The rows of both, over inputs divided by `unit`, with the recipe as one more input."""
    x = np.hstack([a.rows.x, b.rows.x]) / unit[:, None]
    recipe = np.repeat([1.0, 2.0], [len(a.rows), len(b.rows)])
    errors = [fit.rows.stderr for fit in (a, b) if fit.rows.stderr is not None]
    stderr = np.concatenate(errors) if len(errors) == 2 else None
    groups: Ints = np.concatenate([a.rows.groups, b.rows.groups + (0 if pair else 1 + a.rows.groups.max())])
    return Rows(np.vstack([x, recipe]), np.concatenate([a.rows.y, b.rows.y]), stderr,
                min(a.rows.dof, b.rows.dof), cluster=groups)  # fmt: skip


def _problem(law: Law, rows: Rows, objective: Objective) -> Problem:
    scale = np.ones(len(rows))
    if rows.stderr is not None:
        sigma = rows.stderr * np.abs(link_slopes(objective.residual, rows.y)[0])
        scale = float(np.sqrt(np.mean(sigma**2))) / sigma
    low, high = box(law, rows.x, rows.y)
    return Problem(law, np.log(rows.x)[:, None, :], rows.y[None], scale[None], np.ones((1, len(rows))), objective,
                   low, high)  # fmt: skip


@dataclass(frozen=True)
class _Comparison:
    """The shared law's problem and place theta [p], against the two fits over inputs divided by `unit` [d]."""

    problem: Problem
    theta: Floats
    fits: tuple[Fit, Fit]
    unit: Floats

    def __call__(self, y: Floats) -> Floats:
        """How much less the objective is for separate fits, relative to theirs, for responses y [b, n]."""
        count = len(y)
        joint = refine(replace(self.problem, y=y), np.repeat(self.theta[None], count, axis=0), np.arange(count))
        apart = sum(self._apart(y, k) for k in (0, 1))
        with np.errstate(all="ignore"):
            return np.asarray(np.maximum(joint.objective - apart, 0.0) / apart)

    def _apart(self, y: Floats, k: int) -> Floats:
        """The objective of one recipe's own fit, from its own parameters and from the shared ones."""
        whole, law = self.problem, self.fits[k].law
        mine = np.exp(whole.logs[-1, 0]).round() == k + 1
        logs = whole.logs[:-1, :, mine]
        part = Problem(
            law, logs, y[:, mine], whole.scale[:, mine], whole.count[:, mine], whole.objective,
            *box(law, np.exp(logs[:, 0]), whole.y[0, mine]),
        )  # fmt: skip
        own = law.encode(law.scaled(self.fits[k].point, self.unit))
        common = _own(self.theta, whole.law, law, k + 1)
        starts = np.concatenate([np.repeat(s[None], len(y), axis=0) for s in (own, common)])
        return refine(part, starts, np.tile(np.arange(len(y)), 2)).best(len(y))[1]


def _own(theta: Floats, shared: Law, law: Law, recipe: int) -> Floats:
    """The shared law's parameters [p] as one recipe has them, in internal coordinates."""
    values = dict(zip(shared.names, shared.decode(theta), strict=True))
    return law.encode(np.array([values.get(n, values.get(f"{n}_{recipe}")) for n in law.names], dtype=float))


def recipe_parameters(together: Fit, law: Law, recipe: int) -> Floats:
    """Parameters [1 + b, p] of `law` for one recipe of a shared fit: the estimate, then its draws."""
    everything = together.point[None] if together.draws is None else np.vstack([together.point, together.draws])
    index = [together.law.names.index(n if n in together.law.names else f"{n}_{recipe}") for n in law.names]
    return everything[:, index]
