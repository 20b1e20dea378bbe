"""What a spec must satisfy beyond the shape of its sections: names, places, values and expressions agree."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sweeps import grids, interpolate, paths, plan, table_checks
from sweeps.errors import ExpressionError, SweeplawError, described, listed, nearest, shown
from sweeps.expressions import FUNCTIONS, compile_equation, compile_expression
from sweeps.grids import GridError
from sweeps.interpolate import InterpolationError
from sweeps.paths import Parts
from sweeps.plan import CycleError
from sweeps.schema import CONSTANTS, FACTS, ROLES, LawSpec, Spec
from sweeps.source import KeyPath

MAX_CELLS = 200_000
MAX_NAMES = 200
MAX_CLAUSES = 100
MAX_LEVELS = 32  # of a path
MAX_PREDICTIONS = 10_000
NAMED = (*ROLES, "derive", "solve")
# Columns of a table of results that are not the spec's to name.
RESERVED = ("run", "status", "attempt", "seconds", "true", "false", "null")

Problem = tuple[KeyPath, str]


def interpolation_problems(data: Any) -> Iterator[Problem]:
    """Texts with `${…}` that can't be read or stand outside base. On raw data, before anything else sees it."""
    for place, value in paths.leaves(data):
        if not isinstance(value, str) or not interpolate.interpolated(value):
            continue
        inside = place[1:] if place[:1] == ("base",) else place
        try:
            template = interpolate.parse(value, inside)
        except InterpolationError as error:
            yield _source_path(place), str(error)
            continue
        if place[:1] != ("base",) and template.references:
            yield (
                _source_path(place),
                "`${…}` is available in base only; elsewhere use an expression (expr, derive, where)",
            )


def _source_path(place: Parts) -> KeyPath:
    return tuple(int(part) if part.isdecimal() else part for part in place)


def problems(spec: Spec) -> list[Problem]:
    """All that is wrong in a spec whose shape is right; each with the path of what is wrong.

    Stages build on each other: a later one runs only if the earlier ones found nothing.
    """
    for stage in (_source,), *(_OF_TABLE if spec.results is not None else _OF_TASK):
        found = [problem for check in stage for problem in check(spec)]
        if found:
            return found
    return []


def _source(spec: Spec) -> Iterator[Problem]:
    if spec.task is None and spec.results is None:
        yield (
            ("task",),
            "missing: what to run, as module:function, such as models.lm:train; or `results`, a table that exists",
        )
    if spec.task is not None and spec.results is not None:
        yield ("results",), "a spec has a `task` that is run or a table of `results`, not both"


# names


def _names(spec: Spec) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for section in NAMED:
        for name in getattr(spec, section):
            if name in first:
                yield (section, name), f"the name `{name}` is taken by `{first[name]}.{name}`"
            first.setdefault(name, section)
            if name in RESERVED or keyword.iskeyword(name) or name in FUNCTIONS:
                yield (section, name), f"the name `{name}` is reserved; choose another one, and give its `path`"
            if spec.fit is not None and name == spec.fit.of:
                yield (section, name), f"the name `{name}` is that of the metric `fit.of`"
    if len(first) > MAX_NAMES:
        yield ("axes",), f"{len(first)} names of axes and derived values; at most {MAX_NAMES} are allowed"
    if len(spec.where) > MAX_CLAUSES:
        yield ("where",), f"{len(spec.where)} conditions; at most {MAX_CLAUSES} are allowed"


