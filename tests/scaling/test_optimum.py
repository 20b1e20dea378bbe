from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.optimum import Optimum, Valley, ValleyNoise, find_optimum, valley_noise

DATA = Path(__file__).parent / "data"
GRID = 2.0 ** np.arange(-10, -3)
QUIET = ValleyNoise(1e-6, 0.0, 40.0, "replicates")


def valley(table: np.ndarray, x: np.ndarray = GRID, goal: str = "min", unstable: tuple[int, ...] = ()) -> Valley:
    table = np.array(table, dtype=float)
    table = table[:, None] if table.ndim == 1 else table
    mask = np.zeros(len(x), dtype=bool)
    mask[list(unstable)] = True
    return Valley("lr", "width 64", x, table, mask, goal)  # type: ignore[arg-type]


def find(v: Valley, noise: ValleyNoise = QUIET) -> Optimum:
    return find_optimum(v, noise, draws=500, rng=np.random.default_rng(0))


def parabola(u: float, curvature: float = 0.03, loss: float = 2.0, x: np.ndarray = GRID) -> np.ndarray:
    return loss * np.exp(0.5 * curvature * (np.log2(x) - u) ** 2)


@given(u=st.floats(-8.4, -5.6), curvature=st.floats(1e-3, 0.2), loss=st.floats(0.1, 10))
@settings(deadline=None, max_examples=50)
def test_a_parabola_is_found_exactly(u: float, curvature: float, loss: float) -> None:
    found = find(valley(parabola(u, curvature, loss)))
    assert found.status == "ok"
    assert np.log2(found.value) == pytest.approx(u, abs=2e-2)
    assert found.loss == pytest.approx(loss, rel=1e-4)
    assert found.n_points >= 5


@given(unit=st.floats(0.1, 10))
@settings(deadline=None, max_examples=20)
def test_the_loss_unit_does_not_move_the_optimum(unit: float) -> None:
    loss = parabola(-6.3) * np.exp(0.003 * np.random.default_rng(1).standard_normal(7))
    noise = ValleyNoise(0.003, 0.0, 40.0, "replicates")
    assert find(valley(loss * unit), noise).value == pytest.approx(find(valley(loss), noise).value, rel=1e-9)


