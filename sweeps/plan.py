"""What a spec means for every cell alike: compiled expressions, places, and the order of the steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeps import grids, interpolate, paths
from sweeps.errors import SweeplawError
from sweeps.expressions import Expression, compile_equation, compile_expression
from sweeps.interpolate import Template
from sweeps.paths import Parts
from sweeps.schema import FACTS, ROLES, Derived, Solve, Spec


class CycleError(SweeplawError):
    """Values that need each other; `names` are in the circle."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        whole = " -> ".join([*names, names[0]])
        super().__init__(f"they need each other: {whole}" if len(self.names) > 1 else "it needs itself")


@dataclass(frozen=True)
class Choice:
    """One value of a factor of the product: the coordinates it gives, and what it writes where."""

    coords: tuple[tuple[str, Any], ...]
    writes: tuple[tuple[Parts, Any], ...]


@dataclass(frozen=True)
class Tied:
    """An axis that is an expression of others."""

    name: str
    expression: Expression
    place: Parts | None


@dataclass(frozen=True)
class Step:
    """One derived or solved value: its expressions, where it is written, and what must be done with it."""

    name: str
    sides: tuple[Expression, ...]  # one for a derived value, two for an equation
    place: Parts | None
    solve: Solve | None = None
    inner: tuple[Step, ...] = ()  # derived values to recompute at every probe of an equation
    touched: tuple[Parts, ...] = ()  # all places that change with this step: its own, and interpolations
    refill: tuple[Template, ...] = ()  # interpolations for which this is the last step they need

    @property
    def key(self) -> str:
        return f"{'solve' if self.solve else 'derive'}.{self.name}"

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(side.names for side in self.sides))


@dataclass(frozen=True)
class Clause:
    """One `where` condition."""

    index: int
    expression: Expression
    early: bool  # reads coordinates only


@dataclass(frozen=True)
class Plan:
    """All that expansion needs, computed once."""

    order: tuple[str, ...]  # coordinate names as they appear in a cell
    factors: tuple[tuple[Choice, ...], ...]
    tied: tuple[Tied, ...]
    template: dict[str, Any]
    early_templates: tuple[Template, ...]
    steps: tuple[Step, ...]
    recheck: tuple[Step, ...] = field(default=())
    where: tuple[Clause, ...] = ()


def factor_names(spec: Spec) -> list[list[str]]:
    """The names of each factor of the product, in order; names tied by `zip` share one."""
    group_of = {name: group for group in spec.zip for name in group}
    result: list[list[str]] = []
    for role in ROLES:
        for name, entry in getattr(spec, role).items():
            if getattr(entry, "expr", None) is not None:
                continue
            group = group_of.get(name, [name])
            if group not in result:
                result.append(group)
    return result


def single_choices(spec: Spec, name: str) -> list[Choice]:
    """The choices of one axis, comparison, tuned value or replicate. Raises GridError."""
    if name in spec.compare:
        return [Choice(((name, label),), tuple(writes)) for label, writes in grids.choices(name, spec.compare[name])]
    if name in spec.replicates:
        entry = spec.replicates[name]
        values: Sequence[Any] = entry.values
        path = entry.path
    else:
        grid = spec.axes[name] if name in spec.axes else spec.tune[name]
        values, path = grids.axis_values(grid), grid.path
    place = paths.split(path) if path else None
    return [Choice(((name, value),), ((place, value),) if place else ()) for value in values]


def written(spec: Spec) -> dict[str, set[Parts]]:
    """For every coordinate, derived and solved name: the places it may write."""
    result: dict[str, set[Parts]] = {}
    for role in ("axes", "tune", "replicates", "derive", "solve"):
        for name, entry in getattr(spec, role).items():
            result[name] = {paths.split(entry.path)} if entry.path else set()
    for name in spec.compare:
        result[name] = {place for choice in single_choices(spec, name) for place, _ in choice.writes}
    return result


def tied_axes(spec: Spec) -> list[Tied]:
    """The axes by `expr`, each after those it reads. Raises ExpressionError, CycleError."""
    found = {
        name: Tied(name, compile_expression(grid.expr), paths.split(grid.path) if grid.path else None)
        for role in ("axes", "tune")
        for name, grid in getattr(spec, role).items()
        if grid.expr is not None
    }
    needs = {
        name: {
            other.name for other in found.values() if reads(tied.expression.names, other.name, other.place, {*found})
        }
        for name, tied in found.items()
    }
    return [found[name] for name in topological(needs)]


