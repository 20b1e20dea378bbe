"""A tail fit: E[best of N] beyond the samples, with its interval, or the sentence that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from scaling.arrays import Bools, Floats
from scaling.errors import AnalysisError
from scaling.fits import Predictions, Status
from scaling.intervals import Interval, ends, generator
from scaling.tails import models
from scaling.tails.backtest import MANY, MOST_GROUPS, Backtest, backtest, tail_sd
from scaling.tails.families import (
    FAMILIES,
    Family,
    GTail,
    Normal,
    Pooled,
    between,
    log_prior,
    peak,
    tail_count,
)
from scaling.tails.families import family as named
from scaling.tails.order import Best, Failed, best_of_curve, direction
from scaling.tails.samples import GRID_SPIKE, LEAST_SAMPLES, Bucket, Grid, Groups, gather, grid_of, saturated

REACH = 16  # times the samples at hand, as far as a prediction goes
RESAMPLES = 200
AIC_SLACK = 4.0  # a family this much worse still counts for the interval
COMPANIONS = ("normal", "exponential")
MANY_CANDIDATES = ("gtail", "gpd", "normal", "exponential", "empirical")
FEW_CANDIDATES = ("normal", "gtail", "exponential", "gpd", "empirical")
BULK = 20.0  # N p above which the samples below a threshold no longer matter
SHORT_TAIL_LOG_ODDS = 4.0  # of the shortest tail against the normal one
INVERSE_POINTS = 65
FARTHEST = 1e12  # draws looked at to tell "too far" from "never"
DRAW_CELLS = 4_000_000

Gate = Literal["refuse", "report"]


@dataclass(frozen=True)
class TailPredictions(Predictions):
    """Predictions at N [m]; NaN where `why` [m] holds a sentence instead."""

    why: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Inversion:
    """The smallest N that reaches a target, its interval's ends (hi None: not within reach), or only `why`."""

    n: float | None
    lo: float | None = None
    hi: float | None = None
    why: str | None = None


@dataclass(frozen=True)
class Piece:
    """The fit of a bucket: parameters [g, p], share of saturated samples [g], and over a shape grid
    log likelihoods [s, g] and parameters [s, g, p] where a shape is pooled.
    """

    bucket: Bucket
    params: Floats
    share: float
    profile: Floats | None = None
    curves: Floats | None = None


