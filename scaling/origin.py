"""How wrong a law has been beyond its data: fits that stop at a cost, scored on what cost more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scaling.arrays import Floats
from scaling.laws import Law
from scaling.resample import refit
from scaling.rows import cost_of
from scaling.solver import Problem, curvature

CUTS = 3  # rolling origins needed before a law's own error is estimated
MOST_CUTS = 16
CHI2_MEDIAN = 0.454936
MEDIAN_SPREAD = 2.34  # sd over median of a median of chi-squared values, times the root of their number
CHANCE_QUANTILE = 0.84  # one case of five
REACH = 12.0  # targets up to this factor beyond the cut


@dataclass(frozen=True)
class ModelError:
    """The law's own error: standard deviation `sd` in residual units per (1 + decades of cost beyond the data).

    None: it could not be estimated. Costs of new places come from a power law of the inputs through the rows' own
    costs: `exponents` [d + 1], constant first.
    """

    sd: float | None = None
    dearest: float = np.nan
    cheapest: float = np.nan
    exponents: Floats | None = None

    def at(self, law: Law, x: Floats) -> Floats:
        """Standard deviations [m] at x [d, m]; 0 where none was estimated."""
        if self.sd is None:
            return np.zeros(x.shape[1])
        return np.asarray(self.sd * (1 + self.decades(law, x)))

    def decades(self, law: Law, x: Floats) -> Floats:
        """Decades of cost [m] beyond the data on either side."""
        if self.exponents is None:
            cost = cost_of(law, x)
            assert cost is not None
            log = np.log(cost)
        else:
            log = self.exponents[0] + self.exponents[1:] @ np.log(x)
        beyond = np.maximum(log - np.log(self.dearest), np.log(self.cheapest) - log) / np.log(10)
        return np.asarray(np.maximum(beyond, 0.0))


def cut_places(cost: Floats, least: int) -> Floats:
    """The costs at which a fit stops: at least `least` rows up to there, and dearer ones left to predict."""
    levels = np.unique(cost)[:-1]
    able = levels[(cost <= levels[:, None]).sum(axis=1) >= least]
    if len(able) <= MOST_CUTS:
        return np.asarray(able)
    return np.asarray(able[np.unique(np.linspace(0, len(able) - 1, MOST_CUTS).round().astype(int))])


def model_error(problem: Problem, theta: Floats, sigma: float, cost: Floats, x: Floats) -> ModelError:
    """The law's own error from rolling origin: fit the rows up to a cost, predict dearer ones, for every cut.

    Misses beyond what noise of `sigma` over the rows' weights explains, over (1 + decades from the cut). `problem`
    holds one data set over places x [d, n] that cost `cost` [n]; `theta` [p] is its fit. Its `sd` is None under three
    cuts.
    """
    scale = problem.scale[0]
    one = len(x) == 1
    p = len(problem.law.parameters)
    cuts = cut_places(cost, p + 1 if one else 2 * p)
    if len(cuts) < CUTS:
        return ModelError()
    count = (cost <= cuts[:, None]).astype(float)
    part = replace(problem, count=count)
    fits = refit(part, theta, []).theta
    jacobian = curvature(part, fits)
    full = curvature(replace(part, count=np.ones_like(count)), fits) / scale[:, None]
    covariance = np.linalg.pinv(np.einsum("kni,knj->kij", jacobian, jacobian)) * sigma**2
    expected = np.einsum("kni,kij,knj->kn", full, covariance, full) + (sigma / scale) ** 2
    miss = part.residuals(fits) / scale
    ratio = cost / cuts[:, None]
    future = (count == 0) & np.isfinite(miss) & (one | (ratio <= REACH))
    if not future.any():
        return ModelError()
    reach = (1 + np.log10(np.maximum(ratio, 1)))[future]
    sd = _excess(miss[future], expected[future], reach, int(future.any(axis=0).sum()))
    return ModelError(sd, float(cost.max()), float(cost.min()), _exponents(cost, x))


def _excess(miss: Floats, expected: Floats, reach: Floats, rows: int) -> float:
    """The s for which the median of miss^2 / (expected + s^2 reach^2) is that of chi-squared with one degree.

    0 where so many `rows` would come out this far by chance in one case of five.
    """

    def middle(s: float) -> float:
        return float(np.median(miss**2 / (expected + (s * reach) ** 2)))

    if middle(0.0) <= CHI2_MEDIAN * (1 + CHANCE_QUANTILE * MEDIAN_SPREAD / np.sqrt(rows)):
        return 0.0
    low, high = 0.0, float(np.abs(miss).max()) * 2
    for _ in range(60):
        s = 0.5 * (low + high)
        low, high = (s, high) if middle(s) > CHI2_MEDIAN else (low, s)
    return high


def _exponents(cost: Floats, x: Floats) -> Floats:
    design = np.vstack([np.ones(x.shape[1]), np.log(x)]).T
    return np.asarray(np.linalg.lstsq(design, np.log(cost), rcond=None)[0])
