"""What an analysis found, as frozen records, and their plain JSON form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaling.budgets import Agreement
from scaling.fits import Fit
from scaling.intervals import Interval
from scaling.isoflop import IsoFlop
from scaling.joint_optimum import JointOptimum
from scaling.optimum import Optimum
from scaling.transfer import Comparison, Transfer

SCHEMA = 1
Point = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One scale of one group: its axis values, its comparison, and every number that goes with it.

    `facts` holds what a law may be over (axes, derived names, n_params, flops, tokens), `texts` words of its rows.
    """

    at: Point
    group: Point
    facts: Point
    texts: Point = field(default_factory=dict)

    @property
    def names(self) -> Point:
        """All that is known of the cell, by name."""
        return self.texts | self.facts | self.at | self.group

    @property
    def place(self) -> str:
        return ", ".join(f"{k} {value_text(v)}" for k, v in (self.at | self.group).items())


@dataclass(frozen=True)
class MeasuredCell:
    """The replicate mean of a cell without tuned hyperparameters; stderr from the pooled noise."""

    cell: Cell
    mean: float
    stderr: float | None
    n: int
    dof: float
    noise: float | None  # of one run, in units of log(mean) or of the mean


@dataclass(frozen=True)
class MeasuredPoint:
    """The replicate mean at one value of the tuned hyperparameters."""

    cell: Cell
    tune: Point
    mean: float | None
    stderr: float | None
    n: int
    diverged: int


@dataclass(frozen=True)
class CellOptimum:
    cell: Cell
    tune: str
    optimum: Optimum


@dataclass(frozen=True)
class LawFit:
    """A law of one group, `of` a metric or `<tune>.optimum`; None for the fit: there was nothing to fit."""

    name: str
    of: str
    over: tuple[str, ...]
    group: Point
    fit: Fit


@dataclass(frozen=True)
class LawPrediction:
    """A fit's answer at one place; observed is there for held-out cells only.

    lo and hi are of an observation; `law` is the interval of the law alone.
    """

    fit: LawFit
    at: Point
    value: float
    lo: float | None
    hi: float | None
    basis: str
    observed: float | None = None
    held_out: bool = False
    law: Interval | None = None


@dataclass(frozen=True)
class BudgetProfiles:
    """Profiles of equal compute of one group, and how their exponent compares with each fitted surface's."""

    group: Point
    found: IsoFlop
    against: tuple[tuple[str, Agreement], ...] = ()


@dataclass(frozen=True)
class Analysis:
    """Everything that a sweep's results say, ready for a report or for the store."""

    sweep: str
    of: str
    goal: str
    level: float
    runs: dict[str, int]
    cells: list[MeasuredCell] = field(default_factory=list)
    points: list[MeasuredPoint] = field(default_factory=list)
    optima: list[CellOptimum] = field(default_factory=list)
    fits: list[LawFit] = field(default_factory=list)
    predictions: list[LawPrediction] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    isoflop: list[BudgetProfiles] = field(default_factory=list)
    joint: list[JointOptimum] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, lists and texts at full precision; values that were refused are absent."""
        return {
            "schema": SCHEMA, "sweep": self.sweep, "of": self.of, "goal": self.goal, "level": self.level,
            "runs": dict(self.runs),
            "cells": [_cell_json(c) for c in self.cells],
            "points": [_point_json(p) for p in self.points],
            "optima": [_optimum_json(o) for o in self.optima],
            "fits": [_fit_json(f, self._predicted(f)) for f in self.fits],
            "predictions": [_prediction_json(p, self.level) for p in self.predictions],
            "transfer": [_transfer_json(t) for t in self.transfers],
            "comparisons": [_comparison_json(c) for c in self.comparisons],
            "isoflop": [_isoflop_json(b) for b in self.isoflop],
            "joint_optima": [j.to_json() for j in self.joint],
            "notes": list(self.notes),
        }  # fmt: skip

    def _predicted(self, fit: LawFit) -> list[float]:
        """The places of the law's axis that were predicted from `fit`."""
        return [float(p.at[fit.over[0]]) for p in self.predictions if p.fit is fit and len(fit.over) == 1]


