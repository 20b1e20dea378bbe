"""Power laws of compute-optimal sizes over budgets: N* ~ C^a, D* ~ C^b, with joint draws and what each budget does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scaling.arrays import Floats, Ints
from scaling.counts import Finding, exponent_sum
from scaling.counts import slope as plain_slope
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.intervals import WILD_CLUSTERS, Interval, ends, excess_variance, generator, heavy

Status = Literal["ok", "weak", "refused"]

WITHIN = 0.05  # FLOP of one budget differ by less from its centre
FAR = 3.0  # a budget this many standard deviations off the others' trend is named
NOTABLE = 0.10  # and at least this far off, relatively
TINY = 1e-12
DISAGREES = 2.0  # joint standard errors


def group_budgets(flops: Floats, within: float = WITHIN) -> Ints:
    """The budget of each row [n] as 0, 1, … in ascending order of flops [n] > 0.

    Rows of one budget lie within the relative tolerance `within` of its centre. A chain of rows, each near the
    next, is cut at its widest gaps until that holds; budgets are never rounded to nice numbers.
    """
    flops = np.asarray(flops, dtype=float)
    for i in np.flatnonzero(~(np.isfinite(flops) & (flops > 0)))[:1]:
        raise AnalysisError(f"row {i + 1}: flops = {flops[i]:g}, must be > 0.")
    if not 0 < within < 1:
        raise AnalysisError(f"within = {within:g}: a relative tolerance between 0 and 1 is wanted, such as 0.05.")
    levels, which = np.unique(np.log(flops), return_inverse=True)
    width = float(np.log((1 + within) / (1 - within))) * (1 + 1e-12)
    cuts = np.zeros(len(levels), dtype=np.int64)
    open_runs = [(0, len(levels))] if len(levels) else []
    while open_runs:
        start, stop = open_runs.pop()
        if levels[stop - 1] - levels[start] <= width:
            continue
        cut = start + 1 + _widest_gap(levels[start:stop])
        cuts[cut] = 1
        open_runs += [(start, cut), (cut, stop)]
    return np.asarray(np.cumsum(cuts)[which], dtype=np.int64)


def _widest_gap(levels: Floats) -> int:
    """Index of the widest gap; of equally wide ones the most central, so that an even chain is halved."""
    gaps = np.diff(levels)
    widest = np.flatnonzero(gaps >= gaps.max() * (1 - 1e-9))
    return int(widest[np.argmin(np.abs(widest - (len(gaps) - 1) / 2))])


def assign_budgets(flops: Floats, budgets: Floats, within: float = WITHIN) -> Ints:
    """The index of the named budget [m] that each row [n] is within `within` of, relatively; -1: of none."""
    budgets = np.asarray(budgets, dtype=float)
    nearest = np.abs(np.log(flops)[:, None] - np.log(budgets)).argmin(axis=1)
    # a hair of slack, so that 9e18 belongs to 1e19 under 10 %
    return np.where(np.abs(flops / budgets[nearest] - 1) <= within * (1 + 1e-9), nearest, -1)


@dataclass(frozen=True)
class Optima:
    """Compute-optimal sizes by budget: budgets [m] in FLOP, n_params [m], tokens [m] or None.

    `log_stderr` [m] are standard errors of log n_params; `shifts` [b, m] draws of log n_params minus its value and
    `token_shifts` the same of log tokens, as profiles give them. Without them draws are made from `log_stderr`,
    opposite for tokens, since a budget fixes the product.
    """

    budgets: Floats
    n_params: Floats
    tokens: Floats | None = None
    log_stderr: Floats | None = None
    shifts: Floats | None = None
    token_shifts: Floats | None = None


@dataclass(frozen=True)
class Influence:
    """What one budget does: its value over the trend of the others, and the exponent without it.

    `score` is how far off it lies (log), in standard deviations of the others about their own trend.
    """

    budget: float
    ratio: float
    exponent: float
    score: float

    def to_json(self) -> dict[str, float]:
        return dict(vars(self))


@dataclass(frozen=True)
class BudgetLaw:
    """`of` = coefficient · C^exponent over budgets [m] in FLOP; values [m]; draws [b, 2] of (log value at
    exp(centre), exponent). A refused law has no numbers."""

    of: str
    status: Status
    why: tuple[str, ...]
    budgets: Floats
    values: Floats
    weighted: bool = False
    exponent: Interval | None = None
    stderr: float | None = None  # of the exponent
    height: float = np.nan  # log value at exp(centre)
    centre: float = np.nan  # log FLOP
    excess: float = 0.0  # scatter about the law beyond the optima's own errors, in log value
    draws: Floats | None = None
    influence: tuple[Influence, ...] = ()
    level: float = 0.95

    @property
    def coefficient(self) -> float:
        """The value at 1 FLOP."""
        assert self.exponent is not None
        return float(np.exp(self.height - self.exponent.value * self.centre))

    def predict(self, flops: float, level: float | None = None) -> Interval:
        """The value at a budget in FLOP, with the interval of the law. Raises AnalysisError for a refused law."""
        if self.exponent is None:
            raise AnalysisError(f"{self.of} over flops was refused: {' '.join(self.why)}")
        t = np.log(flops) - self.centre
        value = float(np.exp(self.height + self.exponent.value * t))
        if self.draws is None:
            return Interval(value)
        return Interval(value, *ends(np.exp(self.draws @ np.array([1.0, t])), level or self.level))

    def to_json(self) -> dict[str, Any]:
        head: dict[str, Any] = {
            "of": self.of, "status": self.status, "why": list(self.why), "budgets": self.budgets.tolist(),
            "values": self.values.tolist(),
        }  # fmt: skip
        if self.exponent is None:
            return head
        rest = {
            "exponent": self.exponent.to_json(), "coefficient": self.coefficient, "weighted": self.weighted,
            "excess": self.excess, "influence": [i.to_json() for i in self.influence], "level": self.level,
        }  # fmt: skip
        return head | rest | ({} if self.stderr is None else {"stderr": self.stderr})


def budget_laws(
    optima: Optima, *, weighted: bool = True, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[BudgetLaw, BudgetLaw | None, tuple[Finding, ...]]:
    """The laws of n_params and, where given, tokens over budgets, and whether their exponents sum to 1.

    Straight lines in logarithms, rows weighted by 1/sd^2 of their optima where these are known and `weighted`.
    Draws move N* and D* of a budget together: by the optima's own errors, and by the scatter about the law that
    these don't explain; `draws` 0 gives no intervals. Fewer than two budgets are refused; fewer than five without
    errors have no interval.
    """
    m = len(optima.budgets)
    if len(np.unique(optima.budgets)) < 2:
        sentence = f"n_params over flops: {m} budget{'s' if m != 1 else ''} with an optimum; a slope needs 2, a test 4."
        refused = BudgetLaw("n_params", "refused", (sentence,), optima.budgets, optima.n_params)
        return refused, None, ()
    known = optima.log_stderr is not None and bool(np.all(optima.log_stderr > 0))
    weights = np.ones(m) if optima.log_stderr is None or not (weighted and known) else optima.log_stderr**-2.0
    rng = generator(seed, "budgets")
    own = _own_shifts(optima, draws, rng) if known and draws else None
    count = draws if own is None else len(own[0])
    shock = rng.standard_normal((count, m)) * heavy(rng, count, max(m - 2, 1))
    make = _Maker(optima, weights / weights.mean(), weighted and known, level)
    sizes = make.law("n_params", optima.n_params, None if own is None else own[0], shock)
    if optima.tokens is None:
        return sizes, None, ()
    data = make.law("tokens", optima.tokens, None if own is None else own[1], -shock)
    return sizes, data, _sums(optima, sizes, data)


def _own_shifts(optima: Optima, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draws of the optima's own errors in log n_params and in log tokens, [b, m] each."""
    if optima.shifts is not None:
        return optima.shifts, -optima.shifts if optima.token_shifts is None else optima.token_shifts
    assert optima.log_stderr is not None
    shift = rng.standard_normal((draws, len(optima.budgets))) * optima.log_stderr
    return shift, -shift


