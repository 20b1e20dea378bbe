"""Profile likelihood: how far a parameter can go before the others can't make up for it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scaling.arrays import Floats
from scaling.solver import Problem, refine

ROUNDS = 60
STEPS = 2.0 ** np.arange(-3, 9)  # of the local standard error
ZOOMS = 4  # each narrows the bracket of an end to an eighth


def misfit_scale(problem: Problem, theta: Floats, freedom: int) -> float:
    """What 2 (objective - least) is measured in, so that it is chi-squared: E psi^2 / E psi'.

    For least squares this is the variance of a residual; `freedom` replaces the number of rows.
    """
    r = problem.residuals(theta[None, :])
    found = problem.parts(r)
    bend = float((problem.count * found.bend).sum())
    square = float((problem.count * found.psi**2).sum())
    rows = float(problem.count.sum())
    return square / bend * rows / max(freedom, 1) if bend > 0 else np.nan


def profile(problem: Problem, theta: Floats, i: int, *, threshold: float, step: float) -> tuple[float, float]:
    """Ends of the interval of coordinate `i` in which the refitted objective exceeds the least by < `threshold`.

    `problem` holds one data set; `theta` [p] is its optimum; `step` is about a standard error of coordinate i.
    An end at which the box is reached first is infinite.
    """
    least = float(problem.objective_at(theta[None, :])[0])

    def excess(values: Floats) -> Floats:
        return _constrained(problem, theta, i, values) - least

    ends = []
    for sign in (-1.0, 1.0):
        limit = float((problem.low if sign < 0 else problem.high)[0, i])
        room = abs(limit - theta[i])
        steps = np.append(STEPS[STEPS * step < room] * step, room)
        over = np.flatnonzero(excess(theta[i] + sign * steps) > threshold)
        if not len(over):
            ends.append(sign * np.inf)
            continue
        outside = float(steps[over[0]])
        inside = float(steps[over[0] - 1]) if over[0] else 0.0
        ends.append(float(theta[i] + sign * _crossing(excess, theta[i], sign, (inside, outside), threshold)))
    return ends[0], ends[1]


def _crossing(
    excess: Callable[[Floats], Floats], centre: float, sign: float, bracket: tuple[float, float], threshold: float
) -> float:
    """Where the excess passes the threshold: its root is nearly straight inside the last bracket."""
    inside, outside = bracket
    heights = np.array([0.0, np.inf])
    for _ in range(ZOOMS):
        tried = np.linspace(inside, outside, 9)
        height = np.maximum(excess(centre + sign * tried), 0.0)
        first = int(np.flatnonzero(np.append(height[1:-1] > threshold, True))[0]) + 1
        inside, outside, heights = tried[first - 1], tried[first], np.sqrt(height[first - 1 : first + 1])
    rise = heights[1] - heights[0]
    share = (np.sqrt(threshold) - heights[0]) / rise if rise > 0 else 0.5
    return float(inside + (outside - inside) * np.clip(share, 0, 1))


def _constrained(problem: Problem, theta: Floats, i: int, values: Floats) -> Floats:
    """Least objective [k] with coordinate `i` fixed at each of `values` [k], each started from its neighbour."""
    low, high = (np.repeat(a, len(values), axis=0) for a in (problem.low, problem.high))
    low[:, i] = high[:, i] = values
    fixed = replace(problem, low=low, high=high)
    which = np.arange(len(values))
    first = refine(fixed, np.repeat(theta[None, :], len(values), axis=0), which, ROUNDS)
    second = refine(fixed, first.theta[np.maximum(which - 1, 0)], which, ROUNDS)
    return np.minimum(first.objective, second.objective)