def value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def point_text(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {value_text(v)}" for k, v in point.items())


# -- JSON ------------------------------------------------------------------------------------------


def _present(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Without what is None or not finite."""
    return {k: v for k, v in items if v is not None and not (isinstance(v, float) and not math.isfinite(v))}


def _cell_json(c: MeasuredCell) -> dict[str, Any]:
    rest = {"mean": c.mean, "stderr": c.stderr, "n": c.n}
    return {"group": c.cell.group, "at": c.cell.at} | _present(rest.items())


def _point_json(p: MeasuredPoint) -> dict[str, Any]:
    rest = {"mean": p.mean, "stderr": p.stderr, "n": p.n, "diverged": p.diverged}
    return {"group": p.cell.group, "at": p.cell.at, "tune": p.tune} | _present(rest.items())


def _optimum_json(item: CellOptimum) -> dict[str, Any]:
    o = item.optimum
    head = {"tune": item.tune, "group": item.cell.group, "at": item.cell.at, "status": o.status, "why": list(o.why)}
    if o.status != "ok":
        return head
    rest = {
        "value": o.value, "lo": o.lo, "hi": o.hi, "loss": o.loss, "loss_stderr": o.loss_stderr, "n_points": o.n_points,
        "degree": o.degree, "window": list(o.window) if o.window else None, "curve": _curve_json(o),
    }  # fmt: skip
    return head | _present(rest.items())


def _curve_json(o: Optimum, count: int = 33) -> dict[str, list[float]] | None:
    """The fitted floor as points (hyperparameter, response), to draw it."""
    if o.shape is None:
        return None
    u = np.linspace(o.shape.low[0], o.shape.high[0], count)
    t = u - o.shape.centre[0]
    height = np.polynomial.polynomial.polyval(t, o.shape.coefficients[0])
    return {"x": (2.0**u).tolist(), "y": o.valley.response(height).tolist()}


def _fit_json(f: LawFit, predicted: Sequence[float]) -> dict[str, Any]:
    fit, law, d = f.fit, f.fit.law, f.fit.diagnostics
    objective = {
        **fit.objective.to_json(),
        "value": fit.value,
    }
    shown = {
        "condition": d.condition, "rms": d.rms, "excess": d.excess, "model": d.model.sd,
        "unconverged_draws": d.unconverged_draws,
    }  # fmt: skip
    x: Any = fit.rows.x[0].tolist() if len(law.inputs) == 1 else dict(zip(f.over, fit.rows.x.tolist(), strict=True))
    rows: dict[str, Any] = {"x": x, "y": fit.rows.y.tolist(), "cells": list(fit.rows.ids)}
    if fit.params:
        rows["fitted"] = law.value(fit.point, fit.rows.x).tolist()
    if fit.rows.stderr is not None:
        rows["stderr"] = fit.rows.stderr.tolist()
    return {
        "name": f.name, "law": law.name, "formula": law.formula, "latex": law.latex, "of": f.of,
        "over": _over_json(f.over), "group": f.group, "status": fit.status, "why": list(fit.why),
        "objective": _present(objective.items()), "n": len(fit.rows), "interval": d.method,
        "params": {k: v.to_json() for k, v in fit.params.items()},
        "diagnostics": _present(shown.items()), "rows": rows,
    } | _present([("frozen", dict(law.fixed) or None), ("basins", list(d.basins) if len(d.basins) > 1 else None),
                  ("curve", _law_curve(fit, predicted))])  # fmt: skip


def _over_json(over: tuple[str, ...]) -> str | list[str]:
    return over[0] if len(over) == 1 else list(over)


def _law_curve(fit: Fit, predicted: Sequence[float], count: int = 49) -> list[dict[str, float]] | None:
    """The law from its first row to its last prediction, with the interval of the law itself, without run noise."""
    if not fit.params or len(fit.law.inputs) > 1:
        return None
    seen = [*fit.rows.x[0], *predicted]
    x = np.geomspace(min(seen), max(seen), count)
    answer = fit.predict(x)
    lo = hi = np.full(count, np.nan)
    if answer.lo is not None and answer.hi is not None:
        lo, hi = answer.lo, answer.hi
    return [
        _present([("x", float(a)), ("value", float(v)), ("lo", float(b)), ("hi", float(t))])
        for a, v, b, t in zip(x, answer.value, lo, hi, strict=True)
    ]


def _prediction_json(p: LawPrediction, level: float) -> dict[str, Any]:
    head = {"fit": p.fit.name, "law": p.fit.fit.law.name, "at": p.at, "group": p.fit.group, "of": p.fit.of}
    rest = {"value": p.value, "lo": p.lo, "hi": p.hi, "level": level, "observed": p.observed}
    made = head | _present(rest.items()) | {"held_out": p.held_out, "basis": p.basis}
    return made if p.law is None else made | {"law_interval": _present([("lo", p.law.lo), ("hi", p.law.hi)])}


def _transfer_json(t: Transfer) -> dict[str, Any]:
    head = {"tune": t.tune, "axis": t.axis, "group": dict(t.group)} | _present([("from", t.start), ("to", t.end)])
    if t.drift is not None and t.octaves is not None:
        head |= _spread("drift", t.drift) | {"octaves": t.octaves.to_json()}
    if t.exponent is not None:
        head["exponent"] = t.exponent.to_json()
    if t.cost is not None:
        head |= _spread("cost", t.cost, "cost_")
    return head | {"why": list(t.why)}


def _spread(name: str, x: Interval, prefix: str = "") -> dict[str, Any]:
    return _present([(name, x.value), (f"{prefix}lo", x.lo), (f"{prefix}hi", x.hi)])


def _isoflop_json(b: BudgetProfiles) -> dict[str, Any]:
    against = [{"fit": name, **found.to_json()} for name, found in b.against]
    return {"group": b.group, **b.found.to_json(), "against": against}


def _comparison_json(c: Comparison) -> dict[str, Any]:
    return {
        "tune": c.tune, "axis": c.axis, "a": dict(c.a), "b": dict(c.b), "from": c.start, "to": c.end,
        "octaves_a": c.octaves_a.to_json(), "octaves_b": c.octaves_b.to_json(), "ratio": c.ratio.to_json(),
        "verdict": c.verdict,
    } | _present([("less_than_half", c.half)])  # fmt: skip
