"""A spec file to a checked `Spec`: read, override, write out the short forms, validate, check."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeps import checks, overrides
from sweeps.errors import SpecError, described, listed, nearest
from sweeps.overrides import Override
from sweeps.schema import ROLES, Replicates, Spec
from sweeps.source import KeyPath, Source, read_file, read_text


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec and where it came from. `text` is the file's; `overrides` are as typed."""

    spec: Spec
    path: Path
    text: str
    overrides: tuple[str, ...]
    origin: Origin = field(repr=False)

    def error(self, key: str, problem: str) -> SpecError:
        """A SpecError at the place of `key` (dotted, such as `axes.width.values`), or of its override."""
        parts = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
        return self.origin.error(parts, problem)


@dataclass(frozen=True)
class Origin:
    """Where the data of a spec came from: a source and overrides."""

    source: Source
    overrides: tuple[Override, ...] = ()

    def error(self, path: KeyPath, problem: str, *, at_key: bool = False) -> SpecError:
        for override in reversed(self.overrides):
            if self._concerns(override, path):
                return override.error(path, problem)
        return self.source.error(path, problem, at_key=at_key)

    def _concerns(self, override: Override, path: KeyPath) -> bool:
        changed = tuple(int(p) if isinstance(p, str) and p.isdecimal() else p for p in override.path)
        if path[: len(changed)] == changed:
            return True
        section = path[:-1]
        return changed[: len(section)] == section and self.source.find(section) != section != ()


def load(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Reads and checks a spec file, with `key=value` overrides merged in.

    All paths of axes, derived and solved values are filled in (None: written nowhere), lists in `predict` are
    multiplied out. Raises SpecError, which tells everything that was found wrong, a line each.
    """
    return _load(read_file(Path(path)), Path(path), overrides)


def loads(text: str, overrides: Sequence[str] = (), name: str = "spec") -> LoadedSpec:
    """`load` for a text; `name` stands for the file in errors."""
    return _load(read_text(text, name), Path(name), overrides)


def _load(source: Source, path: Path, texts: Sequence[str]) -> LoadedSpec:
    parsed = tuple(overrides.parse(text) for text in texts)
    origin = Origin(source, parsed)
    if not isinstance(source.data, dict):
        raise source.error(
            (), f"expected a mapping with `name` and `task` (or `results`), found {described(source.data)}"
        )
    _raise(Origin(source), checks.interpolation_problems(source.data))
    for override in parsed:
        # A resolver must be refused before OmegaConf sees it.
        inside = _nested(override.path, override.value)
        _raise(Origin(source, (override,)), checks.interpolation_problems(inside))
    data = overrides.apply(source.data, parsed)
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError.join(_validation_errors(error, origin)) from None
    spec = _with_paths(spec)
    _raise(origin, checks.problems(spec))
    return LoadedSpec(_with_predictions(spec), path, source.text, tuple(texts), origin)


def _nested(path: KeyPath, value: Any) -> Any:
    for part in reversed(path):
        value = {str(part): value}
    return value


def _raise(origin: Origin, problems: Iterable[checks.Problem]) -> None:
    errors = [origin.error(path, text) for path, text in problems]
    if errors:
        raise SpecError.join(errors[:20])


# pydantic's errors in our words


def _validation_errors(error: ValidationError, origin: Origin) -> list[SpecError]:
    """One SpecError for each place; what the branches of a union expected is joined with `or`."""
    branches: dict[KeyPath, list[dict[str, Any]]] = {}
    for item in error.errors(include_url=False):
        branches.setdefault(_plain(item["loc"]), []).append(dict(item))
    errors = []
    for path, items in branches.items():
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in branches)
        if deeper and any(_plain(item["loc"]) != tuple(item["loc"]) for item in items):
            continue  # another branch of the union got further
        errors.append(_one_error(path, items, origin))
    return errors[:20]


def _plain(loc: Sequence[str | int]) -> KeyPath:
    """A location without pydantic's marks for branches of a union and for keys."""
    return tuple(part for part in loc if isinstance(part, int) or not _is_mark(part))


def _is_mark(part: str) -> bool:
    return part in ("constrained-int", "str", "int", "list[str]", "[key]") or ("[" in part and part.endswith("]"))


def _one_error(path: KeyPath, items: list[dict[str, Any]], origin: Origin) -> SpecError:
    kind, value = items[0]["type"], items[0]["input"]
    if kind == "extra_forbidden":
        known = overrides.known_keys(path[:-1]) or []
        hint = nearest(str(path[-1]), known) or f"; known keys are {listed(known, 20)}"
        return origin.error(path, f"unknown key{hint}", at_key=True)
    if kind == "missing":
        return origin.error(path, f"missing: {_meaning(path)}")
    at_key = "[key]" in items[0]["loc"]
    expected = " or ".join(dict.fromkeys(_expected(path, item) for item in items))
    found = f"the name `{value}`" if at_key else described(value)
    return origin.error(path, f"expected {expected}, found {found}", at_key=at_key)


_MEANINGS = {
    "name": "a name for the sweep, such as width_sweep",
    "task": "what to run, as module:function, such as models.lm:train",
    "values": "the values, such as [64, 128]",
    "expr": "an expression, such as 20 * n_params",
    "equation": "an equation, such as flops == 1e15",
    "law": "the name of a law, such as power",
    "over": "the axis the law runs over",
}


def _meaning(path: KeyPath) -> str:
    return _MEANINGS.get(str(path[-1]), "this key is required")


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "of at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "of at most"),
    "less_than": ("lt", "below"),
}
_ENTRY_FORMS = {
    "axes": "an axis such as {path: model.width, values: [64, 128]} or [64, 128]",
    "tune": "an axis such as {path: optim.lr, log2: [-10, -2]}",
    "compare": "alternatives such as {path: rule, values: [mup, standard]} or [mup, standard]",
    "replicates": "a count of at least 1, a list of integers, or {path: seed, values: [0, 1]}",
    "derive": 'an expression such as "20 * n_params"',
    "solve": 'an equation such as "flops == 1e15"',
}


