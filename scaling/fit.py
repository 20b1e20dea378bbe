"""A fit: a law with parameters, their joint draws and the rows it saw; it says how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError
from scaling.intervals import (
    Interval,
    Method,
    choose,
    ends,
    excess_variance,
    generator,
    heavy,
    mixed_dof,
    webb,
)
from scaling.laws import Law
from scaling.solver import Objective, Problem, Solution, box, curvature, refine, scan

Status = Literal["ok", "weak", "refused"]

AUTO = Objective()
STARTS = 24  # refined places of the last fit
FEW_STARTS = 5  # of the first one, which finds weights and delta
WEAK_CONDITION, REFUSED_CONDITION = 1e3, 1e5
SMALLEST_DELTA = 1e-8  # rows that follow a law exactly have no scale of their own
SAME_THETA = 1e-6  # two starts closer than this ended in the same place
OTHER_BASIN = 0.01  # another place this close in objective makes the parameters ambiguous
ZERO_SHARE = 1e-6  # a linear term below this share of y everywhere is no term
MODEL_CUTS = 3  # rolling origins needed before a law's own error is estimated


@dataclass(frozen=True)
class Rows:
    """What a fit sees: axis x [n] > 0, response y [n], its standard errors [n] or None, names [n].

    `dof` are the degrees of freedom behind the standard errors.
    """

    x: Floats
    y: Floats
    stderr: Floats | None = None
    dof: float = 0.0
    ids: tuple[str, ...] = ()

    def sorted(self) -> Rows:
        order = np.lexsort((self.y, self.x))
        ids = tuple(self.ids[i] for i in order) if self.ids else ()
        return replace(self, x=self.x[order], y=self.y[order], ids=ids,
                       stderr=None if self.stderr is None else self.stderr[order])  # fmt: skip


@dataclass(frozen=True)
class Diagnostics:
    """How a fit came about: condition number of the scaled Jacobian, misfits, and how draws were made.

    `rms` is of the residuals; `excess` the standard deviation beyond replicate noise; `model` the law's own
    error per (1 + decades beyond the data), None where it could not be estimated; all in residual units.
    """

    condition: float = np.nan
    rms: float = np.nan
    excess: float = 0.0
    model: float | None = None
    method: Method = "none"
    unconverged_draws: int = 0
    basins: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class Predictions:
    """Values [m] with interval ends [m], or None where no interval can be given, and what the interval holds."""

    value: Floats
    lo: Floats | None
    hi: Floats | None
    basis: str


@dataclass(frozen=True)
class Fit:
    """A fitted law. `refused` fits have no parameters; `why` says what is wrong and what would cure it."""

    law: Law
    status: Status
    why: tuple[str, ...]
    rows: Rows
    objective: Objective
    value: float = np.nan  # of the objective, summed over rows
    params: dict[str, Interval] = field(default_factory=dict)
    draws: Floats | None = None  # [b, p], natural parameters
    diagnostics: Diagnostics = Diagnostics()
    level: float = 0.95
    seed: int = 0

    @property
    def point(self) -> Floats:
        """The parameters [p]."""
        return np.array([self.params[name].value for name in self.law.names])

    def predict(self, x: Floats, level: float | None = None, noise: float = 0.0) -> Predictions:
        """The law at `x` [m], with the interval of an observation whose own relative error is `noise`.

        The interval joins parameter draws, `noise` and, where it could be estimated, the law's own error; `noise`
        is in residual units (log y for a log objective). Raises AnalysisError on a refused fit.
        """
        if not self.params:
            raise AnalysisError(f"{self.law.name} over {self.law.axis} was refused: {' '.join(self.why)}")
        x = np.atleast_1d(np.asarray(x, dtype=float))
        value = self.law.value(self.point, x)
        if self.draws is None:
            return Predictions(value, None, None, "no interval")
        around = self.law.value(self.draws, x[None, :])
        spread = np.hypot(noise, self._model_error(x))
        shift = generator(self.seed, "predict", self.law.name).standard_normal(len(self.draws))[:, None] * spread
        log = self.objective.residual == "log"
        outcome = around * np.exp(shift) if log else around + shift
        level = self.level if level is None else level
        lo, hi = np.quantile(outcome, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return Predictions(value, lo, hi, self._basis(noise))

    def _model_error(self, x: Floats) -> Floats:
        if self.diagnostics.model is None:
            return np.zeros(len(x))
        beyond = np.maximum(np.log10(x / self.rows.x.max()), np.log10(self.rows.x.min() / x))
        return np.asarray(self.diagnostics.model * (1 + np.maximum(beyond, 0)))

    def _basis(self, noise: float) -> str:
        parts = ["parameters", *(["run noise"] if noise > 0 else [])]
        if self.diagnostics.model is None:
            return " + ".join(parts) + "; assumes the law holds"
        return " + ".join([*parts, "law error from rolling origin"])


def fit_law(
    law: Law,
    rows: Rows,
    *,
    objective: Objective = AUTO,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Fit:
    """Fits `law` to `rows` and says how far it can be trusted.

    Raises AnalysisError when a row can't enter the objective (non-positive x, or y under log residuals).
    """
    rows = rows.sorted()
    _check_rows(law, rows, objective)
    refused = _too_few(law, rows)
    if refused:
        return Fit(law, "refused", (refused,), rows, objective, level=level, seed=seed)
    return _Fitting(law, rows, objective, draws=draws, level=level, seed=seed).run()


def _check_rows(law: Law, rows: Rows, objective: Objective) -> None:
    for i in range(len(rows.x)):
        name = rows.ids[i] if rows.ids else f"row {i + 1}"
        if not (np.isfinite(rows.x[i]) and rows.x[i] > 0):
            raise AnalysisError(f"{name}: {law.axis} = {rows.x[i]:g}, must be > 0 for law {law.name!r}.")
        if objective.residual == "log" and not (np.isfinite(rows.y[i]) and rows.y[i] > 0):
            raise AnalysisError(f"{name}: the response is {rows.y[i]:g}, must be > 0 under residual: log.")


def _too_few(law: Law, rows: Rows) -> str | None:
    count, need = len(np.unique(rows.x)), len(law.parameters)
    if count > need:
        return None
    return (
        f"{law.name} over {law.axis}: {count} distinct {law.axis}, {need} parameters: no freedom left. "
        f"Needs >= {need + 2}{' (>= 4 for power)' if need > 2 else ''}."
    )


class _Fitting:
    """One fit in the making: weights, delta, parameters, draws, verdict."""

    def __init__(self, law: Law, rows: Rows, objective: Objective, *, draws: int, level: float, seed: int) -> None:
        self.law, self.rows, self.objective = law, rows, objective
        self.draws, self.level, self.seed = draws, level, seed
        self.log = objective.residual == "log"
        self.unit = float(np.exp(np.log(rows.x).mean())) if law.scalable else 1.0
        self.x = rows.x / self.unit
        self.y = rows.y
        self.n, self.p = len(self.x), len(law.parameters)
        self.low, self.high = box(law, self.x, self.y)
        self.noise = self._noise()
        self.excess = 0.0

    def _noise(self) -> Floats | None:
        """Standard errors in residual units, None where there are none."""
        if self.rows.stderr is None or not np.all(np.isfinite(self.rows.stderr)):
            return None
        noise = self.rows.stderr / self.y if self.log else self.rows.stderr
        return noise if np.all(noise > 0) else None

    def _scale(self) -> tuple[Floats, float]:
        """Row weights of unit typical size, and the typical standard error in residual units (0: unknown)."""
        if self.noise is None:
            return np.ones(self.n), 0.0
        sigma = np.sqrt(self.noise**2 + self.excess)
        typical = float(np.sqrt(np.mean(sigma**2)))
        return typical / sigma, typical

    def _problem(self, y: Floats, count: Floats | None = None, delta: float = np.inf) -> Problem:
        scale, _ = self._scale()
        shape = y.shape
        return Problem(
            self.law, np.broadcast_to(self.x, shape), y, np.broadcast_to(scale, shape),
            np.ones(shape) if count is None else count, delta, self.log, self.low, self.high,
        )  # fmt: skip

    def run(self) -> Fit:
        theta, _ = self._best(np.inf, FEW_STARTS)
        for _ in range(3 if self.noise is not None else 0):
            before, self.excess = self.excess, self._excess(theta)
            if self.excess == before:
                break
            theta, _ = self._best(np.inf, 1, theta)
        delta = self._delta(theta)
        if self.objective.name == "huber" and self.objective.delta is None:
            for _ in range(2):
                theta, _ = self._best(delta, 1, theta)
                delta = self._delta(theta)
        theta, solution = self._best(delta, STARTS, theta)
        return self._verdict(theta, solution, delta)

    def _best(self, delta: float, starts: int, warm: Floats | None = None) -> tuple[Floats, Solution]:
        """The best of the scan's `starts` and of `warm` [p], refined."""
        problem = self._problem(self.y[None, :], delta=delta)
        theta, which = scan(problem, starts)
        if warm is not None:
            theta, which = np.vstack([warm, theta]), np.append(0, which)
        solution = refine(problem, theta, which)
        return solution.theta[int(np.argmin(solution.objective))], solution

    def _residuals(self, theta: Floats) -> Floats:
        """Unweighted residuals [n]."""
        scale, _ = self._scale()
        return np.asarray(self._problem(self.y[None, :]).residuals(theta[None, :])[0] / scale)

    def _excess(self, theta: Floats) -> float:
        assert self.noise is not None
        return excess_variance(self._residuals(theta), self.noise, self.n - self.p)

    def _delta(self, theta: Floats) -> float:
        """The bend of the Huber function: 1.345 robust standard deviations, at least the rows' own noise.

        The median leaves out the p smallest residuals: p parameters can make p residuals vanish.
        """
        if self.objective.name == "l2":
            return np.inf
        if self.objective.delta is not None:
            return self.objective.delta
        scale, typical = self._scale()
        size = np.sort(np.abs(self._residuals(theta) * scale))[self.p :]
        spread = 1.4826 * float(np.median(size))
        return max(1.345 * spread, 1.345 * typical, SMALLEST_DELTA)

    def _verdict(self, theta: Floats, solution: Solution, delta: float) -> Fit:
        problem = self._problem(self.y[None, :], delta=delta)
        objective = replace(self.objective, delta=None if np.isinf(delta) else delta)
        condition, direction = _condition(curvature(problem, theta[None, :])[0], self.law)
        best = int(np.argmin(solution.objective))
        value = float(solution.objective[best])
        why: list[str] = []
        title = f"{self.law.name} over {self.law.axis}"
        if not solution.converged[best]:
            return self._refuse(objective, f"{title}: the solver did not converge; the parameters are not reported.")
        free = theta > self.low + 1e-3  # a vanished term makes its own column vanish
        free &= theta < self.high - 1e-9
        if condition > REFUSED_CONDITION and free.all():
            return self._refuse(objective, f"{title}: {direction} can't be told apart (condition {condition:.1e}).")
        if condition > WEAK_CONDITION and free.all():
            why.append(f"{title}: {direction} trade off (condition {condition:.1e}).")
        if len(np.unique(self.x)) == self.p + 1:
            why.append(
                f"{title}: {self.p + 1} distinct {self.law.axis}, {self.p} parameters: one degree of freedom, "
                f"so the law itself is hardly tested. Needs >= {self.p + 2}."
            )
        basins = self._basins(solution)
        if len(basins) > 1:
            shown = " and ".join(", ".join(f"{k} = {v:.4g}" for k, v in b.items()) for b in basins)
            why.append(f"{title}: {len(basins)} basins of nearly equal misfit: {shown}.")
        theta_draws, lost, method, silent = self._draws(theta, delta)
        why += [silent] if silent else []
        params, notes = self._parameters(theta, theta_draws)
        why += [f"{title}: {note}" for note in notes]
        residuals = self._residuals(theta)
        diagnostics = Diagnostics(
            condition, float(np.sqrt(np.mean(residuals**2))), float(np.sqrt(self.excess)),
            self._model_error(delta, float((residuals**2).sum())), method, lost, tuple(basins),
        )  # fmt: skip
        natural = None if theta_draws is None else self._natural(theta_draws)
        why += self._aloud(method)
        weak = len(basins) > 1 or bool(notes) or method == "none" or condition > WEAK_CONDITION
        weak |= len(np.unique(self.x)) == self.p + 1
        return Fit(self.law, "weak" if weak else "ok", tuple(why), self.rows, objective, value, params, natural,
                   diagnostics, self.level, self.seed)  # fmt: skip

    def _refuse(self, objective: Objective, why: str) -> Fit:
        return Fit(self.law, "refused", (why,), self.rows, objective, level=self.level, seed=self.seed)

    def _aloud(self, method: Method) -> list[str]:
        if method == "replicate noise" and self.excess > 0 and self.noise is not None:
            ratio = 1 + self.excess / float(np.mean(self.noise**2))
            if ratio > 4:
                return [
                    f"{self.law.name} over {self.law.axis}: the points scatter about the law {np.sqrt(ratio):.1f} "
                    "times more than replicates do; the intervals are widened for it."
                ]
        return []

    def _natural(self, theta: Floats) -> Floats:
        """Natural parameters over the axis itself; linear terms that contribute nothing are 0."""
        parameters = self.law.decode(theta)
        columns, _ = self.law.columns(parameters, self.x)
        linear = [i for i, p in enumerate(self.law.parameters) if p.linear]
        for k, i in enumerate(linear):
            share = np.abs(columns[k]).max(axis=-1) * parameters[..., i] / np.abs(self.y).min()
            if len(linear) > 1:
                parameters[..., i] = np.where(share < ZERO_SHARE, 0.0, parameters[..., i])
        return self.law.restore(parameters, self.unit)

    def _parameters(self, theta: Floats, draws: Floats | None) -> tuple[dict[str, Interval], list[str]]:
        value = self._natural(theta)
        around = None if draws is None else self._natural(draws)
        out: dict[str, Interval] = {}
        notes: list[str] = []
        for i, p in enumerate(self.law.parameters):
            lo, hi = (None, None) if around is None else ends(around[:, i], self.level)
            out[p.name] = Interval(float(value[i]), lo, hi)
            if p.linear and value[i] == 0.0:
                notes.append(f"{p.name} is at its bound 0: the data show no such term.")
            elif p.linear and lo is not None and lo <= 1e-3 * abs(value[i]):
                notes.append(f"{p.name} = {value[i]:.3g} [0, {hi:.3g}]: the data don't bound {p.name} from below.")
            elif not p.linear and (reached := self._at_box(i, theta, draws)):
                notes += reached
                out[p.name] = Interval(float(value[i]))  # the range, not the data, would make its interval
        return out, notes

    def _at_box(self, i: int, theta: Floats, draws: Floats | None) -> list[str]:
        name = self.law.parameters[i].name
        if theta[i] <= self.low[i] + 1e-6 or theta[i] >= self.high[i] - 1e-6:
            return [f"{name} is at the end of its range."]
        if draws is not None:
            share = float(np.mean((draws[:, i] <= self.low[i] + 1e-6) | (draws[:, i] >= self.high[i] - 1e-6)))
            if share > (1 - self.level) / 2:
                return [f"{name} reaches the end of its range in {share:.0%} of the draws: its interval is open there."]
        return []

    def _basins(self, solution: Solution) -> list[dict[str, float]]:
        """Distinct converged places whose objective is within 1 % of the best, best first."""
        good = solution.converged & np.isfinite(solution.objective)
        best = float(solution.objective[good].min())
        slack = OTHER_BASIN * best + 1e-14 * self.n
        found: list[Floats] = []
        for i in np.argsort(solution.objective, kind="stable"):
            theta = solution.theta[i]
            if not good[i] or solution.objective[i] > best + slack:
                continue
            if all(not self._alike(theta, other) for other in found):
                found.append(theta)
        return [dict(zip(self.law.names, self._natural(t).tolist(), strict=True)) for t in found]

    def _alike(self, a: Floats, b: Floats) -> bool:
        """Same place, or the same curve over the data."""
        if np.abs(a - b).max() < SAME_THETA:
            return True
        one, other = (self.law.value(self.law.decode(t), self.x) for t in (a, b))
        return bool(np.abs(one / other - 1).max() < SAME_THETA)

    def _draws(self, theta: Floats, delta: float) -> tuple[Floats | None, int, Method, str | None]:
        method, why = choose(self.n, self.rows.dof if self.noise is not None else 0.0)
        rng = generator(self.seed, "draws", self.law.name, self.law.axis)
        if method == "none":
            return None, 0, method, why
        y = np.broadcast_to(self.y, (self.draws, self.n))
        count = None
        if method == "cluster bootstrap":
            count = rng.multinomial(self.n, np.full(self.n, 1 / self.n), size=self.draws).astype(float)
        else:
            y = self._resample(method, theta, rng)
        problem = self._problem(y, count, delta)
        starts, which = scan(problem, 1)
        warm = np.broadcast_to(theta, (self.draws, self.p))
        solution = refine(problem, np.concatenate([warm, starts]), np.concatenate([np.arange(self.draws), which]))
        pair = solution.objective.reshape(2, self.draws)
        pick = np.argmin(pair, axis=0) * self.draws + np.arange(self.draws)
        return solution.theta[pick], int((~solution.converged[pick]).sum()), method, None

    def _resample(self, method: Method, theta: Floats, rng: np.random.Generator) -> Floats:
        """Responses [draws, n] scattered about the fitted curve."""
        centre = self.law.value(self.law.decode(theta), self.x)
        freedom = self.n - self.p
        if method == "replicate noise":
            assert self.noise is not None
            sigma = np.sqrt(self.noise**2 + self.excess)
            dof = mixed_dof(float(np.mean(self.noise**2)), self.rows.dof, self.excess, freedom)
            noise = sigma * rng.standard_normal((self.draws, self.n)) * heavy(rng, self.draws, dof)
        else:
            jacobian = curvature(self._problem(self.y[None, :]), theta[None, :])[0]
            leverage = np.clip(np.einsum("ij,ji->i", jacobian, np.linalg.pinv(jacobian)), 0, 0.999)
            corrected = self._residuals(theta) / np.sqrt(1 - leverage)
            noise = corrected * webb(rng, (self.draws, self.n)) * heavy(rng, self.draws, freedom)
        return np.asarray(centre * np.exp(noise) if self.log else centre + noise)

    def _model_error(self, delta: float, misfit: float) -> float | None:
        """The law's own error from rolling origin: fit the k smallest x, predict the rest, for every k.

        Misses beyond what noise explains, over (1 + decades from the last point seen); None under three origins.
        """
        cuts = np.arange(self.p + 1, self.n)
        if len(cuts) < MODEL_CUTS:
            return None
        count = (np.arange(self.n) < cuts[:, None]).astype(float)
        problem = self._problem(np.broadcast_to(self.y, count.shape), count, delta)
        solution = refine(problem, *scan(problem, 2))
        pick = solution.objective.reshape(len(cuts), 2).argmin(axis=1) + 2 * np.arange(len(cuts))
        theta = solution.theta[pick]
        scale, typical = self._scale()
        sigma = typical or np.sqrt(misfit / (self.n - self.p))
        jacobian = curvature(problem, theta)
        full = curvature(replace(problem, count=np.ones_like(count)), theta) / scale[:, None]
        covariance = np.linalg.pinv(np.einsum("kni,knj->kij", jacobian, jacobian)) * sigma**2
        expected = np.einsum("kni,kij,knj->kn", full, covariance, full) + (sigma / scale) ** 2
        miss = problem.residuals(theta) / scale
        beyond = np.log10(self.x / self.x[cuts - 1][:, None])
        future = count == 0
        surplus = ((miss**2 - expected) / (1 + np.maximum(beyond, 0)) ** 2)[future]
        return float(np.sqrt(max(0.0, 1.4826**2 * float(np.median(surplus)))))


def _condition(jacobian: Floats, law: Law) -> tuple[float, str]:
    """Condition number of the Jacobian [n, p] with unit columns, and the parameters its weak direction mixes."""
    size = np.linalg.norm(jacobian, axis=0)
    unit = jacobian / np.where(size > 0, size, 1.0)
    _, singular, right = np.linalg.svd(unit, full_matrices=False)
    weak = np.abs(right[-1])
    mixed = [n for n, w in zip(law.names, weak, strict=True) if w > 0.3 * weak.max()]
    text = " and ".join([", ".join(mixed[:-1]), mixed[-1]]) if len(mixed) > 1 else mixed[0]
    return (float(singular[0] / singular[-1]) if singular[-1] > 0 else np.inf), text
