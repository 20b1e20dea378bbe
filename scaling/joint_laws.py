"""Laws of jointly tuned values over scales: from each cell's optimum, or from all runs near it; and their regret."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.joint_optimum import Bowl, JointOptimum
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

LN2 = float(np.log(2.0))
NEAR = 0.0025  # of each cell's best, relatively: the runs of a pooled law
LEAST_SQUARES = Objective("l2")

Facts = Mapping[str, float]


def law_of_optima(
    optima: Sequence[tuple[Facts, JointOptimum]], tune: str, over: Sequence[str], *, weighted: bool = True,
    draws: int = 1000, level: float = 0.95, seed: int = 0,
) -> Fit:  # fmt: skip
    """c · Π x^p of the optimal value of `tune` over the facts `over` of each cell, by least squares in logarithms.

    Cells weigh 1/sd^2 where all optima have errors and `weighted`; a cell is the unit of the draws, whatever its
    number of runs. Only cells with both values free enter: a conditional optimum is the best of one slice.

    Raises AnalysisError for a hyperparameter or a fact that isn't there.
    """
    used = [(facts, o) for facts, o in optima if o.status == "ok" and o.values is not None]
    if not used:
        raise AnalysisError(f"{tune}.optimum: none of {len(optima)} cells has both values. {_first(optima)}".strip())
    axis = _axis(used[0][1].bowl, tune)
    values = np.array([o.values[axis].value for _, o in used if o.values is not None])
    errors = [o.u_stderr for _, o in used]
    stderr = None
    if weighted and all(e is not None and e[axis] > 0 for e in errors):
        stderr = values * LN2 * np.array([e[axis] for e in errors if e is not None])
    names = tuple(f"{tune} at {o.bowl.place}" for _, o in used)
    # no freedom is claimed for the errors: the draws come from the scatter of whole cells
    rows = Rows(_inputs([f for f, _ in used], over), values, stderr, 0.0, names, cluster=np.arange(len(used)))
    return _fitted(rows, over, draws, level, seed)


def pooled_law(
    cells: Sequence[tuple[Facts, Bowl]], tune: str, over: Sequence[str], *, near: float = NEAR, draws: int = 1000,
    level: float = 0.95, seed: int = 0,
) -> Fit:  # fmt: skip
    """c · Π x^p through the values of `tune` of all pairs within `near` of their cell's best, in one regression.

    The rule of the Step Law (Li et al. 2025, arXiv 2503.04715). Cells with a flat bowl weigh more, and where a grid
    ends early the law follows the grid. Cells, not runs, are drawn for the intervals.

    Raises AnalysisError for a hyperparameter or a fact that isn't there.
    """
    kept = [(facts, bowl, _near(bowl, near)) for facts, bowl in cells if len(bowl.usable)]
    if not kept:
        raise AnalysisError(f"{tune}: no cell has a stable run.")
    axis = _axis(kept[0][1], tune)
    values = np.concatenate([v[:, axis] for _, _, v in kept])
    cluster = np.repeat(np.arange(len(kept)), [len(v) for _, _, v in kept])
    x = _inputs([f for f, _, v in kept for _ in v], over)
    names = tuple(f"{tune} at {b.place}" for _, b, v in kept for _ in v)
    return _fitted(Rows(x, values, ids=names, cluster=cluster), over, draws, level, seed)


def _near(bowl: Bowl, near: float) -> Floats:
    """The pairs [m, 2] within `near` of the best."""
    height = bowl.height
    return np.asarray(bowl.x[bowl.usable[height <= bowl.above(height.min(keepdims=True), near)]])


def _fitted(rows: Rows, over: Sequence[str], draws: int, level: float, seed: int) -> Fit:
    law = law_over("power_multi", list(over))
    return fit_law(law, rows, objective=LEAST_SQUARES, draws=draws, level=level, seed=seed)


def _axis(bowl: Bowl, tune: str) -> int:
    if tune not in bowl.tune:
        raise AnalysisError(f"no tuned hyperparameter {tune!r}.{nearest(tune, bowl.tune)}")
    return bowl.tune.index(tune)


def _inputs(facts: Sequence[Facts], over: Sequence[str]) -> Floats:
    for name in over:
        for f in facts:
            if name not in f:
                raise AnalysisError(f"a cell has no {name!r}.{nearest(name, f)}")
    return np.array([[float(f[name]) for f in facts] for name in over])


def _first(optima: Sequence[tuple[Facts, JointOptimum]]) -> str:
    return next((o.why[0] for _, o in optima if o.why), "")


# -- regret ----------------------------------------------------------------------------------------

Advice = Callable[[Facts], tuple[float, float]]  # a cell's facts -> the values of its two hyperparameters


@dataclass(frozen=True)
class CellRegret:
    """What advice costs in one cell: the pair advised, the nearest one tried, and its response over the best, less 1.

    `share` is None where the nearest pair diverged; `outside`: the advice lies beyond the pairs tried.
    """

    place: str
    advised: tuple[float, float]
    nearest: tuple[float, float]
    share: float | None
    outside: bool


@dataclass(frozen=True)
class Regret:
    """Relative regret over cells; cells in which the advised pair diverged count in `diverged` only."""

    cells: tuple[CellRegret, ...]
    median: float | None
    worst: float | None
    diverged: int
    why: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        cells = [{k: list(v) if isinstance(v, tuple) else v for k, v in vars(c).items() if v is not None}
                 for c in self.cells]  # fmt: skip
        both = {"median": self.median, "worst": self.worst}
        return {"cells": cells, "diverged": self.diverged, "why": list(self.why)} | {
            k: v for k, v in both.items() if v is not None
        }


def advice(first: Fit, second: Fit) -> Advice:
    """The values that two fitted laws give for a cell's facts. Raises AnalysisError for a refused one."""

    def at(facts: Facts) -> tuple[float, float]:
        one, other = (float(fit.predict(_inputs([facts], fit.law.inputs)).value[0]) for fit in (first, second))
        return one, other

    return at


