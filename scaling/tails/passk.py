"""pass@k beyond the samples: the law over problems, from counts of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaling.arrays import Floats, Ints
from scaling.errors import AnalysisError
from scaling.fits import Predictions, Status
from scaling.intervals import Interval, ends, generator
from scaling.tails.order import pass_at_k, powers

REACH = 100  # times the samples a problem, as far as a prediction goes
LEAST_PROBLEMS = 8
STEPS = 100
CLOSE = 1e-7  # of a step in (log a, log b)
RESAMPLES = 200
MANY_ZEROS = 0.5
SPREAD_OF_N = 0.2  # correlation of log n with log c at which sampling looks stopped


@dataclass(frozen=True)
class PassFit:
    """pass@k over problems: a beta-binomial by likelihood and a power law of -log pass@k by least squares.

    `predict` gives the power law (it misses less where both were tried) with the interval that holds both; the
    power law is absent under a stopping rule, where only the likelihood is valid.
    """

    status: Status
    why: tuple[str, ...]
    n: Ints
    c: Ints
    params: dict[str, Interval] = field(default_factory=dict)
    beta: Floats | None = None  # [r, 2], the first row the fit, the rest resamples of problems
    power: Floats | None = None  # [r, 2]: log A and alpha of -log pass@k = A k^-alpha
    stopped: bool = False
    level: float = 0.95

    @property
    def reach(self) -> int:
        return REACH * int(self.n.min() if not self.stopped else self.n.max())

    def predict(self, k: float | Sequence[float] | Floats, level: float | None = None) -> Predictions:
        """Mean pass@k over problems at k [m]: unbiased within the samples, the law beyond; NaN beyond reach.

        Raises AnalysisError on a refused fit.
        """
        if self.status == "refused":
            raise AnalysisError(f"pass@k was refused: {' '.join(self.why)}")
        k = np.atleast_1d(np.asarray(k, dtype=float))
        level = self.level if level is None else level
        curves = [c for c in (self._power(k), self._beta(k)) if c is not None]
        tail = [(1 - level) / 2, (1 + level) / 2]
        both = [np.quantile(c, tail, axis=0) for c in curves]
        value, lo, hi = curves[0][0], np.min([b[0] for b in both], axis=0), np.max([b[1] for b in both], axis=0)
        value = np.where(k <= self.n.min(), self._inside(k), value) if not self.stopped else value
        lo, hi = np.minimum(lo, value), np.maximum(hi, value)
        far = k > self.reach
        for end in (value, lo, hi):
            end[far] = np.nan
        return Predictions(value, lo, hi, "bootstrap over problems; problems like these; union of both laws")

    def _inside(self, k: Floats) -> Floats:
        out = np.full(len(k), np.nan)
        seen = k <= self.n.min()
        out[seen] = pass_at_k(self.n, self.c, np.floor(k[seen]).astype(int)).mean(axis=0)
        return out

    def _power(self, k: Floats) -> Floats | None:
        if self.power is None:
            return None
        return np.asarray(np.exp(-np.exp(self.power[:, :1] - self.power[:, 1:] * np.log(k))))

    def _beta(self, k: Floats) -> Floats | None:
        return None if self.beta is None else beta_binomial_pass(self.beta[:, :1], self.beta[:, 1:], k)

    def to_json(self) -> dict[str, Any]:
        return {
            "law": "pass_at_k", "over": "k", "status": self.status, "why": list(self.why), "n": len(self.n),
            "params": {name: p.to_json() for name, p in self.params.items()},
        }  # fmt: skip


def beta_binomial_pass(a: Floats | float, b: Floats | float, k: Floats) -> Floats:
    """1 - B(a, b+k) / B(a, b): pass@k when the chance of a pass is Beta(a, b) over problems; shapes broadcast."""
    from scipy.special import betaln

    return np.asarray(-np.expm1(betaln(a, b + k) - betaln(a, b)))


def stopped_sampling(n: Ints, c: Ints) -> bool:
    """Whether sampling stopped at successes: n differs, is larger where c is smaller, and c = 0 only at the cap."""
    if n.min() == n.max() or (c == 0).all():
        return False
    at_cap = bool((n[c == 0] == n.max()).all())
    rate = np.log((c + 0.5) / (n + 1.0))
    if rate.std() == 0:
        return False
    return at_cap and float(np.corrcoef(np.log(n), rate)[0, 1]) < -SPREAD_OF_N


def fit_pass(
    n: Ints | Sequence[int], c: Ints | Sequence[int], *, level: float = 0.95, draws: int = RESAMPLES, seed: int = 0
) -> PassFit:
    """The law of pass@k over problems from c [p] passes among n [p] samples.

    Raises AnalysisError for counts that can't be; refuses fewer than eight problems, and no pass or no failure
    at all.
    """
    n, c = np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64)
    pass_at_k(n, c, 1)
    problem = _hopeless(n, c)
    if problem:
        return PassFit("refused", (problem,), n, c, level=level)
    why: list[str] = []
    zeros = float((c == 0).mean())
    if zeros > 0:
        why.append(f"{int((c == 0).sum())} of {len(c)} problems have no pass; the exponent leans on them.")
    stopped = stopped_sampling(n, c)
    if stopped:
        why.append(
            f"sampling stopped at the first success (n is {n.min()} … {n.max()}, larger where c is smaller): "
            "c/n is biased; fitted by likelihood only."
        )
    counts = np.vstack(
        [np.ones(len(n)), generator(seed, "pass").multinomial(len(n), np.full(len(n), 1 / len(n)), draws)]
    )
    centre = fit_beta_binomial(n, c, counts[:1])
    beta = np.vstack([centre, fit_beta_binomial(n, c, counts[1:], centre)])
    power = None if stopped else fit_power(n, c, counts)
    params = {name: Interval(float(beta[0, i]), *ends(beta[1:, i], level)) for i, name in enumerate(("a", "b"))}
    if power is not None:
        params["A"] = Interval(float(np.exp(power[0, 0])), *ends(np.exp(power[1:, 0]), level))
        params["alpha"] = Interval(float(power[0, 1]), *ends(power[1:, 1], level))
    weak = zeros > MANY_ZEROS or stopped
    return PassFit("weak" if weak else "ok", tuple(why), n, c, params, beta, power, stopped, level)


def _hopeless(n: Ints, c: Ints) -> str | None:
    if len(n) < LEAST_PROBLEMS:
        return f"{len(n)} problems; the law over problems needs at least {LEAST_PROBLEMS}."
    if (c == 0).all():
        return f"No pass among {int(n.sum())} samples of {len(n)} problems: nothing to extrapolate."
    if (c == n).all():
        return "Every sample passes: pass@k is 1 for every k."
    return None


def fit_power(n: Ints, c: Ints, counts: Floats) -> Floats:
    """log A and alpha [r, 2] of -log pass@k = A k^-alpha, least squares in logs over k = 1, 2, 4, … <= n.

    `counts` [r, p] are weights of problems, one row a fit.
    """
    k = powers(int(n.min()))
    mean = counts @ pass_at_k(n, c, k) / counts.sum(axis=1, keepdims=True)
    usable = (mean > 0) & (mean < 1)
    x = np.broadcast_to(np.log(k), mean.shape)
    y = np.log(-np.log(np.where(usable, mean, 0.5)))
    w = usable / np.maximum(usable.sum(axis=1, keepdims=True), 1)
    mx, my = (w * x).sum(axis=1), (w * y).sum(axis=1)
    variance = (w * (x - mx[:, None]) ** 2).sum(axis=1)
    slope = (w * (x - mx[:, None]) * y).sum(axis=1) / np.where(variance > 0, variance, np.nan)
    return np.stack([my - slope * mx, -slope], axis=1)


def fit_beta_binomial(n: Ints, c: Ints, counts: Floats, start: Floats | None = None) -> Floats:
    """a and b [r, 2] of most likelihood, c ~ BetaBinomial(n, a, b), problems weighted by `counts` [r, p].

    Valid under any stopping rule. Damped Newton in (log a, log b) from `start` [1, 2], all rows as one batch.
    """
    if start is None:
        rate = counts @ ((c + 0.5) / (n + 1.0)) / counts.sum(axis=1)
        theta = np.stack([np.log(0.5 * rate + 1e-3), np.log(0.5 * (1 - rate) + 1e-3)], axis=1)
    else:
        theta = np.tile(np.log(start), (len(counts), 1))
    damping = np.full(len(theta), 1e-3)
    best = _beta_loglik(theta, n, c, counts)
    for _ in range(STEPS):
        step = _beta_step(theta, n, c, counts, damping)
        trial = np.clip(theta + step, -12.0, 16.0)
        value = _beta_loglik(trial, n, c, counts)
        better = value >= best
        theta[better], best[better] = trial[better], value[better]
        damping = np.where(better, damping * 0.1, np.maximum(damping * 10, 1e-2))
        if ((np.abs(step).max(axis=1) < CLOSE) | (damping > 1e10)).all():
            break
    return np.asarray(np.exp(theta))


def _beta_step(theta: Floats, n: Ints, c: Ints, counts: Floats, damping: Floats) -> Floats:
    """A damped Newton step [r, 2] in (log a, log b), the curvature made that of a maximum where it is not."""
    from scipy.special import digamma, polygamma

    a, b = np.exp(theta)[:, :1], np.exp(theta)[:, 1:]
    joint = digamma(a + b) - digamma(a + b + n)
    bend = polygamma(1, a + b) - polygamma(1, a + b + n)
    first = [(counts * (digamma(s + x) - digamma(x) + joint)).sum(axis=1) for s, x in ((c, a), (n - c, b))]
    second = [(counts * (polygamma(1, s + x) - polygamma(1, x) + bend)).sum(axis=1) for s, x in ((c, a), (n - c, b))]
    mixed = (counts * bend).sum(axis=1)
    a, b = a[:, 0], b[:, 0]
    ga, gb = a * first[0], b * first[1]
    ee, dd, ed = -(a * a * second[0] + ga), -(b * b * second[1] + gb), -a * b * mixed
    ee, dd = ee + damping * np.abs(ee) + 1e-12, dd + damping * np.abs(dd) + 1e-12
    lift = np.maximum(0.0, 1e-6 - 0.5 * (ee + dd - np.hypot(ee - dd, 2 * ed)))
    ee, dd = ee + lift, dd + lift
    step = np.stack([dd * ga - ed * gb, ee * gb - ed * ga], axis=1) / (ee * dd - ed * ed)[:, None]
    return np.asarray(np.clip(step, -1.5, 1.5))


def _beta_loglik(theta: Floats, n: Ints, c: Ints, counts: Floats) -> Floats:
    from scipy.special import betaln

    a, b = np.exp(theta)[:, :1], np.exp(theta)[:, 1:]
    return np.asarray((counts * (betaln(c + a, n - c + b) - betaln(a, b))).sum(axis=1))
