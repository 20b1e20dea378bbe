"""Which runs would teach most about a quantity per unit of cost: optimal design on a fit's own joint draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np

from scaling.answers.allocate import best_places
from scaling.answers.asked import Goal as Direction
from scaling.answers.asked import asked
from scaling.answers.invert import costs
from scaling.arrays import Bools, Floats
from scaling.design import middle_of, possible, sensitivity, weak_direction
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.fitting import problem_of
from scaling.identify import WEAK_CONDITION, condition
from scaling.intervals import generator
from scaling.laws import Law
from scaling.objectives import Residual, linked, unlinked
from scaling.resample import refit

Aim = Literal["goal", "weak direction", "test"]
Goal = Callable[[Floats], Floats]  # parameters [b, p] -> the quantity asked about [b]

PER_PLACE = 3
MOST_RUNS = 10
TEST_EVERY = 5
WEAK_PICKS = 2
FAR_DRAW = 6.0  # robust standard deviations from the median beyond which a draw may not stretch a covariance
MATTERS = 0.01  # of a variance: a run that lowers it by less is not worth its trouble
AS_GOOD = 1.05  # a plan this close in standard error is preferred if it costs less
TRUTHS = 64  # draws at which the law is made linear
SLOPE_STEP, RIDGE = 1e-4, 1e-12
SIMULATIONS = 400


@dataclass(frozen=True)
class Pick:
    """One run to add: where, at which cost, what for, and the goal's standard error before and after it."""

    at: Mapping[str, float]
    cost: float
    aim: Aim
    before: float
    after: float


@dataclass(frozen=True)
class Plan:
    """Runs to add, in order. `before` and `after` are standard errors of the goal; `condition` is that of the fit's
    Jacobian without and with the runs, where the fit's parameters trade off."""

    goal: str
    picks: tuple[Pick, ...]
    budget: float
    before: float
    after: float
    unit: str = "FLOP"
    condition: tuple[float, float] | None = None
    why: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        return float(sum(p.cost for p in self.picks))

    @property
    def text(self) -> str:
        """`3 runs, 4e18 FLOP: s.e. of log n_params at 1e22 from 0.31 to 0.12.`"""
        if not self.picks:
            return (
                f"No run within {self.budget:.3g} {self.unit} would lower the variance of {self.goal} by "
                f"{MATTERS:.0%}: its s.e. stays {self.before:.3g}."
            )
        runs = "1 run" if len(self.picks) == 1 else f"{len(self.picks)} runs"
        head = f"{runs}, {self.cost:.3g} {self.unit}: s.e. of {self.goal} from {self.before:.3g} to {self.after:.3g}"
        if self.condition is None:
            return f"{head}."
        return f"{head}, condition from {self.condition[0]:.2g} to {self.condition[1]:.2g}."

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        picks = [{"at": dict(p.at), "cost": p.cost, "aim": p.aim, "before": p.before, "after": p.after}
                 for p in self.picks]  # fmt: skip
        made = {"goal": self.goal, "budget": self.budget, "cost": self.cost, "unit": self.unit, "before": self.before,
                "after": self.after, "picks": picks, "why": list(self.why)}  # fmt: skip
        return made if self.condition is None else made | {"condition": list(self.condition)}


# -- goals -------------------------------------------------------------------------------------------


def prediction_goal(law: Law, at: Mapping[str, float], residual: Residual = "log") -> Goal:
    """The law's response at a place, in residual units. Raises AnalysisError for a missing or unknown input."""
    for name, value in at.items():
        if name not in law.inputs:
            raise AnalysisError(f"goal: {law.name} has no input {name!r}.{nearest(name, law.inputs)}")
        if not (np.isfinite(value) and value > 0):
            raise AnalysisError(f"goal: {name} = {value:g}, must be a finite number > 0.")
    for name in law.inputs:
        if name not in at:
            raise AnalysisError(f"goal: {name} is missing; {law.name} is over {law.over}.")
    x = np.array([[at[name]] for name in law.inputs])
    return lambda parameters: linked(residual, law.value(parameters, x[:, None, :]))[:, 0]


def parameter_goal(law: Law, name: str) -> Goal:
    """One parameter, such as an exponent. Raises AnalysisError for one that the law doesn't have."""
    if name not in law.names:
        raise AnalysisError(f"goal: {law.name} has no parameter {name!r}.{nearest(name, law.names)}")
    i = law.names.index(name)
    return lambda parameters: np.asarray(parameters[..., i])


