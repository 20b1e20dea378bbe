"""What a spec must satisfy beyond its shape: names that exist, axes with values, places that don't collide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from sweeps import interpolate, paths
from sweeps.errors import ExpressionError, listed, nearest, shown
from sweeps.expressions import FUNCTIONS, compile_equation, compile_expression
from sweeps.grid import MAX_VALUES, grid_values
from sweeps.interpolate import InterpolationError
from sweeps.paths import Parts
from sweeps.places import derived_place, grid_place, settings
from sweeps.schema import FACTS, ROLES, Grid, Spec
from sweeps.source import KeyPath

Problem = tuple[KeyPath, str]


def check(spec: Spec) -> list[Problem]:
    """What is wrong, each with the key it is wrong at; empty for a spec that can be expanded."""
    problems = [*_axes(spec), *_names(spec)]
    if problems:  # what follows reads names and values
        return problems
    return [*_zip(spec), *_places(spec), *_interpolations(spec), *_expressions(spec), *_fit(spec), *_predict(spec)]


# -- axes and names ----------------------------------------------------------------------------------


def _grids(spec: Spec) -> Iterator[tuple[KeyPath, Grid]]:
    for section in ("axes", "tune"):
        for name, grid in getattr(spec, section).items():
            yield (section, name), grid


def _axes(spec: Spec) -> Iterator[Problem]:
    for key, grid in _grids(spec):
        ways = [way for way in ("values", "log2", "log10", "expr") if getattr(grid, way) is not None]
        if len(ways) != 1:
            given = f"{listed(ways)} are given" if ways else "none is given"
            yield key, f"an axis has exactly one of `values`, `log2`, `log10`, `expr`; {given}"
        elif ways == ["expr"]:
            continue
        else:
            yield from ((*_at(key, ways[0]), text) for text in _exponents(grid))
            if not any(_exponents(grid)):
                yield from _values((*key, ways[0]), grid_values(grid))
    for name, alternatives in spec.compare.items():
        values = alternatives.values
        yield from _values(("compare", name, "values"), list(values))
    for name, replicates in spec.replicates.items():
        yield from _values(("replicates", name, "values"), replicates.values)


def _at(key: KeyPath, way: str) -> tuple[KeyPath]:
    return ((*key, way),)


def _exponents(grid: Grid) -> Iterator[str]:
    powers = grid.log2 if grid.log2 is not None else grid.log10
    if powers is None:
        return
    if len(powers) not in (2, 3) or not all(map(math.isfinite, powers)):
        yield f"expected [low, high] or [low, high, step], got {shown(powers)}"
        return
    low, high, step = [*powers, 1.0][:3]
    if step <= 0 or high < low:
        yield f"expected low <= high and a step above 0, got {shown(powers)}"
    elif (high - low) / step >= MAX_VALUES:
        yield f"{shown(powers)} gives more than {MAX_VALUES} values"
    elif max(abs(low), abs(high)) > (1000 if grid.log2 is not None else 300):
        yield f"{shown(powers)} goes beyond what a number can hold"


def _values(key: KeyPath, values: list[Any]) -> Iterator[Problem]:
    if not values:
        yield key, "has no values; an axis needs at least one"
        return
    wrong = [v for v in values if isinstance(v, dict | list)]
    if wrong:
        yield key, f"`{shown(wrong[0])}` is not a single value; a bundle of settings goes under `compare`"
        return
    seen: set[Any] = set()
    for value in values:
        mark = (isinstance(value, bool), value)
        if mark in seen:
            yield key, f"the value `{shown(value)}` is there twice"
            return
        seen.add(mark)
    kinds = {isinstance(value, bool) for value in values if isinstance(value, int | float)}
    if len(kinds) > 1:
        yield key, f"mixes true/false with numbers: {shown(values)}"


def _names(spec: Spec) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for section in (*ROLES, "derive", "solve"):
        for name in getattr(spec, section):
            if name in owner:
                yield (section, name), f"`{name}` is already a name under `{owner[name]}`; names are unique"
            elif name in FUNCTIONS or name in ("and", "or", "not", "in", "if", "else", "true", "false", "null"):
                yield (section, name), f"`{name}` has a meaning in expressions; choose another name"
            elif name in FACTS and section in ("compare", "replicates"):
                yield (section, name), f"`{name}` is what a task says of a configuration; choose another name"
            owner.setdefault(name, section)


def _zip(spec: Spec) -> Iterator[Problem]:
    used: set[str] = set()
    for index, group in enumerate(spec.zip):
        key: KeyPath = ("zip", index)
        unknown = [name for name in group if name not in spec.axes and name not in spec.tune]
        if unknown:
            known = [*spec.axes, *spec.tune]
            yield key, f"`{unknown[0]}` is not an axis{nearest(unknown[0], known) or f'; axes: {listed(known)}'}"
            continue
        grids = {name: spec.axes.get(name) or spec.tune[name] for name in group}
        tied = [name for name in group if grids[name].expr is not None]
        sizes = {name: len(grid_values(grid)) for name, grid in grids.items() if grid.expr is None}
        if len(set(group)) < 2 or used & set(group):
            yield key, f"{shown(group)}: a zip ties two or more axes, each in one zip only"
        elif tied:
            yield key, f"`{tied[0]}` is an expression of other axes, so it is tied already"
        elif len(set(sizes.values())) > 1:
            counts = ", ".join(f"`{name}` has {size}" for name, size in sizes.items())
            yield key, f"axes that are tied need as many values as each other: {counts}"
        used |= set(group)


# -- places in the configuration ---------------------------------------------------------------------


def _written(spec: Spec) -> Iterator[tuple[KeyPath, Parts]]:
    """Every key of the spec that writes into the configuration, and where."""
    for section in ("axes", "tune", "replicates"):
        for name, entry in getattr(spec, section).items():
            place = grid_place(name, entry)
            if place:
                yield (section, name), place
    for name, alternatives in spec.compare.items():
        if isinstance(alternatives.values, list):
            yield ("compare", name), paths.split(alternatives.path or name)
        else:
            places = {place for bundle in alternatives.values.values() for place, _ in settings(bundle)}
            yield from ((("compare", name), place) for place in sorted(places))
    for name, derived in spec.derive.items():
        place = derived_place(spec, name, derived)
        if place:
            yield ("derive", name), place
    for name, solve in spec.solve.items():
        yield ("solve", name), paths.split(solve.path or name)


def _places(spec: Spec) -> Iterator[Problem]:
    written = list(_written(spec))
    for key, place in written:
        if key[0] != "compare" and (stop := paths.blocked(spec.base, place)):
            where, value = stop
            yield key, f"`{'.'.join(place)}` can't be set: base has `{where}: {shown(value)}` there"
    for (key, place), (other, taken) in combinations(written, 2):
        if key != other and paths.overlap(place, taken):
            yield other, f"sets `{'.'.join(taken)}`, which `{'.'.join(map(str, key))}` sets as well"


def _interpolations(spec: Spec) -> Iterator[Problem]:
    try:
        order = interpolate.ordered(interpolate.templates(spec.base))
    except InterpolationError as error:
        yield ("base", *error.place), str(error)
        return
    known = [place for place, _ in paths.leaves(spec.base)] + [place for _, place in _written(spec)]
    for template in order:
        if problem := interpolate.missing(template, known, order):
            yield ("base", *template.place), problem
    for place, value in _outside_base(spec):
        if isinstance(value, str) and interpolate.interpolated(value):
            yield place, f"`{shown(value)}`: `${{…}}` is filled in `base` only"


def _outside_base(spec: Spec) -> Iterator[tuple[KeyPath, Any]]:
    for key, grid in _grids(spec):
        yield from (((*key, "values", i), value) for i, value in enumerate(grid.values or []))
    for name, alternatives in spec.compare.items():
        if isinstance(alternatives.values, list):
            yield from ((("compare", name, "values", i), v) for i, v in enumerate(alternatives.values))
        else:
            for label, bundle in alternatives.values.items():
                yield from ((("compare", name, label, *place), v) for place, v in settings(bundle))


# -- expressions ---------------------------------------------------------------------------------------


def known_names(spec: Spec) -> list[str]:
    """What an expression may name: axes and the rest by name, facts, and places of the configuration."""
    names = [name for section in (*ROLES, "derive", "solve") for name in getattr(spec, section)]
    config = [".".join(place) for place, _ in paths.leaves(spec.base)] + [".".join(p) for _, p in _written(spec)]
    return list(dict.fromkeys([*names, *FACTS, *config]))


def _expressions(spec: Spec) -> Iterator[Problem]:
    known = known_names(spec)
    axes = [*spec.axes, *spec.tune, *spec.compare, *spec.replicates]
    for key, grid in _grids(spec):
        if grid.expr is not None:
            others = [name for name in axes if name != key[1]]
            yield from _expression((*key, "expr"), [grid.expr], [*others, *known_base(spec)])
    for name, derived in spec.derive.items():
        yield from _expression(("derive", name), [derived.expr], [n for n in known if n != name or n in FACTS])
    for name, solve in spec.solve.items():
        try:
            left, right = compile_equation(solve.equation)
        except ExpressionError as error:
            yield ("solve", name), str(error)
            continue
        yield from _unknown(("solve", name), left.names | right.names, known)
    for index, text in enumerate(spec.where):
        yield from _expression(("where", index), [text], known)


def known_base(spec: Spec) -> list[str]:
    return [".".join(place) for place, _ in paths.leaves(spec.base)]


def _expression(key: KeyPath, texts: Iterable[str], known: list[str]) -> Iterator[Problem]:
    for text in texts:
        try:
            names = compile_expression(text).names
        except ExpressionError as error:
            yield key, str(error)
            continue
        yield from _unknown(key, names, known)


def _unknown(key: KeyPath, names: Iterable[str], known: list[str]) -> Iterator[Problem]:
    for name in sorted(set(names) - set(known)):
        yield key, f"unknown name `{name}`{nearest(name, known) or f'; known: {listed(known)}'}"


# -- fit and predict -----------------------------------------------------------------------------------


def _fit(spec: Spec) -> Iterator[Problem]:
    if spec.fit is None:
        return
    scales = [*spec.axes, *spec.derive, *spec.solve, *FACTS]
    for index, law in enumerate(spec.fit.laws):
        if law.over not in scales:
            hint = nearest(law.over, scales) or f"; known: {listed(scales)}"
            yield ("fit", "laws", index, "over"), f"`{law.over}` is no axis, derived name or fact{hint}"
        tuned, dot, what = (law.of or "").partition(".")
        if dot and (tuned not in spec.tune or what != "optimum"):
            choices = [f"{name}.optimum" for name in spec.tune]
            hint = nearest(law.of or "", choices) or (
                f"; known: {listed(choices)}" if choices else "; nothing is tuned"
            )
            yield ("fit", "laws", index, "of"), f"`{law.of}` is neither a metric nor the optimum of a tuned value{hint}"
    held = spec.fit.hold_out
    if isinstance(held, str):
        yield from _expression(("fit", "hold_out"), [held], known_names(spec))
    elif held is not None:
        yield from _points(spec, ("fit", "hold_out"), held, existing=True)


def _predict(spec: Spec) -> Iterator[Problem]:
    for index, point in enumerate(spec.predict):
        yield from _points(spec, ("predict", index), point, existing=False)


def _points(spec: Spec, key: KeyPath, point: dict[str, Any], *, existing: bool) -> Iterator[Problem]:
    known = [*spec.axes, *spec.compare, *spec.derive, *spec.solve, *FACTS]
    for name, value in point.items():
        if name not in known:
            yield (*key, name), f"unknown name `{name}`{nearest(name, known) or f'; known: {listed(known)}'}"
            continue
        choices = _choices(spec, name)
        for one in value if isinstance(value, list) else [value]:
            if choices is not None and (existing or name in spec.compare) and one not in choices:
                yield (
                    (*key, name),
                    f"`{shown(one)}` is not a value of `{name}`; its values: {listed(map(str, choices))}",
                )
            elif (
                name not in spec.compare
                and not existing
                and (isinstance(one, bool) or not isinstance(one, int | float))
            ):
                yield (*key, name), f"`{shown(one)}` is not a number"


def _choices(spec: Spec, name: str) -> list[Any] | None:
    if name in spec.compare:
        return list(spec.compare[name].values)
    grid = spec.axes.get(name)
    return grid_values(grid) if grid is not None and grid.expr is None else None
