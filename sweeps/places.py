"""Where the entries of a spec are written in the configuration."""

from __future__ import annotations

from typing import Any

from sweeps import paths
from sweeps.paths import Parts
from sweeps.schema import Derived, Grid, Replicates, Spec


def grid_place(name: str, entry: Grid | Replicates) -> Parts | None:
    """The place of an axis' value; None when `path: null` says nowhere."""
    if "path" in entry.model_fields_set and entry.path is None:
        return None
    return paths.split(entry.path or name)


def derived_place(spec: Spec, name: str, derived: Derived) -> Parts | None:
    """The place of a derived value: `path`, else the configuration's key of that name, else nowhere."""
    if derived.path is not None:
        return paths.split(derived.path)
    if "path" in derived.model_fields_set:
        return None
    return (name,) if name in spec.base or name == "tokens" else None


def settings(bundle: dict[str, Any]) -> list[tuple[Parts, Any]]:
    """The values that a bundle sets and their places; its keys may be nested or dotted."""
    found: list[tuple[Parts, Any]] = []
    for key, value in bundle.items():
        place = paths.split(key)
        if isinstance(value, dict) and value:
            found += [((*place, *inner), leaf) for inner, leaf in settings(value)]
        else:
            found.append((place, value))
    return found