def best_input_goal(fit: Fit, name: str, budget: float, cost: str | None = None, goal: Direction = "min") -> Goal:
    """The logarithm of the best value of an input at a budget, such as log N* at 1e22 FLOP.

    `cost` as for `scaling.answers.allocate.allocate`. Raises AnalysisError for an unknown input or a wrong cost.
    """
    if name not in fit.law.inputs:
        raise AnalysisError(f"goal: {fit.law.name} has no input {name!r}.{nearest(name, fit.law.inputs)}")
    question, i = asked(fit, cost, goal=goal), fit.law.inputs.index(name)
    return lambda parameters: best_places(replace(question, parameters=parameters), budget).u[i]


def reach_goal(fit: Fit, response: float, cost: str | None = None, goal: Direction = "min") -> Goal:
    """The logarithm of the least cost that reaches a response.

    Against another recipe, whose fit the new runs don't touch, it moves like the logarithm of the compute leverage.
    """
    question = asked(fit, cost, goal=goal)

    def least(parameters: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(costs(replace(question, parameters=parameters), response))

    return least


# -- plans -------------------------------------------------------------------------------------------


def candidates(fit: Fit, kind: Literal["grid", "cells"] = "grid", per_input: int = 7, beyond: float = 10.0) -> Floats:
    """Places [d, m] that could be run: those of the rows (`cells`), and a grid over them (`grid`).

    The grid goes on to `beyond` times the largest value of each input, but not to smaller ones than the rows have,
    nor to ratios of inputs (tokens per parameter) more than `beyond` times outside theirs: laws fail there first.
    """
    cells = np.unique(fit.rows.x, axis=1)
    if kind == "cells":
        return cells
    axes = [np.geomspace(v.min(), v.max() * beyond, per_input) for v in cells]
    grid = np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(cells), -1)
    near = possible(fit.law, grid)
    for i, j in combinations(range(len(cells)), 2):
        seen, ratio = cells[i] / cells[j], grid[i] / grid[j]
        near &= (ratio >= seen.min() / beyond) & (ratio <= seen.max() * beyond)
    both = np.hstack([cells, grid[:, near]])
    return both[:, np.unique(np.log(both).round(9), axis=1, return_index=True)[1]]


def next_experiments(
    fit: Fit,
    goal: Goal | Floats,
    places: Floats,
    cost: Floats,
    budget: float,
    *,
    name: str = "the goal",
    unit: str = "FLOP",
    noise: float | None = None,
    per_place: int = PER_PLACE,
    most: int = MOST_RUNS,
) -> Plan:
    """The runs at `places` [d, m] of `cost` [m] that shrink the variance of `goal` most, within `budget`.

    `goal` is a function of the parameters, or its values [b] for the fit's own draws (a leverage against another
    fit, say). One run of noise s at x lowers Var q by Cov(q, f(x))^2 / (Var f(x) + s^2), f in residual units; after
    each choice all covariances are conditioned on it, as in Bayesian linear regression. Runs are taken by gain per
    cost, and once more by gain alone; the better plan is kept, of two alike the cheaper one. A place is taken at most
    `per_place` times, and only where it lowers the variance by 1 % or more.

    Where the fit's parameters trade off, draws bend away from any normal: there, variances are those of the law made
    linear at several draws (Chaloner and Verdinelli 1995, section 4), their middle over the draws, and the first two
    runs are chosen for the combination of parameters that the rows tell least of. One run in five is as dear and as
    far outside the rows as a fifth of the budget allows: the criterion believes the law, that run tests it. `noise`
    is the standard deviation of one run in residual units, by default the scatter of the rows.

    Raises AnalysisError for a fit without draws, costs that aren't positive, or a goal without variance.
    """
    if fit.draws is None:
        raise AnalysisError(
            f"{fit.law.name} over {fit.law.over}: without draws nothing can be designed. {' '.join(fit.why)}"
        )
    places = fit.law.shaped(places)
    if not (np.isfinite(cost) & (cost > 0)).all():
        raise AnalysisError("the cost of every candidate must be a finite number > 0.")
    values, lost = _values(fit, goal)
    design = _Design(fit, places, cost, budget, (name, unit), scatter(fit) if noise is None else noise, per_place, most)
    made: _Joint | _Local = _Joint.of(fit, values, places)
    if design.weak and callable(goal):
        made = _Local.of(fit, goal, places, float(np.var(tamed(values[:, None])))) or made
    plans = [design.plan(made, per_cost) for per_cost in (True, False)]
    best = min(plans, key=lambda p: p.after)
    plan = min((p for p in plans if p.after <= AS_GOOD * best.after), key=lambda p: p.cost)
    why = [f"In {lost:.1%} of the draws {name} has no value; they are left out."] if lost > 0 else []
    why += ["Standard errors are rough where parameters trade off: simulate the plan."] if design.weak else []
    return replace(plan, why=(*plan.why, *why))


