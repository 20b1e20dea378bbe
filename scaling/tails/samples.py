"""Rewards by group, checked and sorted: the input of a tail fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.arrays import Floats, Ints
from scaling.errors import AnalysisError
from scaling.tails.families import tail_count
from scaling.tails.order import Best, Failed, direction

LEAST_SAMPLES = 16
SATURATED_SHARE = 0.02  # of samples that equal the maximum
FEW_VALUES = 10  # distinct exceedances below which rewards count as discrete
GRID_SPIKE = 5  # equal maxima that make a spike where rewards lie on a grid and tie anyway
COARSE = 0.1  # grid step over the exceedances' standard deviation, likewise


@dataclass(frozen=True)
class Bucket:
    """Groups with equally many samples: their places [g] among all groups and ascending samples [g, n]."""

    where: Ints
    ordered: Floats

    @property
    def n(self) -> int:
        return int(self.ordered.shape[1])


@dataclass(frozen=True)
class Groups:
    """All groups of a fit, larger is better; `names` [g], `n` [g]."""

    names: tuple[str, ...]
    n: Ints
    buckets: tuple[Bucket, ...]

    def __len__(self) -> int:
        return len(self.n)

    def pick(self, keep: Ints) -> Groups:
        """The groups at places `keep`, renumbered in that order."""
        new = np.full(len(self), -1)
        new[keep] = np.arange(len(keep))
        buckets = []
        for b in self.buckets:
            mine = new[b.where] >= 0
            if mine.any():
                buckets.append(Bucket(new[b.where[mine]], b.ordered[mine]))
        return Groups(tuple(self.names[i] for i in keep), self.n[keep], tuple(buckets))


@dataclass(frozen=True)
class Grid:
    """Rewards on a grid of this step."""

    step: float
    distinct: int


def gather(
    samples: Floats | Sequence[Sequence[float] | Floats],
    names: Sequence[str] | None = None,
    *,
    best: Best = "max",
    failed: Failed = "refuse",
) -> Groups:
    """Sorted groups from a matrix [g, n], one vector [n] or a list of vectors of any lengths.

    `failed`: what a reward that is not finite means: "refuse" raises, "worst" puts it below the group's lowest,
    "drop" leaves it out. Raises AnalysisError with group and place.
    """
    sign = direction(best)
    rows = _rows(samples)
    labels = tuple(f"prompt {i}" for i in range(len(rows))) if names is None else tuple(str(n) for n in names)
    if len(labels) != len(rows):
        raise AnalysisError(f"{len(labels)} names for {len(rows)} groups of samples.")
    if not len(rows):
        raise AnalysisError("There are no groups of samples.")
    if isinstance(rows, np.ndarray) and np.isfinite(rows).all():
        return Groups(labels, np.full(len(rows), rows.shape[1]),
                      (Bucket(np.arange(len(rows)), np.sort(sign * rows, axis=1)),))  # fmt: skip
    clean = [_clean(sign * row, label, sign, failed) for row, label in zip(rows, labels, strict=True)]
    n = np.array([len(row) for row in clean])
    buckets = tuple(
        Bucket(where, np.sort(np.stack([clean[i] for i in where]), axis=1))
        for where in (np.flatnonzero(n == m) for m in np.unique(n))
    )
    return Groups(labels, n, buckets)


def _rows(samples: Floats | Sequence[Sequence[float] | Floats]) -> Floats | list[Floats]:
    if isinstance(samples, np.ndarray) and samples.dtype != object:
        if samples.ndim not in (1, 2) or samples.shape[-1] == 0:
            raise AnalysisError(f"Samples must be [groups, samples], not {samples.shape}.")
        return np.atleast_2d(samples).astype(float)
    rows = [np.atleast_1d(np.asarray(row, dtype=float)) for row in samples]
    return [np.array([float(row[0]) for row in rows])] if rows and all(r.shape == (1,) for r in rows) else rows


def _clean(row: Floats, label: str, sign: float, failed: Failed) -> Floats:
    if row.ndim != 1 or not len(row):
        raise AnalysisError(f"{label}: {len(row)} samples in an array of shape {row.shape}; one vector is expected.")
    bad = ~np.isfinite(row)
    if not bad.any():
        return row
    if failed == "refuse" or np.isposinf(row).any():
        at = np.flatnonzero(np.isposinf(row) if failed != "refuse" else bad)
        shown = ", ".join(str(i) for i in at[:5]) + (" …" if len(at) > 5 else "")
        raise AnalysisError(
            f"{label}: {len(at)} rewards are {sign * row[at[0]]:g} (samples {shown}), must be finite; "
            "declare failed: worst or failed: drop."
        )
    if bad.all():
        raise AnalysisError(f"{label}: all {len(row)} samples failed.")
    if failed == "drop":
        return row[~bad]
    return np.where(bad, row[~bad].min(), row)


def saturated(bucket: Bucket, bound: float | None, least: int = 2) -> Floats:
    """The share [g] of samples equal to the maximum where it is a spike at the end of the scale, else 0.

    A spike: `least` or more, above 2 % of the samples and no rarer than the next lower value, unless a declared bound
    lies above it.
    """
    x = bucket.ordered
    top = x[:, -1:]
    count = (x == top).sum(axis=1)
    below = np.where(x < top, x, -np.inf).max(axis=1, keepdims=True)
    next_lower = (x == below).sum(axis=1)
    spike = (count >= least) & (count / bucket.n > SATURATED_SHARE) & (count >= next_lower)
    if bound is not None:
        spike &= top[:, 0] >= bound - 1e-9 * max(1.0, abs(bound))
    return np.where(spike, count / bucket.n, 0.0)


def grid_of(groups: Groups) -> Grid | None:
    """The grid the exceedances lie on, where ties show one that is coarse or has few values; None: continuous."""
    votes, steps, values = 0, [], 0
    for bucket in groups.buckets:
        top = bucket.ordered[:, -tail_count(bucket.n, 0.5) :]
        gaps = np.diff(top, axis=1)
        tied = ((gaps == 0) & (top[:, 1:] < top[:, -1:])).any(axis=1)  # a spike at the top alone is no grid
        if not tied.any():
            continue
        distinct = (gaps > 0).sum(axis=1) + 1
        step = np.where(gaps > 0, gaps, np.inf).min(axis=1)
        spread = top.std(axis=1)
        coarse = tied & ((distinct < FEW_VALUES) | (step > COARSE * spread))
        votes += int(coarse.sum())
        if coarse.any():
            steps.append(float(step[coarse].min()))
            values = max(values, int(distinct[coarse].max()))
    if 2 * votes <= len(groups):
        return None
    return Grid(min(steps), values)
