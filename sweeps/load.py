"""A spec file to a validated spec: read, override, validate, check; every error with its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sweeps.check import check
from sweeps.errors import SpecError, listed, nearest, shown
from sweeps.schema import ENTRIES, Grid, Spec, lengthen_spec
from sweeps.source import KeyPath, Source, dotted, read_file, read_text

GRID_CHOICES = ("values", "log2", "log10", "expr")
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class LoadedSpec:
    """A valid spec, where it came from, and how to speak of a place in it."""

    spec: Spec
    path: Path
    text: str
    overrides: tuple[str, ...]
    _source: Source = field(repr=False)
    _overridden: tuple[KeyPath, ...] = field(default=(), repr=False)

    def error(self, key: str, problem: str) -> SpecError:
        """A SpecError at the place of a dotted key."""
        return _error(self._source, self._overridden, tuple(key.split(".")), problem)


def load(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Read a spec file and apply `key=value` overrides.

    Raises SpecError, with a line for each thing that is wrong.
    """
    source = read_file(path)
    if not isinstance(source.data, dict):
        raise source.error((), "a spec is a mapping of keys such as `name`, `task` and `axes`")
    data: dict[str, Any] = lengthen_spec(source.data)
    changed = []
    for override in overrides:
        key, value = _parse_override(override)
        data = _override(data, key, value, override)
        changed.append(key)
    overridden = tuple(changed)
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError.join(_explain(error, source, overridden)) from None
    problems = check(spec)
    if problems:
        raise SpecError.join([_error(source, overridden, place, text) for place, text in problems])
    return LoadedSpec(spec, path, source.text, tuple(overrides), source, overridden)


def _error(source: Source, overridden: Sequence[KeyPath], key: KeyPath, problem: str) -> SpecError:
    """At the place of `key` in the file, or at the override that set it."""
    if any(tuple(map(str, key[: len(o)])) == o for o in overridden):
        return SpecError(problem, file=COMMAND_LINE, key=dotted(key))
    whole = tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in key)
    error = source.error(whole, problem)
    return SpecError(problem, file=error.file, line=error.line, column=error.column, key=dotted(key))


def _parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not all(key.strip().split(".")):
        raise SpecError(
            f"`{shown(text)}` is not an override; write key=value, such as replicates.seed=1", file=COMMAND_LINE
        )
    if not value.strip():
        return tuple(key.strip().split(".")), None
    try:
        return tuple(key.strip().split(".")), read_text(f"{value}\n", COMMAND_LINE).data
    except SpecError as error:
        raise SpecError(error.problem, file=COMMAND_LINE, key=key.strip()) from None


def _override(data: dict[str, Any], key: tuple[str, ...], value: Any, text: str) -> dict[str, Any]:
    """`data` with `value` merged at `key`; an empty mapping or null replaces what was there."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if len(key) == 2 and key[0] in ENTRIES:
        value = ENTRIES[key[0]].lengthen(value)
    elif len(key) == 1:
        value = lengthen_spec({key[0]: value}).get(key[0])
    try:
        config = OmegaConf.create(data)
        OmegaConf.update(config, ".".join(key), value, merge=bool(value), force_add=True)
        merged = OmegaConf.to_container(config, resolve=False)
    except (OmegaConfBaseException, TypeError, ValueError, AttributeError) as error:
        first = str(error).splitlines()[0]
        raise SpecError(f"`{shown(text)}` can't be applied: {first}", file=COMMAND_LINE, key=".".join(key)) from None
    assert isinstance(merged, dict)
    _settle_grid(merged, key, value)
    return {str(k): v for k, v in merged.items()}


def _settle_grid(data: dict[Any, Any], key: tuple[str, ...], value: Any) -> None:
    """An override that gives an axis its values in one way takes the place of the way the file has."""
    if len(key) < 2 or ENTRIES.get(key[0]) is not Grid:
        return
    given = set(key[2:3]) if len(key) > 2 else set(value or ())
    grid = data[key[0]].get(key[1])
    if isinstance(grid, dict) and given & set(GRID_CHOICES):
        for choice in set(GRID_CHOICES) - given:
            grid.pop(choice, None)


# pydantic's names for the branches of a union, and for the key of a mapping entry
_BRANCH = re.compile(r"[\[(]|^(constrained-int|int|float|str|list|dict)$")


# -- what pydantic found, in words ------------------------------------------------------------------


def _explain(error: ValidationError, source: Source, overridden: Sequence[KeyPath]) -> list[SpecError]:
    """One SpecError for each place; the branches of a union that all failed are one thing that is wrong."""
    places: dict[tuple[KeyPath, bool], list[ErrorDetails]] = {}
    for details in error.errors():
        loc = tuple(details["loc"])
        unknown = details["type"] == "extra_forbidden"
        key = _without_branches(loc)
        places.setdefault((key, unknown), []).append(details)
    result = []
    for (key, unknown), found in places.items():
        made = _error(source, overridden, key, _problem(key, found))
        if unknown and made.file != COMMAND_LINE:
            at = source.error(key, made.problem, at_key=True)
            made = SpecError(at.problem, file=at.file, line=at.line, column=at.column, key=dotted(key))
        result.append(made)
    return result


def _without_branches(loc: KeyPath) -> KeyPath:
    """A location without pydantic's names for the branches of a union (`literal['auto']`, `list[any]`)."""
    return tuple(part for part in loc if not (isinstance(part, str) and _BRANCH.search(part)))


def _problem(key: KeyPath, found: Sequence[ErrorDetails]) -> str:
    first = found[0]
    kind = first["type"]
    if kind == "extra_forbidden":
        known = _keys_at(key[:-1])
        return f"unknown key `{key[-1]}`{nearest(str(key[-1]), known) or f'; known: {listed(known)}'}"
    if kind == "missing":
        return f"`{key[-1]}` is missing{_described(key)}"
    wanted = " or ".join(dict.fromkeys(_wanted(details) for details in found))
    return f"got `{shown(first['input'])}`, expected {wanted}{_described(key)}"


_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _wanted(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind in _WANTED:
        return _WANTED[kind]
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(details["loc"][-1]), f"text that matches {context['pattern']}")
    message = details["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


_PATTERNS = {
    "task": "module:function, such as mypkg.train:train",
    "name": "letters, digits, `_` and `-`, at most 100",
    "path": "a dotted path, such as model.width",
    "[key]": "a name of letters, digits and `_` that doesn't start with a digit",
}


def _described(key: KeyPath) -> str:
    """The description that the schema has for a key, as the end of a sentence."""
    if not key:
        return ""
    owner = _model_at(key[:-1])
    entry = owner.model_fields.get(str(key[-1])) if owner else None
    text = (entry.description or "") if entry else ""
    return f" ({text.rstrip('.')})" if text else ""


def _keys_at(key: KeyPath) -> list[str]:
    owner = _model_at(key)
    return list(owner.model_fields) if owner else []


def _model_at(key: KeyPath) -> type[BaseModel] | None:
    """The class that validates the section at `key`."""
    here: Any = Spec
    for part in key:
        if isinstance(here, type) and issubclass(here, BaseModel):
            entry = here.model_fields.get(str(part))
            here = entry.annotation if entry else None
        else:
            here = next((a for a in get_args(here) if a not in (str, type(None))), None)
        here = _unwrapped(here)
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _unwrapped(kind: Any) -> Any:
    """A class inside `X | None`."""
    models = [a for a in get_args(kind) if isinstance(a, type) and issubclass(a, BaseModel)]
    return models[0] if models and type(None) in get_args(kind) else kind
