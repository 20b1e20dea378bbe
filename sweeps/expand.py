"""From a spec to its cells: each a full configuration of its own, with the coordinates that led to it.

The template is resolved once; a cell is a copy of it, filled. The order is: axes, axes by `expr`,
interpolations, solved and derived values in the order they need each other, `where`.
"""

from __future__ import annotations

import itertools
import marshal
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps import paths
from sweeps import solve as solving
from sweeps.errors import ExpressionError, Impossible, NoValue, SweeplawError, shown
from sweeps.interpolate import InterpolationError, Template
from sweeps.load import LoadedSpec
from sweeps.paths import Parts
from sweeps.plan import Choice, Plan, Step, make_plan
from sweeps.schema import FACTS, Scalar

# config -> {n_params, flops, tokens, bytes} as far as known; ValueError(text) for an impossible configuration.
# It must not change the configuration.
Facts = Callable[[dict[str, Any]], Mapping[str, float | None]]


@dataclass(frozen=True)
class Cell:
    """One configuration to run.

    `coords` has an entry for each axis, comparison, tuned value and replicate (the label, for named
    settings), `derived` one for each derived and solved value. `facts` is what the task says of the
    configuration, empty if it wasn't asked. Nothing in `config` is shared with another cell.
    """

    coords: dict[str, Scalar]
    derived: dict[str, Scalar]
    config: dict[str, Any]
    facts: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Infeasible:
    """A cell that can't be, or that `where` cut, and why."""

    coords: dict[str, Scalar]
    reason: str


@dataclass(frozen=True)
class Expansion:
    """All cells of a spec, in the order of the product (the last axis changes fastest)."""

    cells: list[Cell]
    infeasible: list[Infeasible]


def expand(loaded: LoadedSpec, facts: Facts | None = None) -> Expansion:
    """The cells of a spec. `facts` is asked when an expression needs it, and once for each final cell.

    A cell is infeasible if `facts` raises ValueError, an equation has no solution, an expression no value,
    or a `where` condition is false. Raises SpecError for mistakes that are not a matter of one cell: an
    expression of the wrong kind, or one that needs facts when there are none.
    """
    filler = _Filler(loaded, make_plan(loaded.spec), facts)
    result = Expansion([], [])
    for combination in itertools.product(*filler.plan.factors):
        try:
            outcome = filler.fill(combination)
        except _TaskError as error:
            raise loaded.error("task", str(error)) from error.__cause__
        if isinstance(outcome, Cell):
            result.cells.append(outcome)
        else:
            result.infeasible.append(outcome)
    return result


class _Scope(dict[str, Any]):
    """The names an expression sees: coordinates and derived values, then the configuration, then facts."""

    __slots__ = ("_facts", "config", "known", "replaced")

    def __init__(self, facts: Facts | None, config: dict[str, Any]) -> None:
        super().__init__()
        self._facts = facts
        self.config = config
        self.known: Mapping[str, float | None] | None = None
        self.replaced: set[Parts] = set()  # places where no interpolation is to be filled

    def write(self, place: Parts, value: Any) -> None:
        paths.write(self.config, place, value)
        self.known = None

    def facts(self) -> Mapping[str, float | None]:
        if self.known is None:
            self.known = self._ask()
        return self.known

    def _ask(self) -> Mapping[str, float | None]:
        if self._facts is None:
            return {}
        try:
            return self._facts(self.config)
        except ValueError as error:
            raise Impossible(str(error)) from None
        except OverflowError:
            raise Impossible("the configuration is too large to count") from None
        except SweeplawError:
            raise
        except Exception as error:
            raise _TaskError(f"the task's estimate failed with {type(error).__name__}: {error}") from error

    def __missing__(self, name: str) -> Any:
        try:
            value = paths.read(self.config, paths.split(name))
        except KeyError:
            return self._fact(name)
        if isinstance(value, dict | list):
            raise ExpressionError(f"`{name}` is not a single value")
        return value

    def _fact(self, name: str) -> float:
        if name not in FACTS:
            raise NoValue(f"`{name}` has no value in this cell")
        if self._facts is None:
            raise ExpressionError(f"`{name}` is not known: the task has no estimate(config)")
        value = self.facts().get(name)
        if value is None:
            raise NoValue(f"the task does not know `{name}` of this configuration")
        return value


class _TaskError(SweeplawError):
    """The task's own code failed."""


class _Cut(Exception):
    """This cell is infeasible."""


