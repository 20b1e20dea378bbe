"""The task of a spec: an importable `train(config, run)` and what its module says of a configuration."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.errors import TaskError

Config = dict[str, Any]
FACTS = ("n_params", "flops", "tokens", "bytes")


@dataclass(frozen=True)
class Task:
    """`train` with the optional `resolve` and `estimate` that stand beside it in its module."""

    name: str
    train: Callable[[Config, Any], None]
    resolver: Callable[[Config], Config] | None
    estimator: Callable[[Config], Any] | None

    def resolve(self, config: Config) -> Config:
        """The configuration with every default filled in. Raises ValueError on a bad value."""
        return self.resolver(deepcopy(config)) if self.resolver else config

    def facts(self, config: Config) -> Mapping[str, float | None]:
        """`n_params`, `flops` (training, total), `tokens` (trained on) and `bytes` (of the run folder), where known."""
        if self.estimator is None:
            return {}
        cost = self.estimator(config)
        if isinstance(cost, Mapping):
            return {name: cost.get(name) for name in FACTS}
        return {name: getattr(cost, name, None) for name in FACTS}


def search_path(spec_folder: Path) -> list[str]:
    """Where a task is imported from, beside what Python already searches: here, then the spec's folder."""
    return [str(Path.cwd()), str(spec_folder.resolve())]


def load_task(name: str, spec_folder: Path) -> Task:
    """Import `module:function`.

    Raises TaskError when the module or the function is missing, or importing it fails.
    """
    # Behind everything else: a file beside the spec must not shadow an installed package.
    sys.path.extend(p for p in search_path(spec_folder) if p not in sys.path)
    module_name, _, function = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise TaskError(
                f"task {name!r}: no module named {error.name!r}. Looked beside the spec ({spec_folder}), in the "
                "working folder and among the installed packages"
            ) from None
        raise TaskError(
            f"task {name!r}: importing {module_name!r} needs {error.name!r}, which isn't installed"
        ) from error
    except Exception as error:
        raise TaskError(f"task {name!r}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    train = getattr(module, function, None)
    if not callable(train):
        functions = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        near = difflib.get_close_matches(function, functions, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TaskError(f"task {name!r}: module {module_name!r} has no function {function!r}{hint}")
    return Task(name, train, getattr(module, "resolve", None), getattr(module, "estimate", None))
