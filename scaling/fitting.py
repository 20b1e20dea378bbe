"""Making a fit: weights, the constants of the objective, the optimum and its rivals, draws, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.fits import Diagnostics, Fit
from scaling.identify import REFUSED_CONDITION, WEAK_CONDITION, collinear, condition
from scaling.intervals import Interval, Method, choose, ends, excess_variance, generator, heavy, mixed_dof
from scaling.laws import Law
from scaling.objectives import Objective, link_slopes, linked
from scaling.origin import ModelError, model_error
from scaling.profile import misfit_scale, profile
from scaling.resample import cluster_counts, refit, scattered, stretched, wild_noise
from scaling.rows import Rows, cost_of
from scaling.solver import Problem, Solution, box, curvature, refine
from scaling.solver import starts as scanned_starts

Search = Literal["global", "start"]

AUTO = Objective()
STARTS = 24  # refined places of the last fit
EARLY_ROUNDS, HOPE = 25, 1.5  # after so many rounds, starts this far above the best are left
FEW_STARTS = 5  # of the first one, which finds weights and delta
SMALLEST_DELTA = 1e-8  # rows that follow a law exactly have no scale of their own
LAD_DELTA = 1e-6  # of the residuals' own scale: where the bend no longer matters
SAME_THETA = 1e-6  # two starts closer than this ended in the same place
OTHER_BASIN = 0.01  # another place this close in objective makes the parameters ambiguous
ZERO_SHARE = 1e-6  # a linear term below this share of y everywhere is no term
WEAK_SLACK = 1.3  # where parameters trade off, other places are tried more readily
DELTA_CONDITION, DELTA_AGREES = 100.0, 1.2
HARMLESS = 1e-4  # relative error of a parameter that a bad condition may amplify residuals to
ABSURD_NOISE = 10.0  # a standard error of ten times the response is no standard error
SIGMA_ROUNDS, SIGMA_TOLERANCE = 100, 1e-9


def fit_law(
    law: Law,
    rows: Rows,
    *,
    objective: Objective = AUTO,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    start: Mapping[str, float] | None = None,
    search: Search = "global",
) -> Fit:
    """Fits `law` to `rows` and says how far it can be trusted.

    `start` adds a start at these natural parameters; with `search="start"` it is the only one, and the fit may be a
    local optimum. `draws=0` gives no intervals.

    Raises AnalysisError when a row can't enter the objective (non-positive x, or y under log residuals).
    """
    if rows.x.shape[0] != len(law.inputs):
        raise AnalysisError(f"{law.name} has the inputs {law.over}: rows of {rows.x.shape[0]} were given.")
    rows = rows.sorted()
    rows.check(law, objective)
    refused = _too_few(law, rows)
    if refused:
        return Fit(law, "refused", (refused,), rows, objective, level=level, seed=seed)
    return _Fitting(law, rows, objective, Options(draws, level, seed, _start(law, start), search)).run()


def problem_of(fit: Fit) -> tuple[Problem, Floats, Floats]:
    """The minimised problem behind a fit, its optimum in internal coordinates [p], and what inputs are divided by [d].

    Raises AnalysisError for a fit that was refused or has an objective without derivatives.
    """
    if not fit.params or fit.objective.name == "lad":
        raise AnalysisError(
            f"{fit.law.name} over {fit.law.over}: a fit with parameters and a smooth objective is needed."
        )
    made = _Fitting(fit.law, fit.rows, fit.objective, Options(0, fit.level, fit.seed, None, "global"))
    return made.problem(), made.law.encode(made.law.scaled(fit.point, made.unit)), made.unit


@dataclass(frozen=True)
class Options:
    """What a fit is asked for, besides law, rows and objective; `start` [p] are natural parameters."""

    draws: int
    level: float
    seed: int
    start: Floats | None
    search: Search


def _start(law: Law, start: Mapping[str, float] | None) -> Floats | None:
    if not start:
        return None
    for name in start:
        if name not in law.names:
            raise AnalysisError(f"start of law {law.name!r}: no parameter {name!r}.{nearest(name, law.names)}")
    missing = [n for n in law.names if n not in start]
    if missing:
        raise AnalysisError(f"start of law {law.name!r}: {missing[0]} is missing; a start names every free parameter.")
    return np.array([start[name] for name in law.names])


def _too_few(law: Law, rows: Rows) -> str | None:
    need, count = len(law.parameters), rows.places
    what = f"distinct {law.axis}" if len(law.inputs) == 1 else "distinct places"
    if count > need:
        return None
    return (
        f"{law.name} over {law.over}: {count} {what}, {need} parameters: no freedom left. "
        f"Needs >= {need + 2}{' (>= 4 for power)' if need > 2 and len(law.inputs) == 1 else ''}."
    )


class _Fitting:
    """One fit in the making: weights, constants of the objective, parameters, draws, verdict."""

    def __init__(self, law: Law, rows: Rows, objective: Objective, options: Options) -> None:
        self.law, self.rows, self.options = law, rows, options
        self.asked = objective
        self.objective = _workable(objective)
        self.residual = objective.residual
        self.unit = self._unit()
        self.x = rows.x / self.unit[:, None]
        self.logs = np.log(self.x)[:, None, :]
        self.y = rows.y
        self.n, self.p = len(rows), len(law.parameters)
        self.low, self.high = box(law, self.x, self.y)
        self.noise = self._noise()
        self.excess = 0.0
        # an objective that was named keeps the weights it was given; only intervals learn of the excess
        self.reweighs = objective == replace(AUTO, residual=objective.residual)
        self.clusters = int(rows.groups.max()) + 1
        self.title = f"{law.name} over {law.over}"

    def _unit(self) -> Floats:
        """What the inputs are divided by [d]: geometric means, shared by inputs that scale together."""
        if self.law.scales is None:
            return np.ones(len(self.law.inputs))
        means = np.log(self.rows.x).mean(axis=1)
        shared = [np.mean([m for m, t in zip(means, self.law.scales, strict=True) if t == s]) for s in self.law.scales]
        return np.asarray(np.exp(np.array(shared)))

    def _noise(self) -> Floats | None:
        """Standard errors in residual units, None where there are none."""
        if self.objective.name == "binomial" or self.rows.stderr is None or not np.all(np.isfinite(self.rows.stderr)):
            return None
        noise = self.rows.stderr * np.abs(link_slopes(self.residual, self.y)[0])
        if self.residual == "log" and np.median(noise) > ABSURD_NOISE:
            raise AnalysisError(
                f"the standard errors are {np.median(noise):.3g} times the responses (median). Standard errors of the "
                "response are wanted, in its own unit: never variances, nor weights such as 1/sd^2."
            )
        return np.asarray(noise) if np.all(noise > 0) else None

    def _scale(self) -> tuple[Floats, float]:
        """Row weights of unit typical size, and the typical standard error in residual units (0: unknown)."""
        if self.objective.name == "binomial":
            return np.ones(self.n) if self.rows.trials is None else np.sqrt(self.rows.trials), 0.0
        if self.noise is None:
            return np.ones(self.n), 0.0
        sigma = np.sqrt(self.noise**2 + (self.excess if self.reweighs else 0.0))
        typical = float(np.sqrt(np.mean(sigma**2)))
        return typical / sigma, typical

    def problem(self, objective: Objective | None = None) -> Problem:
        """The data as they are."""
        return Problem(
            self.law, self.logs, self.y[None, :], self._scale()[0][None, :], np.ones((1, self.n)),
            objective or self.objective, self.low, self.high, self.rows.censored,
        )  # fmt: skip

    def run(self) -> Fit:
        least = replace(self.objective, delta=None)
        theta, _ = self._best(FEW_STARTS, objective=self._first(least))
        for _ in range(3 if self.noise is not None else 0):
            before, self.excess = self.excess, self._excess(theta)
            if self.excess == before or not self.reweighs:
                break
            theta = self._nearby(theta, self._first(least))
        theta = self._settle(theta)
        theta, solution = self._best(STARTS, theta)
        return self._verdict(theta, solution)

    def _first(self, objective: Objective) -> Objective:
        return replace(objective, sigma=self._sigma_guess()) if objective.name in ("student", "censored") else objective

    def _sigma_guess(self) -> float:
        eta = linked(self.residual, self.y)
        return max(0.1 * float(np.std(eta)), SMALLEST_DELTA)

    def _best(
        self, starts: int, warm: Floats | None = None, objective: Objective | None = None
    ) -> tuple[Floats, Solution]:
        """The best of the scan's `starts`, of the given start and of `warm` [p], refined."""
        problem = self.problem(objective)
        start = self.options.start
        given = [] if start is None else [self.law.encode(self.law.scaled(start, self.unit))]
        if self.options.search == "global" or start is None:
            given += [] if warm is None else [warm]
            given += list(scanned_starts(problem, starts))
        solution = _polished(problem, np.array(given))
        return solution.theta[int(np.argmin(solution.objective))], solution

    def _nearby(self, theta: Floats, objective: Objective | None = None) -> Floats:
        """The optimum next to theta [p], after a small change of weights or constants."""
        found = refine(self.problem(objective), theta[None, :], np.zeros(1, dtype=int))
        return np.asarray(found.theta[0])

    def _settle(self, theta: Floats) -> Floats:
        """Finds the constants of the objective that depend on the residuals."""
        asked = self.asked
        if asked.name in ("huber", "envelope") and asked.delta is None:
            for _ in range(3):
                self.objective = replace(self.objective, delta=self._delta(theta))
                theta = self._nearby(theta)
            self.objective = replace(self.objective, delta=self._delta(theta))
        elif asked.name in ("student", "censored"):
            theta = self._settle_sigma(theta)
        elif asked.name == "lad":
            theta = self._descend(theta, LAD_DELTA * self._spread(theta))
        elif asked.name == "huber" and asked.delta is not None:
            theta = self._descend(theta, asked.delta)
        return theta

    def _descend(self, theta: Floats, delta: float) -> Floats:
        """Down to a bend that is small against the residuals, a tenth at a time: few rows then have any curvature."""
        step = 0.1 * self._spread(theta)
        while step > delta:
            self.objective = replace(self.objective, delta=step)
            theta = self._nearby(theta)
            step *= 0.1
        self.objective = replace(self.objective, delta=delta)
        return self._nearby(theta)

    def _settle_sigma(self, theta: Floats) -> Floats:
        sigma = self._sigma_guess()
        for _ in range(SIGMA_ROUNDS):
            self.objective = replace(self.objective, sigma=sigma)
            theta = self._nearby(theta)
            r = self.problem().residuals(theta[None, :])[0]
            before, sigma = sigma, max(self._likely_sigma(r, sigma), SMALLEST_DELTA)
            if abs(sigma - before) < SIGMA_TOLERANCE * before:
                break
        self.objective = replace(self.objective, sigma=sigma)
        return theta

    def _likely_sigma(self, r: Floats, sigma: float) -> float:
        """One step of the likelihood's equation for the scale of the residuals."""
        if self.asked.name == "student":
            nu = self.asked.nu
            return float(np.sqrt(np.mean((nu + 1) / (nu + (r / sigma) ** 2) * r * r)))
        from scipy.optimize import minimize_scalar
        from scipy.special import log_ndtr

        hidden = self.rows.censored if self.rows.censored is not None else np.zeros(self.n, dtype=bool)

        def misfit(log_sigma: float) -> float:
            z = r / np.exp(log_sigma)
            return float(np.where(hidden, -log_ndtr(z), log_sigma + 0.5 * z * z).sum())

        centre = np.log(sigma)
        return float(np.exp(minimize_scalar(misfit, bounds=(centre - 5, centre + 5), method="bounded",
                                            options={"xatol": 1e-12}).x))  # fmt: skip

    def _residuals(self, theta: Floats) -> Floats:
        """Unweighted residuals [n]."""
        return np.asarray(self.problem().residuals(theta[None, :])[0] / self._scale()[0])

    def _excess(self, theta: Floats) -> float:
        assert self.noise is not None
        return excess_variance(self._residuals(theta), self.noise, self.n - self.p)

    def _delta(self, theta: Floats) -> float:
        """The bend of the Huber function: 1.345 robust standard deviations, at least the rows' own noise."""
        return max(1.345 * self._spread(theta), 1.345 * self._scale()[1], SMALLEST_DELTA)

    def _spread(self, theta: Floats) -> float:
        """The robust standard deviation of the weighted residuals.

        The median leaves out the p smallest: p parameters can make p residuals vanish.
        """
        size = np.sort(np.abs(self._residuals(theta) * self._scale()[0]))[self.p :]
        return 1.4826 * float(np.median(size))

    def _verdict(self, theta: Floats, solution: Solution) -> Fit:
        problem = self.problem()
        # a vanished term makes its own column vanish
        margin = np.array([1e-3 if p.positive else 1e-9 for p in self.law.parameters])
        free = ((theta > self.low + margin) & (theta < self.high - 1e-9))[0]
        names = [n for n, f in zip(self.law.names, free, strict=True) if f]
        kappa, direction = condition(curvature(problem, theta[None, :])[0][:, free], names)
        rms = float(np.sqrt(np.mean(self._residuals(theta) ** 2)))
        if kappa * max(rms, np.finfo(float).eps) < HARMLESS:
            kappa = min(kappa, WEAK_CONDITION)  # rows without noise tell apart what no others could
        together = collinear(self.rows.x, self.law.inputs) if kappa > REFUSED_CONDITION else None
        if kappa > REFUSED_CONDITION and (free.all() or together):
            reason = f"{len(self.rows)} rows, but {together}. " if together else ""
            return self._refuse(f"{self.title}: {reason}{direction} can't be told apart (condition {kappa:.1e}).")
        if not solution.converged[int(np.argmin(solution.objective))]:
            return self._refuse(f"{self.title}: the solver did not converge; the parameters are not reported.")
        why = self._early_words(kappa, direction, free.all())
        basins = self._basins(solution)
        if len(basins) > 1:
            shown = " and ".join(", ".join(f"{k} = {v:.4g}" for k, v in b.items()) for b in map(self._named, basins))
            why.append(f"{self.title}: {len(basins)} basins of nearly equal misfit: {shown}.")
        drawn, lost, method, silent = self._draws(theta, kappa, basins[1:])
        why += [silent] if silent else []
        uncertain = {i for i in range(self.p) if len({round(float(b[i]), 3) for b in basins}) > 1}
        if kappa > WEAK_CONDITION:
            uncertain |= set(range(self.p))
        params, notes = self._parameters(theta, drawn, uncertain)
        why += [f"{self.title}: {note}" for note in notes]
        why += self._aloud(method)
        natural = None if drawn is None else self._natural(drawn)
        diagnostics = Diagnostics(
            kappa, rms, float(np.sqrt(self.excess)),
            self._model_error(theta), method, lost, tuple(map(self._named, basins)),
            self._covariance(theta, kappa, natural),
        )  # fmt: skip
        weak = len(basins) > 1 or bool(notes) or method == "none" or kappa > WEAK_CONDITION
        weak |= self.rows.places == self.p + 1 and len(self.law.inputs) == 1
        return Fit(
            self.law, "weak" if weak else "ok", tuple(why), self.rows, self._reported(), self._value(theta), params,
            natural, diagnostics, self.options.level, self.options.seed,
        )  # fmt: skip

    def _early_words(self, kappa: float, direction: str, free: bool) -> list[str]:
        why = []
        if kappa > WEAK_CONDITION and free:
            why.append(f"{self.title}: {direction} trade off (condition {kappa:.1e}).")
        if self.rows.places == self.p + 1 and len(self.law.inputs) == 1:
            why.append(
                f"{self.title}: {self.p + 1} distinct {self.law.axis}, {self.p} parameters: one degree of freedom, "
                f"so the law itself is hardly tested. Needs >= {self.p + 2}."
            )
        if self.options.search == "start" and self.options.start is not None:
            why.append(f"{self.title}: searched from the given start only; a better optimum may exist elsewhere.")
        if self.asked.name == "envelope":
            why.append(
                f"{self.title}: a law above a row costs {self.asked.penalty:g} times more: it follows the lower "
                "edge of the rows and is biased for their middle."
            )
        return why

    def _reported(self) -> Objective:
        """The objective as it was minimised, with its constants."""
        return Objective("lad", self.residual) if self.asked.name == "lad" else self.objective

    def _value(self, theta: Floats) -> float:
        if self.asked.name == "lad":
            return float(np.abs(self.problem().residuals(theta[None, :])).sum())
        return float(self.problem().objective_at(theta[None, :])[0])

    def _refuse(self, why: str) -> Fit:
        return Fit(self.law, "refused", (why,), self.rows, self._reported(), level=self.options.level,
                   seed=self.options.seed)  # fmt: skip

    def _aloud(self, method: Method) -> list[str]:
        if method == "replicate noise" and self.excess > 0 and self.noise is not None:
            ratio = 1 + self.excess / float(np.mean(self.noise**2))
            if ratio > 4:
                return [
                    f"{self.title}: the points scatter about the law {np.sqrt(ratio):.1f} "
                    "times more than replicates do; the intervals are widened for it."
                ]
        return []

    def _natural(self, theta: Floats) -> Floats:
        """Natural parameters over the inputs themselves; linear terms that contribute nothing are 0."""
        parameters = self.law.decode(theta)
        projection = self.law.natural_projection
        if len(projection.which) > 1:
            with np.errstate(all="ignore"):
                columns = projection.columns(
                    *(parameters[..., i, None] for i in range(self.p)),
                    *self.x.reshape(len(self.x), *(1,) * (theta.ndim - 1), -1),
                )
            for i, signed, column in zip(projection.which, projection.signed, columns, strict=False):
                share = np.abs(column).max(axis=-1) * np.abs(parameters[..., i]) / np.abs(self.y).max()
                parameters[..., i] = np.where(~np.array(signed) & (share < ZERO_SHARE), 0.0, parameters[..., i])
        return self.law.restore(parameters, self.unit)

    def _named(self, theta: Floats) -> dict[str, float]:
        return dict(zip(self.law.names, self._natural(theta).tolist(), strict=True))

    def _parameters(
        self, theta: Floats, draws: Floats | None, uncertain: set[int]
    ) -> tuple[dict[str, Interval], list[str]]:
        """Parameters with intervals: of the draws, or of the profile where draws can't be trusted."""
        value = self._natural(theta)
        around = None if draws is None else self._natural(draws)
        out: dict[str, Interval] = {}
        notes: list[str] = []
        for i, p in enumerate(self.law.parameters):
            lo, hi = (None, None) if around is None else ends(around[:, i], self.options.level)
            out[p.name] = Interval(float(value[i]), lo, hi)
            if p.linear and not p.signed and value[i] == 0.0:
                notes.append(f"{p.name} is at its bound 0: the data show no such term.")
            elif p.linear and not p.signed and lo is not None and lo <= 1e-3 * abs(value[i]):
                notes.append(f"{p.name} = {value[i]:.3g} [0, {hi:.3g}]: the data don't bound {p.name} from below.")
            elif not p.linear and (reached := self._at_box(i, theta, draws)):
                notes += reached
                out[p.name] = self._profiled(i, theta, float(value[i]), draws)
            elif i in uncertain:
                out[p.name] = self._profiled(i, theta, float(value[i]), draws)
        return out, notes

    def _at_box(self, i: int, theta: Floats, draws: Floats | None) -> list[str]:
        name = self.law.parameters[i].name
        if theta[i] <= self.low[0, i] + 1e-6 or theta[i] >= self.high[0, i] - 1e-6:
            return [f"{name} is at the end of its range."]
        if draws is not None:
            at = (draws[:, i] <= self.low[0, i] + 1e-6) | (draws[:, i] >= self.high[0, i] - 1e-6)
            share = float(np.mean(at))
            if share > (1 - self.options.level) / 2:
                return [f"{name} reaches the end of its range in {share:.0%} of the draws: its interval is open there."]
        return []

    def _profiled(self, i: int, theta: Floats, value: float, draws: Floats | None) -> Interval:
        """The interval of one parameter by profile likelihood; an end that the data don't bound is absent."""
        if draws is None or self._unit_moves(i):
            return Interval(value)
        from scipy.special import chdtri

        problem = self.problem()
        freedom = self.n - self.p
        scale = misfit_scale(problem, theta, freedom)
        step = float(np.std(draws[:, i])) or 1e-3
        if not np.isfinite(scale):
            return Interval(value)
        threshold = 0.5 * float(chdtri(1, 1 - self.options.level)) * scale
        found = profile(problem, theta, i, threshold=threshold, step=0.25 * step)
        natural = []
        for end in found:
            place = theta.copy()
            place[i] = end
            natural.append(float(self._natural(place)[i]) if np.isfinite(end) else None)
        return Interval(value, *natural)

    def _unit_moves(self, i: int) -> bool:
        """Whether the unit of a parameter holds an exponent, so that it changes along the profile."""
        return any(name in self.law.names for name in re.findall(r"[A-Za-z_]\w*", self.law.parameters[i].unit))

    def _basins(self, solution: Solution) -> list[Floats]:
        """Distinct converged places [p] whose objective is within 1 % of the best, best first."""
        good = solution.converged & np.isfinite(solution.objective)
        best = float(solution.objective[good].min())
        slack = OTHER_BASIN * abs(best) + 1e-14 * self.n
        found: list[Floats] = []
        for i in np.argsort(solution.objective, kind="stable"):
            theta = solution.theta[i]
            if not good[i] or solution.objective[i] > best + slack:
                continue
            if all(not self._alike(theta, other) for other in found):
                found.append(theta)
        return found

    def _alike(self, a: Floats, b: Floats) -> bool:
        """Same place, or the same curve over the data."""
        if np.abs(a - b).max() < SAME_THETA:
            return True
        one, other = (self.law.inside(t[None, :], self.logs) for t in (a, b))
        return bool(np.abs(one / other - 1).max() < SAME_THETA)

    def _draws(
        self, theta: Floats, kappa: float, others: list[Floats]
    ) -> tuple[Floats | None, int, Method, str | None]:
        count = self.options.draws
        method, why = choose(self.clusters, self.rows.dof if self.noise is not None else 0.0)
        if method == "wild bootstrap" and self.objective.name in ("binomial", "censored"):
            method = "cluster bootstrap"  # such rows have no residual that could be scattered
        if method == "none" or count == 0:
            return None, 0, "none", why
        rng = generator(self.options.seed, "draws", self.law.name, *self.law.inputs)
        problem, groups = self.problem(), self.rows.groups
        if method == "cluster bootstrap":
            problem = replace(problem, count=cluster_counts(groups, count, rng))
        else:
            noise = (
                self._replicate_noise(rng)
                if method == "replicate noise"
                else wild_noise(problem, theta, groups, count, rng)
            )
            problem = replace(problem, y=scattered(problem, theta, noise))
        made = refit(problem, theta, others, 1.0 if kappa < DELTA_CONDITION else WEAK_SLACK)
        drawn = made.theta
        if method == "cluster bootstrap":
            drawn = stretched(drawn, theta, self.clusters, self.low, self.high)
        return drawn, made.unconverged, method, None

    def _replicate_noise(self, rng: np.random.Generator) -> Floats:
        assert self.noise is not None
        sigma = np.sqrt(self.noise**2 + self.excess)
        dof = mixed_dof(float(np.mean(self.noise**2)), self.rows.dof, self.excess, self.n - self.p)
        draws = self.options.draws
        return np.asarray(sigma * rng.standard_normal((draws, self.n)) * heavy(rng, draws, dof))

    def _model_error(self, theta: Floats) -> ModelError:
        cost = self.rows.cost if self.rows.cost is not None else cost_of(self.law, self.rows.x)
        if cost is None or self.options.draws == 0 or self.objective.name in ("binomial", "censored"):
            return ModelError()
        _, typical = self._scale()
        size = np.sort(np.abs(self._residuals(theta)))[self.p :]  # p parameters can make p residuals vanish
        sigma = typical or max(1.4826 * float(np.median(size)), SMALLEST_DELTA)
        return model_error(self.problem(), theta, sigma, cost, self.rows.x)

    def _covariance(self, theta: Floats, kappa: float, draws: Floats | None) -> Floats | None:
        """Of the natural parameters, by the delta method [p, p]; None where it can't be trusted.

        That is where the fit is ill-conditioned, or where the standard errors are not those of the draws.
        """
        if not kappa < DELTA_CONDITION or draws is None:
            return None
        problem = self.problem()
        found = problem.parts(problem.residuals(theta[None, :]))
        jacobian = curvature(problem, theta[None, :])[0]
        scale = misfit_scale(problem, theta, self.n - self.p) / float(np.mean(found.bend))
        inner = np.linalg.pinv(jacobian.T @ jacobian) * scale
        step = 1e-6
        change = np.array([(self._natural(theta + step * e) - self._natural(theta - step * e)) / (2 * step)
                           for e in np.eye(self.p)]).T  # fmt: skip
        made = np.asarray(change @ inner @ change.T)
        quick, drawn = np.sqrt(np.diag(made)), np.std(draws, axis=0)
        agree = (quick < DELTA_AGREES * drawn) & (drawn < DELTA_AGREES * quick)
        return made if np.all(agree) else None


def _polished(problem: Problem, theta: Floats) -> Solution:
    """All starts refined for a while, then those that may still be the best or a rival of it."""
    first = refine(problem, theta, np.zeros(len(theta), dtype=int), EARLY_ROUNDS)
    hopeful = first.objective <= HOPE * first.objective.min()
    second = refine(problem, first.theta[hopeful], first.which[hopeful])
    for name in ("theta", "objective", "converged", "gradient"):
        getattr(first, name)[hopeful] = getattr(second, name)
    return first


def _workable(objective: Objective) -> Objective:
    """What the solver minimises in place of an objective without second derivatives."""
    return replace(objective, name="huber") if objective.name == "lad" else objective