def _expected(path: KeyPath, item: dict[str, Any]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return _pattern(path, "[key]" in item["loc"])
    if kind in ("model_type", "model_attributes_type") and len(path) == 2 and path[0] in _ENTRY_FORMS:
        return _ENTRY_FORMS[str(path[0])]
    if kind == "dict_type" and len(path) == 1 and path[0] in ROLES:
        return "a mapping of names to values (a list names columns of a table, in a spec with `results`)"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"a number {words} {context[bound]:g}"
    if kind == "list_type" and path[0] == "replicates":
        return f"a list of integers, or a count of at most {Replicates.most}"
    if kind == "literal_error":
        return str(context["expected"])
    return _TYPES.get(kind, str(item["msg"]).removeprefix("Input should be ").lower())


def _pattern(path: KeyPath, at_key: bool) -> str:
    if path == ("name",):
        return "letters, digits, `_` and `-` (a letter or digit first, at most 100)"
    if path == ("task",):
        return "module:function, such as models.lm:train"
    if path[-1] == "path":
        return "a dotted path such as model.width"
    return "a name of letters, digits and `_`" if at_key or path[0] == "zip" else "another text"


# defaults that depend on other parts


def _with_paths(spec: Spec) -> Spec:
    """The spec with the default paths filled in. An explicit null stays: written nowhere."""
    if spec.results is not None:
        return spec  # columns of a table are written nowhere
    update: dict[str, Any] = {}
    for section in ("axes", "tune", "compare", "replicates", "solve", "derive"):
        entries = getattr(spec, section)
        filled = {}
        for name, entry in entries.items():
            default: str | None = name
            if section == "compare" and isinstance(entry.values, dict):
                default = None
            if section == "derive" and not (name in spec.base or name == "tokens"):
                default = None
            given = "path" in entry.model_fields_set
            filled[name] = entry if given or default is None else entry.model_copy(update={"path": default})
        update[section] = filled
    return spec.model_copy(update=update)


def _with_predictions(spec: Spec) -> Spec:
    """The spec with lists in `predict` multiplied out."""
    rows = []
    for entry in spec.predict:
        columns = [value if isinstance(value, list) else [value] for value in entry.values()]
        rows += [dict(zip(entry, row, strict=True)) for row in itertools.product(*columns)]
    return spec.model_copy(update={"predict": rows})