@dataclass(frozen=True)
class _Maker:
    optima: Optima
    weights: Floats  # [m], mean 1
    weighted: bool
    level: float

    def law(self, of: str, values: Floats, own: Floats | None, shock: Floats) -> BudgetLaw:
        """The law of `values` [m]; own [b, m] shifts of their logs, shock [b, m] of unit size."""
        x, y, m = np.log(self.optima.budgets), np.log(values), len(values)
        centre = float(np.average(x, weights=self.weights))
        project = _projection(x - centre, self.weights)
        height, exponent = project @ y
        rest = y - height - exponent * (x - centre)
        excess = self._excess(rest)
        law = BudgetLaw(
            of, "ok", (), self.optima.budgets, values, self.weighted, Interval(float(exponent)), None, float(height),
            centre, excess, influence=_influence(self.optima.budgets, y, self.weights), level=self.level,
        )  # fmt: skip
        why = [*_words(law, rest), *_far(law, self._own_stderr())]
        if m == 2:
            why.append(f"{of} over flops: two budgets, so the exponent is their ratio, untested.")
        if not len(shock):
            return replace(law, status="weak" if m < 4 else "ok", why=tuple(why))
        if own is None and m < WILD_CLUSTERS:
            why.append(f"{of} over flops: no interval, {m} budgets without errors of their own (needs >= 5).")
            return replace(law, status="weak", why=tuple(why))
        shifts = excess * shock + (0.0 if own is None else own)
        around = np.array([height, exponent]) + shifts @ project.T
        lo, hi = ends(around[:, 1], self.level)
        low, high = np.quantile(around[:, 1], [0.1587, 0.8413])
        return replace(
            law, status="weak" if m < 4 else "ok", why=tuple(why), exponent=Interval(float(exponent), lo, hi),
            stderr=float(high - low) / 2, draws=around,
        )  # fmt: skip

    def _own_stderr(self) -> Floats:
        stderr = self.optima.log_stderr
        return np.zeros(len(self.weights)) if stderr is None else stderr

    def _excess(self, rest: Floats) -> float:
        freedom = len(rest) - 2
        if freedom < 1:
            return 0.0
        stderr = self._own_stderr()
        if np.all(stderr > 0):
            return float(np.sqrt(excess_variance(rest, stderr, freedom)))
        return float(np.sqrt(rest @ rest / freedom))


