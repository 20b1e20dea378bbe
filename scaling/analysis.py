"""From a sweep's results to its laws: replicates, tune, one group per comparison, law over axes, predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from scaling import reduce
from scaling.arrays import Floats
from scaling.compute import budget_profiles, count_notes
from scaling.errors import AnalysisError, nearest
from scaling.findings import (
    Analysis,
    Cell,
    LawFit,
    LawPrediction,
    Point,
    point_text,
)
from scaling.fits import Fit, Predictions
from scaling.fitting import fit_law
from scaling.intervals import Interval, generator
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.optimum import Optimum
from scaling.reduced import Asked, Reduced, Row, number
from scaling.rows import Rows
from scaling.transfer import Comparison, Transfer, compare, transfer
from sweeps.errors import SweeplawError, listed
from sweeps.expressions import compile_expression
from sweeps.schema import FitSpec, LawSpec, Spec


def analyse(spec: Spec, results: pl.DataFrame, seed: int = 0) -> Analysis:
    """Reduces, fits and predicts what `spec` asks of `results`, one row per run.

    `results` has the columns run, status, one per axis, compare, tune and replicate name, derived names and facts,
    and the metric. The same rows give the same numbers, bit for bit, in any order.

    Raises AnalysisError where a column that the spec needs is missing or holds nothing.
    """
    return _Work(spec, results, seed).run()


def _sorted(results: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    for name in ("run", "status", *names):
        if name not in results.columns:
            raise AnalysisError(
                f"results have no column {name!r}, which the spec names.{nearest(name, results.columns)}"
            )
    return results.sort([*names, "run"], nulls_last=True, maintain_order=False)


class _Work:
    def __init__(self, spec: Spec, results: pl.DataFrame, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.want = spec.fit or FitSpec()
        self.axes, self.compare, self.tune = tuple(spec.axes), tuple(spec.compare), tuple(spec.tune)
        roles = (self.axes, self.compare, self.tune, tuple(spec.replicates))
        self.asked = Asked(_sorted(results, [n for names in roles for n in names]), *roles, self.want, seed)
        self.notes: list[str] = []
        self.reduced: dict[str, Reduced] = {}

    def run(self) -> Analysis:
        main = self.of(self.want.of)
        fits, predictions = self._laws()
        transfers, comparisons = self._transfers(main)
        self._count(main)
        profiles = budget_profiles(self.want, main.runs, self.compare, fits, self.seed)
        if self.want.isoflop or any("n_params" in (*law.inputs, law.of) for law in self.want.laws):
            self.notes += count_notes(main.runs, self.compare)
        return Analysis(
            self.spec.name, self.want.of, self.want.goal, self.want.level, reduce.tally(main.runs), main.cells,
            main.points, main.optima, fits, predictions, transfers, comparisons, profiles,
            [j for _, j in main.joint], list(dict.fromkeys(self.notes)),
        )  # fmt: skip

    def of(self, metric: str) -> Reduced:
        if metric not in self.reduced:
            self.reduced[metric] = Reduced(self.asked, metric)
        return self.reduced[metric]

    def _count(self, main: Reduced) -> None:
        tally = reduce.tally(main.runs)
        left = ", ".join(f"{tally[k]} {k}" for k in ("diverged", "failed", "missing") if tally[k])
        if left:
            self.notes.insert(0, f"{tally['done']} of {len(main.runs)} runs enter; left out: {left}.")
        silent = main.runs.filter((pl.col("status") == "done") & (pl.col("outcome") == "missing"))
        if len(silent):
            self.notes.append(f"{len(silent)} finished runs have no {main.metric}.")
        if main.unstable:
            self.notes.append(
                f"{len(main.unstable)} places where some replicates diverged are left out of means: "
                f"{'; '.join(main.unstable[:3])}{'; …' if len(main.unstable) > 3 else ''}."
            )

    # laws

    def _laws(self) -> tuple[list[LawFit], list[LawPrediction]]:
        fits: list[LawFit] = []
        predictions: list[LawPrediction] = []
        for law in self.want.laws:
            groups = self._groups(law)
            if not groups:
                self.notes.append(
                    f"law {law.law} over {listed(law.inputs)}: no row has numbers for {listed(law.inputs)}."
                )
            for group, cells in groups.items():
                fit = self._fit(law, dict(group), cells)
                if fit is not None:
                    fits.append(fit[0])
                    predictions += fit[1]
        return fits, predictions

    def _groups(self, law: LawSpec) -> dict[tuple[tuple[str, Any], ...], list[Cell]]:
        """Cells with all inputs of `law`, by comparison and by the axes that are not tied to an input."""
        cells = self.of(self._metric(law)).all_cells
        known = {k for c in cells for k in c.facts}
        for over in law.inputs:
            if over not in known:
                raise AnalysisError(f"law {law.law!r} is over {over!r}, which no result has.{nearest(over, known)}")
        free = [a for a in self.axes if a not in law.inputs and not any(self._tied(a, o, cells) for o in law.inputs)]
        groups: dict[tuple[tuple[str, Any], ...], list[Cell]] = {}
        for cell in cells:
            if all(number(cell.facts.get(over)) is not None for over in law.inputs):
                key = tuple(cell.group.items()) + tuple((a, cell.at[a]) for a in free)
                groups.setdefault(key, []).append(cell)
        return groups

    def _enters(self, law: LawSpec, row: Row) -> bool:
        return law.where is None or self._holds(law.where, self._names(law, row), f"law {law.law!r}: where")

    def _names(self, law: LawSpec, row: Row) -> Point:
        """All that a condition may name of a row: its cell, and the response itself."""
        return {(law.of or self.want.of): row.y} | row.cell.names

    def _tied(self, axis: str, over: str, cells: Sequence[Cell]) -> bool:
        """Whether `axis` moves with `over`, so that it does not make groups of its own."""
        if over in self.axes:
            together = any({axis, over} <= set(names) for names in self.spec.zip)
            return together or self.spec.axes[axis].expr is not None or self._follows(over, axis)
        seen: dict[Any, Any] = {}
        return all(
            seen.setdefault((tuple(c.group.items()), c.facts.get(over)), c.at[axis]) == c.at[axis] for c in cells
        )

    def _follows(self, over: str, axis: str) -> bool:
        expr = self.spec.axes[over].expr
        return expr is not None and axis in compile_expression(expr).names

    def _metric(self, law: LawSpec) -> str:
        of = law.of or self.want.of
        return self.want.of if of.endswith(".optimum") else of

    def _fit(self, law: LawSpec, group: Point, cells: list[Cell]) -> tuple[LawFit, list[LawPrediction]] | None:
        """The fit of one group with its predictions; None where the law's condition leaves no row."""
        of = law.of or self.want.of
        reduced = self.of(self._metric(law))
        found = reduced.rows(of, law.inputs, cells)
        rows = [row for row in found if self._enters(law, row)]
        if found and not rows:
            return None
        held = [self._held_out(law, row) for row in rows]
        train = [row for row, out in zip(rows, held, strict=True) if not out]
        name = law.title(self.want.of)
        form = law_over(law.law, law.inputs, law.freeze, law.tie, law.ranges)
        data = self._rows(law, train)
        try:
            fit = fit_law(
                form, data, objective=objective_of(law), draws=self.want.bootstrap, level=self.want.level,
                seed=int(generator(self.seed, name, *group.items()).integers(2**31)), start=law.start,
                search=law.search,
            )  # fmt: skip
        except AnalysisError as error:
            fit = Fit(form, "refused", (str(error),), data, objective_of(law), level=self.want.level)
        lost = len(cells) - len(found)
        if lost:
            fit = _also(fit, f"{lost} of {len(cells)} cells have no {of} and are left out.")
        made = LawFit(name, of, law.inputs, group, fit)
        if not fit.params:
            return made, []
        scored = [self._score(made, row) for row, out in zip(rows, held, strict=True) if out]
        return made, scored + self._predict(made, reduced.run_noise(of, train))

    def _rows(self, law: LawSpec, rows: Sequence[Row]) -> Rows:
        """The rows of a fit with their clusters, costs and given standard errors."""
        made = _rows(rows, len(law.inputs))
        if law.stderr is not None:
            given = [number(self._fact(r.cell, law.stderr, "stderr")) for r in rows]
            made = replace(made, stderr=np.array([np.nan if g is None else g for g in given]), dof=math.inf)
        if law.trials is not None:
            made = replace(made, trials=np.array([number(self._fact(r.cell, law.trials, "trials")) for r in rows]))
        if law.censored is not None:
            hidden = [bool(self._fact(r.cell, law.censored, "censored")) for r in rows]
            made = replace(made, censored=np.array(hidden))
        if self.want.cluster is not None:
            labels = self.of(self._metric(law)).labels(self.want.cluster)
            seen: dict[Any, int] = {}
            made = replace(made, cluster=np.array([seen.setdefault(labels[id(r.cell)], len(seen)) for r in rows]))
        return replace(made, cost=self._costs(law, rows))

    def _costs(self, law: LawSpec, rows: Sequence[Row]) -> Floats | None:
        """What each row cost: by the spec's expression, else the flops of a law over several inputs."""
        if self.want.cost is not None:
            rule = compile_expression(self.want.cost)
            try:
                return np.array([float(rule(r.cell.facts | r.cell.at)) for r in rows])
            except SweeplawError as error:
                raise AnalysisError(f"fit.cost: {error}") from None
        flops = [number(r.cell.facts.get("flops")) for r in rows]
        known = [f for f in flops if f is not None and f > 0]
        return np.array(known) if len(law.inputs) > 1 and len(known) == len(rows) else None

    def _fact(self, cell: Cell, name: str, key: str) -> Any:
        if name not in cell.facts:
            raise AnalysisError(f"{key}: no result has {name!r}.{nearest(name, cell.facts)}")
        return cell.facts[name]

    def _held_out(self, law: LawSpec, row: Row) -> bool:
        rule = law.hold_out if law.hold_out is not None else self.want.hold_out
        if rule is None:
            return False
        names = self._names(law, row)
        if isinstance(rule, str):
            return self._holds(rule, names, "fit.hold_out")
        for name in rule:
            if name not in names:
                raise AnalysisError(f"fit.hold_out: no {name!r} among the results.{nearest(name, names)}")
        return all(_same(names[k], v) for k, v in rule.items())

    def _holds(self, rule: str, names: Point, key: str) -> bool:
        try:
            return bool(compile_expression(rule)(names))
        except SweeplawError as error:
            raise AnalysisError(f"{key}: {error}") from None

    def _score(self, fit: LawFit, row: Row) -> LawPrediction:
        answer = fit.fit.predict(np.array(row.x)[:, None], noise=row.relative)
        at = dict(row.cell.at) | {over: row.cell.facts[over] for over in fit.over}
        return _prediction(fit, {k: v for k, v in at.items() if k not in fit.group}, answer, row.y, True)

    def _predict(self, fit: LawFit, noise: float | None) -> list[LawPrediction]:
        out = []
        for point in self.spec.predict:
            if any(k in fit.group and not _same(fit.group[k], v) for k, v in point.items()):
                continue
            places = {over: self._place(over, point | fit.group) for over in fit.over}
            x = [v for v in places.values() if v is not None]
            if len(x) < len(places):
                lost = next(k for k, v in places.items() if v is None)
                self.notes.append(f"predict {point_text(point)}: {fit.name} needs {lost}, which it doesn't give.")
                continue
            answer = fit.fit.predict(np.array(x)[:, None], noise=noise)
            at = {k: v for k, v in point.items() if k not in fit.group}
            out.append(_prediction(fit, at | {k: point.get(k, v) for k, v in places.items()}, answer, None, False))
        return out

    def _place(self, over: str, point: Point) -> float | None:
        """The value of a law's axis at a point: given, or derived from what is given."""
        if over in point:
            return number(point[over])
        derived = self.spec.derive.get(over)
        expr = derived.expr if derived is not None else getattr(self.spec.axes.get(over), "expr", None)
        if expr is None:
            return None
        try:
            rule = compile_expression(expr)
            return number(rule(point)) if rule.names <= point.keys() else None
        except SweeplawError:
            return None

    # transfer

    def _transfers(self, main: Reduced) -> tuple[list[Transfer], list[Comparison]]:
        transfers: list[Transfer] = []
        comparisons: list[Comparison] = []
        for tune in self.tune:
            for axis in self.axes:
                found = self._by_group(main, tune, axis)
                transfers += [
                    transfer(
                        tune, axis, dict(key), sorted(o.items()),
                        level=self.want.level, seed=self.seed, draws=self.want.bootstrap,
                    )
                    for key, o in found.items()
                ]  # fmt: skip
                comparisons += self._comparisons(tune, axis, found)
        return transfers, comparisons

    def _by_group(self, main: Reduced, tune: str, axis: str) -> dict[tuple[tuple[str, Any], ...], dict[float, Optimum]]:
        """Optima over one numeric axis, by comparison and the axes not tied to it; groups of one scale left out."""
        free = [a for a in self.axes if a != axis and not self._tied(a, axis, main.all_cells)]
        found: dict[tuple[tuple[str, Any], ...], dict[float, Optimum]] = {}
        for item in main.optima:
            x = number(item.cell.at[axis])
            if item.tune == tune and x is not None and x > 0:
                key = tuple(item.cell.group.items()) + tuple((a, item.cell.at[a]) for a in free)
                found.setdefault(key, {})[x] = item.optimum
        return {k: v for k, v in found.items() if len(v) > 1}

    def _comparisons(
        self, tune: str, axis: str, found: Mapping[tuple[tuple[str, Any], ...], dict[float, Optimum]]
    ) -> list[Comparison]:
        out = []
        for (a, first), (b, second) in combinations(found.items(), 2):
            if [p for p in a if p[0] in self.axes] != [p for p in b if p[0] in self.axes]:
                continue
            made = compare(tune, axis, (dict(a), first), (dict(b), second), self.want.level)
            if made is not None:
                out.append(made)
        return out


