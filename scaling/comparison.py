"""Which of several laws should be believed: by what they predict of the dearest runs, not by how close they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import AUTO, fit_law, problem_of
from scaling.intervals import generator
from scaling.laws import Law
from scaling.objectives import Objective, linked, unlinked
from scaling.origin import cut_places
from scaling.resample import refit
from scaling.rows import Rows, cost_of

DECADE = 10.0
FEWEST_TESTED = 3
FALLBACK_SHARE = 0.2
STOPS = 6
REACHES = ((4.0, 2.0, 8.0), (16.0, 8.0, 32.0))  # how far beyond, and the window of costs that counts as that far
SMALLEST = 1e-300
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Score:
    """How one law predicts rows that took no part in its fit.

    `error` is the median absolute relative error, `log_score` the mean log density of the observations under the
    predictive intervals, read as normals; `each` [m] the terms of it. `aicc` is of the fit to all rows.
    """

    law: str
    parameters: int
    status: str
    why: tuple[str, ...]
    error: float | None = None
    log_score: float | None = None
    aicc: float | None = None
    each: Floats | None = None
    errors: Floats | None = None


@dataclass(frozen=True)
class Comparison:
    """Scores of laws on the same held-out rows, the one that is chosen, and why."""

    scores: tuple[Score, ...]
    best: str | None
    why: str
    trained: int
    tested: int
    frontier: float | None  # the cost above which rows were held out

    def to_json(self) -> dict[str, Any]:
        """Plain values; what could not be told is absent."""
        scores = [
            {k: v for k, v in (("law", s.law), ("parameters", s.parameters), ("status", s.status), ("why", list(s.why)),
                               ("error", s.error), ("log_score", s.log_score), ("aicc", s.aicc)) if v is not None}
            for s in self.scores
        ]  # fmt: skip
        head = {"scores": scores, "why": self.why, "trained": self.trained, "tested": self.tested}
        return head | {k: v for k, v in (("best", self.best), ("frontier", self.frontier)) if v is not None}


def held_out(cost: Floats) -> Bools:
    """The rows to predict [n]: those of the dearest decade, at least 3 and at most half; else the dearest fifth.

    Raises AnalysisError where too few rows are left to fit or to predict.
    """
    far = cost > cost.max() / DECADE
    if not FEWEST_TESTED <= far.sum() <= len(cost) / 2:
        levels = np.unique(cost)
        count = max(FEWEST_TESTED, round(FALLBACK_SHARE * len(cost)))
        far = cost >= np.sort(cost)[-count]
        if far.sum() > len(cost) / 2 or len(levels) < 2:
            raise AnalysisError(f"{len(cost)} rows: too few to fit the cheap ones and predict the dear ones.")
    return np.asarray(far)


def costs(laws: Sequence[Law], rows: Rows) -> Floats:
    """What the rows cost [n], given or by the laws' inputs. Raises AnalysisError where neither tells."""
    found = rows.cost if rows.cost is not None else cost_of(laws[0], rows.x)
    if found is None:
        raise AnalysisError(
            f"{laws[0].name} over {laws[0].over}: give a cost, so that the dearest rows can be held out."
        )
    return found


