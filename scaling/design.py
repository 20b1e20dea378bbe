"""Which runs would teach most about a question per unit of cost: optimal design on a fit's own joint draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.fitting import problem_of
from scaling.identify import WEAK_CONDITION, condition
from scaling.intervals import generator
from scaling.laws import Law
from scaling.objectives import linked, unlinked
from scaling.resample import refit

Aim = Literal["goal", "weak direction", "test"]
Goal = Callable[[Floats], Floats]  # parameters [b, p] -> the quantity asked about [b]

PER_PLACE = 3
TEST_EVERY = 5
WEAK_PICKS = 2
MOST = 12  # runs of a plan: after them it should be made anew
LITTLE = 0.01  # of the goal's variance: a run that lowers it by less is not worth a line
WINSOR = 0.005  # share of draws at either end that may not stretch a covariance
SIMULATIONS = 200


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
    """Runs to add, in order; `before` and `after` are the standard errors of the goal."""

    goal: str
    picks: tuple[Pick, ...]
    budget: float
    before: float
    after: float
    unit: str = "FLOP"
    why: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        return float(sum(p.cost for p in self.picks))

    @property
    def text(self) -> str:
        """`3 runs, 4e18 FLOP: s.e. of log n_params at 1e22 from 0.31 to 0.12`."""
        if not self.picks:
            return f"No run within {self.budget:.3g} {self.unit} would teach anything about {self.goal}."
        runs = "1 run" if len(self.picks) == 1 else f"{len(self.picks)} runs"
        return f"{runs}, {self.cost:.3g} {self.unit}: s.e. of {self.goal} from {self.before:.3g} to {self.after:.3g}."

    def to_json(self) -> dict[str, Any]:
        picks = [{"at": dict(p.at), "cost": p.cost, "aim": p.aim, "before": p.before, "after": p.after}
                 for p in self.picks]  # fmt: skip
        return {"goal": self.goal, "budget": self.budget, "cost": self.cost, "before": self.before,
                "after": self.after, "picks": picks, "why": list(self.why)}  # fmt: skip


def prediction_goal(law: Law, at: Mapping[str, float], residual: Literal["log", "linear", "logit"] = "log") -> Goal:
    """The law's response at a place, in residual units. Raises AnalysisError for a missing or unknown input."""
    for name in at:
        if name not in law.inputs:
            raise AnalysisError(f"goal: {law.name} has no input {name!r}.{nearest(name, law.inputs)}")
    for name in law.inputs:
        if name not in at:
            raise AnalysisError(f"goal: {name} is missing; {law.name} is over {law.over}.")
    x = np.array([[at[name]] for name in law.inputs])
    return lambda parameters: np.asarray(linked(residual, law.value(parameters, x[:, None, :]))[:, 0])


def parameter_goal(law: Law, name: str) -> Goal:
    """One parameter. Raises AnalysisError for one that the law doesn't have."""
    if name not in law.names:
        raise AnalysisError(f"goal: {law.name} has no parameter {name!r}.{nearest(name, law.names)}")
    i = law.names.index(name)
    return lambda parameters: np.asarray(parameters[..., i])


def candidates(fit: Fit, per_input: int = 7, beyond: float = 10.0) -> Floats:
    """Places [d, m] that could be run: those of the rows, and a grid in logarithms around them."""
    x = fit.rows.x
    axes = [np.geomspace(v.min() / np.sqrt(beyond), v.max() * beyond, per_input) for v in x]
    grid = np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(x), -1)
    return np.asarray(np.hstack([np.unique(x, axis=1), grid]))


def next_runs(
    fit: Fit,
    goal: Goal,
    places: Floats,
    cost: Floats,
    budget: float,
    *,
    name: str = "the goal",
    noise: float | None = None,
    per_place: int = PER_PLACE,
    most: int = MOST,
) -> Plan:
    """The runs at `places` [d, m] of `cost` [m] that shrink the variance of `goal` most per cost, within `budget`.

    One run of noise s at x lowers Var q by Cov(q, f(x))^2 / (Var f(x) + s^2); after each choice all covariances are
    updated, as for the next run of a Bayesian linear regression. Where parameters trade off, the first runs are
    those that the fit knows least about per cost. One run in five is as dear and as far from the rows as the budget
    allows: the criterion believes the law, that run tests it. `noise` is the standard deviation of one run in
    residual units, by default the scatter of the rows.

    Raises AnalysisError for a fit without draws.
    """
    if fit.draws is None:
        raise AnalysisError(
            f"{fit.law.name} over {fit.law.over}: without draws nothing can be designed. {' '.join(fit.why)}"
        )
    s = float(np.std(fit.scatter())) if noise is None else noise
    affordable = cost <= budget
    places, cost = places[:, affordable], cost[affordable]
    covariance = _joint(fit, goal, places)
    room, used = budget, np.zeros(len(cost), dtype=int)
    weak = WEAK_PICKS if fit.diagnostics.condition > WEAK_CONDITION else 0
    before = float(np.sqrt(covariance[0, 0]))
    picks: list[Pick] = []
    while len(picks) < most:
        able = (cost <= room) & (used < per_place)
        if not able.any():
            break
        aim: Aim = "weak direction" if len(picks) < weak else "goal"
        if len(picks) % TEST_EVERY == TEST_EVERY - 1 and (able & (used == 0)).any():
            aim = "test"
        worth = _worth(covariance, s) if aim != "weak direction" else _information(covariance, s)
        j = (
            _farthest(fit, places, cost, able & (used == 0))
            if aim == "test"
            else int(np.argmax(np.where(able, worth / cost, -1.0)))
        )
        if aim == "goal" and worth[j] < LITTLE * covariance[0, 0]:
            break
        was = float(np.sqrt(covariance[0, 0]))
        covariance = _after(covariance, j + 1, s)
        picks.append(Pick(
            dict(zip(fit.law.inputs, places[:, j].tolist(), strict=True)), float(cost[j]), aim, was,
            float(np.sqrt(max(covariance[0, 0], 0.0)))))  # fmt: skip
        room -= float(cost[j])
        used[j] += 1
    after = picks[-1].after if picks else before
    return Plan(name, tuple(picks), budget, before, after, why=tuple(fit.why))


