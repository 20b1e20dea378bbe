"""Specs written as text, loaded as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import settings

from sweeps.load import LoadedSpec, load

# A shared machine may stall for a moment in any example.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Load = Callable[..., LoadedSpec]


@pytest.fixture
def spec(tmp_path: Path) -> Load:
    """`spec(text, *overrides)`: the spec of a file with `name` and `task` on its first two lines."""

    def make(text: str, *overrides: str) -> LoadedSpec:
        path = tmp_path / "s.yaml"
        path.write_text("name: s\ntask: m:f\n" + dedent(text).lstrip("\n"))
        return load(path, overrides)

    return make
