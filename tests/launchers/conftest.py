"""A user's own folder: a task of theirs, a spec, and the command line run on it as a person would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

QUADRATIC = """
import math, os, time

def train(config, run):
    state = run.restore() or {"step": 0, "loss": None}
    for step in range(state["step"], config["steps"]):
        time.sleep(config.get("seconds", 0.0) / config["steps"])
        noise = math.sin(1000 * config["seed"] + step)
        loss = 1 + config["width"] ** -0.5 + (math.log2(config["lr"]) + 5) ** 2 / 50 + 1e-3 * noise
        run.log(step + 1, val_loss=loss)
        state = {"step": step + 1, "loss": loss}
        run.checkpoint(state)
    run.summary(final=state["loss"])
"""

SPEC: dict[str, Any] = {
    "name": "mine",
    "task": "mypkg.train:train",
    "base": {"steps": 5},
    "axes": {"width": [16, 32, 64, 128]},
    "tune": {"lr": {"log2": [-8, -2]}},
    "replicates": {"seed": 2},
}
FIT = {
    "of": "val_loss",
    "laws": [{"law": "power", "over": "width"}, {"law": "power", "of": "lr.optimum", "over": "width"}],
}


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A folder with `mypkg/train.py` and `spec.yaml` that knows nothing of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mypkg").mkdir(parents=True)
        self.task(QUADRATIC)
        self.spec()

    def with_fit(self) -> None:
        """Ask for the laws too; most tests need only the runs."""
        self.spec(fit=FIT)

    def task(self, source: str) -> None:
        (self.folder / "mypkg" / "train.py").write_text(textwrap.dedent(source))

    def spec(self, text: str | None = None, **changes: Any) -> None:
        content = text if text is not None else yaml.safe_dump({**SPEC, **changes}, sort_keys=False)
        (self.folder / "spec.yaml").write_text(content)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "launchers.sweep", "spec.yaml", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "COLUMNS": "200",
                "NO_COLOR": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
        )

    def sweep(self, *arguments: str, **environment: str) -> Result:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=240)
        return Result(process.returncode, out, err)


@pytest.fixture
def new_project() -> type[Project]:
    """Makes a project in the folder it is given."""
    return Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
