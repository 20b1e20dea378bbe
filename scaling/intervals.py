"""Which uncertainty a fit may claim, and the noise that its resamples carry."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.arrays import Floats

ENOUGH_DOF = 8.0  # degrees of freedom from which replicate noise alone carries an interval
WILD_CLUSTERS = 5
CHANCE = 0.2
PAIRS_CLUSTERS = 20
WEBB = np.sqrt(np.array([1.5, 1.0, 0.5]))

Method = Literal["replicate noise", "wild bootstrap", "cluster bootstrap", "none"]


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its interval; None: no end can be given."""

    value: float
    lo: float | None = None
    hi: float | None = None

    def map(self, change: Callable[[float], float]) -> Interval:
        """The interval under a change of unit; a decreasing one swaps the ends."""
        value, *both = (None if v is None else change(v) for v in (self.value, self.lo, self.hi))
        assert value is not None
        lo, hi = both
        return Interval(value, hi, lo) if lo is not None and hi is not None and lo > hi else Interval(value, lo, hi)

    def to_json(self) -> dict[str, float]:
        """Ends that can't be given are absent."""
        ends = {"lo": self.lo, "hi": self.hi}
        return {"value": self.value} | {k: v for k, v in ends.items() if v is not None and np.isfinite(v)}


def generator(seed: int, *names: object) -> np.random.Generator:
    """Random numbers that depend on the seed and on what they are for, not on the order of work."""
    return np.random.default_rng([seed, *(zlib.crc32(str(name).encode()) for name in names)])


def ends(draws: Floats, level: float) -> tuple[float, float]:
    """The central interval of `level` of draws [b]."""
    lo, hi = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(lo), float(hi)


def choose(rows: int, noise_dof: float) -> tuple[Method, str | None]:
    """The resampling for a fit of `rows` clusters, and the sentence that says why there is none."""
    if noise_dof >= ENOUGH_DOF:
        return "replicate noise", None
    if rows >= PAIRS_CLUSTERS:
        return "cluster bootstrap", None
    if rows >= WILD_CLUSTERS:
        return "wild bootstrap", None
    return "none", (
        f"No intervals: {rows} points and {noise_dof:.0f} degrees of freedom of replicate noise "
        f"(needs >= {WILD_CLUSTERS} points, or replicates with >= {ENOUGH_DOF:.0f})."
    )


def heavy(rng: np.random.Generator, draws: int, dof: float) -> Floats:
    """Factors [draws, 1] that turn normal noise into Student's t of `dof`: the noise itself is an estimate."""
    if not np.isfinite(dof):
        return np.ones((draws, 1))
    return np.asarray(np.sqrt(dof / rng.chisquare(max(dof, 1.0), size=(draws, 1))))


def webb(rng: np.random.Generator, shape: Sequence[int]) -> Floats:
    """Webb's six-point weights (mean 0, variance 1)."""
    return np.asarray(rng.choice(np.concatenate([-WEBB, WEBB]), size=tuple(shape)))


def excess_variance(residuals: Floats, stderr: Floats, freedom: int) -> float:
    """The variance s^2 beyond the rows' own for which sum r^2 / (stderr^2 + s^2) = freedom (Paule and Mandel 1982).

    0 where the rows' own noise scatters them this far in one case of five: chance alone is no excess.
    """
    from scipy.special import chdtri

    def surplus(extra: float) -> float:
        return float((residuals**2 / (stderr**2 + extra)).sum()) - freedom

    if freedom <= 0 or surplus(0.0) <= float(chdtri(freedom, CHANCE)) - freedom:
        return 0.0
    low, high = 0.0, float((residuals**2).sum()) / freedom
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if surplus(middle) > 0 else (low, middle)
    return high


def mixed_dof(noise: float, noise_dof: float, excess: float, excess_dof: float) -> float:
    """Degrees of freedom of noise + excess variance (Satterthwaite)."""
    total = noise + excess
    if total <= 0:
        return np.inf
    parts = (noise / total) ** 2 / noise_dof + ((excess / total) ** 2 / excess_dof if excess > 0 else 0.0)
    return 1 / parts if parts > 0 else np.inf
