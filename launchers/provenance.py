"""Which code produced a result: the commit, and the versions of what it stands on."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("sweeplaw", "torch", "numpy", "scipy")


def code_version(folder: Path) -> dict[str, Any]:
    """The git commit of `folder` and whether files differ from it; both None outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else None
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


@cache
def packages() -> dict[str, str]:
    """Versions of Python and of the packages that shape a result, without importing them."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