def test_the_interval_is_that_of_the_delta_method() -> None:
    """Three points: vertex t = (y- - y+) / (2 (y- - 2 y0 + y+)), whose slope in the noise is known by hand."""
    x = 2.0 ** np.arange(-8, -5)
    sd, curvature = 1e-3, 0.05
    found = find_optimum(
        valley(parabola(-7, curvature, x=x), x), ValleyNoise(sd, 0.0, 1e6, "replicates"), draws=20_000,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    half = (np.log2(found.hi) - np.log2(found.lo)) / 2
    assert half == pytest.approx(1.96 * sd / (np.sqrt(2) * curvature), rel=0.05)


def test_noise_within_is_told_from_noise_in_common() -> None:
    rng = np.random.default_rng(0)
    made = []
    for i in range(60):
        common, own = 0.02 * rng.standard_normal(3), 0.003 * rng.standard_normal((7, 3))
        made.append(valley(parabola(-6.5 - i / 60)[:, None] * np.exp(common + own)))
    noise = valley_noise(made)
    assert noise.source == "replicates"
    assert noise.within == pytest.approx(0.003, rel=0.1)
    assert noise.common == pytest.approx(0.02, rel=0.2)


def test_single_runs_take_noise_from_the_scatter() -> None:
    rng = np.random.default_rng(1)
    made = [valley(parabola(-6.5) * np.exp(0.003 * rng.standard_normal(7))) for _ in range(80)]
    noise = valley_noise(made)
    assert noise.source == "scatter"
    assert noise.within == pytest.approx(0.003, rel=0.2)
    assert "one run per value" in " ".join(find(made[0], noise).why)


def test_without_noise_there_is_no_interval() -> None:
    found = find(valley(parabola(-6.5)), ValleyNoise(None, 0.0, 0.0, "none"))
    assert found.status == "ok"
    assert found.lo is None
    assert "no interval" in " ".join(found.why)


@pytest.mark.parametrize(
    ("u", "end", "more"), [(-10.5, "2^-10 is the smallest", "2^-11, 2^-12"), (-3, "2^-4 is the largest", "2^-3, 2^-2")]
)
def test_an_optimum_at_the_edge(u: float, end: str, more: str) -> None:
    found = find(valley(parabola(u)))
    assert found.status == "edge"
    assert found.value is None
    assert found.why == (f"tune lr at width 64: best value {end} tried. No optimum reported. Add {more}.",)


def test_an_optimum_within_half_a_step_of_the_edge() -> None:
    loss = parabola(-9.6)
    loss[1] *= np.exp(-0.004)
    found = find(valley(loss), ValleyNoise(0.003, 0.0, 40.0, "replicates"))
    assert found.status == "edge"
    assert "within half a step of 2^-10" in found.why[0]


def test_a_best_value_beside_a_diverged_one() -> None:
    found = find(valley(parabola(-5.0), unstable=(6,)))
    assert found.status == "refused"
    assert "diverged runs right above it, at 2^-4" in found.why[0]


def test_diverged_values_far_away_do_no_harm() -> None:
    loss = parabola(-7.0)
    loss[6] = np.nan
    assert find(valley(loss, unstable=(6,))).status == "ok"


def test_missing_results() -> None:
    loss = parabola(-7.0)
    loss[[0, 1, 4, 5, 6]] = np.nan
    assert "2 of 7 values" in find(valley(loss)).why[0]
    loss = parabola(-7.0)
    loss[4:] = np.nan
    found = find(valley(loss))
    assert found.status == "refused"
    assert "2^-6, next to the best value 2^-7, has no result" in found.why[0]


def test_no_valley_is_refused() -> None:
    spike = [2.0, 2.001, 2.0009, 1.95, 2.0008, 2.001, 2.0]
    cap = find(valley(np.array(spike) + np.array([0, 0.2, 0.3, 0.3, 0.3, 0.2, 0])))
    assert cap.status != "ok"
    assert cap.value is None
    flat = find(valley(np.full(7, 2.0)))
    assert flat.status != "ok"


def test_the_best_of_a_maximum() -> None:
    score = 5.0 - (np.log2(GRID) + 6.3) ** 2 / 20
    found = find(valley(score, goal="max"))
    assert np.log2(found.value) == pytest.approx(-6.3, abs=0.05)
    assert found.loss == pytest.approx(5.0, rel=1e-3)


def test_responses_that_are_not_positive_are_fitted_as_they_are() -> None:
    reward = -((np.log2(GRID) + 6.3) ** 2) / 20
    found = find(valley(reward, goal="max"))
    assert np.log2(found.value) == pytest.approx(-6.3, abs=0.02)
    assert found.loss == pytest.approx(0.0, abs=1e-3)


def test_a_lopsided_valley_takes_the_cubic_and_says_so() -> None:
    t = np.log2(GRID) + 6.6
    loss = 2.0 * np.exp(0.03 * (np.exp(0.5 * t) - 1 - 0.5 * t) / 0.25)
    found = find(valley(loss), ValleyNoise(1e-3, 0.0, 40.0, "replicates"))
    assert found.degree == 3
    assert "lopsided" in found.why[0]
    assert np.log2(found.value) == pytest.approx(-6.6, abs=0.1)
    assert found.lo < 2**-6.6 < found.hi


def test_the_lean_is_that_of_least_squares() -> None:
    """Five points, all in the floor: numpy's own polynomials give both vertices."""
    x = 2.0 ** np.arange(-8, -3)
    u = np.arange(-8.0, -3.0)
    height = np.array([0.031, 0.008, 0.0, 0.011, 0.040])
    found = find(valley(np.exp(height), x), ValleyNoise(0.01, 0.0, 40.0, "replicates"))
    a, b, _ = np.polyfit(u, height, 2)
    roots = np.roots(np.polyder(np.polyfit(u, height, 3)))
    cubic = float(roots[np.argmin(np.abs(roots + 6))].real)
    assert found.lean == pytest.approx(cubic + b / (2 * a), abs=1e-9)
    assert found.degree == 2


def test_a_cubic_far_off_within_noise_is_told_but_not_taken() -> None:
    t = np.log2(GRID) + 7.8
    loss = 2.0 * np.exp(0.03 * (np.exp(1.6 * t) - 1 - 1.6 * t) / 2.56)
    noise = ValleyNoise(0.1, 0.0, 40.0, "replicates")
    found = find(valley(loss), noise)
    assert found.degree == 2
    assert abs(found.lean) > 0.5
    assert "more than half a grid step off" in " ".join(found.why)


def published(depth_mup: int) -> list[tuple[float, Optimum]]:
    """Grid minima as printed, and our optima, of the published depth sweeps."""
    sweep = pl.read_csv(DATA / "hyperp_depth_lr_sweep.csv", comment_prefix="#")
    best = pl.read_csv(DATA / "hyperp_depth_optimum.csv", comment_prefix="#")
    column = "lr_opt_depth_mup" if depth_mup else "lr_opt_no_depth_mup"
    valleys = []
    for depth in best["depth"]:
        part = sweep.filter((pl.col("depth_mup") == depth_mup) & (pl.col("depth") == depth)).sort("lr")
        valleys.append(valley(part["val_loss"].to_numpy(), part["lr"].to_numpy()))
    noise = valley_noise(valleys)
    return [(b, find(v, noise)) for b, v in zip(best[column], valleys, strict=True)]


@pytest.mark.parametrize("depth_mup", [0, 1])
def test_published_sweeps_have_their_optimum_near_the_grid_minimum(depth_mup: int) -> None:
    for grid, found in published(depth_mup):
        assert found.status == "ok"
        assert found.value == pytest.approx(grid, rel=0.10)
        assert found.lo < found.value < found.hi


def test_a_parabola_through_all_points_would_miss_it() -> None:
    """Why the fit is local: on the published sweeps all-point parabolas are up to 20 % off."""
    worst = 0.0
    for grid, found in published(1):
        u = np.log2(found.valley.x)
        a, b, _ = np.polyfit(u, found.valley.table[:, 0], 2)
        worst = max(worst, abs(2 ** (-b / 2 / a) / grid - 1))
    assert 0.1 < worst < 0.25
    assert max(abs(found.value / grid - 1) for grid, found in published(1)) < worst