def _base_keys(spec: Spec) -> Iterator[Problem]:
    def walk(node: Any, here: KeyPath) -> Iterator[Problem]:
        if isinstance(node, dict):
            for key, value in node.items():
                if not key or "." in key:
                    nested = ": {".join(key.split(".")) + ": …" + "}" * key.count(".")
                    yield (*here, key), f"a key without dots was expected; write `{shown(nested)}`"
                yield from walk(value, (*here, key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, (*here, index))

    yield from walk(spec.base, ("base",))


# values of axes


def _grids(spec: Spec) -> Iterator[Problem]:
    for section in ("axes", "tune"):
        for name, grid in getattr(spec, section).items():
            try:
                grids.axis_values(grid)
            except GridError as error:
                yield (section, name, *error.part), str(error)
    for name, alternatives in spec.compare.items():
        yield from _compare(name, alternatives)
    for name, replicates in spec.replicates.items():
        try:
            if not replicates.values:
                raise GridError("no replicates: expected a count of at least 1, or a list of integers", ("values",))
            if len(replicates.values) > grids.MAX_VALUES:
                raise GridError(f"{len(replicates.values)} values; at most {grids.MAX_VALUES} are allowed")
            grids.refuse_repeats(list(replicates.values))
        except GridError as error:
            yield ("replicates", name, *error.part), str(error)


def _compare(name: str, alternatives: Any) -> Iterator[Problem]:
    here: KeyPath = ("compare", name)
    try:
        choices = grids.choices(name, alternatives)
    except GridError as error:
        yield (*here, *error.part), str(error)
        return
    if not isinstance(alternatives.values, dict):
        return
    if alternatives.path is not None and "path" in alternatives.model_fields_set:
        yield (*here, "path"), "named settings have their own paths, so `path` has no meaning here"
    for label, writes in choices:
        at: KeyPath = (*here, "values", label)
        if not writes:
            yield at, f"`{label}` sets nothing"
        taken = paths.Taken()
        for place, _ in writes:
            whole = ".".join(place)
            if len(place) > MAX_LEVELS:
                continue  # told with the places
            if not all(part.isidentifier() or part.isdecimal() for part in place):
                yield at, f"`{shown(whole)}` is not a dotted path such as model.width"
            if taken.find(place) is not None:
                yield at, f"`{label}` sets `{shown(whole)}` twice"
            taken.add(place, label)


# places


def _places(spec: Spec) -> Iterator[Problem]:
    taken = paths.Taken()
    written = plan.written(spec)
    for section in NAMED:
        for name in getattr(spec, section):
            at = _path_key(section, name)
            for place in sorted(written[name]):
                if len(place) > MAX_LEVELS:
                    yield at, f"`{shown('.'.join(place))}` has more than {MAX_LEVELS} levels"
                    continue
                yield from _blocked(spec, section, name, place)
                if (other := taken.find(place)) is not None:
                    also = "" if other[0] == place else f" (as `{'.'.join(other[0])}`)"
                    yield at, f"sets `{'.'.join(place)}`, which `{other[1]}` sets too{also}"
            for place in written[name]:
                if len(place) <= MAX_LEVELS:
                    taken.add(place, f"{section}.{name}")


def _path_key(section: str, name: str) -> KeyPath:
    return (section, name, "values") if section == "compare" else (section, name, "path")


def _blocked(spec: Spec, section: str, name: str, place: Parts) -> Iterator[Problem]:
    blocked = paths.blocked(spec.base, place)
    if blocked is None:
        return
    where, value = blocked
    whole = ".".join(place)
    if where == whole and section == "compare" and isinstance(spec.compare[name].values, dict):
        return  # named settings may replace a whole section or list
    if isinstance(value, dict):
        inside = listed([f"{where}.{key}" for key in value], 5)
        text = f"`{whole}` is a mapping in base; set a value inside it, such as {inside}"
        if whole == name:
            text += " (give the `path`)"
    elif isinstance(value, list) and where == whole:
        text = f"`{whole}` is a list in base; set an item, such as {whole}.0"
    elif isinstance(value, list):
        text = f"`{whole}` leads into `{where}`, a list of {len(value)} in base, and needs an index below that"
    else:
        text = f"`{whole}` leads through `{where}`, which is {described(value)} in base, not a mapping"
    yield _path_key(section, name), text


def _zip(spec: Spec) -> Iterator[Problem]:
    known = [name for role in ROLES for name in getattr(spec, role)]
    seen: set[str] = set()
    for index, group in enumerate(spec.zip):
        lengths: dict[str, int] = {}
        if len(group) < 2:
            yield ("zip", index), "expected at least two names to tie"
        for item, name in enumerate(group):
            at: KeyPath = ("zip", index, item)
            if name not in known:
                yield at, f"there is no axis `{name}`{nearest(name, known) or '; there are ' + listed(known)}"
            elif name in seen:
                yield at, f"`{name}` is tied twice"
            elif getattr(_entry(spec, name), "expr", None) is not None:
                yield at, f"`{name}` is given by an expression, so it is tied already"
            else:
                lengths[name] = len(plan.single_choices(spec, name))
            seen.add(name)
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"`{name}` has {count}" for name, count in lengths.items())
            yield ("zip", index), f"tied axes need equally many values: {said}"


