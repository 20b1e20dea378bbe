"""A run's identity: a hash of the task and of the resolved configuration, in one canonical spelling.

Equal values have equal bytes, whatever their spelling, key order or container: `1e6`, `1000000` and
`1000000.0`; `(1, 2)` and `[1, 2]`. Different values have different bytes: `true` is not 1, `'1'` is not 1.
"""

from __future__ import annotations

import hashlib
import math
from json.encoder import encode_basestring  # json's own, in C where available
from typing import Any

from sweeps.errors import IdentityError, shown

IDENTITY_VERSION = 1
ID_LENGTH = 24  # hex digits: 96 bits
MAX_DEPTH = 64
# From here on a float's neighbours are not all integers, and a whole float is spelled as a float.
EXACT = 2**53


def run_id(task: str, config: dict[str, Any]) -> str:
    """The identity of a run: 24 hex digits, the same for every spelling of the same configuration.

    It is the start of the SHA-256 of `b"sweeplaw run 1\\n"` and the canonical form of
    `{"task": task, "config": config}`. Raises IdentityError for a value without a canonical form.
    """
    head = f"sweeplaw run {IDENTITY_VERSION}\n".encode()
    return hashlib.sha256(head + canonical({"task": task, "config": config})).hexdigest()[:ID_LENGTH]


def canonical(value: Any) -> bytes:
    """The canonical form of plain data, as compact JSON in UTF-8 with keys sorted by code point.

    Numbers are spelled by value: a whole number as an integer below 2**53 and as the shortest float from
    there on (as all digits if no float equals it), other floats by their shortest repr, -0.0 as 0. Tuples are
    lists; numpy scalars are the Python values they equal.

    Raises IdentityError for NaN and infinities, keys that aren't text, and any other type, by its place.
    """
    try:
        return _spell(value, 0).encode("utf-8")
    except UnicodeEncodeError:
        raise IdentityError("a text with a lone surrogate has no canonical form") from None
    except _Unspeakable as error:
        at = f" (at `{shown('.'.join(reversed(error.place)))}`)" if error.place else ""
        raise IdentityError(f"{error.problem}{at}") from None


class _Unspeakable(Exception):
    """A value without canonical form; its place is filled in on the way up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place: list[str] = []


def _spell(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return str(value) if -EXACT < value < EXACT else _large(value)
    if kind is float:
        return _float(value)
    if kind is dict:
        return _mapping(value, depth + 1)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is list or kind is tuple:
        return _sequence(value, depth + 1)
    return _spell(_plain(value), depth)


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise _Unspeakable(f"{value} has no place in a configuration")
    if -EXACT < value < EXACT and value == (whole := int(value)):
        return str(whole)
    return repr(value)


def _large(value: int) -> str:
    """An integer of 2**53 or more: as the float that equals it, if there is one."""
    if value.bit_length() > 1024:
        raise _Unspeakable(f"an integer of {value.bit_length()} bits is too large")
    try:
        as_float = float(value)
    except OverflowError:
        raise _Unspeakable(f"an integer of {value.bit_length()} bits is too large") from None
    return repr(as_float) if int(as_float) == value else str(value)


def _mapping(value: dict[Any, Any], depth: int) -> str:
    if depth > MAX_DEPTH:
        raise _Unspeakable("a value nested too deeply, perhaps inside itself, has no canonical form")
    items = []
    try:
        keys = sorted(value)
    except TypeError:
        keys = list(value)
    for key in keys:
        if type(key) is not str:
            raise _Unspeakable(f"the key {shown(repr(key))} is not text")
        try:
            items.append(f"{encode_basestring(key)}:{_spell(value[key], depth)}")
        except _Unspeakable as error:
            error.place.append(key)
            raise
    return "{" + ",".join(items) + "}"


def _sequence(value: list[Any] | tuple[Any, ...], depth: int) -> str:
    if depth > MAX_DEPTH:
        raise _Unspeakable("a value nested too deeply, perhaps inside itself, has no canonical form")
    items = []
    for index, item in enumerate(value):
        try:
            items.append(_spell(item, depth))
        except _Unspeakable as error:
            error.place.append(str(index))
            raise
    return "[" + ",".join(items) + "]"


def _plain(value: Any) -> Any:
    """A numpy scalar as the Python value it equals. Anything else is refused by the name of its type."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__ == "numpy" and hasattr(value, "item") and kind.__name__ != "ndarray":
        plain = value.item()
        if type(plain) in (bool, int, float, str):
            return plain
    hint = "; write a list" if hasattr(value, "tolist") else ""
    raise _Unspeakable(f"a value of type {name} has no canonical form{hint}")
