"""Command-line overrides: `axes.width.values=[64,128]`, `+axes.depth=[2,4]`, `~tune.lr`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.errors import SpecError, described, listed, nearest, shown
from sweeps.schema import (
    ENTRIES,
    Column,
    Counts,
    FitSpec,
    IsoflopSpec,
    LawSpec,
    LocalLauncher,
    ObjectiveSpec,
    ResultsSpec,
    Spec,
    Strict,
    lengthen_spec,
)
from sweeps.source import KeyPath, dotted, read_text

WAYS = ("values", "log2", "log10", "expr")  # of giving an axis its values
_KEY = re.compile(r"(?P<mark>[+~]?)(?P<key>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)")


@dataclass(frozen=True)
class Override:
    """One override: `text` as typed, the place it changes, its value, and whether it deletes or may add."""

    text: str
    path: KeyPath
    value: Any
    mark: str

    def error(self, key: KeyPath, problem: str) -> SpecError:
        return SpecError(problem, file=f"override '{shown(self.text, 80)}'", key=dotted(key))


def known_keys(path: KeyPath) -> list[str] | None:
    """The keys that the schema has at `path`; None where keys are free (base, the names of axes, …)."""
    section: type[Strict] | None = None
    match path:
        case ():
            section = Spec
        case ("fit",):
            section = FitSpec
        case ("fit", "laws", _):
            section = LawSpec
        case ("fit", "laws", _, "objective"):
            section = ObjectiveSpec
        case ("fit", "isoflop"):
            section = IsoflopSpec
        case ("results",):
            section = ResultsSpec
        case ("results", "columns", _):
            section = Column
        case ("results", "counts"):
            section = Counts
        case ("launcher",):
            section = LocalLauncher
        case (str(name), _) if name in ENTRIES:
            section = ENTRIES[name]
    return list(section.model_fields) if section else None


def parse(text: str) -> Override:
    """Reads one override; its value is read as in a spec. Raises SpecError, which names the override."""
    key, equals, value = text.partition("=")
    match = _KEY.fullmatch(key.strip())
    label = f"override '{shown(text, 80)}'"
    if match is None or (match["mark"] == "~") == bool(equals):
        raise SpecError(
            "expected `key=value`, `+key=value` to add a key, or `~key` to delete one, "
            "such as axes.width.values=[64,128]",
            file=label,
        )
    path = tuple(match["key"].split("."))
    if match["mark"] == "~":
        return Override(text, path, None, "~")
    if not value.strip():
        raise SpecError("no value; write `null`, or '' for an empty text", file=label, key=match["key"])
    try:
        data = read_text(value, label).data
    except SpecError as error:
        raise SpecError(error.problem, file=label, key=match["key"]) from None
    return Override(text, path, data, match["mark"])


def apply(data: Any, overrides: Sequence[Override]) -> Any:
    """The spec's data with the overrides merged in, one after the other. Raises SpecError."""
    if not overrides:
        return data
    from omegaconf import OmegaConf  # imported late: most specs are read without overrides

    for override in overrides:
        data = lengthen_spec(data)
        override = _in_bundles(data, override)  # noqa: PLW2901
        path = _target(data, override)
        if override.mark == "~":
            node = data
            for part in path[:-1]:
                node = node[part]
            del node[path[-1]]
            continue
        config = OmegaConf.create(data)
        OmegaConf.update(config, dotted(path), override.value, merge=False, force_add=True)
        data = OmegaConf.to_container(config, resolve=False)
        _drop_other_ways(data, path)
    return data


def _in_bundles(data: Any, override: Override) -> Override:
    """For a comparison of named settings: a list of labels selects them, and a label needs no `values` before it."""
    if override.path[0] != "compare" or len(override.path) < 2 or not isinstance(data, dict):
        return override
    section = data.get("compare")
    entry = section.get(override.path[1]) if isinstance(section, dict) else None
    bundles = entry.get("values") if isinstance(entry, dict) else None
    if not isinstance(bundles, dict):
        return override
    place, rest = (*override.path[:2], "values"), override.path[2:]
    if isinstance(override.value, list) and rest in ((), ("values",)):
        return replace(override, path=place, value=_selected(bundles, override))
    known = rest and (rest[0] in ("path", "values") and rest[0] not in bundles)
    return override if not rest or known else replace(override, path=(*place, *rest))


def _selected(bundles: dict[str, Any], override: Override) -> dict[str, Any]:
    for label in map(str, override.value):
        if label not in bundles:
            hint = nearest(label, bundles) or f"; there are {listed(bundles)}"
            raise override.error(override.path, f"no settings are called `{shown(label)}`{hint}")
    return {str(label): bundles[str(label)] for label in override.value}


def _drop_other_ways(data: Any, path: KeyPath) -> None:
    """`axes.width.values=…` takes the place of the way in which the file gives that axis its values."""
    if len(path) == 3 and path[0] in ("axes", "tune") and path[2] in WAYS:
        grid = data[path[0]][path[1]]
        for way in WAYS:
            if way != path[2]:
                grid.pop(way, None)


def _target(data: Any, override: Override) -> KeyPath:
    """The place an override changes, with list indices as integers, if it may be changed."""
    node = data
    here: KeyPath = ()
    for depth, part in enumerate(map(str, override.path)):
        step: str | int = part
        if isinstance(node, list):
            if not part.isdecimal() or int(part) >= len(node):
                raise override.error(
                    (*here, part), f"`{dotted(here)}` is a list of {len(node)}: expected an index below that"
                )
            step = int(part)
        elif not isinstance(node, dict):
            raise override.error(here, f"holds {described(node)}, so nothing can be set inside it")
        elif part not in node:
            rest = override.path[depth + 1 :]
            _may_add(node, here, part, rest, override)
            return (*here, part, *rest)
        node, here = node[step], (*here, step)
    return here


def _may_add(node: dict[str, Any], here: KeyPath, part: str, rest: KeyPath, override: Override) -> None:
    known = known_keys(here)
    place = (*here, part)
    if known is not None:
        if part in known and override.mark != "~":
            return
        if part in known:
            raise override.error(place, "is not in the spec, so it can't be deleted")
        hint = nearest(part, known)
        if not here and isinstance(base := node.get("base"), dict) and part in base:
            hint = f"; did you mean `base.{dotted((part, *rest))}`?"
        raise override.error(place, f"unknown key `{part}`{hint or '; known are ' + listed(known, 20)}")
    # A task has defaults that base doesn't repeat, so any key may be set in base, but for likely typos.
    if override.mark == "+" or (override.mark == "" and here[:1] == ("base",) and not nearest(part, node)):
        return
    hint = nearest(part, node) or (f"; there are {listed(node)}" if node else "")
    add = "" if override.mark == "~" else f" (write +{override.text} to add it)"
    raise override.error(place, f"there is no `{part}` in `{dotted(here)}`{hint}{add}")
