"""From a spec to runs: every cell resolved by its task, identified, and costed. Nothing is started or stored here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.errors import LaunchError
from launchers.task import Config, Task, load_task
from sweeps.expand import Cell, Infeasible, expand
from sweeps.identity import run_id
from sweeps.load import LoadedSpec


@dataclass(frozen=True)
class PlannedRun:
    id: str
    config: Config  # resolved: no default is left to be filled in later
    facts: Mapping[str, float | None]  # n_params, flops, tokens, bytes, as far as the task knows them


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep and the runs that answer them; cells with equal configurations share a run."""

    loaded: LoadedSpec
    task: Task
    cells: list[tuple[Cell, str]]  # with the identity of its run
    runs: dict[str, PlannedRun]
    infeasible: list[Infeasible] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.loaded.spec.name

    @property
    def spec_folder(self) -> Path:
        return self.loaded.path.parent


def plan_sweep(loaded: LoadedSpec) -> Plan:
    """Expand, resolve and identify.

    Raises TaskError when the task can't be imported, SpecError or LaunchError when no cell is feasible.
    """
    if loaded.spec.task is None:
        raise LaunchError(f"{loaded.path}: a spec over a table of results has nothing to run")
    task = load_task(loaded.spec.task, loaded.path.parent)
    expansion = expand(loaded, task.facts if task.estimator else None)
    infeasible = list(expansion.infeasible)
    cells: list[tuple[Cell, str]] = []
    runs: dict[str, PlannedRun] = {}
    for cell in expansion.cells:
        try:
            config = task.resolve(cell.config)
            identity = run_id(task.name, config)
            if identity not in runs:
                runs[identity] = PlannedRun(identity, config, task.facts(config))
        except ValueError as error:
            infeasible.append(Infeasible(cell.coords, str(error)))
            continue
        cells.append((cell, identity))
    if not cells:
        raise LaunchError(_nothing_feasible(loaded, infeasible))
    return Plan(loaded, task, cells, runs, infeasible)


def _nothing_feasible(loaded: LoadedSpec, infeasible: list[Infeasible]) -> str:
    reasons = Counter(cell.reason for cell in infeasible).most_common(3)
    if len(reasons) == 1:
        return f"{loaded.path}: no cell can be run: {reasons[0][0]}"
    lines = "".join(f"\n  {count} cells: {reason}" for reason, count in reasons)
    return f"{loaded.path}: none of the {len(infeasible)} cells can be run:{lines}"


def coordinates(coords: Mapping[str, Any]) -> str:
    """A cell as people name it: `width=16,rule=hyperp,lr=0.03125,seed=0`."""
    return ",".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in coords.items()
    )
