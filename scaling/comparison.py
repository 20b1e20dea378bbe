"""Which of several laws should be believed: by what they predict of the dearest runs, not by how close they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import AUTO, fit_law, problem_of
from scaling.intervals import generator
from scaling.laws import Law
from scaling.objectives import Objective, linked
from scaling.origin import cut_places
from scaling.resample import refit, scattered, wild_noise
from scaling.rows import Rows, cost_of

DECADE = 10.0
FEWEST_TESTED = 3
FALLBACK_SHARE = 0.2
STOPS = 6
REACHES = ((4.0, 2.0, 8.0), (16.0, 8.0, 32.0))  # how far beyond, and the window of costs that counts as that far
SMALLEST = 1e-300
NORMAL_95 = 1.959964
LIKELIHOODS = ("l2", "student")
TIE = 1e-4  # in a likelihood ratio: smaller ones are rounding, at the edge of the larger law
OUTSIDE = 1e-3  # relative gain in objective of a simpler law that shows it lies elsewhere
NESTED_SLACK = 2.0  # other places are tried readily, so that no likelihood stays below its best
NESTED = (  # laws inside others: at a floor of 0, a shift of 0, equal exponents, k = 1, no break
    ("power", "power_offset"),
    ("power_offset", "power_shift"),
    ("power_offset", "bnsl"),
    ("bnsl", "bnsl2"),
    ("chinchilla_tied", "chinchilla"),
    ("chinchilla", "coupled"),
)


@dataclass(frozen=True)
class Score:
    """How one law predicts rows that took no part in its fit.

    `error` is the median absolute relative error, `log_score` the mean log density of the observations under the
    predictive intervals, read as normals; `terms` [m] are those of it and `misses` [m] in residual units. `aicc` is
    of the law's fit to all rows under `likelihood`.
    """

    law: str
    parameters: int
    status: str
    why: tuple[str, ...]
    error: float | None = None
    log_score: float | None = None
    aicc: float | None = None
    likelihood: str | None = None
    terms: Floats | None = None
    misses: Floats | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; what could not be told is absent."""
        rest = {"error": self.error, "log_score": self.log_score, "aicc": self.aicc, "likelihood": self.likelihood}
        head = {"law": self.law, "parameters": self.parameters, "status": self.status, "why": list(self.why)}
        return head | {k: v for k, v in rest.items() if v is not None}


@dataclass(frozen=True)
class Comparison:
    """Scores of laws on the same held-out rows, the law that is chosen, and why."""

    scores: tuple[Score, ...]
    best: str | None
    why: str
    trained: int
    tested: int
    frontier: float  # the cost above which rows were held out

    def to_json(self) -> dict[str, Any]:
        """Plain values; what could not be told is absent."""
        made = {"scores": [s.to_json() for s in self.scores], "why": self.why, "trained": self.trained,
                "tested": self.tested, "frontier": self.frontier}  # fmt: skip
        return made if self.best is None else made | {"best": self.best}


def held_out(cost: Floats) -> Bools:
    """The rows to predict [n]: those of the dearest decade, at least 3 and at most half; else the dearest fifth.

    Raises AnalysisError where too few rows are left to fit or to predict.
    """
    far = cost > cost.max() / DECADE
    if not FEWEST_TESTED <= far.sum() <= len(cost) / 2:
        count = max(FEWEST_TESTED, round(FALLBACK_SHARE * len(cost)))
        far = cost >= np.sort(cost)[-count] if count <= len(cost) else np.ones(len(cost), dtype=bool)
    if far.sum() > len(cost) / 2:
        raise AnalysisError(f"{len(cost)} rows: too few to fit the cheap ones and predict the dear ones.")
    return np.asarray(far)


def costs(law: Law, rows: Rows) -> Floats:
    """What the rows cost [n], given or by the law's inputs. Raises AnalysisError where neither tells."""
    found = rows.cost if rows.cost is not None else cost_of(law, rows.x)
    if found is None:
        raise AnalysisError(f"{law.name} over {law.over}: give a cost, so that the dearest rows can be held out.")
    return found


