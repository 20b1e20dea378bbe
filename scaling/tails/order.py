"""Best-of-N inside the data: unbiased curves from order statistics, their standard errors, pass@k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.arrays import Floats, Ints
from scaling.errors import AnalysisError, nearest

Best = Literal["max", "min"]
Failed = Literal["refuse", "worst", "drop"]

CHUNK_BYTES = 1 << 20  # of samples sorted at a time
MOST_WEIGHTS = 1 << 22  # entries of a weight matrix held at a time
TRUSTED_SHARE = 8  # normal intervals cover down to k = n / 8


@dataclass(frozen=True)
class Curve:
    """E[best of k] for `k` [m]: `value` and `stderr` [p, m], one row a prompt.

    `stderr` is the jackknife's (absent where not asked for); it is NaN at k = n, where one sample is all there is.
    `value` is -inf (inf for best="min") where k draws may all have failed.
    """

    k: Ints
    value: Floats
    stderr: Floats | None
    n: int
    best: Best = "max"

    @property
    def effective(self) -> Floats:
        """About how many independent maxima the n samples hold at each k [m]."""
        return np.asarray(self.n / self.k)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Normal intervals [p, m], NaN for k > n/8: there the jackknife covers too little."""
        if self.stderr is None:
            raise AnalysisError("The curve has no standard errors; ask for them with stderr=True.")
        from scipy.special import ndtri

        half = ndtri((1 + level) / 2) * np.where(self.k * TRUSTED_SHARE <= self.n, self.stderr, np.nan)
        return self.value - half, self.value + half

    def mean(self) -> tuple[Floats, Floats]:
        """The mean over prompts [m] and its standard error [m] from the spread between prompts.

        The error is that of "prompts like these" and needs no model of the noise within a prompt; NaN for one prompt.
        """
        p = len(self.value)
        error = np.full(len(self.k), np.nan) if p < 2 else self.value.std(axis=0, ddof=1) / np.sqrt(p)
        return self.value.mean(axis=0), error


def powers(n: int) -> Ints:
    """1, 2, 4, … and n."""
    return np.unique(np.append(2 ** np.arange(int(n).bit_length()), n)).astype(np.int64)


def weights(n: int, k: int | Sequence[int] | Ints) -> Floats:
    """The weights [m, n] of ascending order statistics in the unbiased estimate of E[max of k].

    w_i = C(i-1, k-1) / C(n, k), the share of k-subsets whose maximum is x_(i); by the downward recurrence
    w_n = k/n, w_(i-1) = w_i (i-k)/(i-1), whose terms are all positive: relative error near 1e-14 at n = 1e5.
    Raises AnalysisError for k outside 1 … n.
    """
    k = _inside(k, n)
    i = np.arange(n, 1, -1, dtype=float)
    ratios = np.maximum((i - k[:, None]) / (i - 1), 0.0)
    falling = np.concatenate([(k / n)[:, None], ratios], axis=1)
    with np.errstate(under="ignore"):
        return np.ascontiguousarray(np.cumprod(falling, axis=1)[:, ::-1])


