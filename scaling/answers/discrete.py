"""Whole numbers: the best allowed values around an optimum that knows no grid."""

from __future__ import annotations

import numpy as np

from scaling.answers.asked import Asked
from scaling.answers.search import SLACK, Search
from scaling.arrays import Bools, Floats

NEIGHBOURS = 8  # allowed values on either side that are tried
BEAM = 64  # combinations that are followed


def rounded(question: Asked, budget: float, u: Floats) -> Floats:
    """Logarithms [d] of the best place within `budget` whose inputs are allowed values, near the optimum `u` [d].

    Inputs are fixed one after the other at their allowed neighbours, the rest being optimised again; the best
    combinations so far are followed. `u` is within the limits, whose ends are allowed values: rounding down fits.
    """
    task, names = question.task, question.law.inputs
    discrete = [i for i, n in enumerate(names) if task.free[i] and n in question.limits and question.limits[n].discrete]
    if not discrete:
        return u
    free, rows = task.free.copy(), u[:, None]
    for i in sorted(discrete, key=lambda i: u[i]):  # a step matters most where values are small
        limit = question.limits[names[i]]
        free[i] = False
        made = [(row, value) for row in rows.T for value in limit.near(float(np.exp(row[i])), NEIGHBOURS)]
        rows = np.array([row for row, _ in made]).T
        rows[i] = np.log([value for _, value in made])
        rows, values = _completed(question, budget, rows, free)
        order = np.argsort(values, kind="stable")[:BEAM]
        rows = rows[:, order[np.isfinite(values[order])]]
    return np.asarray(rows[:, 0])


def _completed(question: Asked, budget: float, rows: Floats, free: Bools) -> tuple[Floats, Floats]:
    """The best places [d, r] with the inputs that aren't free held, and their badness [r]."""
    count = rows.shape[1]
    search = Search(question.task, np.repeat(question.parameters[:1], count, axis=0), np.full(count, np.log(budget)))
    if not (free & question.task.cost.used).any():
        within = question.task.cost.value(rows) <= np.log(budget) + SLACK
        value = question.task.badness(search.parameters, rows[..., None])[:, 0]
        return rows, np.where(within, value, np.inf)
    found = search.run(rows, free)
    return found.u, found.value