def _entry(spec: Spec, name: str) -> Any:
    return next(getattr(spec, role)[name] for role in ROLES if name in getattr(spec, role))


def _total(spec: Spec) -> Iterator[Problem]:
    names = {name for role in ROLES for name in getattr(spec, role)}
    groups = [[n for n in group if n in names] for group in plan.factor_names(spec)]
    counts = {group[0]: len(plan.single_choices(spec, group[0])) for group in groups if group}
    total = math.prod(counts.values())
    if total > MAX_CELLS:
        factors = shown(" x ".join(f"{count} {name}" for name, count in counts.items()), 80)
        role = next(role for role in ROLES if getattr(spec, role))
        yield (role,), f"{factors} are {shown(total, 15)} cells; at most {MAX_CELLS} are allowed"


# interpolations and expressions


def _interpolations(spec: Spec) -> Iterator[Problem]:
    try:
        order = plan.live_templates(spec)
        known = _config_places(spec)
        broken = {t.place: text for t in order if (text := interpolate.missing(t, known, order)) is not None}
        yield from ((("base", *_source_path(place)), text) for place, text in broken.items())
        if not broken:
            plan.make_template(spec)
    except InterpolationError as error:
        yield ("base", *_source_path(error.place)), str(error)


def _config_places(spec: Spec) -> list[Parts]:
    """The places of single values, in base or set by an axis or a derived value."""
    found = [place for place, value in paths.leaves(spec.base) if not isinstance(value, list)]
    return found + [place for places in plan.written(spec).values() for place in places]


class _Known:
    """The names an expression may use, by kind."""

    def __init__(self, spec: Spec) -> None:
        self.coordinates = [name for role in ROLES for name in getattr(spec, role)]
        self.derived = [*spec.derive, *spec.solve]
        self.config = {".".join(place) for place in _config_places(spec)}
        self.sections = {".".join(place[:depth]) for place in _config_places(spec) for depth in range(1, len(place))}
        self.opened = [".".join(template.place) for template in plan.live_templates(spec)]

    def problems(self, text: str, names: Iterable[str], allowed: Iterable[str]) -> Iterator[str]:
        allowed = [*allowed]
        for name in sorted(set(names) - set(allowed) - self.config):
            if any(name.startswith(f"{place}.") for place in self.opened):
                continue
            if name in self.sections:
                inside = listed(sorted(n for n in self.config if n.startswith(f"{name}.")), 5)
                yield f"`{shown(text)}`: `{name}` is a mapping; name a value inside it: {inside}"
            elif name in self.derived or name in FACTS:
                yield f"`{shown(text)}`: an axis can't depend on `{name}`, which follows from the axes; use `derive`"
            else:
                hint = (
                    nearest(name, [*allowed, *self.config])
                    or f"; known are {listed(dict.fromkeys([*allowed, *sorted(self.config)]))}"
                )
                yield f"`{shown(text)}`: unknown name `{name}`{hint}"


def _expressions(spec: Spec) -> Iterator[Problem]:
    known = _Known(spec)
    everything = [*known.coordinates, *known.derived, *FACTS]
    for section in ("axes", "tune"):
        for name, grid in getattr(spec, section).items():
            if grid.expr is not None:
                yield from _expression(known, (section, name, "expr"), grid.expr, known.coordinates)
    for name, derived in spec.derive.items():
        yield from _expression(known, ("derive", name, "expr"), derived.expr, everything)
    for index, text in enumerate(spec.where):
        yield from _expression(known, ("where", index), text, everything)
    for name, entry in spec.solve.items():
        at: KeyPath = ("solve", name, "equation")
        if not entry.low < entry.high:
            yield ("solve", name, "high"), f"expected more than `low` ({entry.low:g}), found {entry.high:g}"
        try:
            names = frozenset().union(*(side.names for side in compile_equation(entry.equation)))
        except ExpressionError as error:
            yield at, str(error)
        else:
            yield from ((at, text) for text in known.problems(entry.equation, names, everything))
    yield from _cycles(spec)


