"""Joint draws of a law's parameters: the fit repeated on data that could have been."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scaling.arrays import Floats, Ints
from scaling.intervals import Method, heavy, webb
from scaling.objectives import linked, unlinked
from scaling.solver import Problem, curvature, places, projection_of, refine, scan

FULL_SCAN = 4e6  # array entries up to which every draw is scanned anew
CANDIDATES = 64


@dataclass(frozen=True)
class Draws:
    """theta [b, p] of every draw, and how many of them the solver did not finish."""

    theta: Floats
    unconverged: int


def cluster_counts(groups: Ints, draws: int, rng: np.random.Generator) -> Floats:
    """How often each row is drawn [draws, n] when whole clusters are drawn with replacement."""
    size = int(groups.max()) + 1
    return np.asarray(rng.multinomial(size, np.full(size, 1 / size), size=draws)[:, groups], dtype=float)


def stretched(draws: Floats, theta: Floats, clusters: int, low: Floats, high: Floats) -> Floats:
    """Draws [b, p] of a bootstrap over clusters moved away from theta [p], inside the box.

    By sqrt(G / (G - p)), and by what Student's t of G - p asks beyond the normal: G clusters drawn again scatter as
    if nothing had been fitted to them.
    """
    from scipy.special import ndtri, stdtrit

    freedom = max(clusters - len(theta), 1)
    factor = np.sqrt(clusters / freedom) * float(stdtrit(freedom, 0.975) / ndtri(0.975))
    return np.asarray(np.clip(theta + (draws - theta) * factor, low, high))


def scattered(problem: Problem, theta: Floats, noise: Floats) -> Floats:
    """Responses [draws, n]: the law at theta [p] with `noise` added to its residual's scale."""
    centre = linked(problem.objective.residual, problem.law.inside(theta[None, :], problem.logs))
    return unlinked(problem.objective.residual, centre + noise)


def wild_noise(problem: Problem, theta: Floats, groups: Ints, draws: int, rng: np.random.Generator) -> Floats:
    """Unweighted residuals over (1 - leverage), with one of Webb's weights for each cluster: [draws, n].

    The whole leverage, as a jackknife has it (HC3; MacKinnon and White 1985): with few rows its root covers too
    little. Leverage is that of rows; fewer clusters than rows take a factor besides.
    """
    jacobian = curvature(problem, theta[None, :])[0]
    leverage = np.clip(np.einsum("ij,ji->i", jacobian, np.linalg.pinv(jacobian)), 0, 0.999)
    clusters, n, p = int(groups.max()) + 1, len(groups), len(theta)
    freedom = max(clusters - p, 1)
    shortfall = clusters / freedom * max(n - p, 1) / n
    corrected = problem.residuals(theta[None, :])[0] / problem.scale[0] / (1 - leverage) * shortfall
    return np.asarray(corrected * webb(rng, (draws, clusters))[:, groups] * heavy(rng, draws, freedom))


def refit(problem: Problem, theta: Floats, basins: list[Floats], slack: float = 1.0) -> Draws:
    """Every data set of `problem` fitted from theta [p], and again where the scan offers a place that may be better.

    That is one whose objective, before it is refined, is below `slack` times the one that was reached.
    """
    total = problem.size
    warm = refine(problem, np.broadcast_to(theta, (total, len(theta))), np.arange(total))
    starts, which = _elsewhere(problem, slack * warm.objective, [theta, *basins])
    if not len(which):
        return Draws(warm.theta, int((~warm.converged).sum()))
    other = refine(problem, starts, which)
    best, converged = warm.theta.copy(), warm.converged.copy()
    better = (other.objective < warm.objective[which]) | (~warm.converged[which] & other.converged)
    best[which[better]], converged[which[better]] = other.theta[better], other.converged[better]
    return Draws(best, int((~converged).sum()))


def _elsewhere(problem: Problem, reached: Floats, known: list[Floats]) -> tuple[Floats, Ints]:
    """One more start for each data set that may have a better place than the one reached."""
    size = len(places(problem.law, projection_of(problem).which))
    if problem.size * size * problem.y.shape[-1] <= FULL_SCAN:
        starts, which = scan(problem, 1)
        better = problem.objective_at(starts) < reached
        return starts[better], which[better]
    single = replace(problem, y=problem.y[:1], scale=problem.scale[:1], count=np.ones_like(problem.count[:1]))
    offered = np.vstack([scan(single, CANDIDATES)[0], *(k[None, :] for k in known)])
    value = _offers(problem, offered)
    best = value.argmin(axis=1)
    which = np.flatnonzero(value[np.arange(problem.size), best] < reached)
    return offered[best[which]], which


def _offers(problem: Problem, offered: Floats) -> Floats:
    """The objective of every data set at every offered place: [R, k]."""
    if len(problem.y) == len(problem.scale) == 1 and problem.objective.name != "binomial":
        # only multiplicities differ: a place has one misfit for each row
        single = replace(problem, count=np.ones_like(problem.count[:1]))
        rho = np.nan_to_num(single.parts(single.residuals(offered)).rho, nan=np.inf)
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(problem.count @ rho.T, nan=np.inf)
    value = np.empty((problem.size, len(offered)))
    for k, place in enumerate(offered):
        value[:, k] = problem.objective_at(np.broadcast_to(place, (problem.size, len(place))))
    return value


def method_words(method: Method) -> str:
    """How draws were made, in words."""
    return {
        "replicate noise": "parametric, from the replicates' noise",
        "wild bootstrap": "wild bootstrap over clusters",
        "cluster bootstrap": "bootstrap over clusters",
        "none": "no draws",
    }[method]
