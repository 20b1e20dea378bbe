"""The tail families behind one interface: fit a batch of ascending samples, give E[max of N], score exceedances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.tails import estimate, models

LEAST_EXCEEDANCES = 8
FLOOR = 1e-300


@dataclass(frozen=True)
class Shape:
    """A shape shared by groups: its name, its grid and its normal prior for many groups and for a lone one."""

    name: str
    grid: tuple[float, ...]
    prior: tuple[float, float]
    lone_prior: tuple[float, float]


@dataclass(frozen=True)
class Family(ABC):
    """A tail model. Parameters are [..., g, len(names)]; a shape is the last of them.

    `unbounded`: no parameters give it an end. `fraction`: share of the samples that are its tail.
    """

    name: str = ""
    names: tuple[str, ...] = ()
    shape: Shape | None = None
    unbounded: bool = True
    fraction: float = 0.5

    @abstractmethod
    def fit(self, ordered: Floats, count: int, /) -> Floats:
        """Parameters [g, p] of ascending samples [g, m] from their top `count`, each row alone."""

    @abstractmethod
    def expect(self, params: Floats, share: Floats, n: Floats, /) -> Floats:
        """E[max of N] [..., g, m] for N [m], without what the bulk below a threshold takes away.

        `share` [..., g] of the samples lies above the threshold.
        """

    @abstractmethod
    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        """Log likelihood [g] of samples x [g, k] given that they exceed u [g]."""


class Pooled(Family):
    """A family whose shape can be shared by groups."""

    @abstractmethod
    def profile(self, ordered: Floats, count: int, shapes: Floats, /) -> tuple[Floats, Floats]:
        """Log likelihood [s, g] and parameters [s, g, p] at each shape [s]."""


@dataclass(frozen=True)
class Normal(Family):
    """A normal tail, from the top half by censored likelihood, or from the moments of the top fifth."""

    name: str = "normal"
    names: tuple[str, ...] = ("mu", "sigma")
    shape: Shape | None = None
    unbounded: bool = True
    fraction: float = 0.5
    moments: bool = False
    step: float = 0.0  # of rewards on a grid; 0: continuous

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        if self.moments:
            return estimate.top_moments(ordered, self.fraction)
        if self.step > 0:
            return estimate.rounded_normal(ordered, count, self.step)
        return estimate.censored_normal(ordered, count)

    def expect(self, params: Floats, _share: Floats, n: Floats, /) -> Floats:
        return np.asarray(params[..., :1] + params[..., 1:2] * models.normal_max(n))

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        from scipy.special import log_ndtr

        mu, sigma = params[:, :1], np.maximum(params[:, 1:2], FLOOR)
        z = (x - mu) / sigma
        beyond = log_ndtr(-(u[:, None] - mu) / sigma)
        return np.asarray((-0.5 * z * z - np.log(sigma) - 0.5 * np.log(2 * np.pi) - beyond).sum(axis=1))


@dataclass(frozen=True)
class GTail(Pooled):
    """A normal tail with one more shape: x = a + b (e^(gz) - 1)/g, a three-parameter lognormal; g = 0 is normal."""

    name: str = "gtail"
    names: tuple[str, ...] = ("a", "b", "g")
    shape: Shape | None = Shape("g", tuple(np.linspace(-0.9, 0.9, 17).tolist()), (0.0, 0.3), (0.0, 0.2))
    unbounded: bool = False
    fraction: float = 0.5

    def profile(self, ordered: Floats, count: int, shapes: Floats, /) -> tuple[Floats, Floats]:
        loglik, params = estimate.gtail_profile(ordered, count, shapes)
        return loglik, _with_shape(params, shapes)

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        return _lone(self, ordered, count)

    def expect(self, params: Floats, _share: Floats, n: Floats, /) -> Floats:
        g, where = np.unique(params[..., 2], return_inverse=True)
        level = models.gtail_max(n[None, :], g[:, None])[where.reshape(params.shape[:-1])]
        return np.asarray(params[..., :1] + params[..., 1:2] * level)

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        from scipy.special import log_ndtr

        a, b, g = (params[:, i : i + 1] for i in range(3))
        g = np.where(np.abs(g) < estimate.FLAT, estimate.FLAT, g)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log1p(g * (x - a) / b) / g
            edge = np.log1p(g * (u[:, None] - a) / b) / g
        value = -0.5 * z * z - np.log(b) - g * z - 0.5 * np.log(2 * np.pi) - log_ndtr(-edge)
        return np.asarray(np.where(np.isnan(value), -np.inf, value).sum(axis=1))


@dataclass(frozen=True)
class Exponential(Family):
    """An exponential tail above the top quarter's threshold."""

    name: str = "exponential"
    names: tuple[str, ...] = ("u", "scale")
    shape: Shape | None = None
    unbounded: bool = True
    fraction: float = 0.25

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        return estimate.mean_excess(ordered, count)

    def expect(self, params: Floats, share: Floats, n: Floats, /) -> Floats:
        return np.asarray(params[..., :1] + params[..., 1:2] * models.peaks_max(n, 0.0, share[..., None]))

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        scale = np.maximum(params[:, 1:2], FLOOR)
        return np.asarray((-np.log(scale) - (x - u[:, None]) / scale).sum(axis=1))


