"""Which runs answer a prediction: same task, same configuration but for the place. Knows no SQL."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any, Self

from db.records import to_json

Values = Mapping[str, Any]
ENDED = ("done", "diverged")  # a run that answers; a failed one says nothing
FINAL = (*ENDED, "failed")
TOLERANCE = 1e-9  # relative; coordinates are given, not measured


@dataclass(frozen=True)
class Design:
    """How the runs of a sweep become the values that a fit sees.

    `select` and `goal` say which logged value stands for a run, as in `Store.results`. `replicates` and `tune` map
    the names that are averaged and tuned to their dotted places in the configuration.
    """

    select: str = "last"
    goal: str = "min"
    replicates: Mapping[str, str] = field(default_factory=dict)
    tune: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """Where a run stands in a sweep: coordinates before derived values."""

    sweep: int
    version: int
    current: bool
    names: Values


@dataclass(frozen=True)
class Run:
    """A stored run; `config` is its JSON, `ended` None while it has no end."""

    key: int
    id: str
    task: str
    config: str
    registered: float
    status: str
    ended: float | None
    facts: Mapping[str, float]
    cells: tuple[Cell, ...]

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """The configuration as dotted places with their values; a list is one value."""
        return dict(_leaves(json.loads(self.config), ""))

    @property
    def awaited(self) -> bool:
        """Whether a sweep looks at it and it has not come to an end."""
        return self.status not in FINAL and any(cell.current for cell in self.cells)


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not place):
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else key)
    else:
        yield place, value


@dataclass(frozen=True)
class Setting:
    """What the runs behind a fit have in common, and which parts of their configuration say where each stands.

    `shared` leaves have one value in all of them, `varying` ones several or none. `constants` are names with one
    value; `paths` gives for other names the varying leaves that always hold the name's value.
    """

    task: str
    design: Design
    shared: Values
    varying: Sequence[str]
    constants: Values
    paths: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, design: Design, runs: Sequence[tuple[Run, Values]]) -> Self | None:
        """The setting of runs with the names of their cells; None for no runs, or runs of several tasks."""
        if len({run.task for run, _ in runs}) != 1:
            return None
        leaves = [run.leaves for run, _ in runs]
        named = [names for _, names in runs]
        free = {*design.replicates.values(), *design.tune.values()}
        common = {k: v for k, v in _common(leaves).items() if k not in free}
        varying = sorted({place for one in leaves for place in one} - common.keys())
        constants = {k: v for k, v in _common(named).items() if k not in design.replicates and k not in design.tune}
        paths = {
            name: [place for place in varying if _follows(place, name, leaves, named)]
            for name in sorted({name for names in named for name in names} - constants.keys())
        }
        return cls(runs[0][0].task, design, common, varying, constants, {k: v for k, v in paths.items() if v})

    @classmethod
    def from_json(cls, text: str) -> Self:
        data = json.loads(text)
        return cls(**data | {"design": Design(**data["design"])})

    @cached_property
    def text(self) -> str:
        """The setting as JSON; equal settings have equal texts."""
        return to_json(asdict(self), sort_keys=True)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset({*self.shared, *self.varying, *self._free})

    @cached_property
    def _free(self) -> frozenset[str]:
        """Leaves that may have any value: those of replicates and tuned names."""
        design = self.design
        found = {place for name in (*design.replicates, *design.tune) for place in self.paths.get(name, ())}
        return frozenset(found | {*design.replicates.values(), *design.tune.values()})

    def holds(self, run: Run) -> bool:
        """Whether the run is of this setting, whatever its place."""
        if run.task != self.task or not run.leaves.keys() <= self._known:
            return False
        return all(place in run.leaves and same(run.leaves[place], value) for place, value in self.shared.items())

    def tied(self, at: Values) -> frozenset[str]:
        """Leaves that vary in a way that `at` alone doesn't tell."""
        told = {place for name in at for place in self.paths.get(name, ())}
        return frozenset(self.varying) - self._free - told

    def stands_at(self, run: Run, names: Values, at: Values) -> bool:
        """Whether a run, called `names` by a sweep, is at the place `at`."""
        return all(any(same(v, wanted) for v in self._told(run, names, key)) for key, wanted in at.items())

    def told(self, run: Run, key: str) -> list[Any]:
        """All that a run may have under a name, in whichever sweep."""
        return [value for names in ({}, *(cell.names for cell in run.cells)) for value in self._told(run, names, key)]

    def _told(self, run: Run, names: Values, key: str) -> tuple[Any, ...]:
        if key in self.constants:
            return (self.constants[key],)
        if key in self.paths:
            values = [run.leaves.get(place) for place in self.paths[key]]
            return (values[0],) if all(same(v, values[0]) for v in values) else ()
        return tuple(source[key] for source in (names, run.facts) if key in source)[:1]


