"""What a sweep will cost: seconds predicted from the runs of the same task that are already in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

MIN_RUNS = 3


@dataclass(frozen=True)
class Speed:
    """seconds = overhead + flops / rate, fitted to `n_runs` finished runs of a task on `threads` threads each."""

    overhead: float  # seconds
    seconds_per_flop: float
    n_runs: int

    def seconds(self, flops: float | None) -> float | None:
        """Predicted wall seconds of one run; None when its FLOPs are unknown and matter."""
        if flops is None:
            return self.overhead if self.seconds_per_flop == 0 else None
        return self.overhead + self.seconds_per_flop * flops


def fit_speed(history: pl.DataFrame, threads: int) -> Speed | None:
    """Least squares on relative errors over runs with the same number of threads; None with fewer than MIN_RUNS.

    `history` has the columns `flops`, `seconds` and `threads`, one row per finished run.
    """
    rows = history.filter((pl.col("threads") == threads) & (pl.col("seconds") > 0))
    with_flops = rows.filter(pl.col("flops") > 0)
    if len(with_flops) < MIN_RUNS:
        seconds = rows["seconds"].to_numpy()
        return Speed(float(np.median(seconds)), 0.0, len(rows)) if len(rows) >= MIN_RUNS else None
    seconds, flops = with_flops["seconds"].to_numpy(), with_flops["flops"].to_numpy()
    scale = float(flops.mean())
    design = np.column_stack([1 / seconds, flops / scale / seconds])
    overhead, slope = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)[0]
    if overhead < 0:  # then all of it is computing
        overhead, slope = 0.0, float((flops / seconds).sum() / ((flops / seconds) ** 2).sum() * scale)
    if slope < 0:
        overhead, slope = float((1 / seconds).sum() / (1 / seconds**2).sum()), 0.0
    return Speed(float(overhead), float(slope) / scale, len(with_flops))


def weights(flops: Mapping[str, float | None], speed: Speed | None) -> dict[str, float]:
    """A relative cost for every run, for progress and order: seconds if known, else FLOPs, else one each."""
    if speed is not None:
        seconds = {run: speed.seconds(value) for run, value in flops.items()}
        if all(value is not None for value in seconds.values()):
            return {run: float(value or 0.0) for run, value in seconds.items()}
    known = [value for value in flops.values() if value]
    if len(known) < len(flops) or not known:
        return dict.fromkeys(flops, 1.0)
    # Small models pay mostly overhead, so a run of half the FLOPs takes more than half the time.
    base = float(np.median(known))
    return {run: base + float(value or 0.0) for run, value in flops.items()}
