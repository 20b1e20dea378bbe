"""Plain data of answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def present(items: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None or not finite, in lists too (as None, so that places keep their numbers)."""
    made = {k: _finite(v) for k, v in items.items()}
    return {k: v for k, v in made.items() if v is not None}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(v) for v in value] if isinstance(value, list) else value