def regret(law: Advice, cells: Sequence[tuple[Facts, Bowl]]) -> Regret:
    """What following `law` costs at each cell: its nearest pair tried (in log distance) against the cell's best."""
    made = tuple(_regret_at(law(facts), bowl) for facts, bowl in cells if len(bowl.usable))
    shares = [c.share for c in made if c.share is not None]
    diverged = [c.place for c in made if c.share is None]
    outside = [c.place for c in made if c.outside]
    why = []
    if diverged:
        why.append(f"regret: the pair advised diverged at {'; '.join(diverged)}.")
    if outside:
        why.append(f"regret: the advice lies beyond the pairs tried at {'; '.join(outside)}: at least this cost.")
    if not shares:
        return Regret(made, None, None, len(diverged), tuple(why))
    return Regret(made, float(np.median(shares)), float(np.max(shares)), len(diverged), tuple(why))


def _regret_at(advised: tuple[float, float], bowl: Bowl) -> CellRegret:
    u, place = np.log2(bowl.x), np.log2(np.array(advised))
    known = np.flatnonzero(bowl.unstable | np.isfinite(bowl.table).any(axis=1))
    i = int(known[np.argmin(((u[known] - place) ** 2).sum(axis=1))])
    outside = bool(np.any((place < u.min(axis=0)) | (place > u.max(axis=0))))
    near = (float(bowl.x[i, 0]), float(bowl.x[i, 1]))
    if bowl.unstable[i]:
        return CellRegret(bowl.place, advised, near, None, outside)
    best = float(bowl.response(bowl.height.min(keepdims=True))[0])
    lost = abs(float(np.nanmean(bowl.table[i])) - best)
    return CellRegret(bowl.place, advised, near, lost / abs(best) if best else lost, outside)
