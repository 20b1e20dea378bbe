"""The command as a user meets it: a folder of their own, a task of their own, a subprocess."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from db.store import Store

if TYPE_CHECKING:
    from .conftest import Project


def frame(project: Project) -> pl.DataFrame:
    with Store.open(f"sqlite:///{project.folder}/results/sweeplaw.db") as store:
        return store.results("mine", "val_loss").sort("run")


def attempts(project: Project) -> pl.DataFrame:
    with Store.open(f"sqlite:///{project.folder}/results/sweeplaw.db") as store:
        return store.attempts("mine")


def test_a_task_of_ones_own_is_swept_fitted_and_reported(project: Project) -> None:
    project.with_fit()
    result = project.sweep("--json")
    assert result.code == 0, result.err
    assert result.json["schema"] == 1
    assert result.json["runs"]["done"] == 4 * 7 * 2
    optima = [o for o in result.json["optima"] if o["status"] == "ok"]
    assert len(optima) == 4
    for optimum in optima:  # the task's own truth
        assert optimum["value"] == pytest.approx(2**-5, rel=0.05)
        assert optimum["loss"] == pytest.approx(1 + optimum["at"]["width"] ** -0.5, rel=0.01)
    assert Path(project.folder, result.json["report"]).read_text().startswith("<!doctype html>")


def test_the_second_run_trains_nothing(project: Project) -> None:
    project.with_fit()
    first = project.sweep("--json").json
    again = project.sweep("--json")
    assert again.code == 0
    assert "nothing to train" in again.err
    assert again.json == first
    assert attempts(project)["attempt"].to_list() == [1] * 56


def test_adding_a_value_runs_only_the_new_cells(project: Project) -> None:
    project.with_fit()
    project.sweep()
    result = project.sweep("--json", "axes.width.values=[16,32,64,128,256]")
    assert result.json["runs"]["done"] == 70
    assert len(attempts(project)) == 70
    assert set(attempts(project)["attempt"]) == {1}


def test_two_sweeps_share_the_cells_they_have_in_common(project: Project) -> None:
    project.sweep()
    result = project.sweep("name=other", "axes.width.values=[64,256]")
    assert result.code == 0, result.err
    ids = {p.name for p in (project.folder / "results" / "runs").iterdir()}
    assert len(ids) == 56 + 14


def test_the_terminal_shows_tables_and_where_the_report_is(project: Project) -> None:
    project.with_fit()
    result = project.sweep()
    assert result.code == 0, result.err
    assert "report: results/reports/mine.html" in result.out
    assert "56 of 56 runs done" in result.err
    assert "width" in result.out


def test_a_dry_run_shows_costs_and_creates_nothing(project: Project) -> None:
    project.task(
        """
        def estimate(config):
            n_params, tokens = 10 * config["width"], config["steps"]
            return {"n_params": n_params, "flops": 6.0 * n_params * tokens, "tokens": tokens}
        def train(config, run):
            raise AssertionError
        """
    )
    before = sorted(project.folder.rglob("*"))
    result = project.sweep("--dry-run")
    assert result.code == 0, result.err
    assert "56 cells, 56 runs: 56 new" in result.out
    assert "n_params" in result.out
    assert "1.28 k" in result.out
    data = project.sweep("--dry-run", "--json").json
    assert data["total"]["flops"] == 14 * 60 * 5 * (16 + 32 + 64 + 128)
    assert data["total"]["wall_seconds"] is None
    assert sorted(project.folder.rglob("*")) == before


def test_a_dry_run_predicts_time_from_history(project: Project) -> None:
    project.sweep("base.seconds=0.05", "axes.width.values=[16]")
    data = project.sweep("--dry-run", "--json", "base.seconds=0.05").json
    assert data["total"]["to_run"] == 42
    assert data["total"]["run_seconds"] == pytest.approx(42 * 0.05, rel=0.5)


def test_help_and_dry_run_load_nothing_heavy(project: Project) -> None:
    code = (
        "import sys; sys.argv = ['sweep', 'spec.yaml', '--dry-run', '--json']\n"
        "from launchers.sweep import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'torch', 'optuna', 'plotly', 'scipy', 'sympy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    result = subprocess.run(
        [sys.executable, "-m", "launchers.sweep", "-h"], capture_output=True, text=True, check=False
    )
    assert "Examples" in result.stdout


BAD_TASKS = {
    "raises": (
        "def train(config, run):\n    raise RuntimeError('no such layer')",
        "RuntimeError: no such layer",
    ),
    "exits": ("import sys\ndef train(config, run):\n    sys.exit(3)", "SystemExit: 3"),
    "never logs": (
        "def train(config, run):\n    pass",
        "returned without logging; call run.log(step, val_loss=...)",
    ),
    "logs a text": (
        "def train(config, run):\n    run.log(1, val_loss='low')",
        "val_loss = 'low' is not a number",
    ),
    "dies": ("import os\ndef train(config, run):\n    os.kill(os.getpid(), 9)", "worker killed by SIGKILL"),
    "leaves": (
        "import os\ndef train(config, run):\n    os._exit(7)",
        "worker killed by its own exit with code 7",
    ),
}


@pytest.mark.parametrize("name", BAD_TASKS)
def test_a_failing_task_is_named_and_the_rest_goes_on(project: Project, name: str) -> None:
    source, reason = BAD_TASKS[name]
    body = textwrap.indent(source, "") + "\n"
    project.task(
        body.replace("def train", "def bad")
        + textwrap.dedent(
            """
        def train(config, run):
            if config["width"] == 32 and config["seed"] == 0:
                return bad(config, run)
            run.log(1, val_loss=2.0 + (config["lr"] - 0.03) ** 2 + 1e-6 * config["seed"])
        """
        )
    )
    result = project.sweep()
    assert result.code == 1
    assert reason in result.err
    assert "49 of 56 runs done, 7 failed" in result.err
    rows = frame(project)
    assert rows.filter(pl.col("status") == "failed").select("width", "seed").unique().rows() == [(32, 0)]
    assert rows.filter(pl.col("status") == "done")["val_loss"].null_count() == 0


def test_failed_runs_wait_for_retry_failed(project: Project) -> None:
    project.task("def train(config, run):\n    raise RuntimeError('full disk')")
    changes = ["axes.width.values=[16]", "replicates.seed=1"]
    assert project.sweep(*changes).code == 1
    again = project.sweep(*changes)
    assert again.code == 1
    assert "nothing to train" in again.err
    project.task("def train(config, run):\n    run.log(1, val_loss=1 + abs(config['lr'] - 0.03))")
    mended = project.sweep("--retry-failed", *changes)
    assert mended.code == 0, mended.err
    assert sorted(attempts(project)["attempt"]) == [1] * 7 + [2] * 7


def test_nan_is_a_result_called_diverged(project: Project) -> None:
    project.with_fit()
    project.task(
        """
        import math
        def train(config, run):
            run.log(1, val_loss=3.0)
            run.log(2, val_loss=math.nan if config["lr"] > 0.2 else 1 + (math.log2(config["lr"]) + 5) ** 2)
        """
    )
    result = project.sweep("--json")
    assert result.code == 0, result.err
    assert result.json["runs"]["diverged"] == 8
    assert "val_loss = nan at step 2" in result.err
    assert frame(project).filter(pl.col("status") == "diverged")["val_loss"].null_count() == 8
    assert project.sweep().code == 0  # and it is not run again
    assert set(attempts(project)["attempt"]) == {1}


BAD_SPECS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "typo": ({"axis": {"width": [1]}}, ["spec.yaml", "axis", "axes"]),
    "wrong type": ({"axes": 5}, ["spec.yaml", "axes", "5"]),
    "empty axis": ({"axes": {"width": []}}, ["spec.yaml", "axes.width"]),
    "bad expression": ({"where": "width <"}, ["spec.yaml", "where", "width <"]),
    "unknown name": ({"where": "widht < 3"}, ["spec.yaml", "widht", "width"]),
    "no module": ({"task": "mypkgs.train:train"}, ["mypkgs.train:train", "no module named 'mypkgs'"]),
    "no function": ({"task": "mypkg.train:trian"}, ["no function 'trian'", "did you mean 'train'"]),
    "missing corpus": (
        {
            "task": "models.lm:train",
            "base": {"corpus": "/nowhere/text", "steps": 5},
            "axes": {"width": {"path": "model.width", "values": [16]}},
            "tune": {},
            "replicates": {},
        },
        ["/nowhere/text"],
    ),
    "unknown metric axis": ({"fit": {"laws": [{"law": "power", "over": "depht"}]}}, ["spec.yaml", "depht"]),
}


@pytest.mark.parametrize("name", BAD_SPECS)
def test_a_wrong_spec_is_one_clear_error(project: Project, name: str) -> None:
    changes, words = BAD_SPECS[name]
    project.spec(**changes)
    result = project.sweep()
    assert result.code == 2, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err
    assert not (project.folder / "results").exists()
    assert "error" in project.sweep("--json").json


def test_a_folder_that_cannot_be_made_is_one_clear_error(project: Project) -> None:
    (project.folder / "taken").write_text("a file")
    result = project.sweep("--home", "taken/results")
    assert result.code == 2
    assert "taken" in result.err
    assert "Traceback" not in result.err


def test_a_metric_that_no_run_logged_is_an_error_with_the_nearest_name(project: Project) -> None:
    project.spec(fit={"of": "val_los", "laws": []})
    result = project.sweep()
    assert result.code == 2
    assert "val_los" in result.err
    assert "val_loss" in result.err


def test_a_later_edit_of_code_defaults_does_not_reach_a_frozen_run(project: Project) -> None:
    """What a run is trained with is what was resolved when it was launched."""
    project.task(
        """
        def resolve(config):
            return {"depth": 4, **config}
        def train(config, run):
            run.log(1, val_loss=float(config["depth"]))
        """
    )
    changes = ["axes.width.values=[16]", "tune={}", "replicates={}"]
    assert project.sweep(*changes).code == 0
    folder = next((project.folder / "results" / "runs").iterdir())
    assert json.loads((folder / "config.json").read_text())["config"]["depth"] == 4
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("4", "5"))
    (folder / "events.jsonl").unlink()
    (project.folder / "results" / "sweeplaw.db").unlink()
    result = project.sweep(*changes)
    assert result.code == 1
    assert "was changed after the run was launched" in result.err


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def logs(project: Project) -> str:
    files = (project.folder / "results" / "runs").glob("*/events.jsonl")
    return "".join(f.read_text(errors="replace") for f in files)


def test_ctrl_c_saves_and_the_same_command_continues(project: Project) -> None:
    changes = ["axes.width.values=[16]", "base.steps=200", "base.seconds=3", "replicates.seed=1", "--json"]
    process = project.start(*changes)
    wait_for(lambda: '"log"' in logs(project))
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues" in err
    assert '"status":"interrupted"' in logs(project)

    result = project.sweep(*changes)
    assert result.code == 0, result.err
    resumed = [json.loads(line) for line in logs(project).splitlines() if '"from_step":' in line]
    assert any(event["from_step"] for event in resumed)  # it went on from the step it had saved
    with Store.open(f"sqlite:///{project.folder}/results/sweeplaw.db") as store:
        for run, rows in store.metrics(frame(project)["run"]).group_by("run"):
            assert sorted(rows["step"]) == list(range(1, 201)), run


def test_two_commands_at_once_train_every_run_once(project: Project) -> None:
    changes = ["base.seconds=0.1", "axes.width.values=[16,32]", "--json"]
    both = [project.start(*changes) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert attempts(project)["attempt"].to_list() == [1] * 28
    assert frame(project)["status"].to_list() == ["done"] * 28


def test_workers_share_the_cores(project: Project) -> None:
    project.task(
        """
        import os
        def train(config, run):
            run.log(1, val_loss=1.0 + config["lr"], threads=run.threads, omp=int(os.environ["OMP_NUM_THREADS"]))
        """
    )
    assert project.sweep("launcher.workers=2", "launcher.threads=3").code == 0
    with Store.open(f"sqlite:///{project.folder}/results/sweeplaw.db") as store:
        rows = store.metrics(frame(project)["run"], ["threads", "omp"])
    assert set(rows["value"]) == {3.0}
    starts = [json.loads(line) for line in logs(project).splitlines() if '"e":"start"' in line]
    assert len({event["pid"] for event in starts}) <= 2  # long-lived workers, not one per run
    assert os.getpid() not in {event["pid"] for event in starts}
