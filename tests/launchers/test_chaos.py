"""Kill the command or a worker at random moments, run the same command again: the same final tables."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from db.store import Store

if TYPE_CHECKING:
    from .conftest import Project

FAULTS = 20
CHANGES = (
    "axes.width.values=[16,64]",
    "base.steps=40",
    "base.seconds=1.2",
    "launcher.checkpoint_seconds=0.05",
    "replicates.seed=2",
    "--json",
)


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def ended(process: subprocess.Popen[str], seconds: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=seconds)
        return True
    return False


def tables(output: dict[str, Any]) -> dict[str, Any]:
    return {key: output[key] for key in ("runs", "optima", "fits", "predictions", "transfer")}


@pytest.mark.timeout(600)
def test_twenty_kills_change_nothing(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    calm, wild = new_project(tmp_path / "calm"), new_project(tmp_path / "wild")
    for project in (calm, wild):
        project.with_fit()
    undisturbed = calm.sweep(*CHANGES)
    assert undisturbed.code == 0, undisturbed.err

    draw = random.Random(20260101)
    targets = ["command", "worker"] * (FAULTS // 2)
    draw.shuffle(targets)
    process = wild.start(*CHANGES, "--retry-failed")
    for target in targets:
        while not (workers := children(process.pid)):  # not yet started, or through
            if ended(process, 0.02):
                process = wild.start(*CHANGES, "--retry-failed")
        time.sleep(draw.uniform(0, 0.8))
        with suppress(ProcessLookupError):
            os.kill(process.pid if target == "command" else draw.choice(workers), signal.SIGKILL)
        if target == "command":
            process.communicate()
            process = wild.start(*CHANGES, "--retry-failed")
    process.communicate(timeout=120)

    final = wild.sweep(*CHANGES, "--retry-failed")
    assert final.code == 0, final.err
    assert tables(final.json) == tables(undisturbed.json)
    for project in (calm, wild):
        with Store.open(f"sqlite:///{project.folder}/results/sweeplaw.db") as store:
            results = store.results("mine", "val_loss")
            assert results["status"].to_list() == ["done"] * 28
            steps = store.metrics(results["run"], ["val_loss"]).group_by("run").agg(steps="step")["steps"]
            assert all(sorted(s) == list(range(1, 41)) for s in steps.to_list())

    time.sleep(0.2)  # no worker outlives its launcher
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _is_worker(p, tmp_path)]
    assert left == []
    ends = [
        json.loads(line)
        for log in wild.folder.rglob("events.jsonl")
        for line in log.read_bytes().splitlines()
        if b'"end"' in line
    ]
    reasons = {event["reason"] for event in ends}
    assert any("SIGKILL" in (reason or "") for reason in reasons)


def _is_worker(path: Path, folder: Path) -> bool:
    with suppress(OSError):
        return b"launchers.worker" in path.read_bytes() and folder in Path(os.readlink(path.parent / "cwd")).parents
    return False