class _Filler:
    """Makes cells from combinations of choices."""

    def __init__(self, loaded: LoadedSpec, plan: Plan, facts: Facts | None) -> None:
        self.loaded = loaded
        self.plan = plan
        self.facts = facts
        # Unmarshalling is the fastest deep copy of plain data; version 2 shares no containers.
        self.blob = marshal.dumps(plan.template, 2)
        self.order = dict.fromkeys(plan.order)
        # Settings of a comparison that replace an interpolation, or a section it stands in.
        templates = [*plan.early_templates, *(t for step in plan.steps for t in step.refill)]
        prefixes = {t.place[:depth] for t in templates for depth in range(1, len(t.place) + 1)}
        written = {place for factor in plan.factors for choice in factor for place, _ in choice.writes}
        self.replacing = prefixes & written

    def fill(self, combination: tuple[Choice, ...]) -> Cell | Infeasible:
        coords: dict[str, Any] = dict(self.order)
        scope = _Scope(self.facts, marshal.loads(self.blob))
        derived: dict[str, Any] = {}
        try:
            self.coordinates(combination, coords, scope)
            self.conditions(scope, early=True)
            self.interpolations(combination, scope)
            for step in self.plan.steps:
                derived[step.name] = self.step(step, scope)
            for step in self.plan.recheck:
                self.recheck(step, scope, derived[step.name])
            self.conditions(scope, early=False)
            known = scope.facts() if self.facts is not None else {}
        except (_Cut, Impossible) as error:
            return Infeasible({name: v for name, v in coords.items() if v is not None or name in scope}, str(error))
        return Cell(coords, derived, scope.config, known)

    def coordinates(self, combination: tuple[Choice, ...], coords: dict[str, Any], scope: _Scope) -> None:
        config = scope.config
        for choice in combination:
            coords.update(choice.coords)
            for place, value in choice.writes:
                paths.write(config, place, _own(value))
        scope.update(item for choice in combination for item in choice.coords)
        for tied in self.plan.tied:
            value = self.number(tied.expression.number, scope, self.role_key(tied.name))
            coords[tied.name] = scope[tied.name] = value
            if tied.place is not None:
                scope.write(tied.place, value)

    def role_key(self, name: str) -> str:
        return f"{'axes' if name in self.loaded.spec.axes else 'tune'}.{name}.expr"

    def interpolations(self, combination: tuple[Choice, ...], scope: _Scope) -> None:
        if self.replacing:
            scope.replaced = self.replacing & {place for choice in combination for place, _ in choice.writes}
        self.refill(self.plan.early_templates, scope)

    def refill(self, templates: tuple[Template, ...], scope: _Scope) -> None:
        for template in templates:
            if any(template.place[: len(place)] == place for place in scope.replaced):
                continue
            try:
                template.fill(scope.config)
            except KeyError as error:
                key = ".".join(("base", *template.place))
                raise _Cut(f"{key}: `{error.args[0]}`, which it refers to, has no value here") from None
            except InterpolationError as error:
                raise self.loaded.error(".".join(("base", *error.place)), str(error)) from None
            scope.known = None

    def step(self, step: Step, scope: _Scope) -> Any:
        if step.solve is None:
            value = self.number(step.sides[0].number, scope, step.key)
            self.put(step, value, scope)
            return value
        value = self.solved(step, scope)
        self.put(step, value, scope)
        return value

    def put(self, step: Step, value: Any, scope: _Scope) -> None:
        scope[step.name] = value
        if step.place is not None:
            scope.write(step.place, value)
            if step.refill:
                self.refill(step.refill, scope)

    def solved(self, step: Step, scope: _Scope) -> int | float:
        entry = step.solve
        assert entry is not None
        left, right = step.sides

        def sides(value: int | float) -> tuple[int | float, int | float]:
            self.put(step, value, scope)
            for inner in step.inner:
                self.put(inner, inner.sides[0].number(scope), scope)
            return left.number(scope), right.number(scope)

        grid = solving.Grid(entry.low, entry.high, entry.integer, entry.multiple)
        return self.number(lambda _: solving.solve(sides, grid, entry.tolerance), scope, step.key)

    def number(self, compute: Callable[[Any], int | float], scope: _Scope, key: str) -> int | float:
        """A value; a cell without one is cut, a mistake in the expression is an error of the spec."""
        try:
            return compute(scope)
        except Impossible:
            raise
        except NoValue as error:
            raise _Cut(f"{key}: {error}") from None
        except ExpressionError as error:
            raise self.loaded.error(key, str(error)) from None

    def recheck(self, step: Step, scope: _Scope, value: Any) -> None:
        """Refuses a value that what came later has made wrong."""
        if step.solve is not None:
            left, right = (self.number(side.number, scope, step.key) for side in step.sides)
            right_now = solving.Probe(value, left, right).miss <= step.solve.tolerance
        else:
            again = self.number(step.sides[0].number, scope, step.key)
            right_now = math.isclose(again, value, rel_tol=1e-9)
        if not right_now:
            raise self.loaded.error(
                step.key,
                f"`{shown(step.name)}` was computed before a later value changed what it reads; let it name that "
                "value, or put it after it",
            )

    def conditions(self, scope: _Scope, *, early: bool) -> None:
        for clause in self.plan.where:
            if clause.early is not early:
                continue
            key = f"where.{clause.index}"
            try:
                holds = clause.expression.truth(scope)
            except Impossible:
                raise
            except NoValue as error:
                raise _Cut(f"where: {error}") from None
            except ExpressionError as error:
                raise self.loaded.error(key, str(error)) from None
            if not holds:
                raise _Cut(f"where: `{clause.expression.text}` is false")


def _own(value: Any) -> Any:
    """A value of this cell alone."""
    return marshal.loads(marshal.dumps(value, 2)) if isinstance(value, dict | list) else value
