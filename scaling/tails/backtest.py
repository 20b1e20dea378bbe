"""The check inside the data: predict the whole sample's best from parts of it, and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from scaling.arrays import Floats
from scaling.intervals import generator
from scaling.tails import models
from scaling.tails.families import (
    FAMILIES,
    LEAST_EXCEEDANCES,
    Family,
    Pooled,
    log_prior,
    peak,
    tail_count,
)
from scaling.tails.samples import Bucket

LEAST_BLOCK = 16
LEAST_IN_BLOCK = 4  # exceedances: a block keeps the family's own share
MOST_GROUPS = 512
SPLITS = 4  # random splits of each group averaged
PLENTY = 300  # groups from which one split is enough
SIMULATED = 256  # groups behind the expected bias
HALF_NORMAL_SD = float(np.sqrt(1 - 2 / np.pi))
MANY = 8  # groups from which the spread between them is the standard error
BENT = ("g", "xi")  # names of shapes
BIAS_FLOOR = 0.15  # of the gain from block to whole: a smaller bias rejects nothing


@dataclass(frozen=True)
class Backtest:
    """How a family predicted the best of all m samples from blocks of m/factor, in sd of the tail.

    `bias` is predicted less observed, `expected` the same under the fitted family itself (small samples bend it),
    `stderr` of their difference; `gain` is what there was to predict, `rms` the size of one group's error.
    """

    family: str
    factor: int
    block: int
    groups: int
    bias: float
    expected: float
    stderr: float
    gain: float
    rms: float

    @property
    def corrected(self) -> float:
        """The bias that small samples do not explain."""
        return self.bias - self.expected

    @property
    def rejected(self) -> bool:
        """Beyond twice its standard error and 15 % of the gain."""
        return abs(self.corrected) > max(2 * self.stderr, BIAS_FLOOR * self.gain)

    @property
    def sentence(self) -> str:
        """What was found, for a person."""
        whole = self.block * self.factor
        side = "low" if self.corrected < 0 else "high"
        head = f"family {self.family} rejected: predicting" if self.rejected else "Predicting"
        return (
            f"{head} {whole} from {self.block} inside the data was {side} by {abs(self.corrected):.2f} ± "
            f"{self.stderr:.2f} sd over {self.groups} group{'s' if self.groups > 1 else ''}."
        )


def backtest(family: Family, buckets: Sequence[Bucket], seed: int, *, pool: bool) -> Backtest | None:
    """The back-test of a family; None where no group has two blocks of 16 samples."""
    usable = [b for b in buckets if b.n >= 2 * LEAST_BLOCK]
    if not usable:
        return None
    rng = generator(seed, "backtest")
    total = sum(len(b.where) for b in usable)
    if total > MOST_GROUPS:
        chosen = np.sort(rng.choice(total, MOST_GROUPS, replace=False))
        usable = _subset(usable, chosen)
    errors, shape = _errors(family, usable, rng, pool=pool)
    every = np.concatenate(errors)
    expected, spread = 0.0, 0.0
    for bucket, error in zip(usable, errors, strict=True):
        mean, sd = _under_itself(family.name, None if shape is None else round(shape, 1), bucket.n, pool)
        expected += mean * len(error) / len(every)
        spread += sd**2 * len(error) / len(every)
    between = float(every.std(ddof=1)) if len(every) >= MANY else np.sqrt(spread)
    main = max(usable, key=lambda b: len(b.where))
    factor = _factor(main.n)
    return Backtest(family.name, factor, main.n // factor, len(every), float(every.mean()), expected,
                    float(between / np.sqrt(len(every))), _gain(usable), float(np.sqrt(np.mean(every**2))))  # fmt: skip


def _factor(m: int) -> int:
    return 4 if m >= 4 * LEAST_BLOCK else 2


def _subset(buckets: Sequence[Bucket], chosen: np.ndarray) -> list[Bucket]:
    out, start = [], 0
    for b in buckets:
        mine = chosen[(chosen >= start) & (chosen < start + len(b.where))] - start
        start += len(b.where)
        if len(mine):
            out.append(Bucket(b.where[mine], b.ordered[mine]))
    return out


def _gain(buckets: Sequence[Bucket]) -> float:
    """What m samples reach above m/factor, mean over groups in tail sd."""
    from scaling.tails.order import weights

    gains = []
    for b in buckets:
        low = b.ordered @ weights(b.n, b.n // _factor(b.n))[0]
        gains.append((b.ordered[:, -1] - low) / tail_sd(b.ordered))
    return float(np.concatenate(gains).mean())


def tail_sd(ordered: Floats) -> Floats:
    """The unit of a back-test [g]: the sd of the upper half, scaled so that it is the sd of normal rewards.

    The sd itself would be that of a bulk (failed runs, say) which has nothing to do with the tail.
    """
    sd = ordered[:, ordered.shape[1] // 2 :].std(axis=1) / HALF_NORMAL_SD
    return np.where(sd > 0, sd, 1.0)


def _errors(
    family: Family, buckets: Sequence[Bucket], rng: np.random.Generator, *, pool: bool
) -> tuple[list[Floats], float | None]:
    """Predicted less observed best [g] in tail sd, mean over blocks and splits; and the shape of the blocks."""
    totals = [np.zeros(len(b.where)) for b in buckets]
    shape = None
    splits = SPLITS if sum(len(b.where) for b in buckets) < PLENTY else 1
    for _ in range(splits):
        blocks = [_blocks(b.ordered, _factor(b.n), rng) for b in buckets]
        fits, shape = fit_blocks(family, blocks, pool=pool, least=LEAST_IN_BLOCK)
        for error, bucket, block, params in zip(totals, buckets, blocks, fits, strict=True):
            count = tail_count(block.shape[1], family.fraction, LEAST_IN_BLOCK)
            share = np.full(len(params), count / block.shape[1])
            value = family.expect(params, share, np.array([float(bucket.n)]))[:, 0]
            value = value.reshape(-1, _factor(bucket.n))
            np.add(error, (value - bucket.ordered[:, -1:]).mean(axis=1) / tail_sd(bucket.ordered) / splits, out=error)
    return totals, shape


def _blocks(ordered: Floats, factor: int, rng: np.random.Generator) -> Floats:
    """Random parts [g * factor, m // factor] of each row, ascending."""
    mixed = rng.permuted(ordered, axis=1)
    size = ordered.shape[1] // factor
    return np.sort(mixed[:, : size * factor].reshape(-1, size), axis=1)


def fit_blocks(
    family: Family, blocks: Sequence[Floats], *, pool: bool, least: int = LEAST_EXCEEDANCES
) -> tuple[list[Floats], float | None]:
    """Parameters of every row of each matrix of ascending samples, and their shape: the shared or the median one."""
    counts = [tail_count(b.shape[1], family.fraction, least) for b in blocks]
    if family.shape is None or not pool:
        fits = [family.fit(b, c) for b, c in zip(blocks, counts, strict=True)]
        return fits, float(np.median(np.concatenate([f[:, -1] for f in fits]))) if family.names[-1] in BENT else None
    pooled = cast(Pooled, family)
    grid = np.array(family.shape.grid)
    total = log_prior(grid, family.shape.prior)
    for b, c in zip(blocks, counts, strict=True):
        total = total + pooled.profile(b, c, grid)[0].sum(axis=1)
    shape = peak(total[None, :], grid)
    return [pooled.profile(b, c, shape)[1][0] for b, c in zip(blocks, counts, strict=True)], float(shape[0])


@lru_cache(maxsize=64)
def _under_itself(name: str, shape: float | None, m: int, pool: bool) -> tuple[float, float]:
    """Mean and sd of a group's error, in tail sd, when the family is right (fixed random numbers)."""
    if name == "empirical":
        return 0.0, 0.0
    family = FAMILIES[name]
    rng = generator(0, "under itself", m)
    draws = _standard(name, 0.0 if shape is None else shape, rng, (SIMULATED, m))
    bucket = Bucket(np.arange(SIMULATED), np.sort(draws, axis=1))
    (error,), _ = _errors(family, [bucket], rng, pool=pool)
    return float(error.mean()), float(error.std(ddof=1))


def _standard(name: str, shape: float, rng: np.random.Generator, size: tuple[int, int]) -> Floats:
    if name == "exponential":
        return rng.standard_exponential(size)
    if name.startswith("gpd"):
        return models.bend(np.clip(shape, -2.0, 0.9), rng.standard_exponential(size))
    if name == "weibull":
        return rng.standard_exponential(size)
    z = rng.standard_normal(size)
    return np.exp(0.25 * z) if name == "lognormal" else models.bend(shape, z)
