"""What an observation says of a prediction. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Prediction:
    """A predicted value with its interval; `run_noise`: the interval holds the noise of one new run."""

    value: float
    lo: float | None = None
    hi: float | None = None
    level: float | None = None
    run_noise: bool = False


@dataclass(frozen=True)
class Verdict:
    """error: observed / value - 1. inside: lo <= observed <= hi. None: can't be said."""

    error: float | None
    inside: bool | None = None
    z: float | None = None
    log_score: float | None = None


def judge(prediction: Prediction, observed: float, stderr: float | None = None) -> Verdict:
    """Score an observation with its standard error (None: of a single run, or unknown).

    z is in standard deviations of the prediction, read off its interval: of the logarithm where value, interval and
    observation are positive. An interval that is longer on one side is read as two half normal distributions that
    meet at the value. log_score is the logarithm of that density at the observation (Good 1952, J. R. Stat. Soc. B
    14, 107), so of log y where logarithms are taken; larger is better. The standard error widens both sides, except
    where the interval holds run noise already.
    """
    error = observed / prediction.value - 1 if prediction.value else None
    sides = _sides(prediction, observed, 0.0 if stderr is None or prediction.run_noise else stderr)
    if sides is None:
        return Verdict(error, _inside(prediction, observed))
    miss, below, above = sides
    z = miss / (above if miss > 0 else below)
    log_score = math.log(2 / (math.sqrt(2 * math.pi) * (below + above))) - z * z / 2
    return Verdict(error, _inside(prediction, observed), z, log_score)


def _inside(prediction: Prediction, observed: float) -> bool | None:
    if prediction.lo is None or prediction.hi is None:
        return None
    return prediction.lo <= observed <= prediction.hi


def _sides(prediction: Prediction, observed: float, stderr: float) -> tuple[float, float, float] | None:
    """The miss, and the standard deviations below and above the value; None without an interval of some width."""
    value, lo, hi, level = prediction.value, prediction.lo, prediction.hi, prediction.level
    if lo is None or hi is None or level is None or not 0 < level < 1:
        return None
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    if min(value, lo, hi, observed) > 0:
        stderr /= observed
        value, lo, hi, observed = (math.log(v) for v in (value, lo, hi, observed))
    below, above = (value - lo) / quantile, (hi - value) / quantile
    if below <= 0 or above <= 0:  # draws that lean to one side of the value
        below = above = (hi - lo) / (2 * quantile)
    below, above = math.hypot(below, stderr), math.hypot(above, stderr)
    return (observed - value, below, above) if min(below, above) > 0 else None


def mean_and_error(values: list[float]) -> tuple[float, float | None]:
    """The mean, the same in any order of `values`, and its standard error; None for a single one."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