def _expression(known: _Known, at: KeyPath, text: str, allowed: list[str]) -> Iterator[Problem]:
    try:
        expression = compile_expression(text)
    except ExpressionError as error:
        yield at, str(error)
    else:
        yield from ((at, problem) for problem in known.problems(text, expression.names, allowed))


def _cycles(spec: Spec) -> Iterator[Problem]:
    coordinates = {name for role in ROLES for name in getattr(spec, role)}
    try:
        plan.tied_axes(spec)
        plan.make_steps(spec, plan.live_templates(spec), coordinates)
    except CycleError as error:
        section = next(s for s in NAMED if error.names[0] in getattr(spec, s))
        yield (section, error.names[0]), str(error)
    except SweeplawError:
        return  # an expression that can't be read: told already


# fit and predict


def _fit(spec: Spec) -> Iterator[Problem]:
    if spec.fit is None:
        return
    xs = [*spec.axes, *spec.derive, *spec.solve, *FACTS]
    known = _Known(spec)
    everything = [*known.coordinates, *known.derived, *FACTS]
    for index, law in enumerate(spec.fit.laws):
        at: KeyPath = ("fit", "laws", index)
        for item, name in enumerate(law.inputs):
            if name not in xs:
                place = (*at, "over") if isinstance(law.over, str) else (*at, "over", item)
                yield place, _no_axis(spec, name, xs)
        if law.where is not None:
            yield from _expression(known, (*at, "where"), law.where, everything)
        yield from _hold_out(spec, known, (*at, "hold_out"), law.hold_out)
    yield from _hold_out(spec, known, ("fit", "hold_out"), spec.fit.hold_out)
    if spec.fit.cost is not None:
        yield from _expression(known, ("fit", "cost"), spec.fit.cost, everything)
    if (cluster := spec.fit.cluster) is not None and cluster not in everything:
        hint = nearest(cluster, everything) or f"; there are {listed(everything)}"
        yield ("fit", "cluster"), f"there is no axis, comparison or derived value `{cluster}`{hint}"


def _laws(spec: Spec) -> Iterator[Problem]:
    """What must hold of the laws of any spec."""
    if spec.fit is None:
        return
    yield from _target(spec, ("fit", "of"), spec.fit.of)
    for index, law in enumerate(spec.fit.laws):
        at: KeyPath = ("fit", "laws", index)
        yield from _target(spec, (*at, "of"), law.of)
        if not law.inputs:
            yield (*at, "over"), "an empty list: expected at least one name"
        for name in {name for name in law.inputs if law.inputs.count(name) > 1}:
            yield (*at, "over"), f"`{name}` is there twice"
        yield from ((at + place, text) for place, text in _parameters(law))


def _parameters(law: LawSpec) -> Iterator[Problem]:
    """What a law says of its parameters and objective that can't be."""
    if law.search == "start" and law.start is None:
        yield ("search",), "`start` means the neighbourhood of a `start`, such as {E: 1.7, alpha: 0.3}"
    for name, other in law.tie.items():
        if name in law.freeze:
            yield ("tie", name), f"`{name}` is frozen as well"
        if other in law.tie:
            yield ("tie", name), f"`{other}` is tied itself; tie both to a free parameter"
    for name, (low, high) in law.bounds.items():
        if not low < high:
            yield ("bounds", name), f"expected [low, high] with low < high, found [{low:g}, {high:g}]"
    if law.objective is not None and law.objective.value is not None and law.objective.name not in CONSTANTS:
        yield ("objective",), f"`{law.objective.name}` has no constant; {listed(CONSTANTS)} have one"


def _hold_out(spec: Spec, known: _Known, at: KeyPath, rule: dict[str, Any] | str | None) -> Iterator[Problem]:
    if isinstance(rule, str):
        yield from _expression(known, at, rule, [*known.coordinates, *known.derived, *FACTS])
    elif rule is not None:
        yield from _held_out(spec, at, rule)


def _no_axis(spec: Spec, name: str, xs: list[str]) -> str:
    for role, what in (
        ("compare", "a comparison"),
        ("tune", "tuned"),
        ("replicates", "a replicate"),
    ):
        if name in getattr(spec, role):
            return f"`{name}` is {what}; a law runs over an axis, a derived value or a fact: {listed(xs)}"
    return f"there is no axis, derived value or fact `{name}`{nearest(name, xs) or '; there are ' + listed(xs)}"