def compare_laws(
    laws: Mapping[str, Law] | Sequence[Law],
    rows: Rows,
    *,
    objective: Objective = AUTO,
    draws: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Fits every law to the cheap rows and scores it on the dear ones (`held_out`).

    The best mean log score is chosen; a law with fewer parameters is preferred where it is within one standard error
    of that, in log score and in squared error. Without draws squared errors alone decide. Random folds are not
    offered: they test interpolation. Laws may have names of their own.

    Raises AnalysisError where the rows can't be split, or laws have other inputs.
    """
    named = _named(laws)
    rows = rows.sorted()
    cost = costs(next(iter(named.values())), rows)
    far = held_out(cost)
    task = _Task(rows, rows.take(~far), rows.take(far), objective, draws, level, seed)
    scores = tuple(task.score(name, law) for name, law in named.items())
    best, why = _choice(scores)
    return Comparison(scores, best, why, len(task.train), len(task.test), float(cost[~far].max()))


def choose_law(
    laws: Mapping[str, Law] | Sequence[Law],
    rows: Rows,
    *,
    objective: Objective = AUTO,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[Fit, Comparison]:
    """The law that predicts the dearest rows best, fitted to all rows, and the comparison that chose it.

    Laws are compared by squared errors, as `compare_laws` without draws does. Where the chosen law is refused on all
    rows, the next one is taken, in order of their errors.

    Raises AnalysisError where the rows can't be split, or no law can be fitted.
    """
    named = _named(laws)
    found = compare_laws(named, rows, objective=objective, draws=0, seed=seed)
    able = [s for s in found.scores if s.misses is not None]
    able.sort(key=lambda s: (s.law != found.best, float(np.mean(_squares(s)))))
    for one in able:
        fit = fit_law(named[one.law], rows, objective=objective, draws=draws, seed=seed)
        if fit.params:
            return fit, found
    raise AnalysisError(f"none of {', '.join(named)} can be fitted to these {len(rows)} rows.")


def _named(laws: Mapping[str, Law] | Sequence[Law]) -> dict[str, Law]:
    named = dict(laws) if isinstance(laws, Mapping) else {law.name: law for law in laws}
    if not named:
        raise AnalysisError("no laws to compare.")
    if len(named) < len(laws):
        raise AnalysisError("two laws have the same name: give each a name of its own, as a mapping.")
    inputs = {law.inputs for law in named.values()}
    if len(inputs) > 1:
        listed = "; ".join(f"{name} over {law.over}" for name, law in named.items())
        raise AnalysisError(f"laws over other inputs can't be compared on one set of rows: {listed}.")
    return named


@dataclass(frozen=True)
class _Task:
    """What every law is asked: fit `train`, predict `test`."""

    rows: Rows
    train: Rows
    test: Rows
    objective: Objective
    draws: int
    level: float
    seed: int

    def score(self, name: str, law: Law) -> Score:
        fit = fit_law(law, self.train, objective=self.objective, draws=self.draws, level=self.level, seed=self.seed)
        head = Score(name, len(law.parameters), fit.status, fit.why)
        if not fit.params:
            return head
        residual = self.objective.residual
        found = fit.predict(self.test.x, level=0.95, noise=None)
        misses = linked(residual, found.value) - linked(residual, self.test.y)
        if not np.isfinite(misses).all():
            return replace(head, why=(*fit.why, f"{law.name} has no value at some of the dearest rows."))
        made = replace(head, error=float(np.median(np.abs(found.value / self.test.y - 1))), misses=misses)
        likelihood = likelihood_of(self.objective)
        if likelihood is not None:
            whole = fit_law(law, self.rows, objective=likelihood, draws=0, seed=self.seed)
            made = replace(made, aicc=aicc(whole), likelihood=likelihood.name)
        if found.lo is None or found.hi is None:
            return made
        with np.errstate(all="ignore"):
            sd = (linked(residual, found.hi) - linked(residual, found.lo)) / (2 * NORMAL_95)
            terms = -0.5 * np.log(2 * np.pi * sd**2) - 0.5 * (misses / sd) ** 2
        return replace(made, log_score=float(terms.mean()), terms=terms) if np.isfinite(terms).all() else made


def _choice(scores: Sequence[Score]) -> tuple[str | None, str]:
    able = [s for s in scores if s.misses is not None]
    if not able:
        return None, "No law could be fitted to the cheap rows."
    by_score = all(s.terms is not None for s in able)
    terms = {s.law: _terms(s, by_score) for s in able}
    best = max(able, key=lambda s: float(terms[s.law].mean()))
    tied = [s for s in able if _within(terms[best.law], terms[s.law]) and _within(-_squares(best), -_squares(s))]
    chosen = min(tied, key=lambda s: (s.parameters, -float(terms[s.law].mean())))
    what = "log score" if by_score else "squared error"
    if chosen is best:
        rest = f"; {', '.join(s.law for s in tied if s is not best)} within one standard error" if len(tied) > 1 else ""
        return chosen.law, f"{chosen.law} has the best {what} on the dearest rows{rest}."
    more = best.parameters - chosen.parameters
    return chosen.law, (
        f"{chosen.law}: {best.law} has the best {what} on the dearest rows, but not by one standard error, and "
        f"{more} more parameter{'' if more == 1 else 's'}."
    )


def _terms(score: Score, by_score: bool) -> Floats:
    if not by_score:
        return -_squares(score)
    assert score.terms is not None
    return score.terms


def _squares(score: Score) -> Floats:
    assert score.misses is not None
    return np.asarray(score.misses**2)


def _within(best: Floats, other: Floats) -> bool:
    difference = best - other
    return bool(difference.mean() <= np.std(difference, ddof=1) / np.sqrt(len(difference)))


# -- information criteria ----------------------------------------------------------------------------


def likelihood_of(objective: Objective) -> Objective | None:
    """The likelihood nearest to an objective: normal for least squares, Student's t for robust ones, else None."""
    if objective.name in ("binomial", "censored"):
        return None
    return Objective("l2" if objective.name == "l2" else "student", objective.residual, nu=objective.nu)


def aicc(fit: Fit) -> float | None:
    """Akaike's criterion with the small-sample term (Hurvich and Tsai 1989), the scale of the residuals profiled.

    The rows of one cluster count as one observation. None where there are too few, or the fit was refused. Raises
    AnalysisError for an objective that is no likelihood. Values of other rows or another residual can't be compared:
    see `compare_aicc`.
    """
    if fit.objective.name not in LIKELIHOODS:
        raise AnalysisError(
            f"AICc wants a likelihood, objective: l2 or student; {fit.law.name} was fitted with {fit.objective.name}."
        )
    if not fit.params:
        return None
    n, k = int(fit.rows.groups.max()) + 1, len(fit.params) + 1
    if n - k - 1 <= 0:
        return None
    return float(n * _deviance(fit) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def _deviance(fit: Fit) -> float:
    """-2 log likelihood per row at the best scale."""
    from scipy.special import gammaln

    problem, theta, _ = problem_of(fit)
    r, scale = problem.residuals(theta[None, :])[0], problem.scale[0]
    constant = -2 * float(np.mean(np.log(scale)))
    if fit.objective.name == "l2":
        return float(np.log(max(np.mean(r**2), SMALLEST)) + 1 + np.log(2 * np.pi)) + constant
    nu, sigma = fit.objective.nu, fit.objective.sigma
    assert sigma is not None
    shape = gammaln(nu / 2) - gammaln((nu + 1) / 2) + 0.5 * np.log(nu * np.pi)
    body = 0.5 * (nu + 1) * np.mean(np.log1p(r**2 / (nu * sigma**2)))
    return float(2 * (np.log(sigma) + shape + body)) + constant


def compare_aicc(a: Fit, b: Fit) -> float:
    """AICc of a minus that of b. Raises AnalysisError, saying why, for fits that can't be compared by it."""
    one, other = a.objective, b.objective
    if one.residual != other.residual:
        raise AnalysisError(
            f"{a.law.name} has residual: {one.residual}, {b.law.name} residual: {other.residual}: their likelihoods "
            "are of different quantities. Compare what they predict of held-out rows."
        )
    if (one.name, one.nu) != (other.name, other.nu):
        raise AnalysisError(
            f"{a.law.name} was fitted with objective: {one.name}, {b.law.name} with {other.name}: fit both with one."
        )
    if len(a.rows) != len(b.rows) or not np.array_equal(np.sort(a.rows.y), np.sort(b.rows.y)):
        raise AnalysisError(f"{a.law.name} and {b.law.name} were fitted to different rows: AICc can't compare them.")
    first, second = aicc(a), aicc(b)
    if first is None or second is None:
        raise AnalysisError(
            f"too few rows for AICc: {len(a.rows)}, with {len(a.params)} and {len(b.params)} parameters."
        )
    return first - second


# -- rolling extrapolation ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """Had the experiment stopped at `cost`: rows fitted, and the median |relative error| by factor beyond (or None)."""

    cost: float
    rows: int
    errors: tuple[tuple[float, float | None, int], ...]  # factor, error, rows it is of

    def to_json(self) -> dict[str, Any]:
        """Plain values; factors that no row lies at are absent."""
        found = [{"factor": f, "error": e, "rows": n} for f, e, n in self.errors if e is not None]
        return {"cost": self.cost, "rows": self.rows, "errors": found}


def rolling(law: Law, rows: Rows, *, objective: Objective = AUTO, seed: int = 0) -> list[Stop]:
    """How wrong `law` would have been at 4 and at 16 times the cost, had the experiment stopped earlier.

    Rows from 2 to 8 times the cost count as at 4 times, those from 8 to 32 as at 16.
    """
    rows = rows.sorted()
    cost = costs(law, rows)
    cuts = cut_places(cost, len(law.parameters) + 2)
    if len(cuts) > STOPS:
        cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, STOPS).round().astype(int))]
    stops = []
    for cut in cuts:
        fit = fit_law(law, rows.take(cost <= cut), objective=objective, draws=0, seed=seed)
        if not fit.params:
            continue
        error = np.abs(law.value(fit.point, rows.x) / rows.y - 1)
        windows = [(factor, (cost > low * cut) & (cost <= high * cut)) for factor, low, high in REACHES]
        found = tuple((f, float(np.median(error[w])) if w.any() else None, int(w.sum())) for f, w in windows)
        stops.append(Stop(float(cut), int((cost <= cut).sum()), found))
    return stops