def objective_of(law: LawSpec) -> Objective:
    """The objective that a spec asks for; its constant is delta, nu or the penalty."""
    asked = law.objective
    if asked is None:
        return Objective(residual=law.residual)
    made = Objective(asked.name, "logit" if asked.name == "binomial" else law.residual)
    if asked.value is None:
        return made
    if asked.name == "huber":
        return replace(made, delta=asked.value)
    return replace(made, nu=asked.value) if asked.name == "student" else replace(made, penalty=asked.value)


def _rows(rows: Sequence[Row], inputs: int) -> Rows:
    known = all(r.stderr is not None for r in rows) and bool(rows)
    stderr = np.array([r.stderr for r in rows], dtype=float) if known else None
    dof = min((r.dof for r in rows), default=0.0)
    x = np.array([r.x for r in rows], dtype=float).reshape(-1, inputs).T
    return Rows(x, np.array([r.y for r in rows], dtype=float), stderr, dof,
                tuple(r.cell.place for r in rows))  # fmt: skip


def _also(fit: Fit, sentence: str) -> Fit:
    return replace(fit, why=(*fit.why, sentence))


def _prediction(fit: LawFit, at: Point, answer: Predictions, observed: float | None, held: bool) -> LawPrediction:
    lo = None if answer.lo is None else float(answer.lo[0])
    hi = None if answer.hi is None else float(answer.hi[0])
    value, law = float(answer.value[0]), None
    if answer.law_lo is not None and answer.law_hi is not None:
        law = Interval(value, float(answer.law_lo[0]), float(answer.law_hi[0]))
    return LawPrediction(fit, at, value, lo, hi, answer.basis, observed, held, law)


def _same(a: Any, b: Any) -> bool:
    """Whether a coordinate is the value, or among the values, that a spec names."""
    if isinstance(b, list | tuple):
        return any(_same(a, part) for part in b)
    one, other = number(a), number(b)
    return bool(a == b) if one is None or other is None else math.isclose(one, other, rel_tol=1e-9)