def scatter(fit: Fit) -> float:
    """The standard deviation of the rows about the law, in residual units."""
    return float(np.sqrt(np.mean(fit.scatter() ** 2)))


def _values(fit: Fit, goal: Goal | Floats) -> tuple[Floats, float]:
    """The goal for each draw [b], and the share of draws where it has no value (the middle of the others is there)."""
    assert fit.draws is not None
    with np.errstate(all="ignore"):
        values = np.array(goal(fit.draws) if callable(goal) else goal, dtype=float)
    if values.shape != (len(fit.draws),):
        raise AnalysisError(f"goal: {values.shape} values for {len(fit.draws)} draws.")
    known = np.isfinite(values)
    if known.mean() < 0.5:
        raise AnalysisError("goal: it has no value in most of the draws.")
    values[~known] = np.median(values[known])
    if not np.ptp(values) > 0:
        raise AnalysisError("goal: it is the same in every draw; no run can teach about it.")
    return values, float(1 - known.mean())


@dataclass(frozen=True)
class _Design:
    """The choice among places [d, m] of cost [m], with noise s of one run."""

    fit: Fit
    places: Floats
    cost: Floats
    budget: float
    words: tuple[str, str]  # the goal's name, and the unit of cost
    s: float
    per_place: int
    most: int

    @property
    def weak(self) -> bool:
        """Whether the fit's parameters trade off."""
        return self.fit.diagnostics.condition > WEAK_CONDITION

    def plan(self, joint: _Joint | _Local, per_cost: bool) -> Plan:
        first, room, used = joint, self.budget, np.zeros(len(self.cost), dtype=int)
        picks: list[Pick] = []
        chosen: list[int] = []
        while len(picks) < self.most:
            able = (self.cost <= room * (1 + 1e-12)) & (used < self.per_place)
            aim, j = self._next(joint, able, picks, per_cost)
            if j is None:
                break
            before, joint = joint.error, joint.given(j, self.s)
            picks.append(Pick(self.place(j), float(self.cost[j]), aim, before, joint.error))
            room -= float(self.cost[j])
            used[j] += 1
            chosen.append(j)
        kappa = self._conditions(chosen) if self.weak else None
        name, unit = self.words
        return Plan(name, tuple(picks), self.budget, first.error, joint.error, unit, kappa, self.fit.why)

    def _next(
        self, joint: _Joint | _Local, able: Bools, picks: Sequence[Pick], per_cost: bool
    ) -> tuple[Aim, int | None]:
        if len(picks) % TEST_EVERY == TEST_EVERY - 1:
            tested = [p.at for p in picks if p.aim == "test"]
            dear = self._dearest(able & [self.place(j) not in tested for j in range(len(able))])
            if dear is not None:
                return "test", dear
        aim: Aim = "weak direction" if self.weak and len(picks) < WEAK_PICKS else "goal"
        gain = joint.gain(self.s, of=1 if aim == "weak direction" else 0)
        able = able & (gain >= MATTERS)
        if not able.any():
            return aim, None
        return aim, int(np.argmax(np.where(able, gain / self.cost if per_cost else gain, -1.0)))

    def place(self, j: int) -> dict[str, float]:
        return dict(zip(self.fit.law.inputs, self.places[:, j].tolist(), strict=True))

    def _dearest(self, able: Bools) -> int | None:
        """Of the dearest third that a fifth of the budget can pay, the place farthest outside the rows."""
        able = able & (self.cost <= self.budget / TEST_EVERY)
        if not able.any():
            return None
        index = np.flatnonzero(able & (self.cost >= np.quantile(self.cost[able], 2 / 3)))
        return int(index[np.lexsort((self.cost[index], self.outside[index]))[-1]])

    @cached_property
    def outside(self) -> Floats:
        """How far each place lies outside the rows [m]; distances below rounding are 0."""
        return beyond(self.fit.rows.x, self.places).round(9)

    def _conditions(self, chosen: list[int]) -> tuple[float, float]:
        law, x = self.fit.law, self.fit.rows.x
        both = (x, np.hstack([x, self.places[:, chosen]]))
        found = [condition(sensitivity(law, self.fit.point, v, self.fit.objective.residual), law.names)[0]
                 for v in both]  # fmt: skip
        return found[0], found[1]