def _joint(fit: Fit, goal: Goal, places: Floats) -> Floats:
    """Covariance [m + 1, m + 1] of the goal and the responses at `places`, in residual units."""
    assert fit.draws is not None
    spread = fit.spread(places)
    assert spread is not None
    with np.errstate(all="ignore"):
        columns = np.column_stack([goal(fit.draws), linked(fit.objective.residual, spread)])
    low, high = np.nanquantile(columns, [WINSOR, 1 - WINSOR], axis=0)
    return np.atleast_2d(np.cov(np.clip(np.nan_to_num(columns), low, high), rowvar=False))


def _worth(covariance: Floats, s: float) -> Floats:
    """How much one run at each place lowers the variance of the goal [m]."""
    return np.asarray(covariance[0, 1:] ** 2 / (np.diag(covariance)[1:] + s * s))


def _information(covariance: Floats, s: float) -> Floats:
    """What one run at each place tells of the parameters, in nats [m] (D-optimality)."""
    return np.asarray(0.5 * np.log1p(np.diag(covariance)[1:] / (s * s)))


def _after(covariance: Floats, j: int, s: float) -> Floats:
    column = covariance[:, j]
    return np.asarray(covariance - np.outer(column, column) / (covariance[j, j] + s * s))


def _farthest(fit: Fit, places: Floats, cost: Floats, able: Any) -> int:
    """Of the dearest third of what can be afforded, the place farthest from all rows in logarithms."""
    dear = able & (cost >= np.quantile(cost[able], 2 / 3))
    apart = np.abs(np.log(places[:, :, None]) - np.log(fit.rows.x[:, None, :])).sum(axis=0).min(axis=1)
    return int(np.argmax(np.where(dear, apart, -1.0)))


def score(fit: Fit, goal: Goal, plan: Plan, *, noise: float | None = None, seed: int = 0) -> float:
    """The plan's standard error by simulation: truths from the draws, runs from the truth, everything fitted again.

    Raises AnalysisError for a plan without runs.
    """
    if not plan.picks:
        raise AnalysisError("a plan without runs has nothing to simulate.")
    if fit.draws is None:
        raise AnalysisError(f"{fit.law.name} over {fit.law.over}: without draws nothing can be simulated.")
    rng = generator(seed, "score", fit.law.name)
    s = float(np.std(fit.scatter())) if noise is None else noise
    added = np.array([[p.at[name] for p in plan.picks] for name in fit.law.inputs])
    truths = fit.draws[rng.integers(0, len(fit.draws), SIMULATIONS)]
    x = np.hstack([fit.rows.x, added])
    residual = fit.objective.residual
    centre = linked(residual, fit.law.value(truths, x[:, None, :]))
    y = unlinked(residual, centre + s * rng.standard_normal(centre.shape))
    problem, theta, unit = problem_of(fit)
    made = replace(
        problem, logs=np.log(x / unit[:, None])[:, None, :], y=y, scale=np.ones((1, x.shape[1])),
        count=np.ones((1, x.shape[1])), censored=None,
    )  # fmt: skip
    found = fit.law.restore(fit.law.decode(refit(made, theta, []).theta), unit)
    return float(np.std(goal(found) - goal(truths)))


# -- before any run ----------------------------------------------------------------------------------


def design_condition(law: Law, parameters: Floats, x: Floats) -> tuple[float, str]:
    """Condition number of a design x [d, n] under a guess of the parameters [p], and what it can't tell apart.

    Of the Jacobian of log f in log parameters, amplitudes taken at the middle of the inputs, columns of unit length:
    below 1e3 the parameters can be told apart, above 1e5 they can't.
    """
    unit = np.exp(np.log(x).mean(axis=1)) if law.scales is not None else np.ones(len(x))
    theta = law.encode(law.scaled(parameters, unit))
    jet = law.jet(theta[None, :], np.log(x / unit[:, None])[:, None, :])
    columns = np.array([np.broadcast_to(g, jet.value.shape)[0] / jet.value[0] for g in jet.gradient]).T
    return condition(columns, law.names)


def cure(law: Law, parameters: Floats, x: Floats, offered: Floats, runs: int = 2) -> tuple[Sequence[int], float]:
    """Which `runs` of the `offered` places [d, m] make a design x [d, n] best conditioned, and its number then."""
    chosen: list[int] = []
    for _ in range(runs):
        tried = [
            design_condition(law, parameters, np.hstack([x, offered[:, [*chosen, j]]]))[0]
            for j in range(offered.shape[1])
        ]
        chosen.append(int(np.argmin(tried)))
    return chosen, design_condition(law, parameters, np.hstack([x, offered[:, chosen]]))[0]