def best_of_curve(
    samples: Floats,
    k: Sequence[int] | Ints | None = None,
    *,
    best: Best = "max",
    stderr: bool = False,
    failed: Failed = "refuse",
) -> Curve:
    """The unbiased E[best of k] of every prompt from its n samples [p, n] (or [n]); k None: powers of two and n.

    Each value is the mean of the maximum over all k-subsets (a U-statistic). `failed="worst"` takes NaN and -inf
    (inf for best="min") as rewards below all others. Raises AnalysisError for k > n, and for values that are not
    finite, with their place.
    """
    matrix = _matrix(samples, best, failed)
    n = matrix.shape[1]
    asked = powers(n) if k is None else _inside(k, n)
    value = np.empty((len(matrix), len(asked)))
    error = np.full_like(value, np.nan) if stderr else None
    sign = direction(best)
    for columns in _slices(len(asked), max(1, MOST_WEIGHTS // n)):
        table = weights(n, asked[columns])
        for rows in _slices(len(matrix), max(1, CHUNK_BYTES // (8 * n))):
            ordered, lost = _ordered(matrix[rows], sign)
            value[rows, columns] = sign * _weigh(ordered, table, lost, asked[columns])
            if error is not None:
                for j in range(*columns.indices(len(asked))):
                    error[rows, j] = _jackknife(ordered, int(asked[j]), lost)
    return Curve(asked, value, error, n, best)


def selected_curve(
    samples: Floats, other: Floats, k: Sequence[int] | Ints | None = None, *, best: Best = "max"
) -> Curve:
    """E[other metric of the best of k]: selected by `samples` [p, n], reported in `other` [p, n].

    Where rewards tie, any of the tied is picked with the same chance, so `other` is averaged over the tie.
    """
    matrix = _matrix(samples, best, "refuse")
    metric = _matrix(other, "max", "refuse")
    if metric.shape != matrix.shape:
        raise AnalysisError(f"The other metric has shape {metric.shape}, the rewards have {matrix.shape}.")
    n = matrix.shape[1]
    asked = powers(n) if k is None else _inside(k, n)
    table = weights(n, asked)
    value = np.empty((len(matrix), len(asked)))
    for rows in _slices(len(matrix), max(1, CHUNK_BYTES // (8 * n))):
        scores = direction(best) * matrix[rows]
        order = np.argsort(scores, axis=1, kind="stable")
        value[rows] = _tie_means(np.take_along_axis(scores, order, 1), np.take_along_axis(metric[rows], order, 1)) @ (
            table.T
        )
    return Curve(asked, value, None, n, best)


def _tie_means(scores: Floats, metric: Floats) -> Floats:
    """`metric` [p, n] averaged over runs of equal sorted `scores` [p, n]."""
    first = np.ones(scores.shape, dtype=bool)
    first[:, 1:] = scores[:, 1:] != scores[:, :-1]
    run = np.cumsum(first.ravel()) - 1
    return np.asarray((np.bincount(run, metric.ravel()) / np.bincount(run))[run].reshape(metric.shape))


def with_replacement_curve(samples: Floats, k: Sequence[int] | Ints, *, best: Best = "max") -> Floats:
    """E[best of k] of the empirical distribution [p, m]: biased low (0.16 sd at k = n = 256 on normal rewards).

    Several trainers log it as best@k; here for comparison with them only.
    """
    matrix = _matrix(samples, best, "refuse")
    n = matrix.shape[1]
    steps = np.arange(n + 1) / n
    table = np.diff(steps ** np.atleast_1d(np.asarray(k))[:, None], axis=1)
    ordered, _ = _ordered(matrix, direction(best))
    return np.asarray(direction(best) * (ordered @ table.T))


def unbiased_variance(samples: Floats, k: int) -> Floats:
    """The exactly unbiased variance [p] of the estimate of E[max of k] from [p, n] samples, for 2k <= n.

    U^2 less the mean of max * max over disjoint pairs of k-subsets. It can be negative near k = n/2: a check of
    the jackknife rather than a default. Raises AnalysisError for 2k > n.
    """
    matrix = _matrix(samples, "max", "refuse")
    n = matrix.shape[1]
    if 2 * k > n:
        raise AnalysisError(f"The unbiased variance of the best of k = {k} needs n >= 2k samples, not {n}.")
    ordered, _ = _ordered(matrix, 1.0)
    outer, inner = weights(n, k)[0], np.zeros(n)
    inner[k:] = weights(n - k, k)[0]  # w_(j-k) of n-k: the share of k-subsets of what another subset below j left
    x = ordered - (ordered @ outer)[:, None]  # around U, so that U^2 is 0
    below = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x * outer, axis=1)[:, :-1]], axis=1)
    return np.asarray(-2 * ((x * inner) * below).sum(axis=1))


def median_of_best(samples: Floats, k: int, level: float = 0.95) -> tuple[Floats, Floats, Floats | None]:
    """The median of the best of k [p], a lower end [p] and an upper one [p], free of any distribution.

    The median is the quantile q = 2^(-1/k); [x_(r), x_(s)] holds it with at least `level` by the binomial law of
    the number of samples below it. The upper end is None where n samples can't give one (k above about
    n ln 2 / ln(2/(1 - level))); then the lower end is one-sided. Any k >= 1.
    """
    from scipy.special import bdtr

    matrix = _matrix(samples, "max", "refuse")
    n = matrix.shape[1]
    ordered, _ = _ordered(matrix, 1.0)
    q = 0.5 ** (1 / k)
    below = bdtr(np.arange(n + 1), n, q)  # P(B <= j), B samples below the quantile
    middle = ordered[:, min(n - 1, int(np.ceil(n * q)) - 1)]
    two_sided = below[n - 1] >= (1 + level) / 2
    tail = (1 - level) / 2 if two_sided else 1 - level
    r = int(np.searchsorted(below, tail, side="right"))  # x_(r) <= quantile unless B < r
    lower = ordered[:, r - 1] if r > 0 else np.full(len(ordered), -np.inf)
    if not two_sided:
        return middle, lower, None
    s = int(np.searchsorted(below, 1 - tail)) + 1
    return middle, lower, ordered[:, s - 1]


def pass_at_k(n: Ints | int, c: Ints | int, k: Sequence[int] | Ints | int) -> Floats:
    """The unbiased chance [p, m] that one of k samples passes, from c [p] passes among n [p] samples; k [m] <= n.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374) in the shorter of two products of logarithms;
    relative error near 1e-15. Raises AnalysisError for k > n and for counts that can't be.
    """
    n, c, k = _counts(n, c, k)
    if (k.max(initial=0) > n).any():
        where = int(np.argmax(k.max() > n))
        raise AnalysisError(
            f"problem {where}: k = {k.max()} > n = {n[where]}: not an estimate from the data; ask for a prediction."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(_log_fail(n, c, k)))


def pass_at_k_stderr(n: Ints | int, c: Ints | int, k: Sequence[int] | Ints | int) -> Floats:
    """The standard error [p, m] of pass_at_k; NaN at k = n.

    For 2k <= n from its exactly unbiased variance F_k^2 - F_2k with F_k = C(n-c, k) / C(n, k), which is never
    negative; beyond from the jackknife. It is 0 at c = 0 and c = n: see pass_at_k_interval.
    """
    n, c, k = _counts(n, c, k)
    value = pass_at_k(n, c, k)
    out = np.full(value.shape, np.nan)
    for j, draws in enumerate(k):
        exact = 2 * draws <= n
        fail, pair = (np.exp(_log_fail(n[exact], c[exact], np.array([d])))[:, 0] for d in (draws, 2 * draws))
        out[exact, j] = np.sqrt(np.maximum(fail**2 - pair, 0.0))
        rest = ~exact & (draws < n)
        m, passes = n[rest].astype(float), c[rest]
        without = np.exp(_log_fail(n[rest] - 1, np.maximum(passes - 1, 0), np.array([draws])))[:, 0]
        kept = np.exp(_log_fail(n[rest] - 1, np.minimum(passes, n[rest] - 1), np.array([draws])))[:, 0]
        out[rest, j] = np.sqrt((m - 1) * passes * (m - passes)) / m * np.abs(without - kept)
    return out


def pass_at_k_interval(
    n: Ints | int, c: Ints | int, k: Sequence[int] | Ints | int, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Exact (Clopper–Pearson) ends [p, m] of the chance that one of k samples passes, for samples fixed in number."""
    from scipy.special import betaincinv

    n, c, k = _counts(n, c, k)
    tail = (1 - level) / 2
    low = np.where(c > 0, betaincinv(np.maximum(c, 1), n - c + 1, tail), 0.0)
    high = np.where(c < n, betaincinv(c + 1, np.maximum(n - c, 1), 1 - tail), 1.0)
    with np.errstate(divide="ignore"):
        lo, hi = (-np.expm1(k * np.log1p(-p)[:, None]) for p in (low, high))
    return lo, hi


def _log_fail(n: Ints, c: Ints, k: Ints) -> Floats:
    """log C(n-c, k) / C(n, k) [p, m]; -inf where k samples can't all fail."""
    out = np.zeros((len(n), len(k)))
    by_draws = k[None, :] < c[:, None]  # product over draws: shorter where k < c
    possible = k[None, :] <= (n - c)[:, None]
    for j in np.flatnonzero((by_draws & possible).any(axis=0)):
        rows = np.flatnonzero(by_draws[:, j] & possible[:, j])
        for i in range(int(k[j])):
            out[rows, j] += np.log1p(-c[rows] / (n[rows] - i))
    by_passes = ~by_draws & possible
    order = np.argsort(-c, kind="stable")
    for i in range(1, int(np.max(c, initial=0, where=by_passes.any(axis=1))) + 1):
        rows = order[: int(np.searchsorted(-c[order], -i, side="right"))]
        factor = n[rows] - c[rows] + i
        with np.errstate(divide="ignore", invalid="ignore"):
            term = np.log1p(-k[None, :] / factor[:, None])
        out[rows] += np.where(by_passes[rows], term, 0.0)
    out[~possible] = -np.inf
    return out


def _counts(n: Ints | int, c: Ints | int, k: Sequence[int] | Ints | int) -> tuple[Ints, Ints, Ints]:
    n, c = np.broadcast_arrays(np.atleast_1d(_whole(n, "n")), np.atleast_1d(_whole(c, "c")))
    k = np.atleast_1d(_whole(k, "k"))
    for bad, text in (
        (n < 1, "n = {n} samples; at least 1 is needed."),
        ((c < 0) | (c > n), "c = {c} passes among n = {n} samples can't be."),
    ):
        if bad.any():
            i = int(np.argmax(bad))
            raise AnalysisError(f"problem {i}: {text.format(n=n[i], c=c[i])}")
    if (k < 1).any():
        raise AnalysisError(f"k = {k.min()} draws; at least 1 is needed.")
    return n, c, k


def _whole(values: object, name: str) -> Ints:
    given = np.asarray(values)
    if given.dtype.kind not in "iu" and not (given.dtype.kind == "f" and np.all(given == np.floor(given))):
        raise AnalysisError(f"{name} must be whole numbers, not {str(values)[:60]}.")
    return given.astype(np.int64)


def _inside(k: int | Sequence[int] | Ints, n: int) -> Ints:
    asked = np.atleast_1d(_whole(k, "k"))
    if asked.size and asked.min() < 1:
        raise AnalysisError(f"k = {asked.min()} draws; at least 1 is needed.")
    if asked.size and asked.max() > n:
        raise AnalysisError(f"k = {asked.max()} > n = {n}: not an estimate from the data; ask for a prediction.")
    return asked


def direction(best: Best) -> float:
    """1 for "max", -1 for "min". Raises AnalysisError for anything else."""
    if best not in ("max", "min"):
        raise AnalysisError(f"best: {best!r} is not a direction.{nearest(str(best), ('max', 'min'))}")
    return 1.0 if best == "max" else -1.0


def _matrix(samples: Floats, best: Best, failed: Failed) -> Floats:
    """The samples as [p, n] floats; refuses what is not finite unless it counts as worst."""
    matrix = np.atleast_2d(np.asarray(samples, dtype=float))
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise AnalysisError(f"Samples must be [prompts, samples] with at least one sample, not {matrix.shape}.")
    for rows in _slices(len(matrix), max(1, CHUNK_BYTES // (8 * matrix.shape[1]))):
        bad = ~np.isfinite(matrix[rows])
        if not bad.any():
            continue
        if failed == "drop":
            raise AnalysisError("Dropping failed samples leaves rows of unequal length: give best_of_curve each alone.")
        if failed == "worst":
            bad = np.isposinf(direction(best) * matrix[rows])
        if bad.any():
            where = np.argwhere(bad)
            row, column = where[0]
            raise AnalysisError(
                f"prompt {rows.start + row}, sample {column}: reward {matrix[rows][row, column]:g}"
                f"{f' ({len(where)} such)' if len(where) > 1 else ''}, must be finite; "
                "declare failed: worst or failed: drop."
            )
    return matrix


def _ordered(matrix: Floats, sign: float) -> tuple[Floats, Ints]:
    """Ascending copies [p, n] of sign * rewards; failures take the lowest value, their count is [p]."""
    scores = sign * matrix
    gone = ~np.isfinite(scores)
    lost = gone.sum(axis=1)
    if lost.any():
        scores[gone] = -np.inf
        scores.sort(axis=1)
        lowest = np.take_along_axis(scores, np.minimum(lost, scores.shape[1] - 1)[:, None], axis=1)
        scores = np.where(np.isneginf(scores), np.where(np.isfinite(lowest), lowest, 0.0), scores)
    else:
        scores.sort(axis=1)
    return scores, lost


def _weigh(ordered: Floats, table: Floats, lost: Ints, k: Ints) -> Floats:
    """Weighted sums [p, m]; -inf where k draws may all be among the `lost`, whose weights vanish otherwise."""
    value = ordered @ table.T
    if lost.any():
        value[k[None, :] <= lost[:, None]] = -np.inf
    return np.asarray(value)


def _jackknife(ordered: Floats, k: int, lost: Ints) -> Floats:
    """Jackknife standard errors [p] of E[max of k] from ascending samples [p, n].

    Leaving out x_(j) instead of x_(j+1) changes the estimate by w'_j (x_(j+1) - x_(j)), w' the weights for n - 1.
    """
    n = ordered.shape[1]
    if k >= n:
        return np.full(len(ordered), np.nan)
    steps = np.diff(ordered, axis=1) * weights(n - 1, k)[0]
    left_out = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
    error = np.sqrt((n - 1) * left_out.var(axis=1))
    return np.where(k > lost, error, np.nan)


def _slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