def beyond(rows: Floats, places: Floats) -> Floats:
    """How far places [d, m] lie outside the convex hull of rows [d, n], in logarithms [m]."""
    from scipy.optimize import nnls

    inner, outer = np.log(np.unique(rows, axis=1)), np.log(places)
    heavy = 1e3 * (1 + np.abs(inner).max())  # makes the weights of a point of the hull sum to 1
    matrix = np.vstack([inner - inner.mean(axis=1, keepdims=True), np.full(inner.shape[1], heavy)])
    targets = np.vstack([outer - inner.mean(axis=1, keepdims=True), np.full(outer.shape[1], heavy)])
    return np.array([nnls(matrix, target)[1] for target in targets.T])


@dataclass(frozen=True)
class _Joint:
    """Covariances of the goal, of the weak direction and of the responses at m places.

    `columns` [b, 2 + m] are centred draws; each of `known` [2 + m] is the covariance with one added run, divided by
    that run's own standard deviation.
    """

    columns: Floats
    variance: Floats
    known: tuple[Floats, ...] = ()

    @classmethod
    def of(cls, fit: Fit, values: Floats, places: Floats) -> _Joint:
        law, residual = fit.law, fit.objective.residual
        assert fit.draws is not None
        direction = weak_direction(sensitivity(law, fit.point, fit.rows.x, residual))
        theta = np.nan_to_num(law.encode(law.scaled(fit.draws, middle_of(law, fit.rows.x))), neginf=np.nan)
        weak = np.nan_to_num(theta - np.nanmedian(theta, axis=0)) @ direction
        responses = linked(residual, law.value(fit.draws, places[:, None, :]))
        columns = tamed(np.column_stack([values, weak, responses]))
        return cls(columns, (columns**2).sum(axis=0) / (len(columns) - 1))

    @property
    def error(self) -> float:
        """The goal's standard error."""
        return float(np.sqrt(max(self.variance[0], 0.0)))

    def covariance(self, j: int) -> Floats:
        """With column j [2 + m]."""
        made: Floats = self.columns.T @ self.columns[:, j] / (len(self.columns) - 1)
        for seen in self.known:
            made = made - seen * seen[j]
        return made

    def gain(self, s: float, of: int = 0) -> Floats:
        """By which share one run at each place lowers the variance of column `of` [m]."""
        spread = np.maximum(self.variance[2:], 0.0) + s * s
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num(self.covariance(of)[2:] ** 2 / (spread * self.variance[of])))

    def given(self, j: int, s: float) -> _Joint:
        """After one run of noise s at place j."""
        column = self.covariance(2 + j)
        seen = column / np.sqrt(column[2 + j] + s * s)
        return replace(self, variance=self.variance - seen**2, known=(*self.known, seen))