@dataclass(frozen=True)
class GPD(Pooled):
    """A generalised Pareto tail above the top quarter's threshold; shape pooled, or by `lone` estimator."""

    name: str = "gpd"
    names: tuple[str, ...] = ("u", "scale", "xi")
    shape: Shape | None = Shape("xi", tuple(np.linspace(-0.9, 0.6, 16).tolist()), (-0.1, 0.25), (-0.15, 0.15))
    unbounded: bool = False
    fraction: float = 0.25
    moments: bool = False

    def profile(self, ordered: Floats, count: int, shapes: Floats, /) -> tuple[Floats, Floats]:
        loglik, params = estimate.gpd_profile(ordered, count, shapes)
        return loglik, _with_shape(params, shapes)

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        return estimate.gpd_moments(ordered, count) if self.moments else estimate.gpd_lone(ordered, count)

    def expect(self, params: Floats, share: Floats, n: Floats, /) -> Floats:
        xi, where = np.unique(np.stack(np.broadcast_arrays(params[..., 2], share), -1).reshape(-1, 2), axis=0,
                              return_inverse=True)  # fmt: skip
        level = np.full((len(xi), len(n)), np.inf)
        finite = xi[:, 0] < 1
        level[finite] = models.peaks_max(n[None, :], xi[finite, :1], xi[finite, 1:])
        return np.asarray(params[..., :1] + params[..., 1:2] * level[where.reshape(params.shape[:-1])])

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        xi = params[:, 2:3]
        xi = np.where(np.abs(xi) < estimate.FLAT, estimate.FLAT, xi)
        scale = np.maximum(params[:, 1:2] + xi * (u[:, None] - params[:, :1]), FLOOR)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = -np.log(scale) - (1 + 1 / xi) * np.log1p(xi * (x - u[:, None]) / scale)
        return np.asarray(np.where(np.isnan(value), -np.inf, value).sum(axis=1))


@dataclass(frozen=True)
class Lognormal(Family):
    """A normal tail of the logarithm of positive rewards."""

    name: str = "lognormal"
    names: tuple[str, ...] = ("mu", "sigma")
    shape: Shape | None = None
    unbounded: bool = True
    fraction: float = 0.5

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        top = ordered[:, -count:]
        _positive(self.name, top)
        # What is censored below the threshold is only counted: its values need no logarithm.
        padded = np.concatenate([np.repeat(top[:, :1], ordered.shape[1] - count, axis=1), top], axis=1)
        return estimate.censored_normal(np.log(padded), count)

    def expect(self, params: Floats, _share: Floats, n: Floats, /) -> Floats:
        return models.lognormal_max(n, params[..., :1], params[..., 1:2])

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        _positive(self.name, x)
        return np.asarray(Normal().tail(params, np.log(x), np.log(u)) - np.log(x).sum(axis=1))


@dataclass(frozen=True)
class Weibull(Family):
    """A Weibull tail of positive rewards, from the top half by censored likelihood."""

    name: str = "weibull"
    names: tuple[str, ...] = ("scale", "c")
    shape: Shape | None = None
    unbounded: bool = True
    fraction: float = 0.5

    def fit(self, ordered: Floats, count: int, /) -> Floats:
        _positive(self.name, ordered[:, -count:])
        return estimate.censored_weibull(ordered, count)

    def expect(self, params: Floats, _share: Floats, n: Floats, /) -> Floats:
        return np.asarray(params[..., :1] * models.weibull_max(n, params[..., 1:2]))

    def tail(self, params: Floats, x: Floats, u: Floats, /) -> Floats:
        _positive(self.name, x)
        scale, c = params[:, :1], params[:, 1:2]
        value = np.log(c / scale) + (c - 1) * np.log(x / scale) - (x / scale) ** c + (u[:, None] / scale) ** c
        return np.asarray(value.sum(axis=1))


