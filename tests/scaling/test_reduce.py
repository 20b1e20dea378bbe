import numpy as np
import polars as pl
import pytest

from scaling import reduce

RUNS = pl.DataFrame(
    {
        "run": list("abcdefgh"),
        "status": ["done", "done", "done", "diverged", "failed", None, "done", "done"],
        "width": [16, 16, 32, 32, 32, 64, 64, 64],
        "loss": [2.0, 2.2, 1.8, None, 1.7, None, float("nan"), None],
    }
)


def test_outcomes() -> None:
    runs = reduce.outcomes(RUNS, "loss")
    assert runs["outcome"].to_list() == ["done", "done", "done", "diverged", "failed", "missing", "diverged", "missing"]
    assert runs["loss"].to_list() == [2.0, 2.2, 1.8, None, None, None, None, None]
    assert reduce.tally(runs) == {"done": 3, "diverged": 2, "failed": 1, "missing": 2}


def test_mean_over_replicates() -> None:
    cells = reduce.mean(reduce.outcomes(RUNS, "loss"), ["width"], "loss")
    assert cells["value"].to_list() == [2.1, 1.8, None]
    assert cells["stderr"][0] == pytest.approx(np.std([2.0, 2.2], ddof=1) / np.sqrt(2))
    assert cells["stderr"][1] is None
    assert cells["n"].to_list() == [2, 1, 0]
    assert cells["n_diverged"].to_list() == [0, 1, 1]
    assert cells["n_failed"].to_list() == [0, 1, 0]
    assert cells["n_missing"].to_list() == [0, 0, 2]


def test_mean_of_everything() -> None:
    cells = reduce.mean(reduce.outcomes(RUNS, "loss"), [], "loss")
    assert cells["value"].to_list() == [2.0]


def test_pooled_noise_is_the_planted_one() -> None:
    rng = np.random.default_rng(0)
    width = np.repeat([16, 32, 64, 128], 200)
    loss = np.exp(0.01 * rng.standard_normal(800)) * np.repeat([3.0, 2.5, 2.2, 2.0], 200)
    runs = pl.DataFrame({"width": width, "loss": loss, "outcome": "done"})
    noise = reduce.pooled_noise(runs, ["width"], "loss", log=True)
    assert noise.dof == 796
    assert noise.sd == pytest.approx(0.01, rel=0.1)


def test_single_runs_take_the_pooled_noise() -> None:
    cells = reduce.mean(reduce.outcomes(RUNS, "loss"), ["width"], "loss").filter(pl.col("n") > 0)
    stderr = reduce.pooled_stderr(cells, reduce.Noise(0.01, 8), log=True)
    np.testing.assert_allclose(stderr, [0.01 * 2.1 / np.sqrt(2), 0.01 * 1.8])
    assert reduce.pooled_stderr(cells, reduce.Noise(None, 0), log=True) is None


def test_nothing_replicated_is_no_noise() -> None:
    runs = pl.DataFrame({"width": [1, 2], "loss": [2.0, 1.9], "outcome": "done"})
    assert reduce.pooled_noise(runs, ["width"], "loss", log=True) == reduce.Noise(None, 0.0)