@dataclass(frozen=True)
class TailFit:
    """A fitted tail over groups (prompts). `refused` fits have no parameters; `why` says what is wrong."""

    family: str
    status: Status
    why: tuple[str, ...]
    groups: Groups
    best: Best = "max"
    bounds: tuple[float | None, float | None] = (None, None)
    params: dict[str, Interval] = field(default_factory=dict)
    backtest: Backtest | None = None
    rejected: tuple[str, ...] = ()
    level: float = 0.95
    seed: int = 0
    draws: int = 1000
    model: Family | None = None
    pieces: tuple[Piece, ...] = ()
    spikes: tuple[tuple[Bucket, Floats], ...] = ()
    ceiling: TailFit | None = None

    @property
    def n(self) -> int:
        """Samples of the smallest group."""
        return int(self.groups.n.min()) if len(self.groups) else 0

    @property
    def reach(self) -> int:
        """The largest N predicted: 16 times the smallest group's samples."""
        return REACH * self.n

    @property
    def pooled(self) -> bool:
        """Whether groups share a shape."""
        return any(p.profile is not None for p in self.pieces)

    def table(self) -> tuple[tuple[str, ...], Floats]:
        """Parameter names [p] and values [g, p] (larger-is-better orientation); NaN for saturated groups."""
        self._fitted()
        assert self.model is not None
        out = np.full((len(self.groups), len(self.model.names)), np.nan)
        for piece in self.pieces:
            out[piece.bucket.where] = piece.params
        return self.model.names, out

    def ends(self) -> Floats:
        """Where each group's tail ends [g]; inf where it doesn't."""
        names, table = self.table()
        out = np.full(len(table), np.inf)
        if names[-1] in ("g", "xi"):
            a, b, shape = table.T
            bounded = shape < 0
            out[bounded] = a[bounded] - b[bounded] / shape[bounded]
        for bucket, _ in self.spikes:
            out[bucket.where] = bucket.ordered[:, -1]
        return direction(self.best) * out

    def predict(self, n: float | Sequence[float] | Floats, level: float | None = None) -> TailPredictions:
        """The mean over groups of E[best of N] at N [m], with its interval.

        Up to the smallest group's samples the unbiased estimate; beyond, the fitted tail, up to 16 times as far.
        With eight groups or more the interval is that of "groups like these": bootstrap over groups, with the
        shared shape refitted, and the family's own error as the back-test shows it. With fewer it is of these
        groups: the union of the bootstrap intervals of every family that the samples do not tell apart.
        Raises AnalysisError on a refused fit.
        """
        self._fitted()
        asked = _asked(n)
        level = self.level if level is None else level
        value, lo, hi = (np.full(len(asked), np.nan) for _ in range(3))
        why: list[str | None] = [None] * len(asked)
        inside = asked <= self.n
        if inside.any():
            value[inside], lo[inside], hi[inside] = self._observed(asked[inside], level)
        beyond = np.flatnonzero(~inside)
        if len(beyond):
            value[beyond], lo[beyond], hi[beyond] = self._beyond(asked[beyond], level)
        for i in beyond:
            why[i] = self._no_number(float(asked[i]), float(value[i]))
        gone = np.array([w is not None for w in why])
        value[gone], lo[gone], hi[gone] = np.nan, np.nan, np.nan
        value, lo, hi = (self._cut(v) for v in (value, lo, hi))
        sign = direction(self.best)
        if sign < 0:
            value, lo, hi = -value, -hi, -lo
        return TailPredictions(value, lo, hi, self._basis(), why=tuple(why))

    def predict_groups(
        self, n: float | Sequence[float] | Floats, level: float | None = None, *, interval: bool = True
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """E[best of N] of every group [g, m] beyond its samples, and the union intervals' ends [g, m].

        The bootstrap draws a group's samples anew (200 times) and refits every family that its exceedances do not
        rule out. Raises AnalysisError for N within the samples or beyond reach.
        """
        self._fitted()
        asked = _asked(n)
        if asked.min() < self.n or asked.max() > self.reach:
            raise AnalysisError(f"Groups are predicted for N from {self.n} to {self.reach}, not {asked.max():g}.")
        value = self._values(asked)
        sign = direction(self.best)
        if not interval:
            return sign * value, None, None
        level = self.level if level is None else level
        lo, hi = value.copy(), value.copy()
        for piece in self.pieces:
            low, high = self._union(piece, asked, level)
            lo[piece.bucket.where], hi[piece.bucket.where] = low, high
        lo, hi, value = (self._cut(v) for v in (lo, hi, value))
        return (value, lo, hi) if sign > 0 else (-value, -hi, -lo)

    def invert(self, target: float, level: float | None = None) -> Inversion:
        """The smallest N whose predicted mean reaches `target`, within reach; else a sentence.

        Whole N inside the samples, real beyond. Ends of the interval are where the prediction's own ends reach it.
        """
        self._fitted()
        goal = direction(self.best) * target
        grid = np.unique(np.concatenate([np.arange(1, min(self.n, 4096) + 1, dtype=float),
                                         np.geomspace(self.n, self.reach, INVERSE_POINTS)]))  # fmt: skip
        out = self.predict(grid, level)
        assert out.lo is not None
        assert out.hi is not None
        value, easy, hard = (out.value, out.hi, out.lo)
        if self.best == "min":
            value, easy, hard = -out.value, -out.lo, -out.hi
        n = _crossing(grid, np.asarray(value), goal, self.n)
        if n is None:
            return Inversion(None, why=self._never(target, goal))
        return Inversion(n, _crossing(grid, np.asarray(easy), goal, self.n),
                         _crossing(grid, np.asarray(hard), goal, self.n))  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The fit in the report's form; what was refused is absent."""
        out: dict[str, Any] = {
            "law": "tail", "family": self.family, "over": "N", "status": self.status, "why": list(self.why),
            "n": int(self.groups.n.sum()), "groups": len(self.groups),
            "params": {name: p.to_json() for name, p in self.params.items()},
        }  # fmt: skip
        if self.backtest is not None:
            b = self.backtest
            out["backtest"] = {"factor": b.factor, "block": b.block, "bias": b.corrected, "stderr": b.stderr}
        return out

    def _fitted(self) -> None:
        if self.status == "refused":
            raise AnalysisError(f"tail {self.family} was refused: {' '.join(self.why)}")

    def _bound(self) -> float | None:
        bound = self.bounds[1] if self.best == "max" else self.bounds[0]
        return None if bound is None else direction(self.best) * bound

    def _cut(self, value: Floats) -> Floats:
        bound = self._bound()
        return value if bound is None else np.minimum(value, bound)

    def _basis(self) -> str:
        if len(self.groups) >= MANY:
            error = "; assumes the family holds" if self.backtest is None else " + family error from the back-test"
            return f"bootstrap over groups{error}; groups like these"
        return "union over families of the bootstrap over samples; these groups"

    def _observed(self, n: Floats, level: float) -> tuple[Floats, Floats, Floats]:
        """The unbiased mean and interval (NaN where it can't be trusted) at N <= n."""
        from scipy.special import ndtri

        k = np.floor(n).astype(int)
        parts = [best_of_curve(b.ordered, k, stderr=len(self.groups) < MANY) for b in self.groups.buckets]
        values = np.concatenate([c.value for c in parts])
        mean = values.mean(axis=0)
        if len(values) >= MANY:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        else:
            error = np.sqrt(np.mean(np.concatenate([cast(Floats, c.stderr) for c in parts]) ** 2, axis=0) / len(values))
            error = np.where(8 * k <= self.n, error, np.nan)
        half = float(ndtri((1 + level) / 2)) * error
        return mean, mean - half, mean + half

    def _values(self, n: Floats) -> Floats:
        """E[max of N] of every group [g, m]."""
        out = np.empty((len(self.groups), len(n)))
        assert self.model is not None
        for piece in self.pieces:
            out[piece.bucket.where] = self._expect(self.model, piece, piece.params, n)
        for bucket, share in self.spikes:
            out[bucket.where] = _spiked(bucket, share, n)
        return out

    def _expect(self, model: Family, piece: Piece, params: Floats, n: Floats) -> Floats:
        """E[max of N] [..., g, m] from parameters [..., g, p]."""
        count = tail_count(piece.bucket.n, model.fraction)
        share = np.full(params.shape[:-1], count / piece.bucket.n)
        value = model.expect(params, share, n)
        if model.names[0] == "u" and n.min() * share.flat[0] < BULK and count < piece.bucket.n:
            value = value - models.loss_below(piece.bucket.ordered, piece.bucket.n - count, n)
        return value

    def _beyond(self, n: Floats, level: float) -> tuple[Floats, Floats, Floats]:
        values = self._values(n)
        mean = values.mean(axis=0)
        if self.ceiling is not None:
            _, lo, _ = replace(self, ceiling=None, backtest=None)._beyond(n, level)
            return mean, np.minimum(lo, mean), np.maximum(self.ceiling._beyond(n, level)[2], mean)
        draws = self._cluster(values, n) if len(self.groups) >= MANY else None
        if draws is not None:
            shift = generator(self.seed, "family error").standard_normal(len(draws))[:, None]
            draws = draws + shift * self._family_error(n)
            lo, hi = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
            return mean, lo, hi
        return mean, *self._joint_union(values, n, level)

    def _family_error(self, n: Floats) -> Floats:
        """Standard deviation [m] of what the family itself may be off at N, from the back-test.

        Its bias and the error of that, in proportion to the logarithm of how far beyond the samples: over a factor
        of 16 the bias is about twice that over 4.
        """
        if self.backtest is None or not self.pieces:
            return np.zeros(len(n))
        test = self.backtest
        size = np.concatenate([tail_sd(p.bucket.ordered) for p in self.pieces]).sum() / len(self.groups)
        return np.asarray(np.hypot(test.corrected, test.stderr) * size * np.log(n / self.n) / np.log(test.factor))

    def _cluster(self, values: Floats, n: Floats) -> Floats:
        """Means over resampled groups [b, m], a pooled shape refitted in each."""
        size = len(self.groups)
        draws = min(self.draws, max(RESAMPLES, DRAW_CELLS // size))
        rng = generator(self.seed, "groups", self.family)
        counts = rng.multinomial(size, np.full(size, 1 / size), size=draws).astype(float)
        if not self.pooled:
            return np.asarray(counts @ values / size)
        assert self.model is not None
        assert self.model.shape is not None
        grid = np.array(self.model.shape.grid)
        shapes = self._shapes(counts)
        total = np.zeros((len(grid), draws, len(n)))
        here = np.zeros((1, draws, len(n)))
        centre = np.full(draws, self.params[self.model.shape.name].value)
        for piece in self.pieces:
            assert piece.curves is not None
            mine = counts[:, piece.bucket.where]
            curves = np.stack([self._expect(self.model, piece, c, n) for c in piece.curves])
            total += mine @ curves
            here[0] += mine @ self._expect(self.model, piece, piece.params, n)
        for bucket, share in self.spikes:
            here[0] += counts[:, bucket.where] @ _spiked(bucket, share, n)
        # Interpolated along the shape, from the exact values at the fitted one.
        moved = between(total, grid, shapes) - between(total, grid, centre)
        return np.asarray((here[0] + moved) / size)

    def _shapes(self, counts: Floats) -> Floats:
        """The pooled shape of each resample of groups [b]."""
        assert self.model is not None
        assert self.model.shape is not None
        grid = np.array(self.model.shape.grid)
        total = np.broadcast_to(log_prior(grid, self.model.shape.prior), (len(counts), len(grid))).copy()
        for piece in self.pieces:
            assert piece.profile is not None
            total += counts[:, piece.bucket.where] @ piece.profile.T
        return peak(total, grid)

    def _families(self, piece: Piece) -> tuple[list[Family], Bools]:
        """The families of the interval and, for each [f, g], whether the group's exceedances leave it possible."""
        assert self.model is not None
        found = [self.model]
        if self.family not in ("empirical", "lognormal", "weibull"):
            found += [FAMILIES[c] for c in COMPANIONS if c != self.family and c not in self.rejected]
        ordered = piece.bucket.ordered
        m = piece.bucket.n
        quarter = tail_count(m, 0.25)
        u = ordered[:, m - quarter - 1] if quarter < m else ordered[:, 0]
        scores = []
        for model in found:
            params = piece.params if model is self.model else model.fit(ordered, tail_count(m, model.fraction))
            free = len(model.names) - (model.names[0] == "u")
            scores.append(2 * free - 2 * model.tail(params, ordered[:, -quarter:], u))
        aic = np.stack(scores)
        possible = aic <= np.where(np.isfinite(aic), aic, np.inf).min(axis=0) + AIC_SLACK
        possible[0] = True
        return found, possible

    def _redrawn(self, piece: Piece, model: Family, n: Floats, rows: slice) -> Floats:
        """E[max of N] [r, g, m] of resamples of the groups `rows`, a pooled shape held."""
        ordered = piece.bucket.ordered[rows]
        g, m = ordered.shape
        rng = generator(self.seed, "samples", m, rows.start)
        index = np.sort(rng.integers(m, size=(RESAMPLES, g, m)), axis=2)
        again = np.take_along_axis(np.broadcast_to(ordered, index.shape), index, axis=2).reshape(-1, m)
        count = tail_count(m, model.fraction)
        with np.errstate(all="ignore"):
            if self.pooled and model is self.model:
                params = cast(Pooled, model).profile(again, count, piece.params[:1, -1])[1][0]
            else:
                params = model.fit(again, count)
            share = np.full(len(params), count / m)
            return model.expect(params, share, n).reshape(RESAMPLES, g, len(n))

    def _union(self, piece: Piece, n: Floats, level: float) -> tuple[Floats, Floats]:
        """Ends [g, m] of the union over families of percentile bootstrap intervals."""
        families, possible = self._families(piece)
        shape = (len(piece.params), len(n))
        lo, hi = np.full(shape, np.inf), np.full(shape, -np.inf)
        size = max(1, DRAW_CELLS // (RESAMPLES * piece.bucket.n))
        for model, rows_ok in zip(families, possible, strict=True):
            for start in range(0, shape[0], size):
                rows = slice(start, min(start + size, shape[0]))
                drawn = self._redrawn(piece, model, n, rows)
                low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
                keep = rows_ok[rows, None]
                lo[rows] = np.where(keep, np.minimum(lo[rows], low), lo[rows])
                hi[rows] = np.where(keep, np.maximum(hi[rows], high), hi[rows])
        return lo, hi

    def _joint_union(self, values: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
        """The same for the mean over these few groups: ends [m]."""
        whole: dict[str, Floats] = {}
        allowed: dict[str, bool] = {}
        fixed = np.zeros(len(n))
        for bucket, _ in self.spikes:
            fixed = fixed + values[bucket.where].sum(axis=0)
        for piece in self.pieces:
            families, possible = self._families(piece)
            for model, ok in zip(families, possible, strict=True):
                drawn = self._redrawn(piece, model, n, slice(0, len(piece.params))).sum(axis=1)
                whole[model.name] = whole.get(model.name, 0.0) + drawn
                allowed[model.name] = allowed.get(model.name, True) and bool(ok.all())
        if not whole:
            return fixed / len(values), fixed / len(values)
        both = [
            np.quantile((fixed + d) / len(values), [(1 - level) / 2, (1 + level) / 2], axis=0)
            for name, d in whole.items()
            if allowed[name]
        ]
        return np.min([b[0] for b in both], axis=0), np.max([b[1] for b in both], axis=0)

    def _no_number(self, n: float, value: float) -> str | None:
        if n > self.reach:
            return (
                f"budget N = {n:g} is {n / self.n:.3g} times the {self.n} samples; "
                f"predicted only up to {REACH} times ({self.reach})."
            )
        if not np.isfinite(value):
            return f"The fitted tail ({self._shape_text()}) has no mean; see predict_median."
        bound = self._bound()
        if bound is not None and self.model is not None and self.model.unbounded and self.pieces:
            top = value + 3 * self._spread_of_best(n)
            if top > bound:
                return (
                    f"family {self.family} has no end, and at N = {n:g} it comes within 3 sd of the declared bound "
                    f"{direction(self.best) * bound:g}; use gtail or gpd."
                )
        return None

    def _spread_of_best(self, n: float) -> float:
        scale = np.concatenate([p.params[:, 1] for p in self.pieces])
        size = models.normal_max_sd(n) if self.family.startswith("normal") else np.pi / np.sqrt(6)
        return float(np.mean(scale) * size)

    def _shape_text(self) -> str:
        names, table = self.table()
        return f"{names[-1]} = {np.nanmax(table[:, -1]):.2f}"

    def predict_median(self, n: float) -> float:
        """The median of the best of N, mean over groups, for a generalised Pareto tail (it needs no mean)."""
        names, _ = self.table()
        if names != ("u", "scale", "xi"):
            raise AnalysisError(f"family {self.family}: the median is offered for gpd tails only.")
        medians = [
            piece.params[:, 0] + piece.params[:, 1] * models.gpd_median(n, piece.params[:, 2], piece.share)
            for piece in self.pieces
        ] + [bucket.ordered[:, -1] for bucket, _ in self.spikes]
        return direction(self.best) * float(np.concatenate(medians).mean())

    def _never(self, target: float, goal: float) -> str:
        far = np.geomspace(self.reach, FARTHEST, 120)
        top = self._cut(self._values(far).mean(axis=0))
        over = np.flatnonzero(top >= goal)
        if len(over):
            return (
                f"target {target:g} is not reached within {self.reach} draws, {REACH} times the samples "
                f"(this tail would reach it near N = {far[over[0]]:.1e})."
            )
        return (
            f"target {target:g} is never reached under this tail: even {FARTHEST:.0e} draws stay {self._height(top)}."
        )

    def _height(self, top: Floats) -> str:
        return f"at {direction(self.best) * float(top[-1]):.4g}"


def fit_tail(
    samples: Floats | Sequence[Sequence[float] | Floats],
    *,
    family: str = "auto",
    best: Best = "max",
    names: Sequence[str] | None = None,
    bounds: tuple[float | None, float | None] = (None, None),
    fraction: float | None = None,
    failed: Failed = "refuse",
    gate: Gate = "refuse",
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> TailFit:
    """Fits the tail of rewards by group: a matrix [g, n], one vector [n], or a list of vectors.

    `family` "auto": the g-tail with a shape shared by eight groups or more, a normal one for fewer; where the
    back-test rejects it, the family it does not reject that predicted best inside the data; where the likelihood
    prefers the shortest tail on offer, the sample maximum. `gate`: "refuse" gives
    no numbers where the back-test rejects the family, "report" gives them as weak. `bounds` are the reward's
    declared ends. `fraction` overrides the share of samples in the tail.
    Raises AnalysisError for rewards that are not finite and for unknown names.
    """
    if family != "auto":
        named(family)
    if fraction is not None and not 0 < fraction <= 1:
        raise AnalysisError(f"fraction = {fraction:g} of the samples; must be in (0, 1].")
    groups = gather(samples, names, best=best, failed=failed)
    bare = TailFit(family, "refused", (), groups, best, bounds, level=level, seed=seed, draws=draws)
    return _Fitting(bare, fraction, gate).run()


class _Fitting:
    """One tail fit in the making: gates, spikes, family, parameters, verdict."""

    def __init__(self, bare: TailFit, fraction: float | None, gate: Gate) -> None:
        self.bare, self.fraction, self.gate = bare, fraction, gate
        self.groups = bare.groups
        self.why: list[str] = []
        self.weak = False
        self.short = False

    def run(self) -> TailFit:
        for check in (self._bounds, self._sizes, self._kinds):
            problem = check()
            if problem:
                return self._refuse([problem])
        spikes, rest = self._spikes()
        if not rest:
            self.why.append(self._saturated_text(spikes))
            return self._finish(FAMILIES["empirical"], [], spikes)
        choice = self._choose(rest)
        if isinstance(choice, list):
            return self._refuse(choice)
        model, test, rejected = choice
        if spikes:
            self.why.append(self._saturated_text(spikes))
        return self._finish(model, self._fit(model, rest), spikes, test, rejected)

    def _refuse(self, why: list[str]) -> TailFit:
        return replace(self.bare, groups=self.groups, why=(*self.why, *why))

    def _bounds(self) -> str | None:
        low, high = self.bare.bounds
        sign = direction(self.bare.best)
        for bucket in self.groups.buckets:
            edges = sorted((sign * float(bucket.ordered.min()), sign * float(bucket.ordered.max())))
            if low is not None and edges[0] < low:
                return f"The reward {edges[0]:g} lies below the declared bound {low:g}."
            if high is not None and edges[1] > high:
                return f"The reward {edges[1]:g} lies above the declared bound {high:g}."
        return None

    def _sizes(self) -> str | None:
        small = np.flatnonzero(self.groups.n < LEAST_SAMPLES)
        if not len(small):
            return None
        first = small[0]
        text = (
            f"{self.groups.names[first]}: {self.groups.n[first]} samples; "
            f"a tail needs at least {LEAST_SAMPLES} (top half = {LEAST_SAMPLES // 2})"
        )
        more = f", and {len(small) - 1} more such groups" if len(small) > 1 else ""
        if 2 * len(small) > len(self.groups):
            return f"{text}{more}."
        self.groups = self.groups.pick(np.flatnonzero(self.groups.n >= LEAST_SAMPLES))
        self.weak = True
        self.why.append(f"{text}{more}: left out, so this is the mean over the other {len(self.groups)}.")
        return None

    def _kinds(self) -> str | None:
        """Constant or pass/fail rewards have no tail."""
        values = np.unique(np.concatenate([b.ordered[:, [0, -1]].ravel() for b in self.groups.buckets]))
        if len(values) > 2:
            return None
        inner = np.unique(np.concatenate([np.unique(b.ordered) for b in self.groups.buckets]))
        if len(inner) == 1:
            return f"All rewards equal {direction(self.bare.best) * inner[0]:g}: there is no tail to fit."
        if len(inner) == 2:
            shown = sorted(direction(self.bare.best) * inner)
            return f"All rewards are {shown[0]:g} or {shown[1]:g}: pass/fail data; give n and c, or use pass_at_k."
        return None

    def _spikes(self) -> tuple[list[tuple[Bucket, Floats]], list[Bucket]]:
        spikes, rest = [], []
        sign = direction(self.bare.best)
        bound = self.bare.bounds[1] if sign > 0 else self.bare.bounds[0]
        least = 2 if grid_of(self.groups) is None or bound is not None else GRID_SPIKE
        for bucket in self.groups.buckets:
            share = saturated(bucket, None if bound is None else sign * bound, least)
            flat = bucket.ordered[:, 0] == bucket.ordered[:, -1]
            ended = (share > 0) | flat
            if ended.any():
                spikes.append((Bucket(bucket.where[ended], bucket.ordered[ended]), share[ended]))
            if not ended.all():
                rest.append(Bucket(bucket.where[~ended], bucket.ordered[~ended]))
        return spikes, rest

    def _saturated_text(self, spikes: list[tuple[Bucket, Floats]]) -> str:
        count = sum(len(b.where) for b, _ in spikes)
        return (
            f"{count} of {len(self.groups)} groups are saturated (several samples equal the maximum): "
            "taken as the end of the scale, not extrapolated."
        )

    def _choose(self, rest: list[Bucket]) -> tuple[Family, Backtest | None, tuple[str, ...]] | list[str]:
        pool = sum(len(b.where) for b in rest) >= MANY
        grid = grid_of(Groups(self.groups.names, self.groups.n, tuple(rest)))
        if grid is not None:
            return self._discrete(grid)
        asked = self.bare.family
        if asked == "auto" and self._ends_at_the_maximum(rest):
            return self._short(rest)
        first = asked if asked != "auto" else (MANY_CANDIDATES if pool else FEW_CANDIDATES)[0]
        model = self._sized(FAMILIES[first])
        test = backtest(model, rest, self.bare.seed, pool=pool)
        if test is None:
            self.weak = True
            self.why.append(f"{self.groups.n.max()} samples a group: too few to check a prediction inside the data "
                            "(needs 32).")  # fmt: skip
            return model, None, ()
        if not test.rejected:
            return model, test, ()
        if asked != "auto":
            self.why.append(test.sentence)
            self.weak = True
            return (model, test, (asked,)) if self.gate == "report" else []
        return self._second(rest, pool, test)

    def _second(
        self, rest: list[Bucket], pool: bool, first: Backtest
    ) -> tuple[Family, Backtest | None, tuple[str, ...]] | list[str]:
        """The family that predicted best inside the data among those not rejected."""
        tests = [first]
        for name in (MANY_CANDIDATES if pool else FEW_CANDIDATES)[1:]:
            test = backtest(self._sized(FAMILIES[name]), rest, self.bare.seed, pool=pool)
            assert test is not None
            tests.append(test)
        rejected = tuple(t.family for t in tests if t.rejected)
        good = [t for t in tests if not t.rejected]
        if good:
            chosen = min(good, key=lambda t: t.rms)
            self.why.append(first.sentence)
            return self._sized(FAMILIES[chosen.family]), chosen, rejected
        self.why += [t.sentence for t in tests]
        self.weak = True
        if self.gate == "refuse":
            return []
        chosen = min(tests, key=lambda t: abs(t.corrected))
        return self._sized(FAMILIES[chosen.family]), chosen, rejected

    def _discrete(self, grid: Grid) -> tuple[Family, Backtest | None, tuple[str, ...]] | list[str]:
        if self.bare.family not in ("auto", "normal", "empirical"):
            return [
                f"Rewards lie on a grid of step {grid.step:g}; family {self.bare.family} is for continuous rewards, "
                "normal knows of the grid."
            ]
        model: Family = replace(cast(Normal, FAMILIES["normal"]), step=grid.step)
        if self.bare.family == "empirical":
            model = FAMILIES["empirical"]
        self.weak = True
        self.why.append(
            f"Rewards lie on a grid of step {grid.step:g} ({grid.distinct} values in the tail): "
            "fitted by the likelihood of each grid cell."
        )
        return model, None, ("exponential",)

    def _sized(self, model: Family) -> Family:
        if self.fraction is None:
            return model
        return cast(Family, replace(cast(Any, model), fraction=self.fraction))

    def _fit(self, model: Family, rest: list[Bucket]) -> list[Piece]:
        counts = [tail_count(b.n, model.fraction) for b in rest]
        if model.shape is None or sum(len(b.where) for b in rest) < MANY:
            return [Piece(b, model.fit(b.ordered, c), c / b.n) for b, c in zip(rest, counts, strict=True)]
        pooled = cast(Pooled, model)
        grid = np.array(model.shape.grid)
        curves = [pooled.profile(b.ordered, c, grid) for b, c in zip(rest, counts, strict=True)]
        total = log_prior(grid, model.shape.prior) + sum(loglik.sum(axis=1) for loglik, _ in curves)
        shape = peak(total[None, :], grid)
        return [
            Piece(b, pooled.profile(b.ordered, c, shape)[1][0], c / b.n, *profile)
            for b, c, profile in zip(rest, counts, curves, strict=True)
        ]

    def _ends_at_the_maximum(self, rest: list[Bucket]) -> bool:
        """Whether the likelihood prefers the shortest tail on offer: the scale ends about where the samples do."""
        model = cast(GTail, self._sized(FAMILIES["gtail"]))
        some = rest if sum(len(b.where) for b in rest) <= MOST_GROUPS else [
            Bucket(b.where[:MOST_GROUPS], b.ordered[:MOST_GROUPS]) for b in rest
        ]  # fmt: skip
        assert model.shape is not None
        grid = np.array(model.shape.grid)
        total = log_prior(grid, model.shape.prior)
        for bucket in some:
            total = total + model.profile(bucket.ordered, tail_count(bucket.n, model.fraction), grid)[0].sum(axis=1)
        return bool(total.argmax() == 0 and total[0] - total[len(grid) // 2] > SHORT_TAIL_LOG_ODDS)

    def _short(self, rest: list[Bucket]) -> tuple[Family, Backtest | None, tuple[str, ...]]:
        self.weak = True
        self.why.append(
            "The tail is shorter than any on offer: the scale ends about where the samples do. The sample maximum "
            "stands for the best of N, and the upper end of the interval is that of the shortest g-tail."
        )
        self.short = True
        pool = sum(len(b.where) for b in rest) >= MANY
        return FAMILIES["empirical"], backtest(FAMILIES["empirical"], rest, self.bare.seed, pool=pool), COMPANIONS

    def _finish(
        self,
        model: Family,
        pieces: list[Piece],
        spikes: list[tuple[Bucket, Floats]],
        test: Backtest | None = None,
        rejected: tuple[str, ...] = (),
    ) -> TailFit:
        fit = replace(self.bare, family=model.name, status="ok", groups=self.groups, backtest=test, rejected=rejected,
                      model=model, pieces=tuple(pieces), spikes=tuple(spikes))  # fmt: skip
        params = self._params(fit, model)
        if self.short:
            gtail = self._sized(FAMILIES["gtail"])
            upper = replace(
                fit, family="gtail", model=gtail, pieces=tuple(self._fit(gtail, [p.bucket for p in pieces]))
            )
            fit = replace(fit, ceiling=replace(upper, params=self._params(upper, gtail)))
        self.why += self._at_end(model, params)
        return replace(fit, params=params, status="weak" if self.weak else "ok", why=tuple(self.why))

    def _params(self, fit: TailFit, model: Family) -> dict[str, Interval]:
        """Means over groups with intervals over groups; of a lone or few groups over samples."""
        if not fit.pieces:
            return {}
        values = np.concatenate([p.params for p in fit.pieces])
        out: dict[str, Interval] = {}
        size = len(values)
        if size >= MANY:
            rng = generator(fit.seed, "params", fit.family)
            counts = rng.multinomial(size, np.full(size, 1 / size), size=RESAMPLES).astype(float)
            means = counts @ values / size
            if fit.pooled:
                whole = np.zeros((RESAMPLES, len(fit.groups)))
                whole[:, np.concatenate([p.bucket.where for p in fit.pieces])] = counts
                means[:, -1] = fit._shapes(whole)
        else:
            means = _resampled_params(fit, model)
        for i, name in enumerate(model.names):
            out[name] = Interval(float(values[:, i].mean()), *ends(means[:, i], fit.level))
        return out

    def _at_end(self, model: Family, params: dict[str, Interval]) -> list[str]:
        if model.shape is None or model.shape.name not in params:
            return []
        grid = model.shape.grid
        value = params[model.shape.name].value
        if grid[0] < value < grid[-1]:
            return []
        self.weak = True
        return [f"{model.shape.name} = {value:.2f} is at the end of its range [{grid[0]:g}, {grid[-1]:g}]."]


def _resampled_params(fit: TailFit, model: Family) -> Floats:
    """Means over few groups of the parameters of resamples [r, p]."""
    total = np.zeros((RESAMPLES, len(model.names)))
    size = sum(len(p.params) for p in fit.pieces)
    for piece in fit.pieces:
        rng = generator(fit.seed, "params", piece.bucket.n)
        g, m = piece.bucket.ordered.shape
        index = np.sort(rng.integers(m, size=(RESAMPLES, g, m)), axis=2)
        again = np.take_along_axis(np.broadcast_to(piece.bucket.ordered, index.shape), index, axis=2)
        with np.errstate(all="ignore"):
            found = model.fit(again.reshape(-1, m), tail_count(m, model.fraction))
        total += found.reshape(RESAMPLES, g, -1).sum(axis=1)
    return total / size


def _spiked(bucket: Bucket, share: Floats, n: Floats) -> Floats:
    """E[max of N] [g, m] where a share of the samples sits at the end of the scale and the rest stays below."""
    top = bucket.ordered[:, -1:]
    rest = np.where(bucket.ordered < top, bucket.ordered, -np.inf).max(axis=1, keepdims=True)
    gap = np.where(np.isfinite(rest), top - rest, 0.0)
    return np.asarray(top - gap * (1 - share[:, None]) ** n)


def _asked(n: float | Sequence[float] | Floats) -> Floats:
    asked = np.atleast_1d(np.asarray(n, dtype=float))
    if asked.size == 0 or not np.isfinite(asked).all() or asked.min() < 1:
        raise AnalysisError(f"N = {n} draws; must be finite numbers >= 1.")
    return asked


def _crossing(grid: Floats, value: Floats, goal: float, whole: int) -> float | None:
    """The smallest N at which an increasing curve reaches the goal: a grid point up to `whole`, else interpolated."""
    over = np.flatnonzero(value >= goal)
    if not len(over):
        return None
    i = int(over[0])
    before = value[i - 1] if i else np.nan
    if grid[i] <= whole or i == 0 or not np.isfinite(before):
        return float(grid[i])
    t = (goal - before) / (value[i] - before)
    return float(np.exp(np.log(grid[i - 1]) + t * (np.log(grid[i]) - np.log(grid[i - 1]))))