# -- nested laws -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NestedTest:
    """Whether a law needs what it has beyond a simpler one inside it: statistic, and how often chance reaches it."""

    simple: str
    full: str
    statistic: float
    p: float
    draws: int

    @property
    def text(self) -> str:
        needed = "is needed" if self.p < 0.05 else "is not shown to be needed"
        return f"What {self.full} has beyond {self.simple} {needed} (p = {self.p:.3g}, {self.draws} wild bootstraps)."

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def nested_test(
    simple: Law, full: Law, rows: Rows, *, objective: Objective = AUTO, draws: int = 199, seed: int = 0
) -> NestedTest:
    """The likelihood ratio of two laws, one inside the other, with its distribution under the simpler one.

    Where the simpler law lies at the edge of the full one (a floor of 0, an exponent of 1, no repetition) the usual
    chi-squared is wrong (Self and Liang 1987); here responses are made from the simpler law and its residuals by wild
    bootstrap, a weight for each cluster. Least squares in the objective's residual. Raises AnalysisError where a law
    can't be fitted, or the first doesn't fit worse than the second.
    """
    rows = rows.sorted()
    fits = [fit_law(law, rows, objective=Objective("l2", objective.residual), draws=0, seed=seed)
            for law in (simple, full)]  # fmt: skip
    problems = [problem_of(f) for f in fits]
    if fits[0].value < (1 - OUTSIDE) * fits[1].value:
        raise AnalysisError(f"{simple.name} fits these rows better than {full.name}: it does not lie inside it.")
    problem, theta, _ = problems[0]
    rng = generator(seed, "nested", simple.name, full.name)
    y = scattered(problem, theta, wild_noise(problem, theta, rows.groups, draws, rng))
    reached = []
    for one, place, _ in problems:
        made = replace(one, y=y)
        reached.append(np.maximum(made.objective_at(refit(made, place, [], NESTED_SLACK).theta), SMALLEST))
    statistic = float(len(rows) * np.log(max(fits[0].value, SMALLEST) / max(fits[1].value, SMALLEST)))
    simulated = len(rows) * np.log(reached[0] / reached[1])
    p = float((1 + np.sum(simulated >= statistic - TIE)) / (draws + 1))
    return NestedTest(simple.name, full.name, max(statistic, 0.0), p, draws)


def nested_tests(
    laws: Sequence[Law], rows: Rows, *, objective: Objective = AUTO, seed: int = 0
) -> tuple[list[NestedTest], list[str]]:
    """The tests of all pairs of `laws` of which one is known to lie inside the other; why others could not be made."""
    known = {law.name: law for law in laws if not law.fixed}
    made, why = [], []
    for simple, full in NESTED:
        if simple in known and full in known:
            try:
                made.append(nested_test(known[simple], known[full], rows, objective=objective, seed=seed))
            except AnalysisError as error:
                why.append(f"{full} against {simple}: {error}")
    return made, why