def reads(names: Iterable[str], name: str, place: Parts | None, shadowing: set[str]) -> bool:
    """Whether an expression with `names` reads a value called `name` or written at `place`."""
    for used in names:
        if used == name:
            return True
        if used not in shadowing and place is not None and paths.overlap(paths.split(used), place):
            return True
    return False


def topological(needs: dict[str, set[str]]) -> list[str]:
    """Names so that each comes after those it needs; the first possible one first. Raises CycleError."""
    done: dict[str, None] = {}
    while len(done) < len(needs):
        ready = next((n for n in needs if n not in done and needs[n] <= done.keys()), None)
        if ready is None:
            raise CycleError(circle({n: needs[n] - done.keys() for n in needs if n not in done}))
        done[ready] = None
    return list(done)


def circle(needs: dict[str, set[str]]) -> list[str]:
    """A circle among names that each need another one."""
    walked: list[str] = []
    here = next(iter(needs))
    while here not in walked:
        walked.append(here)
        here = min(needs[here] & set(needs))
    return walked[walked.index(here) :]


def closure(needs: dict[str, set[str]], start: Iterable[str]) -> set[str]:
    """All that `start` needs, directly or not, `start` left out unless in a circle."""
    result: set[str] = set()
    waiting = [needed for name in start for needed in needs[name]]
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting.extend(needs[name])
    return result


def make_steps(spec: Spec, templates: Sequence[Template], coordinates: set[str]) -> list[Step]:
    """Derived and solved values in the order they are computed.

    A value comes after those it names or whose places it reads. Equations come before derived values that read
    facts; they recompute, at every probe, the derived values that bear on them. Raises ExpressionError,
    CycleError.
    """
    found = {name: _derived_step(name, entry, templates) for name, entry in spec.derive.items()}
    found |= {name: _solve_step(name, entry, templates) for name, entry in spec.solve.items()}
    shadowing = coordinates | set(found)
    named = {
        name: {other for other in found if other != name and _reads_step(step, found[other], shadowing)}
        for name, step in found.items()
    }
    for name, step in found.items():
        if step.solve is None and name in step.names:
            raise CycleError([name])
    needs = _relax(found, named, shadowing)
    priority = sorted(found, key=lambda n: (found[n].solve is None, found[n].place is None))
    order = topological({name: needs[name] for name in priority})
    for name, refill in _last_steps(templates, [found[name] for name in order]).items():
        found[name] = replace(found[name], refill=tuple(refill))
    return [_with_inner(found[name], order, found, named, shadowing) for name in order]


def _last_steps(templates: Sequence[Template], steps: Sequence[Step]) -> dict[str, list[Template]]:
    """Each interpolation that reads a step's value, under the last step that it needs."""
    result: dict[str, list[Template]] = {}
    for template in templates:
        needed = [step.name for step in steps if template.place in step.touched[1:]]
        if needed:
            result.setdefault(needed[-1], []).append(template)
    return result


def _derived_step(name: str, entry: Derived, templates: Sequence[Template]) -> Step:
    place = paths.split(entry.path) if entry.path else None
    return Step(name, (compile_expression(entry.expr),), place, touched=_touched(templates, place))


def _solve_step(name: str, entry: Solve, templates: Sequence[Template]) -> Step:
    place = paths.split(entry.path) if entry.path else None
    return Step(name, compile_equation(entry.equation), place, entry, touched=_touched(templates, place))


def _touched(templates: Sequence[Template], place: Parts | None) -> tuple[Parts, ...]:
    if place is None:
        return ()
    return (place, *(t.place for t in interpolate.affected(templates, [place])))


def _reads_step(step: Step, other: Step, shadowing: set[str]) -> bool:
    return other.name in step.names or any(reads(step.names, other.name, place, shadowing) for place in other.touched)


def reads_facts(step: Step, shadowing: set[str]) -> bool:
    return any(name in FACTS and name not in shadowing for name in step.names)


def _relax(found: dict[str, Step], named: dict[str, set[str]], shadowing: set[str]) -> dict[str, set[str]]:
    """What must come first: as named, but an equation doesn't wait for what is recomputed inside it."""
    needs = {name: set(others) for name, others in named.items()}
    solves = [name for name, step in found.items() if step.solve]
    for solve in solves:
        needs[solve] = {o for o in named[solve] if found[o].solve or solve not in closure(named, [o])}
    for name, step in found.items():
        if step.solve is None and reads_facts(step, shadowing):
            needs[name] |= {solve for solve in solves if name not in closure(needs, [solve])}
    return needs


