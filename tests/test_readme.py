"""What the README shows is what works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from launchers.plan import plan_sweep
from sweeps.load import load

README = (Path(__file__).parent.parent / "README.md").read_text()


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(b for b in blocks if containing in b)


def test_the_spec_of_the_readme_expands(tmp_path: Path) -> None:
    path = tmp_path / "my_width.yaml"
    path.write_text(block("yaml", "name: my_width"))
    plan = plan_sweep(load(path))
    # 2 widths, 2 seeds; 7 rates, of which `where` leaves 6 to hyperp
    assert len(plan.cells) == 2 * 2 * (7 + 6)
    assert len(plan.infeasible) == 2 * 2


def test_the_training_function_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "train.py").write_text(block("python", "def train(config, run)"))
    (tmp_path / "spec.yaml").write_text(
        "name: mine\ntask: mypkg.train:train\nbase: {steps: 50}\naxes: {width: [1, 2]}\ntune: {lr: [0.1, 0.5, 1.0]}\n"
    )
    command = [sys.executable, "-m", "launchers.sweep", "spec.yaml", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "6 of 6 runs done" in result.stderr


def test_links_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / target).exists(), target
