"""A spec to cells: the template is read once and filled for every combination of values.

Order within a cell: axes (listed, then by expression), compare, tune, replicates; interpolations; derived and
solved quantities in the order of their dependence; conditions.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sweeps import interpolate, paths
from sweeps.errors import ExpressionError, Impossible, NoValue, shown
from sweeps.expressions import Expression, compile_equation, compile_expression
from sweeps.grid import grid_values
from sweeps.interpolate import Template
from sweeps.load import LoadedSpec
from sweeps.paths import Parts
from sweeps.places import derived_place, grid_place, settings
from sweeps.schema import FACTS, Scalar, Solve, Spec
from sweeps.solve import NoSolution, solve

Facts = Callable[[dict[str, Any]], Mapping[str, float | None]]


@dataclass(frozen=True)
class Cell:
    """One point of a sweep: its coordinates by name, what was derived, and the filled configuration."""

    coords: dict[str, Scalar]
    derived: dict[str, Scalar]
    config: dict[str, Any]


@dataclass(frozen=True)
class Infeasible:
    """A point that will not run, and why."""

    coords: dict[str, Scalar]
    reason: str


@dataclass(frozen=True)
class Expansion:
    cells: list[Cell]
    infeasible: list[Infeasible]


def expand(loaded: LoadedSpec, facts: Facts | None = None) -> Expansion:
    """All cells of a spec. `facts` tells what a configuration is, for expressions that ask; its ValueErrors are
    reasons why a cell is infeasible.

    Raises SpecError when an expression makes no sense, or asks for facts that nobody tells.
    """
    return _Expander(loaded, facts).run()


@dataclass(frozen=True)
class _Factor:
    """One factor of the product: names, and for each choice their values and what it writes."""

    names: tuple[str, ...]
    choices: Sequence[tuple[tuple[Scalar, ...], Sequence[tuple[Parts, Any]]]]


@dataclass(frozen=True)
class _Step:
    """Something computed in every cell: an axis by expression, a derived or a solved quantity."""

    name: str
    key: str  # of the spec, for errors
    place: Parts | None
    reads: frozenset[str]
    value: Callable[[_Names], Scalar]
    refill: list[Template]  # interpolations that read `place`


class _Expander:
    def __init__(self, loaded: LoadedSpec, facts: Facts | None) -> None:
        self.loaded, self.spec, self.facts = loaded, loaded.spec, facts
        self.templates = interpolate.ordered(interpolate.templates(self.spec.base))
        self.factors = [*_grid_factors(self.spec), *_compare_factors(self.spec), *_replicate_factors(self.spec)]
        self.ties = self._ordered([self._tie(s, n) for s in ("axes", "tune") for n in getattr(self.spec, s)])
        self.steps = self._ordered(
            [self._derive(n) for n in self.spec.derive] + [self._solve(n) for n in self.spec.solve]
        )
        self.conditions = [(text, compile_expression(text)) for text in self.spec.where]
        self.base = marshal.dumps(self.spec.base)
        self.names = [name for factor in self.factors for name in factor.names]
        self.order = [*self.spec.axes, *self.spec.compare, *self.spec.tune, *self.spec.replicates]
        if facts is None:
            self._needs_no_facts()

    def _needs_no_facts(self) -> None:
        own = {*self.order, *self.spec.derive, *self.spec.solve}
        readers = [(step.key, step.reads) for step in self.steps]
        readers += [(f"where.{i}", condition.names) for i, (_, condition) in enumerate(self.conditions)]
        for key, reads in readers:
            for name in sorted(reads & set(FACTS) - own):
                raise self.loaded.error(
                    key,
                    f"`{name}` is not known: {self.spec.task.partition(':')[0]} has no estimate(config) that tells it",
                )

    # -- what is computed in a cell -----------------------------------------------------------------

    def _tie(self, section: str, name: str) -> _Step | None:
        grid = getattr(self.spec, section)[name]
        if grid.expr is None:
            return None
        return self._step(name, f"{section}.{name}.expr", grid_place(name, grid), compile_expression(grid.expr))

    def _derive(self, name: str) -> _Step:
        derived = self.spec.derive[name]
        return self._step(
            name, f"derive.{name}", derived_place(self.spec, name, derived), compile_expression(derived.expr)
        )

    def _step(self, name: str, key: str, place: Parts | None, expression: Expression) -> _Step:
        return _Step(name, key, place, expression.names, _value_of(expression), self._refill(place))

    def _solve(self, name: str) -> _Step:
        wanted = self.spec.solve[name]
        place = paths.split(wanted.path or name)
        left, right = compile_equation(wanted.equation)
        refill = self._refill(place)

        def value(names: _Names) -> Scalar:
            def sides(x: float) -> tuple[float, float]:
                names.put(name, x, place, refill)
                return left.number(names), right.number(names)

            return _solved(name, wanted, sides)

        return _Step(name, f"solve.{name}", place, (left.names | right.names) - {name}, value, refill)

    def _refill(self, place: Parts | None) -> list[Template]:
        return interpolate.affected(self.templates, [place]) if place else []

    def _ordered(self, steps: Sequence[_Step | None]) -> list[_Step]:
        """Each step after those it reads, otherwise as written."""
        waiting = [step for step in steps if step is not None]
        names = {step.name: step for step in waiting}
        done: list[_Step] = []
        while waiting:
            left = {step.name for step in waiting}
            ready = next((s for s in waiting if not (s.reads - {s.name}) & left), None)
            if ready is None:
                first = waiting[0]
                others = ", ".join(sorted(f"`{n}`" for n in first.reads & set(names)))
                raise self.loaded.error(
                    first.key, f"`{first.name}` and {others} are computed from each other, in a circle"
                )
            waiting.remove(ready)
            done.append(ready)
        return done

    # -- filling ----------------------------------------------------------------------------------------

    def run(self) -> Expansion:
        cells: list[Cell] = []
        infeasible: list[Infeasible] = []
        for chosen in product(*(factor.choices for factor in self.factors)):
            values = dict(zip(self.names, (v for choice in chosen for v in choice[0]), strict=True))
            names = _Names(values, marshal.loads(self.base), self.facts)
            for _, writes in chosen:
                for place, value in writes:
                    paths.write(names.config, place, value)
            reason = self._fill(names)
            coords = {name: names.given.get(name) for name in self.order}
            if reason is None:
                derived = {step.name: names.given[step.name] for step in self.steps}
                cells.append(Cell(coords, derived, names.config))
            else:
                infeasible.append(Infeasible(coords, reason))
        return Expansion(cells, infeasible)

    def _fill(self, names: _Names) -> str | None:
        """Compute what a cell computes; the reason when it is infeasible."""
        for template in self.templates:
            template.fill(names.config)
        for step in (*self.ties, *self.steps):
            try:
                value = step.value(names)
            except (NoValue, NoSolution) as error:
                return f"{step.name}: {error}" if not isinstance(error, Impossible) else str(error)
            except ExpressionError as error:
                raise self.loaded.error(step.key, str(error)) from None
            names.put(step.name, value, step.place, step.refill)
        return self._cut(names)

    def _cut(self, names: _Names) -> str | None:
        for index, (text, condition) in enumerate(self.conditions):
            try:
                if not condition.truth(names):
                    return f"cut by where: {shown(text)}"
            except Impossible as error:
                return str(error)
            except NoValue as error:
                return f"where: {error}"
            except ExpressionError as error:
                raise self.loaded.error(f"where.{index}", str(error)) from None
        return None


class _Names(Mapping[str, Any]):
    """What expressions read in one cell: values by name, facts of the configuration, and its places."""

    __slots__ = ("_facts", "_known", "config", "given")

    def __init__(self, values: dict[str, Scalar], config: dict[str, Any], facts: Facts | None) -> None:
        self.given, self.config, self._facts = values, config, facts
        self._known: Mapping[str, float | None] | None = None

    def put(self, name: str, value: Scalar, place: Parts | None, refill: list[Template]) -> None:
        self.given[name] = value
        if place is None:
            return
        paths.write(self.config, place, value)
        for template in refill:
            template.fill(self.config)
        self._known = None

    def __getitem__(self, name: str) -> Any:
        try:
            return self.given[name]
        except KeyError:
            pass
        return self._fact(name) if name in FACTS and self._facts else paths.read(self.config, paths.split(name))

    def _fact(self, name: str) -> float:
        if self._known is None:
            assert self._facts is not None
            try:
                self._known = self._facts(self.config)
            except ValueError as error:
                raise Impossible(str(error)) from None
        value = self._known.get(name)
        if value is None:
            raise NoValue(f"the task can't tell `{name}` of this configuration")
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)


def _value_of(expression: Expression) -> Callable[[_Names], Scalar]:
    def value(names: _Names) -> Scalar:
        return expression.number(names)

    return value


def _solved(name: str, wanted: Solve, sides: Callable[[float], tuple[float, float]]) -> Scalar:
    return solve(
        name,
        wanted.equation,
        sides,
        low=wanted.low,
        high=wanted.high,
        multiple=wanted.multiple if wanted.integer else None,
        tolerance=wanted.tolerance,
    )


# -- factors of the product ------------------------------------------------------------------------------


def _grid_factors(spec: Spec) -> Iterator[_Factor]:
    grids = {**spec.axes, **spec.tune}
    group_of = {name: tuple(group) for group in spec.zip for name in group}
    made: set[tuple[str, ...]] = set()
    for name, grid in grids.items():
        group = group_of.get(name, (name,))
        if grid.expr is not None or group in made:
            continue
        made.add(group)
        columns = [grid_values(grids[n]) for n in group]
        places = [grid_place(n, grids[n]) for n in group]
        yield _Factor(
            group,
            [
                (row, [(place, value) for place, value in zip(places, row, strict=True) if place])
                for row in zip(*columns, strict=True)
            ],
        )


def _compare_factors(spec: Spec) -> Iterator[_Factor]:
    for name, alternatives in spec.compare.items():
        if isinstance(alternatives.values, dict):
            choices = [((label,), settings(bundle)) for label, bundle in alternatives.values.items()]
        else:
            place = paths.split(alternatives.path or name)
            choices = [((value,), [(place, value)]) for value in alternatives.values]
        yield _Factor((name,), choices)


def _replicate_factors(spec: Spec) -> Iterator[_Factor]:
    for name, replicates in spec.replicates.items():
        place = grid_place(name, replicates)
        writes = [(place,)] if place else []
        yield _Factor((name,), [((v,), [(p[0], v) for p in writes]) for v in replicates.values])