def _projection(t: Floats, weights: Floats) -> Floats:
    """The matrix [2, m] from heights [m] to (height at t = 0, slope) of the weighted line over t [m]."""
    design = np.stack([np.ones_like(t), t])
    return np.asarray(np.linalg.solve((design * weights) @ design.T, design * weights))


def _influence(budgets: Floats, y: Floats, weights: Floats) -> tuple[Influence, ...]:
    """Each budget against the line through the others; needs three others for a trend with a test."""
    x, m = np.log(budgets), len(budgets)
    if m < 4:
        return ()
    out = []
    for i in range(m):
        rest = np.arange(m) != i
        t = x[rest] - x[i]
        height, slope = _projection(t, weights[rest]) @ y[rest]
        spread = np.sqrt(((y[rest] - height - slope * t) ** 2).sum() / max(m - 3, 1))
        off = float(y[i] - height)
        out.append(Influence(float(budgets[i]), float(np.exp(off)), float(slope), off / max(float(spread), TINY)))
    return tuple(out)


def _far(law: BudgetLaw, stderr: Floats) -> list[str]:
    """Names the budgets that lie off the trend of the others by far more than the others lie off theirs."""
    if not law.influence or law.exponent is None:
        return []
    out = []
    for item, error in zip(law.influence, stderr, strict=True):
        if abs(item.score) > FAR and abs(item.ratio - 1) > NOTABLE:
            own = f" (its own error: {error:.0%})" if error else ""
            out.append(
                f"{law.of} over flops: the budget {item.budget:.3g} lies at {item.ratio:.2g} of the trend of the "
                f"others{own}; without it the exponent is {item.exponent:.3f} instead of {law.exponent.value:.3f}."
            )
    return out