def _target(spec: Spec, at: KeyPath, of: str | None) -> Iterator[Problem]:
    if of is None or "." not in of:
        return
    name, _, what = of.rpartition(".")
    if name in spec.tune and what != "optimum":
        yield at, f"`{of}`: expected `{name}.optimum`"
    elif what == "optimum" and name not in spec.tune:
        hint = nearest(name, spec.tune) or (f"; there are {listed(spec.tune)}" if spec.tune else "; tune is empty")
        yield at, f"`{of}`: there is no tuned `{name}`{hint}"


def _held_out(spec: Spec, key: KeyPath, held: dict[str, Any]) -> Iterator[Problem]:
    names = [*spec.axes, *spec.compare, *spec.replicates, *spec.derive, *spec.solve]
    if not held:
        yield key, "expected an axis and its value, such as {width: 512}"
    for name, value in held.items():
        at: KeyPath = (*key, name)
        if name not in names:
            yield at, f"there is no axis `{name}`{nearest(name, names) or '; there are ' + listed(names)}"
            continue
        values = value if isinstance(value, list) else [value]
        if not values:
            yield at, "an empty list holds nothing out"
        existing = _values_of(spec, name)
        there = _keys(existing or [])
        for index, wanted in enumerate(values):
            if existing is not None and not _keys([wanted]) <= there:
                place = (*at, index) if isinstance(value, list) else at
                yield place, f"{described(wanted)} is not on the axis `{name}`, which has {_some(existing)}"


def _values_of(spec: Spec, name: str) -> list[Any] | None:
    """The values of a coordinate; None if they are only known cell by cell."""
    if name in spec.derive or name in spec.solve or getattr(_entry(spec, name), "expr", None) is not None:
        return None
    return [value for choice in plan.single_choices(spec, name) for _, value in choice.coords]


def _keys(values: list[Any]) -> set[tuple[bool, Any]]:
    """Values to compare by: 1 and 1.0 are equal, 1 and true are not; lists and mappings equal nothing."""
    return {(isinstance(value, bool), repr(value) if isinstance(value, list | dict) else value) for value in values}


def _some(values: list[Any], limit: int = 12) -> str:
    more = f" and {len(values) - limit} more" if len(values) > limit else ""
    return ", ".join(map(str, values[:limit])) + more


def _predict(spec: Spec) -> Iterator[Problem]:
    if spec.results is not None:
        names = table_checks.predictable(spec)
    else:
        names = [*spec.axes, *spec.compare, *spec.derive, *spec.solve, *FACTS]
    total = 0
    for index, entry in enumerate(spec.predict):
        if not entry:
            yield ("predict", index), "expected an axis and its value, such as {width: 4096}"
        lengths = [len(value) for value in entry.values() if isinstance(value, list)]
        total += math.prod(lengths)
        for name, value in entry.items():
            at: KeyPath = ("predict", index, name)
            if name not in names:
                yield at, f"there is no axis `{name}`{nearest(name, names) or '; there are ' + listed(names)}"
            else:
                yield from _prediction(spec, at, name, value)
    if total > MAX_PREDICTIONS:
        yield ("predict",), f"{total} predictions; at most {MAX_PREDICTIONS} are allowed"


def _prediction(spec: Spec, at: KeyPath, name: str, value: Any) -> Iterator[Problem]:
    values = value if isinstance(value, list) else [value]
    if not values:
        yield at, "an empty list"
    for index, item in enumerate(values):
        place = (*at, index) if isinstance(value, list) else at
        if name in spec.compare:
            labels = _values_of(spec, name) or []
            if spec.results is None and not _keys([item]) <= _keys(labels):
                yield place, f"{described(item)} is not among `{name}`, which has {_some(labels)}"
        elif isinstance(item, bool) or not isinstance(item, int | float):
            yield place, f"expected a number, found {described(item)}"


_OF_TASK: tuple[tuple[Callable[[Spec], Iterator[Problem]], ...], ...] = (
    (_names, _base_keys, _grids),
    (_places, _zip, _total),
    (_interpolations,),
    (_expressions, _fit, _laws, _predict),
)
_OF_TABLE: tuple[tuple[Callable[[Spec], Iterator[Problem]], ...], ...] = (
    (table_checks.shape,),
    (table_checks.expressions, _laws, _predict),
)
