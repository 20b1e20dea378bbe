"""How wrong a law has been beyond its data."""

import numpy as np
import pytest

from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.origin import ModelError, cut_places
from scaling.rows import Rows, cost_of

LAW = law_over("chinchilla", ("n_params", "tokens"))
GRID = np.array(np.meshgrid(10.0 ** np.arange(7, 10, 0.5), 10.0 ** np.arange(8.5, 11.5, 0.5))).reshape(2, -1)


def losses(noise: float, seed: int, bend: float = 0.0) -> np.ndarray:
    clean = 1.8 + 480 * GRID[0] ** -0.35 + 2000 * GRID[1] ** -0.37
    wave = bend * np.sin(np.log10(GRID[0] * GRID[1]))
    return clean * np.exp(wave + noise * np.random.default_rng(seed).standard_normal(GRID.shape[1]))


def error(y: np.ndarray) -> ModelError:
    return fit_law(LAW, Rows(GRID, y), objective=Objective("l2"), draws=100).diagnostics.model


def test_noise_alone_is_seldom_taken_for_an_error_of_the_law() -> None:
    found = np.array([error(losses(0.003, seed)).sd for seed in range(12)])
    assert np.median(found) == 0.0
    assert found.max() < 0.01


def test_a_law_that_is_wrong_beyond_its_data_is_found_out() -> None:
    found = error(losses(0.0005, 1, bend=0.02)).sd
    assert found is not None
    assert found > 0.005


def test_the_interval_of_a_wrong_law_widens_with_distance() -> None:
    fit = fit_law(LAW, Rows(GRID, losses(0.0005, 1, bend=0.02)), objective=Objective("l2"), draws=300)
    at = fit.predict(np.array([[1e10, 1e12], [1e11, 1e13]]))
    assert at.lo is not None
    assert at.hi is not None
    width = (at.hi - at.lo) / at.value
    assert width[1] > width[0] > 0.01


def test_costs_of_new_places_follow_those_of_the_rows() -> None:
    cost = 7.0 * GRID[0] ** 0.9 * GRID[1] ** 1.1
    fit = fit_law(LAW, Rows(GRID, losses(0.001, 0), cost=cost), draws=100)
    model = fit.diagnostics.model
    beyond = np.array([[1e11], [1e13]])
    expected = np.log10(7.0 * 1e11**0.9 * 1e13**1.1 / cost.max())
    assert model.decades(LAW, beyond)[0] == pytest.approx(expected, rel=1e-9)
    assert model.decades(LAW, GRID[:, :1])[0] == pytest.approx(0.0, abs=1e-9)


def test_too_few_cuts_give_no_error_and_say_so() -> None:
    x = 2.0 ** np.arange(4, 9)
    fit = fit_law(law_over("power_offset", "width"), Rows(x, 1.6 + 2.5 * x**-0.5, 0.002 * x**0, 20))
    assert fit.diagnostics.model.sd is None
    assert "assumes the law holds" in fit.predict(np.array([1024.0])).basis


def test_cuts_leave_rows_on_both_sides() -> None:
    cost = np.repeat(10.0 ** np.arange(8), 3)
    cuts = cut_places(cost, 6)
    assert cuts[0] == 10.0
    assert cuts[-1] == 1e6
    assert len(cut_places(np.arange(1.0, 500), 10)) == 16


def test_the_cost_of_a_law_over_size_and_data() -> None:
    assert cost_of(LAW, np.array([[2.0], [5.0]])) == pytest.approx(60.0)
    assert cost_of(law_over("power", "flops"), np.array([[3.0]])) == pytest.approx(3.0)
    assert cost_of(law_over("power_multi", ("lr", "batch")), np.ones((2, 1))) is None