def _with_inner(
    step: Step, order: list[str], found: dict[str, Step], named: dict[str, set[str]], shadowing: set[str]
) -> Step:
    if step.solve is None:
        return step
    earlier = set(order[: order.index(step.name)])
    facts = reads_facts(step, shadowing)
    relevant = {name for name in named[step.name] if found[name].solve is None} | {
        name for name, other in found.items() if facts and other.solve is None and other.place is not None
    }
    wanted = relevant | {name for name in closure(named, relevant) if found[name].solve is None}
    open_solves = {name for name, other in found.items() if other.solve} - earlier - {step.name}
    inner = [found[name] for name in order if name in wanted and not closure(named, [name]) & open_solves]
    known = earlier | {other.name for other in inner}
    if unknown := [name for name in named[step.name] if name not in known]:
        raise CycleError([step.name, unknown[0]])
    return replace(step, inner=tuple(inner))


def live_templates(spec: Spec) -> list[Template]:
    """The interpolations of `base` that no axis or derived value replaces, each after those it reads.

    Those that only a label of a comparison replaces stay. Raises InterpolationError.
    """
    replaced = {
        place
        for name, places in written(spec).items()
        if not (name in spec.compare and isinstance(spec.compare[name].values, dict))
        for place in places
    }
    found = [t for t in interpolate.templates(spec.base) if t.place not in replaced]
    return interpolate.ordered(found)


def make_plan(spec: Spec) -> Plan:
    """The plan of a checked spec."""
    groups = factor_names(spec)
    factors = []
    for group in groups:
        columns = [single_choices(spec, name) for name in group]
        factors.append(
            tuple(
                Choice(
                    tuple(pair for choice in row for pair in choice.coords),
                    tuple(write for choice in row for write in choice.writes),
                )
                for row in zip(*columns, strict=True)
            )
        )
    tied = tied_axes(spec)
    order = tuple(name for role in ROLES for name in getattr(spec, role))
    all_templates = live_templates(spec)
    early, _ = _by_cell(spec, all_templates)
    steps = make_steps(spec, all_templates, set(order))
    clauses = [compile_expression(text) for text in spec.where]
    return Plan(
        order=order,
        factors=tuple(factors),
        tied=tuple(tied),
        template=make_template(spec),
        early_templates=tuple(early),
        steps=tuple(steps),
        recheck=tuple(_to_recheck(steps, set(order))),
        where=tuple(
            Clause(index, expression, expression.names <= set(order)) for index, expression in enumerate(clauses)
        ),
    )


def _by_cell(spec: Spec, templates: Sequence[Template]) -> tuple[list[Template], list[Template]]:
    """The interpolations to fill in every cell: with the coordinates, and after derived values."""
    places = written(spec)
    coordinates = {place for role in ROLES for name in getattr(spec, role) for place in places[name]}
    derived = {place for name in (*spec.derive, *spec.solve) for place in places[name]}
    late = interpolate.affected(templates, derived)
    moved = interpolate.affected(templates, coordinates)
    early = [t for t in templates if t not in late and (t in moved or t.place in coordinates)]
    return early, late


def make_template(spec: Spec) -> dict[str, Any]:
    """`base` with the interpolations that no cell changes filled, and those that cells fill taken out.

    Raises InterpolationError for one that grows too large.
    """
    templates = live_templates(spec)
    early, late = _by_cell(spec, templates)
    dynamic = [*early, *late]
    config: dict[str, Any] = _copy(spec.base)
    for template in templates:
        if template not in dynamic:
            template.fill(config)
    for template in dynamic:
        parent = paths.read(config, template.place[:-1])
        if isinstance(parent, dict):
            del parent[template.place[-1]]
        else:
            parent[int(template.place[-1])] = None
    for role in ROLES:
        for name in getattr(spec, role):
            if name not in spec.compare:
                for place in written(spec)[name]:
                    paths.write(config, place, None)
    return config


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _to_recheck(steps: Sequence[Step], coordinates: set[str]) -> list[Step]:
    """Steps that read facts, or places, that a later step may have changed."""
    shadowing = coordinates | {step.name for step in steps}
    result = []
    for index, step in enumerate(steps):
        later = [other for other in steps[index + 1 :] if other.place is not None]
        facts = reads_facts(step, shadowing)
        if any(facts or _reads_step(step, other, shadowing) for other in later):
            result.append(step)
    return result