def _words(law: BudgetLaw, rest: Floats) -> list[str]:
    if law.excess == 0.0 or not law.weighted or len(rest) < 3:
        return []
    return [
        f"{law.of} over flops: the optima scatter about the law by {law.excess:.0%} beyond their own errors; "
        "the intervals are widened for it."
    ]


def _sums(optima: Optima, sizes: BudgetLaw, data: BudgetLaw) -> tuple[Finding, ...]:
    assert sizes.exponent is not None
    assert data.exponent is not None
    stderr = None
    if sizes.draws is not None and data.draws is not None:
        low, high = np.quantile(sizes.draws[:, 1] + data.draws[:, 1], [0.1587, 0.8413])
        stderr = float(high - low) / 2
    elif optima.tokens is not None:
        stderr = plain_slope(np.log(optima.budgets), np.log(optima.n_params * optima.tokens)).stderr
    return exponent_sum(sizes.exponent.value, data.exponent.value, stderr)


@dataclass(frozen=True)
class SurfaceExponent:
    """a = beta / (alpha + beta) of a loss surface E + A N^-alpha + B D^-beta, and its standard error."""

    value: float
    stderr: float | None = None


def surface_exponent(fit: Fit) -> SurfaceExponent:
    """The exponent of N* that a fitted surface implies (Hoffmann et al. 2022, arXiv 2203.15556, equation 4).

    Raises AnalysisError for a law without alpha and beta, or a refused fit.
    """
    names = fit.law.names
    if "alpha" not in names or "beta" not in names:
        raise AnalysisError(f"{fit.law.name}: no exponents alpha and beta; a surface such as chinchilla is needed.")
    if not fit.params:
        raise AnalysisError(f"{fit.law.name} over {fit.law.over} was refused: {' '.join(fit.why)}")
    alpha, beta = (fit.params[n].value for n in ("alpha", "beta"))
    if fit.draws is None:
        return SurfaceExponent(beta / (alpha + beta))
    a, b = (fit.draws[:, names.index(n)] for n in ("alpha", "beta"))
    low, high = np.quantile(b / (a + b), [0.1587, 0.8413])
    return SurfaceExponent(beta / (alpha + beta), float(high - low) / 2)


@dataclass(frozen=True)
class Agreement:
    """The exponent of N* by profiles and by a surface; `disagree` when they differ by > 2 joint standard errors."""

    profile: float
    surface: float
    difference: float
    stderr: float | None
    disagree: bool | None
    text: str

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if v is not None}


def against_surface(law: BudgetLaw, surface: SurfaceExponent) -> Agreement:
    """Puts the exponent of n_params beside that of a surface. Raises AnalysisError for a refused law."""
    if law.exponent is None:
        raise AnalysisError(f"{law.of} over flops was refused: {' '.join(law.why)}")
    a = law.exponent.value
    difference = a - surface.value
    both = f"N* ~ C^{a:.3f} by profiles, C^{surface.value:.3f} by the surface"
    if law.stderr is None or surface.stderr is None:
        text = f"{both}; without standard errors of both the difference {difference:+.3f} can't be judged."
        return Agreement(a, surface.value, difference, None, None, text)
    joint = float(np.hypot(law.stderr, surface.stderr))
    apart = abs(difference) > DISAGREES * joint
    size = abs(difference) / joint if joint else np.inf
    text = (
        f"{both}: they differ by {size:.1f} joint standard errors. Either the runs are tuned unequally well over "
        "sizes, or the surface is not the right law; neither exponent should be extrapolated until that is known."
        if apart
        else f"{both}: they agree ({difference:+.3f} ± {joint:.3f})."
    )
    return Agreement(a, surface.value, difference, joint, apart, text)
