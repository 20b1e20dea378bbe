from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from typer.testing import CliRunner

from scaling.best_of_n import app, read_rewards
from scaling.errors import AnalysisError


def rewards(folder: Path, prompts: int = 20, samples: int = 64) -> Path:
    """Standard normal rewards around a mean of their own for each prompt; the means sum to zero."""
    rng = np.random.default_rng(5)
    means = np.linspace(-1, 1, prompts)
    table = pl.DataFrame(
        {
            "prompt": np.repeat(np.arange(prompts), samples),
            "reward": (means[:, None] + rng.standard_normal((prompts, samples))).ravel(),
        }
    )
    table.write_csv(folder / "rewards.csv")
    table.write_parquet(folder / "rewards.parquet")
    np.save(folder / "rewards.npy", table["reward"].to_numpy().reshape(prompts, samples))
    return folder / "rewards.csv"


def test_the_truth_of_normal_rewards_lies_inside(tmp_path: Path) -> None:
    path = rewards(tmp_path)
    result = CliRunner().invoke(app, [str(path), "--prompt", "prompt", "--n", "1,16,256", "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["n"]: row for row in orjson.loads(result.stdout)["best_of"]}
    # E[max of N] of standard normals, computed with mpmath: data/normal_oracle.csv
    for n, truth in ((1, 0.0), (16, 1.7660)):
        assert rows[n]["measured"]
        assert rows[n]["value"] == pytest.approx(truth, abs=0.1)
    assert not rows[256]["measured"]
    assert rows[256]["lo"] <= 2.8269 <= rows[256]["hi"]


def test_all_formats_say_the_same(tmp_path: Path) -> None:
    rewards(tmp_path)
    csv, parquet, npy = (
        read_rewards(tmp_path / f"rewards.{kind}", "reward", "prompt")[1] for kind in ("csv", "parquet", "npy")
    )
    for a, b, c in zip(csv, parquet, npy, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_the_table_tells_measured_from_predicted_and_answers_a_target(tmp_path: Path) -> None:
    path = rewards(tmp_path)
    result = CliRunner().invoke(app, [str(path), "--prompt", "prompt", "--n", "16,256,10000000", "--target", "2.5"])
    assert result.exit_code == 0, result.output
    assert "1280 rewards of 20 prompts" in result.stdout
    assert "measured" in result.stdout
    assert "predicted" in result.stdout
    assert "reward 2.5 is expected at N = " in result.stdout


def test_a_sample_that_can_carry_nothing_is_refused_in_words(tmp_path: Path) -> None:
    pl.DataFrame({"reward": [1.0, 2.0, 3.0]}).write_csv(tmp_path / "few.csv")
    result = CliRunner().invoke(app, [str(tmp_path / "few.csv"), "--json"])
    assert result.exit_code == 0, result.output
    answer = orjson.loads(result.stdout)
    assert answer["fit"]["status"] == "refused"
    assert all("value" not in row and row["why"] for row in answer["best_of"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "no such file"),
        (["rewards.csv", "--reward", "rewrd"], "'reward'"),
        (["rewards.csv", "--prompt", "promt"], "'prompt'"),
        (["rewards.csv", "--n", "0,4"], "whole numbers"),
        (["text.csv"], "rewards are numbers"),
        (["holes.csv"], "lacks 1 of 2 rewards"),
    ],
)
def test_wrong_input_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    rewards(tmp_path, 2, 16)
    (tmp_path / "text.csv").write_text("reward\nhigh\nlow\n")
    (tmp_path / "holes.csv").write_text("reward,x\n1.0,1\n,2\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(AnalysisError, match=r"bad\.parquet: can't be read"):
        read_rewards(tmp_path / "bad.parquet", "reward", None)
