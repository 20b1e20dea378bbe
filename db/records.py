from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from db.errors import StoreError
from db.events import clean

RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
FACTS = ("n_params", "flops", "tokens", "bytes")
RESERVED = ("run", "status")  # columns of every frame of runs


@dataclass(frozen=True)
class RunRecord:
    """A run as it is frozen when launched. n_params, flops, tokens, bytes: None where not known."""

    id: str
    identity_version: int
    task: str
    config: dict[str, Any]
    n_params: float | None = None
    flops: float | None = None
    tokens: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Selection:
    """A cell of a sweep: which run it looks at, its coordinates and its derived values by name."""

    run_id: str
    coords: dict[str, Any]
    derived: dict[str, Any]


@dataclass(frozen=True)
class RunStatus:
    """status: queued, running, done, diverged, failed or interrupted; attempt 0: none begun."""

    status: str
    attempt: int
    reason: str | None


_PLAIN = json.JSONEncoder(separators=(",", ":"))
_SORTED = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


def to_json(value: Any, *, sort_keys: bool = False) -> str:
    """JSON in ASCII; NaN, Infinity and integers of any size as Python writes them. StoreError for other types."""
    try:
        return (_SORTED if sort_keys else _PLAIN).encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"can't be stored as JSON: {error} (in {str(value)[:200]!r})") from None


def check_records(runs: Iterable[RunRecord], selections: Iterable[Selection]) -> None:
    """Refuse run ids that can't name a folder, and names that frames need for themselves."""
    for run_id in [record.id for record in runs] + [selection.run_id for selection in selections]:
        if not RUN_ID.fullmatch(run_id):
            raise StoreError(f"{run_id!r} isn't a run id: expected 1 to 64 letters, digits, '-' or '_'")
    names = {name for selection in selections for name in (*selection.coords, *selection.derived)}
    for name in RESERVED:
        if name in names:
            raise StoreError(f"'{name}' can't be the name of an axis or of a derived value: results have their own")


def run_row(record: RunRecord, now: float) -> dict[str, Any]:
    facts = {fact: _fact(record, fact) for fact in FACTS}
    return {
        "id": record.id,
        "identity_version": record.identity_version,
        "task": clean(record.task),
        "config": to_json(record.config),
        "registered": now,
        **facts,
    }


def _fact(record: RunRecord, name: str) -> float | None:
    value = getattr(record, name)
    try:
        return None if value is None or math.isnan(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise StoreError(f"run {record.id}: {name} is {value!r}, expected a number") from None


def object_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