@dataclass(frozen=True)
class _Local:
    """The same where parameters trade off: covariances of the law made linear at k truths.

    `cover` [k, p, p] is that of the internal coordinates, `wanted` [k, 2, p] the slopes of the goal and the weak
    direction, `slopes` [k, m, p] those of the responses; `most` is the goal's variance among the draws.
    """

    cover: Floats
    wanted: Floats
    slopes: Floats
    most: float

    @classmethod
    def of(cls, fit: Fit, goal: Goal, places: Floats, most: float) -> _Local | None:
        """None where the goal has no slope at enough of the truths."""
        law, residual, x = fit.law, fit.objective.residual, fit.rows.x
        assert fit.draws is not None
        middle, s = middle_of(law, x), scatter(fit)
        truths = np.vstack([fit.point, fit.draws[:: max(1, len(fit.draws) // TRUTHS)]])
        theta = law.encode(law.scaled(truths, middle))
        inside = np.isfinite(theta).all(axis=1)
        truths, theta = truths[inside], theta[inside]
        slope = _slopes(lambda t: goal(law.restore(law.decode(t), middle)), theta)
        made = []
        for truth, wanted in zip(truths, slope, strict=True):
            rows, new = (sensitivity(law, truth, v, residual, middle=middle) for v in (x, places))
            if np.isfinite(wanted).all() and np.isfinite(rows).all() and np.isfinite(new).all():
                made.append((_inverse(rows) * s * s, np.vstack([wanted, weak_direction(rows)]), new))
        if len(made) < TRUTHS / 2:
            return None
        cover, both, slopes = (np.array(part) for part in zip(*made, strict=True))
        return cls(cover, both, slopes, most)

    @property
    def error(self) -> float:
        """The goal's standard error at the middle truth, never above that of the draws."""
        own = np.einsum("ki,kij,kj->k", self.wanted[:, 0], self.cover, self.wanted[:, 0])
        return float(np.sqrt(np.clip(np.median(own), 0.0, self.most)))

    def gain(self, s: float, of: int = 0) -> Floats:
        """By which share one run at each place lowers the variance of the goal (0) or the weak direction (1) [m]."""
        towards = np.einsum("kij,kj->ki", self.cover, self.wanted[:, of])
        own = np.einsum("ki,ki->k", towards, self.wanted[:, of])[:, None]
        spread = np.einsum("kmi,kij,kmj->km", self.slopes, self.cover, self.slopes, optimize=True)
        with np.errstate(all="ignore"):
            share = np.einsum("kmi,ki->km", self.slopes, towards) ** 2 / ((np.maximum(spread, 0.0) + s * s) * own)
        return np.asarray(np.nan_to_num(share).mean(axis=0))

    def given(self, j: int, s: float) -> _Local:
        """After one run of noise s at place j."""
        column = np.einsum("kij,kj->ki", self.cover, self.slopes[:, j])
        spread = np.maximum(np.einsum("ki,ki->k", column, self.slopes[:, j]), 0.0) + s * s
        return replace(self, cover=self.cover - column[:, :, None] * column[:, None, :] / spread[:, None, None])


def _slopes(function: Callable[[Floats], Floats], theta: Floats) -> Floats:
    """Central differences [k, p] of a function of [b, p] at theta [k, p]."""
    step = SLOPE_STEP * np.eye(theta.shape[1])
    both = theta[:, None, None, :] + np.array([step, -step])[None]
    with np.errstate(all="ignore"):
        values = function(both.reshape(-1, theta.shape[1])).reshape(both.shape[:3])
        return np.asarray((values[:, 0] - values[:, 1]) / (2 * SLOPE_STEP))


def _inverse(columns: Floats) -> Floats:
    """(J'J)^-1 [p, p] for unit noise, with a ridge that is nothing beside what rows tell."""
    size = np.linalg.norm(columns, axis=0)
    size = np.where(size > 0, size, 1.0)
    unit = columns / size
    return np.asarray(np.linalg.inv(unit.T @ unit + RIDGE * np.eye(len(size))) / np.outer(size, size))


def tamed(columns: Floats) -> Floats:
    """Draws [b, k] less their means; those far out, or without a value, may not stretch a covariance."""
    with np.errstate(invalid="ignore"):
        columns = np.where(np.isfinite(columns), columns, np.nan)
    middle = np.nan_to_num(np.nanmedian(columns, axis=0))
    spread = 1.4826 * np.nan_to_num(np.nanmedian(np.abs(columns - middle), axis=0))
    reach = np.where(spread > 0, FAR_DRAW * spread, np.inf)
    made = np.clip(np.where(np.isnan(columns), middle, columns), middle - reach, middle + reach)
    return np.asarray(made - made.mean(axis=0))


# -- scores ------------------------------------------------------------------------------------------


def score(
    fit: Fit, goal: Goal, plan: Plan, *, noise: float | None = None, seed: int = 0, simulations: int = SIMULATIONS
) -> float:
    """The standard error of the goal that a plan reaches in simulated experiments.

    Truths are drawn from the fit's draws; all rows and the plan's runs are simulated from them, with the fit's own
    scatter and its rows' weights, and fitted again: the standard deviation of (goal of the fit - goal of the truth).

    Raises AnalysisError for a plan without runs, a fit without draws, or an objective that can't be fitted in bulk.
    """
    if not plan.picks:
        raise AnalysisError("a plan without runs has nothing to simulate.")
    if fit.draws is None:
        raise AnalysisError(f"{fit.law.name} over {fit.law.over}: without draws nothing can be simulated.")
    problem, theta, unit = problem_of(fit)
    rng = generator(seed, "score", fit.law.name, *fit.law.inputs)
    typical = float(np.sqrt(np.mean((fit.scatter() * problem.scale[0]) ** 2)))
    s = scatter(fit) if noise is None else noise
    added = np.array([[p.at[name] for p in plan.picks] for name in fit.law.inputs])
    truths = fit.draws[rng.integers(0, len(fit.draws), simulations)]
    x = np.hstack([fit.rows.x, added])
    scale = np.append(problem.scale[0], np.full(len(plan.picks), typical / s))
    residual = fit.objective.residual
    centre = linked(residual, fit.law.value(truths, x[:, None, :]))
    y = unlinked(residual, centre + typical / scale * rng.standard_normal(centre.shape))
    made = replace(
        problem, logs=np.log(x / unit[:, None])[:, None, :], y=y, scale=scale[None], count=np.ones((1, x.shape[1])),
        censored=None,
    )  # fmt: skip
    found = fit.law.restore(fit.law.decode(refit(made, theta, []).theta), unit)
    with np.errstate(all="ignore"):
        off = goal(found) - goal(truths)
    return float(np.std(tamed(off[np.isfinite(off)][:, None])))
