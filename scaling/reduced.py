"""One metric of a sweep's results through the first reductions: replicates, tuned names, cells, rows of a law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from scaling import reduce
from scaling.arrays import Floats
from scaling.errors import AnalysisError, nearest
from scaling.findings import Cell, CellOptimum, MeasuredCell, MeasuredPoint, point_text
from scaling.intervals import ENOUGH_DOF, generator
from scaling.joint_optimum import Bowl, JointOptimum, bowl_noise, find_joint_optimum
from scaling.optimum import Valley, ValleyNoise, find_optimum, valley_noise
from scaling.transfer import optimum_rows
from sweeps.schema import FitSpec

PAIR = 2
FACTS = ("n_params", "flops", "tokens", "bytes")
FIXED = {"run", "status", "outcome", "seconds", *FACTS}


@dataclass(frozen=True)
class Asked:
    """The results `frame`, one row per run, the roles of its columns, and what is wanted of them."""

    frame: pl.DataFrame
    axes: tuple[str, ...]
    compare: tuple[str, ...]
    tune: tuple[str, ...]
    replicates: tuple[str, ...]
    want: FitSpec
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.axes, *self.compare, *self.tune, *self.replicates)


@dataclass(frozen=True)
class Row:
    """What a law sees of one cell: inputs x, response y with its error, and the freedom behind that."""

    cell: Cell
    x: tuple[float, ...]
    y: float
    stderr: float | None
    dof: float

    @property
    def relative(self) -> float | None:
        return None if self.stderr is None else self.stderr / abs(self.y)


class Reduced:
    """One metric through the first two reductions: replicates, then tune."""

    def __init__(self, work: Asked, metric: str) -> None:
        self.work, self.metric = work, metric
        self.runs = self._outcomes()

    def _outcomes(self) -> pl.DataFrame:
        frame, metric = self.work.frame, self.metric
        others = [
            c for c in frame.columns if c not in FIXED and c not in self.work.names and frame[c].dtype.is_numeric()
        ]
        if metric not in frame.columns:
            raise AnalysisError(f"no run has logged {metric!r}.{nearest(metric, others)}")
        runs = reduce.outcomes(frame, metric)
        if not (runs["outcome"] == "done").any():
            tally = reduce.tally(runs)
            if (frame["status"] == "done").any():
                raise AnalysisError(f"no finished run has logged {metric!r}.{nearest(metric, set(others) - {metric})}")
            counts = ", ".join(f"{v} {k}" for k, v in tally.items() if v) or "none were selected"
            raise AnalysisError(f"no run has finished with a {metric}: {counts}.")
        return runs

    @cached_property
    def all_cells(self) -> list[Cell]:
        work = self.work
        keys = [*work.axes, *work.compare]
        extra = [c for c in self.runs.columns if c not in keys and self._fact(c)]
        texts = [c for c in self.runs.columns if c not in keys and self._text(c)]
        aggregates = [pl.col(c).mean().alias(c) for c in extra] + [pl.col(c).first().alias(c) for c in texts]
        if not keys:
            rows = self.runs.select(aggregates).rows(named=True) if aggregates else [{}]
        else:
            rows = self.runs.group_by(keys, maintain_order=True).agg(aggregates).rows(named=True)
        out = []
        for row in rows:
            at = {a: row[a] for a in work.axes}
            facts = at | {c: row[c] for c in extra if row[c] is not None}
            out.append(Cell(at, {c: row[c] for c in work.compare}, facts, {c: row[c] for c in texts}))
        return out

    def labels(self, cluster: str) -> dict[int, Any]:
        """The cluster of each cell, by the cell's id."""
        for cell in self.all_cells:
            if cluster not in cell.names:
                raise AnalysisError(f"fit.cluster: no result has {cluster!r}.{nearest(cluster, cell.names)}")
        return {id(c): c.names[cluster] for c in self.all_cells}

    def _text(self, column: str) -> bool:
        """Whether a column holds words that rows may be chosen or clustered by."""
        work = self.work
        known = column in work.tune or column in FIXED or column == self.metric
        return not known and self.runs[column].dtype == pl.String

    def _fact(self, column: str) -> bool:
        work = self.work
        if column in work.tune or column in work.replicates or column in ("run", "status", "outcome", "seconds"):
            return False
        return column != self.metric and self.runs[column].dtype.is_numeric()

    def _of_cell(self, frame: pl.DataFrame, cell: Cell) -> pl.DataFrame:
        for name, value in (cell.at | cell.group).items():
            frame = frame.filter(pl.col(name).eq_missing(pl.lit(value)))
        return frame

    @cached_property
    def log(self) -> bool:
        """Whether the metric is positive everywhere, so that its logarithm is fitted."""
        return bool((self.runs[self.metric].drop_nulls() > 0).all())

    @cached_property
    def unstable(self) -> list[str]:
        """Where some replicates diverged and others did not: such a mean is not used."""
        keys = [*self.work.axes, *self.work.compare, *self.work.tune]
        cells = reduce.mean(self.runs, keys, self.metric).filter((pl.col("n_diverged") > 0) & (pl.col("n") > 0))
        return [point_text({k: row[k] for k in keys}) for row in cells.rows(named=True)]

    # without tune

    @cached_property
    def cells(self) -> list[MeasuredCell]:
        if self.work.tune:
            return []
        work = self.work
        by = [*work.axes, *work.compare]
        out: list[MeasuredCell] = []
        means = {tuple(row[k] for k in by): row for row in reduce.mean(self.runs, by, self.metric).rows(named=True)}
        noises = self._group_noises(by)
        for cell in self.all_cells:
            row = means[(*cell.at.values(), *cell.group.values())]
            if not row["n"] or row["n_diverged"]:
                continue
            noise = noises[tuple(cell.group.values())]
            level = abs(row["value"]) if self.log else 1.0
            stderr = None if noise.sd is None else level * noise.sd / math.sqrt(row["n"])
            out.append(MeasuredCell(cell, row["value"], stderr, row["n"], noise.dof, noise.sd))
        return out

    def _group_noises(self, by: Sequence[str]) -> dict[tuple[Any, ...], reduce.Noise]:
        """Replicate noise by comparison; pooled over all where a group alone has too little."""
        pooled = reduce.pooled_noise(self.runs, by, self.metric, self.log)
        out = {}
        for cell in self.all_cells:
            key = tuple(cell.group.values())
            if key not in out:
                own = reduce.pooled_noise(self._of_cell(self.runs, Cell({}, cell.group, {})), by, self.metric, self.log)
                out[key] = own if own.dof >= ENOUGH_DOF else pooled
        return out

    # with tune

    @cached_property
    def points(self) -> list[MeasuredPoint]:
        work = self.work
        if not work.tune:
            return []
        out = []
        means = reduce.mean(self.runs, [*work.axes, *work.compare, *work.tune], self.metric)
        for cell in self.all_cells:
            for row in self._of_cell(means, cell).rows(named=True):
                tune = {t: row[t] for t in work.tune}
                out.append(MeasuredPoint(cell, tune, row["value"], row["stderr"], row["n"], row["n_diverged"]))
        return out

    @cached_property
    def optima(self) -> list[CellOptimum]:
        out = []
        for tune in self.work.tune:
            valleys = [(cell, self._valley(tune, cell)) for cell in self.all_cells]
            pooled = valley_noise([v for _, v in valleys])
            noises: dict[tuple[Any, ...], ValleyNoise] = {}
            for cell, valley in valleys:
                key = tuple(cell.group.values())
                if key not in noises:
                    own = valley_noise([v for c, v in valleys if c.group == cell.group])
                    enough = own.source == pooled.source and own.dof >= ENOUGH_DOF
                    noises[key] = own if enough else pooled
                rng = generator(self.work.seed, "optimum", self.metric, tune, cell.place)
                found = find_optimum(
                    valley, noises[key], draws=self.work.want.bootstrap, level=self.work.want.level, rng=rng
                )
                out.append(CellOptimum(cell, tune, found))
        return out

    @cached_property
    def joint(self) -> list[tuple[Cell, JointOptimum]]:
        """The best pair of each cell where exactly two names are tuned; the optimum of one depends on the other."""
        if len(self.work.tune) != PAIR or not all(self.runs[t].dtype.is_numeric() for t in self.work.tune):
            return []
        bowls = [(cell, self._bowl(cell)) for cell in self.all_cells]
        noise = bowl_noise([bowl for _, bowl in bowls])
        want, seed = self.work.want, self.work.seed
        return [
            (cell, find_joint_optimum(
                bowl, noise, draws=want.bootstrap, level=want.level,
                rng=generator(seed, "joint", self.metric, cell.place)))
            for cell, bowl in bowls
        ]  # fmt: skip

    def _bowl(self, cell: Cell) -> Bowl:
        frame = self._of_cell(self.runs, cell).filter(pl.col("outcome").is_in(["done", "diverged"]))
        first, second = self.work.tune
        values = frame.select(first, second).cast(pl.Float64).to_numpy()
        labels = frame.select(self.work.replicates).rows() if self.work.replicates else []
        seeds = {label: i for i, label in enumerate(sorted(set(labels), key=str))}
        return Bowl.of(
            (first, second), cell.place, values, frame[self.metric].fill_null(np.nan).to_numpy(),
            diverged=(frame["outcome"] == "diverged").to_numpy(),
            replicate=np.array([seeds[label] for label in labels]) if labels else None, goal=self.work.want.goal,
        )  # fmt: skip

    def _valley(self, tune: str, cell: Cell) -> Valley:
        """The response against `tune`; over other tuned names the best of each value stands (their profile)."""
        frame = self._of_cell(self.runs, cell)
        values = frame[tune]
        if not values.dtype.is_numeric() or (values.drop_nulls() <= 0).any() or values.null_count():
            raise AnalysisError(
                f"tune {tune!r} at {cell.place}: its values must be positive numbers to have an optimum."
            )
        others = [t for t in self.work.tune if t != tune]
        labels = sorted({tuple(r) for r in frame.select(self.work.replicates).rows()}, key=str) or [()]
        x = np.array(sorted(values.unique().to_list()), dtype=float)
        table = np.full((len(x), len(labels)), np.nan)
        unstable = np.zeros(len(x), dtype=bool)
        for i, value in enumerate(x):
            here = self._profile(frame.filter(pl.col(tune).cast(pl.Float64) == value), others)
            unstable[i] = (here["outcome"] == "diverged").any()
            self._fill(table[i], here, labels)
        return Valley(tune, cell.place, x, table, unstable, self.work.want.goal)

    def _profile(self, here: pl.DataFrame, others: Sequence[str]) -> pl.DataFrame:
        """The rows of the best setting of the other tuned names; all rows where there are none."""
        if not others:
            return here
        means = reduce.mean(here, others, self.metric).filter((pl.col("n") > 0) & (pl.col("n_diverged") == 0))
        if not len(means):
            return here
        best = means.sort("value", descending=self.work.want.goal == "max").row(0, named=True)
        return here.filter([pl.col(t).eq_missing(pl.lit(best[t])) for t in others])

    def _fill(self, row: Floats, here: pl.DataFrame, labels: Sequence[tuple[Any, ...]]) -> None:
        """Responses by replicate; two runs of one replicate count as their mean."""
        seen: dict[tuple[Any, ...], list[float]] = {}
        for run in here.filter(pl.col("outcome") == "done").rows(named=True):
            key = tuple(run[r] for r in self.work.replicates)
            seen.setdefault(key, []).append(run[self.metric])
        for j, label in enumerate(labels):
            if label in seen:
                row[j] = math.fsum(seen[label]) / len(seen[label])

    # rows of a law

    def rows(self, of: str, over: Sequence[str], cells: Sequence[Cell]) -> list[Row]:
        """What a law of `of` over `over` sees of `cells`, ascending; cells without a value are left out."""
        chosen = {id(c) for c in cells}
        found = self._optimum_rows(of, over) if of.endswith(".optimum") else self._metric_rows(over)
        return sorted((r for r in found if id(r.cell) in chosen), key=lambda r: (r.x, r.cell.place))

    def _optimum_rows(self, of: str, over: Sequence[str]) -> list[Row]:
        tune = of.removesuffix(".optimum")
        if tune not in self.work.tune:
            raise AnalysisError(f"law of {of!r}: the spec tunes no {tune!r}.{nearest(tune, self.work.tune)}")
        if self.joint:
            return self._joint_rows(tune, over)
        out = []
        for item in self.optima:
            if item.tune == tune and item.optimum.status == "ok":
                x = _inputs(item.cell, over)
                rows = optimum_rows([(x[0], item.optimum)])
                stderr = None if rows.stderr is None else float(rows.stderr[0])
                out.append(Row(item.cell, x, float(rows.y[0]), stderr, rows.dof))
        return out

    def _joint_rows(self, tune: str, over: Sequence[str]) -> list[Row]:
        """The tuned value of the best pair of each cell; only pairs with both values free are one."""
        axis = self.work.tune.index(tune)
        out = []
        for cell, found in self.joint:
            if found.status == "ok" and found.values is not None:
                value, errors = found.values[axis].value, found.u_stderr
                stderr = None if errors is None or not errors[axis] > 0 else value * math.log(2) * float(errors[axis])
                out.append(Row(cell, _inputs(cell, over), value, stderr, 0.0))
        return out

    def _metric_rows(self, over: Sequence[str]) -> list[Row]:
        if not self.work.tune:
            return [Row(c.cell, _inputs(c.cell, over), c.mean, c.stderr, c.dof) for c in self.cells]
        first = self.work.tune[0]
        return [
            Row(o.cell, _inputs(o.cell, over), o.optimum.loss, o.optimum.loss_stderr, o.optimum.noise.dof)
            for o in self.optima
            if o.tune == first and o.optimum.loss is not None
        ]

    def run_noise(self, of: str, rows: Sequence[Row]) -> float | None:
        """The relative noise of one new run of the metric, None if unknown; a hyperparameter's optimum has none."""
        if of.endswith(".optimum") or not rows:
            return 0.0
        chosen = {id(r.cell) for r in rows}
        if self.work.tune:
            noises = [
                math.hypot(o.optimum.noise.within or 0.0, o.optimum.noise.common)
                for o in self.optima
                if id(o.cell) in chosen
            ]
        else:
            noises = [c.noise or 0.0 for c in self.cells if id(c.cell) in chosen]
        return max(noises, default=0.0) or None


def _inputs(cell: Cell, over: Sequence[str]) -> tuple[float, ...]:
    return tuple(float(cell.facts[o]) for o in over)


def number(value: Any) -> float | None:
    """A finite number as a float, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