@dataclass(frozen=True)
class Highest(Family):
    """The sample maximum for every N: right where the scale ends there, low everywhere else."""

    name: str = "empirical"
    names: tuple[str, ...] = ("max",)
    shape: Shape | None = None
    unbounded: bool = False
    fraction: float = 1.0

    def fit(self, ordered: Floats, _count: int, /) -> Floats:
        return ordered[:, -1:]

    def expect(self, params: Floats, _share: Floats, n: Floats, /) -> Floats:
        return np.asarray(params[..., :1] + 0.0 * n)

    def tail(self, _params: Floats, x: Floats, _u: Floats, /) -> Floats:
        return np.full(len(x), -np.inf)


FAMILIES: dict[str, Family] = {
    "gtail": GTail(),
    "normal": Normal(),
    "normal_moments": Normal("normal_moments", fraction=0.2, moments=True),
    "exponential": Exponential(),
    "gpd": GPD(),
    "gpd_moments": GPD("gpd_moments", shape=None, moments=True),
    "lognormal": Lognormal(),
    "weibull": Weibull(),
    "empirical": Highest(),
}


def family(name: str) -> Family:
    """The family of a name. Raises AnalysisError with the nearest name."""
    if name not in FAMILIES:
        raise AnalysisError(f"family {name!r} is not known.{nearest(name, FAMILIES)}")
    return FAMILIES[name]


def tail_count(m: int, fraction: float, least: int = LEAST_EXCEEDANCES) -> int:
    """How many of m samples are fitted: the fraction, at least eight."""
    return min(m, max(least, int(np.ceil(fraction * m - 1e-9))))


def peak(total: Floats, grid: Floats) -> Floats:
    """Where curves [b, s] over an even grid [s] are highest [b]: the top of the parabola through three points."""
    at = np.clip(total.argmax(axis=1), 1, len(grid) - 2)
    rows = np.arange(len(total))
    low, middle, high = (total[rows, at + i] for i in (-1, 0, 1))
    bend = low - 2 * middle + high
    shift = np.where(bend < 0, 0.5 * (low - high) / np.where(bend < 0, bend, -1.0), np.sign(high - low))
    return np.asarray(grid[at] + (grid[1] - grid[0]) * np.clip(shift, -1.0, 1.0))


def log_prior(shapes: Floats, prior: tuple[float, float]) -> Floats:
    """Log density of the prior over shapes, without its constant."""
    return np.asarray(-0.5 * ((shapes - prior[0]) / prior[1]) ** 2)


def _with_shape(params: Floats, shapes: Floats) -> Floats:
    column = np.broadcast_to(shapes[:, None, None], (*params.shape[:2], 1))
    return np.concatenate([params, column], axis=2)


def _lone(pooled: Pooled, ordered: Floats, count: int) -> Floats:
    """Each row's own shape: the best of its profile with the narrow prior, then the rest at that shape.

    Location and scale are interpolated along the grid (Lagrange through three points) instead of fitted again.
    """
    assert pooled.shape is not None
    grid = np.array(pooled.shape.grid)
    loglik, params = pooled.profile(ordered, count, grid)
    best = peak(loglik.T + log_prior(grid, pooled.shape.lone_prior), grid)
    return between(params, grid, best)


def between(curves: Floats, grid: Floats, at: Floats) -> Floats:
    """Values [g, …] at shapes `at` [g] from curves [s, g, …] over an even grid [s], by the nearest three points."""
    step = grid[1] - grid[0]
    near = np.clip(np.rint((at - grid[0]) / step).astype(int), 1, len(grid) - 2)
    t = (at - grid[near]) / step
    rows = np.arange(len(at))
    low, middle, high = (curves[near + i, rows] for i in (-1, 0, 1))
    t = t.reshape(-1, *(1,) * (curves.ndim - 2))
    return np.asarray(0.5 * t * (t - 1) * low + (1 - t * t) * middle + 0.5 * t * (t + 1) * high)


def _positive(name: str, top: Floats) -> None:
    if top.size and top.min() <= 0:
        raise AnalysisError(f"family {name}: the tail holds the reward {top.min():g}, must be > 0.")
