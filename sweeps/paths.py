"""Dotted places in a configuration of nested dicts and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Config = dict[str, Any]
Parts = tuple[str, ...]


def split(path: str) -> Parts:
    """`model.width` as `("model", "width")`."""
    return tuple(path.split("."))


def read(config: Any, parts: Parts) -> Any:
    """The value at `parts`. Raises KeyError with the first missing dotted place."""
    node = config
    for depth, part in enumerate(parts):
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KeyError(".".join(parts[: depth + 1])) from None
    return node


def write(config: Any, parts: Parts, value: Any) -> None:
    """Sets the value at `parts`; missing dicts on the way are made."""
    node = config
    for part in parts[:-1]:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    if isinstance(node, list):
        node[int(parts[-1])] = value
    else:
        node[parts[-1]] = value


def blocked(config: Any, parts: Parts) -> tuple[str, Any] | None:
    """What keeps `write` from setting a scalar at `parts`: the dotted place in the way and what is there."""
    node = config
    for depth, part in enumerate(parts):
        here = ".".join(parts[:depth])
        if isinstance(node, list):
            if not part.isdecimal() or int(part) >= len(node):
                return here, node
            node = node[int(part)]
        elif isinstance(node, dict):
            if part not in node:
                return None
            node = node[part]
        else:
            return here, node
    return (".".join(parts), node) if isinstance(node, dict | list) else None


def leaves(node: Any, prefix: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Every place that isn't a non-empty dict, with its value; lists are entered as well as given."""
    if isinstance(node, dict) and (node or not prefix):
        for key, value in node.items():
            yield from leaves(value, (*prefix, key))
        return
    yield prefix, node
    if isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, (*prefix, str(index)))


def overlap(a: Parts, b: Parts) -> bool:
    """Whether one place is the other or lies inside it."""
    return a[: len(b)] == b[: len(a)]


class Taken:
    """Places that are in use, each with whose it is; finds one that overlaps another in no time."""

    def __init__(self) -> None:
        self._at: dict[Parts, str] = {}
        self._under: dict[Parts, Parts] = {}

    def find(self, place: Parts) -> tuple[Parts, str] | None:
        """A place in use that is `place`, contains it or lies inside it, and its owner."""
        for depth in range(1, len(place) + 1):
            if place[:depth] in self._at:
                return place[:depth], self._at[place[:depth]]
        inside = self._under.get(place)
        return (inside, self._at[inside]) if inside else None

    def add(self, place: Parts, owner: str) -> None:
        self._at[place] = owner
        for depth in range(1, len(place)):
            self._under[place[:depth]] = place