def compare_laws(
    laws: Sequence[Law],
    rows: Rows,
    *,
    objective: Objective = AUTO,
    draws: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Fits every law to the cheap rows and scores it on the dear ones.

    The best mean log score is chosen; a law with fewer parameters is preferred where it is within one standard error
    of that, in log score and in squared error. Random folds are not offered: they test interpolation.

    Raises AnalysisError where the rows can't be split.
    """
    rows = rows.sorted()
    cost = costs(laws, rows)
    far = held_out(cost)
    train, test = rows.take(~far), rows.take(far)
    scores = tuple(_score(law, rows, train, test, objective, draws, level, seed) for law in laws)
    best, why = _choice(scores)
    return Comparison(scores, best, why, len(train), len(test), float(cost[~far].max()))


def _score(  # noqa: PLR0917 - one experiment has this many parts
    law: Law, rows: Rows, train: Rows, test: Rows, objective: Objective, draws: int, level: float, seed: int
) -> Score:
    fit = fit_law(law, train, objective=objective, draws=draws, level=level, seed=seed)
    head = Score(law.name, len(law.parameters), fit.status, fit.why)
    if not fit.params:
        return head
    residual = objective.residual
    found = fit.predict(test.x, noise=None)
    seen = linked(residual, test.y)
    miss = linked(residual, found.value) - seen
    made = replace(
        head, error=float(np.median(np.abs(found.value / test.y - 1))), errors=miss,
        aicc=aicc(fit_law(law, rows, objective=objective, draws=0, seed=seed)),
    )  # fmt: skip
    if found.lo is None or found.hi is None:
        return made
    sd = (linked(residual, found.hi) - linked(residual, found.lo)) / (2 * NORMAL_95)
    each = -0.5 * np.log(2 * np.pi * sd**2) - 0.5 * (miss / sd) ** 2
    return replace(made, log_score=float(each.mean()), each=each)


def aicc(fit: Fit) -> float | None:
    """Akaike's criterion with the small-sample term (Hurvich and Tsai 1989), least squares with its own variance.

    Rows of one cluster count as one observation. None where there are too few, or the fit was refused. Only values
    of the same rows under the same residual can be compared: see `compare_aicc`.
    """
    if not fit.params:
        return None
    residual = fit.objective.residual
    r = linked(residual, fit.law.value(fit.point, fit.rows.x)) - linked(residual, fit.rows.y)
    n, k = int(fit.rows.groups.max()) + 1, len(fit.params) + 1
    if n - k - 1 <= 0:
        return None
    return float(n * np.log(np.mean(r**2)) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def compare_aicc(a: Fit, b: Fit) -> float:
    """AICc of a minus that of b. Raises AnalysisError for fits that can't be compared by it."""
    if a.objective.residual != b.objective.residual:
        raise AnalysisError(
            f"{a.law.name} has residual: {a.objective.residual}, {b.law.name} residual: {b.objective.residual}: their "
            "likelihoods are of different quantities. Compare what they predict of held-out rows."
        )
    if len(a.rows) != len(b.rows) or not np.array_equal(np.sort(a.rows.y), np.sort(b.rows.y)):
        raise AnalysisError(f"{a.law.name} and {b.law.name} were fitted to different rows: AICc can't compare them.")
    one, other = aicc(a), aicc(b)
    if one is None or other is None:
        raise AnalysisError(
            f"too few rows for AICc: {len(a.rows)}, with {len(a.params)} and {len(b.params)} parameters."
        )
    return one - other


def _choice(scores: Sequence[Score]) -> tuple[str | None, str]:
    able = [s for s in scores if s.errors is not None]
    if not able:
        return None, "no law could be fitted to the cheap rows."
    by_score = all(s.each is not None for s in able)
    terms = {id(s): _terms(s, by_score) for s in able}
    best = max(able, key=lambda s: float(terms[id(s)].mean()))
    tied = [s for s in able if _within(terms[id(best)], terms[id(s)]) and _within(_squares(best), _squares(s))]
    chosen = min(tied, key=lambda s: (s.parameters, -float(terms[id(s)].mean())))
    what = "log score" if by_score else "squared error"
    if chosen is best:
        rest = f"; {', '.join(s.law for s in tied if s is not best)} within one standard error" if len(tied) > 1 else ""
        return chosen.law, f"{chosen.law} has the best {what} on the dearest rows{rest}."
    return chosen.law, (
        f"{chosen.law}: {best.law} has the best {what} on the dearest rows, but not by one standard error, and "
        f"{best.parameters - chosen.parameters} more parameters."
    )


def _terms(score: Score, by_score: bool) -> Floats:
    if not by_score:
        return _squares(score)
    assert score.each is not None
    return score.each


def _squares(score: Score) -> Floats:
    assert score.errors is not None
    return -(score.errors**2)


def _within(best: Floats, other: Floats) -> bool:
    difference = best - other
    error = float(np.std(difference, ddof=1)) / np.sqrt(len(difference)) if len(difference) > 1 else np.inf
    return bool(difference.mean() <= error)


# -- rolling extrapolation ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """Had the experiment stopped at `cost`: rows fitted, and the median |relative error| by factor beyond (or None)."""

    cost: float
    rows: int
    errors: tuple[tuple[float, float | None, int], ...]  # factor, error, rows it is of


def rolling(law: Law, rows: Rows, *, objective: Objective = AUTO, seed: int = 0) -> list[Stop]:
    """How wrong `law` would have been at 4 and at 16 times the cost, had the experiment stopped earlier."""
    rows = rows.sorted()
    cost = costs([law], rows)
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
        return f"what {self.full} has beyond {self.simple} {needed} (p = {self.p:.3g}, {self.draws} draws)."


def nested_test(simple: Law, full: Law, rows: Rows, *, draws: int = 199, seed: int = 0) -> NestedTest:
    """A likelihood ratio with its distribution by bootstrap under the simpler law.

    Where the simpler law lies at the edge of the full one (a floor of 0, an exponent of 1) the usual chi-squared is
    wrong. Least squares; residuals are drawn by cluster. Raises AnalysisError where a law can't be fitted.
    """
    rows = rows.sorted()
    fits = [fit_law(law, rows, objective=Objective("l2"), draws=0, seed=seed) for law in (simple, full)]
    problems = [problem_of(f) for f in fits]
    statistic = float(len(rows) * np.log(max(fits[0].value, SMALLEST) / max(fits[1].value, SMALLEST)))
    rng = generator(seed, "nested", simple.name, full.name)
    groups = rows.groups
    clusters = int(groups.max()) + 1
    centre = linked("log", simple.value(fits[0].point, rows.x))
    scatter = fits[0].scatter()
    signs = rng.choice([-1.0, 1.0], size=(draws, clusters))[:, groups]
    picks = rng.integers(0, len(scatter), (draws, len(rows))) if clusters == len(rows) else np.arange(len(rows))
    y = unlinked("log", centre + signs * scatter[picks])
    reached = []
    for problem, theta, _ in problems:
        made = replace(problem, y=y)
        reached.append(made.objective_at(refit(made, theta, [], 2.0).theta))
    simulated = len(rows) * np.log(np.maximum(reached[0], SMALLEST) / np.maximum(reached[1], SMALLEST))
    p = float((1 + np.sum(simulated >= statistic)) / (draws + 1))
    return NestedTest(simple.name, full.name, statistic, p, draws)
