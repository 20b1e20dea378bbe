"""Reductions: small pure functions from a frame of runs to a frame of cells, between the store and a law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from scaling.arrays import Floats

# runs with an `outcome` column, the names that make a cell, the metric -> one row per cell:
# the names, value, stderr, n, and counts of the outcomes
Reduction = Callable[[pl.DataFrame, Sequence[str], str], pl.DataFrame]

OUTCOMES = ("done", "diverged", "failed", "missing")


def outcomes(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """`runs` with `outcome`: done, diverged, failed or missing; the metric is null where not done.

    A run that ended well without a finite metric is missing; one whose metric is NaN or infinite diverged.
    """
    value = pl.col(metric).cast(pl.Float64)
    status = pl.col("status").fill_null("missing")
    outcome = (
        pl.when(status.is_in(["diverged", "failed"]))
        .then(status)
        .when(status != "done")
        .then(pl.lit("missing"))
        .when(value.is_null())
        .then(pl.lit("missing"))
        .when(~value.is_finite())
        .then(pl.lit("diverged"))
        .otherwise(pl.lit("done"))
    )
    return runs.with_columns(outcome.alias("outcome")).with_columns(
        pl.when(pl.col("outcome") == "done").then(value).alias(metric)
    )


def tally(runs: pl.DataFrame) -> dict[str, int]:
    """How many runs are done, diverged, failed, missing."""
    return {name: int((runs["outcome"] == name).sum()) for name in OUTCOMES}


def mean(runs: pl.DataFrame, by: Sequence[str], metric: str) -> pl.DataFrame:
    """Mean over replicates, its standard error from the cell's own spread (null for a single run)."""
    value = pl.col(metric)
    return _cells(
        runs, by, value.mean().alias("value"), (value.std() / value.count().sqrt()).alias("stderr"), metric=metric
    )


REDUCTIONS: dict[str, Reduction] = {"mean": mean}


def _cells(runs: pl.DataFrame, by: Sequence[str], *columns: pl.Expr, metric: str) -> pl.DataFrame:
    counts = [(pl.col("outcome") == name).sum().cast(pl.Int64).alias(f"n_{name}") for name in OUTCOMES[1:]]
    n = pl.col(metric).count().cast(pl.Int64).alias("n")
    if not by:
        return runs.select(*columns, n, *counts)
    return runs.group_by(list(by), maintain_order=True).agg(*columns, n, *counts).sort(list(by), nulls_last=True)


@dataclass(frozen=True)
class Noise:
    """Run-to-run standard deviation of one run, relative to the value (log) or absolute, and its freedom.

    `sd` is None when nothing was replicated.
    """

    sd: float | None
    dof: float


def pooled_noise(runs: pl.DataFrame, by: Sequence[str], metric: str, log: bool) -> Noise:
    """The replicate noise of one run, pooled over cells, of log(metric) if `log`."""
    value = pl.col(metric).log() if log else pl.col(metric)
    done = runs.filter(pl.col("outcome") == "done")
    keys: list[Any] = list(by) or [pl.lit(0).alias("all")]
    cells = done.group_by(keys).agg(value.var().alias("variance"), value.count().alias("n")).filter(pl.col("n") > 1)
    weight = cells["n"].to_numpy().astype(float) - 1
    dof = float(weight.sum())
    if dof == 0:
        return Noise(None, 0.0)
    return Noise(float(np.sqrt(np.sum(np.sort(weight * cells["variance"].to_numpy())) / dof)), dof)


def pooled_stderr(cells: pl.DataFrame, noise: Noise, log: bool) -> Floats | None:
    """Standard error [n] of each cell's mean from the pooled noise, in the metric's unit; None without noise."""
    if noise.sd is None or noise.sd == 0:
        return None
    level = np.abs(cells["value"].to_numpy()) if log else np.ones(len(cells))
    return np.asarray(level * noise.sd / np.sqrt(np.maximum(cells["n"].to_numpy(), 1)))