@dataclass(frozen=True)
class Target:
    """What a prediction is about: a place and a group in the sweep that made it, at the time it was made."""

    sweep: int
    setting: Setting
    at: Values
    group: Values
    made: float


class Book:
    """Stored runs, looked up by target."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)
        self._shelves: dict[str, _Shelf] = {}

    def answers(self, target: Target) -> list[Run]:
        """The runs at the target's place, by id.

        A run of another sweep answers only where the place tells its whole configuration: how the rest is tied to
        the place is known to the target's own sweep alone.
        """
        setting = target.setting
        if setting.text not in self._shelves:
            self._shelves[setting.text] = _Shelf(setting, [run for run in self._runs if setting.holds(run)])
        shelf = self._shelves[setting.text]
        tied = bool(setting.tied(target.at))
        versions = shelf.versions(target) if tied else set()
        found: dict[str, Run] = {}
        for run in shelf.near(target.at):
            own = [cell for cell in _own(run, target) if not tied or cell.version in versions]
            if own:
                names = [cell.names for cell in own if _in_group(cell, target.group)]
            else:
                names = [] if tied or any(_own(run, target)) else [{}, *(cell.names for cell in run.cells)]
            if any(setting.stands_at(run, known, target.at) for known in names):
                found[run.id] = run
        return [found[run_id] for run_id in sorted(found)]


class _Shelf:
    """The runs of one setting, so that those at a place are found without a look at all of them."""

    def __init__(self, setting: Setting, runs: Sequence[Run]) -> None:
        self._setting, self._runs = setting, runs
        self._along = cache(self._sort)
        self._first = cache(self._begin)

    def near(self, at: Values) -> Iterable[Run]:
        """The runs that may stand at a place: those with the value of its rarest number."""
        ranges = [self._range(name, value) for name, value in at.items() if _number(value)]
        return min(ranges, key=len, default=self._runs)

    def _range(self, name: str, value: float) -> Sequence[Run]:
        values, runs = self._along(name)
        slack = 2 * TOLERANCE * abs(value)
        return runs[bisect_left(values, value - slack) : bisect_right(values, value + slack)]

    def _sort(self, name: str) -> tuple[list[float], list[Run]]:
        """Every number that a run has under a name, ascending, with the run."""
        pairs = [
            (float(value), number)
            for number, run in enumerate(self._runs)
            for value in {v for v in self._setting.told(run, name) if _number(v)}
        ]
        pairs.sort()
        return [value for value, _ in pairs], [self._runs[number] for _, number in pairs]

    def versions(self, target: Target) -> set[int]:
        """The versions of the target's sweep that looked at runs of the setting when the prediction was made."""
        return {version for version, first in self._first(target.sweep).items() if first <= target.made}

    def _begin(self, sweep: int) -> dict[int, float]:
        """When the first run of each version was registered."""
        first: dict[int, float] = {}
        for run in self._runs:
            for cell in run.cells:
                if cell.sweep == sweep:
                    first[cell.version] = min(run.registered, first.get(cell.version, math.inf))
        return first


def _own(run: Run, target: Target) -> list[Cell]:
    return [cell for cell in run.cells if cell.sweep == target.sweep]


def _in_group(cell: Cell, group: Values) -> bool:
    return all(same(cell.names[name], value) for name, value in group.items() if name in cell.names)


def behind(runs: Iterable[Run], sweep: int, group: Values, made: float) -> list[tuple[Run, Values]]:
    """The runs of a group that a fit made at `made` could see, each with the names of its cell.

    Of a sweep whose cells have all been replaced since, the cells that it had.
    """
    cells = [
        (run, cell)
        for run in runs
        for cell in run.cells
        if cell.sweep == sweep and run.registered <= made and _in_group(cell, group)
    ]
    current = [(run, cell) for run, cell in cells if cell.current]
    return [(run, cell.names) for run, cell in current or cells]


def same(a: Any, b: Any) -> bool:
    """Equality of configuration values: numbers by value, truth values apart from numbers."""
    if _number(a) and _number(b):
        return a == b or math.isclose(a, b, rel_tol=TOLERANCE)
    return type(a) is type(b) and bool(a == b)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _common(objects: Sequence[Values]) -> dict[str, Any]:
    first, *rest = objects
    return {k: v for k, v in first.items() if all(k in other and same(other[k], v) for other in rest)}


def _follows(place: str, name: str, leaves: Sequence[Values], named: Sequence[Values]) -> bool:
    return all(
        place in one and name in names and same(one[place], names[name])
        for one, names in zip(leaves, named, strict=True)
    )
