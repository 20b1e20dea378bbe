"""Laws compared by what they predict; criteria against their formulas; nested laws under the truth."""

import numpy as np
import pytest

from scaling.comparison import aicc, compare_aicc, compare_laws, held_out, nested_test, rolling
from scaling.errors import AnalysisError
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

X = 2.0 ** np.arange(4, 16)
POWER, OFFSET = law_over("power", "x"), law_over("power_offset", "x")
L2 = Objective("l2")


def rows(floor: float, noise: float = 0.01, seed: int = 0) -> Rows:
    y = (floor + 3.0 * X**-0.4) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(X)))
    return Rows(X, y)


def test_the_law_that_predicts_is_chosen() -> None:
    found = compare_laws([POWER, OFFSET], rows(0.8))
    assert found.best == "power_offset"
    scores = {s.law: s for s in found.scores}
    assert scores["power_offset"].error < 0.5 * scores["power"].error
    assert found.tested >= 3
    assert found.frontier < X[-found.tested]


def test_a_tie_goes_to_fewer_parameters() -> None:
    wins = [compare_laws([OFFSET, POWER], rows(0.0, seed=s)).best for s in range(8)]
    assert wins.count("power") >= 6


def test_the_dearest_decade_is_held_out() -> None:
    cost = 10.0 ** np.arange(0, 5, 0.25)
    far = held_out(cost)
    assert np.array_equal(far, cost > 1e3 * 10**-0.25 * (1 + 1e-9)) or far.sum() == np.sum(cost > cost.max() / 10)
    narrow = held_out(np.linspace(1, 2, 20))
    assert narrow.sum() == 4
    with pytest.raises(AnalysisError, match="too few"):
        held_out(np.array([1.0, 2, 3]))


def test_aicc_is_its_formula() -> None:
    data = rows(0.8)
    fit = fit_law(POWER, data, objective=L2, draws=0)
    design = np.column_stack([np.ones(len(X)), np.log(X)])
    rss = np.linalg.lstsq(design, np.log(data.y), rcond=None)[1][0]
    n, k = len(X), 3
    assert aicc(fit) == pytest.approx(n * np.log(rss / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1), rel=1e-9)


def test_likelihoods_of_different_quantities_are_not_compared() -> None:
    data = rows(0.8)
    log = fit_law(POWER, data, objective=L2, draws=0)
    raw = fit_law(POWER, data, objective=Objective("l2", "linear"), draws=0)
    with pytest.raises(AnalysisError, match="different quantities"):
        compare_aicc(log, raw)
    with pytest.raises(AnalysisError, match="different rows"):
        compare_aicc(log, fit_law(POWER, data.take(np.arange(6)), objective=L2, draws=0))
    assert compare_aicc(fit_law(OFFSET, data, objective=L2, draws=0), log) < 0


def test_stopping_earlier_would_have_been_worse() -> None:
    stops = rolling(POWER, rows(0.8, noise=1e-4))
    assert len(stops) >= 3
    errors = [{f: e for f, e, _ in s.errors} for s in stops]
    assert all(e[4.0] is not None for e in errors[:-2])
    assert errors[0][16.0] > errors[0][4.0]  # a law without the floor is wrong further out


def test_a_floor_is_found_needed_or_not() -> None:
    assert nested_test(POWER, OFFSET, rows(0.8), draws=99).p < 0.05
    found = [nested_test(POWER, OFFSET, rows(0.0, seed=s), draws=99).p for s in range(12)]
    # at the edge of the full law half of all statistics are zero: p is not uniform, but seldom small
    assert sum(p < 0.1 for p in found) <= 4
    assert "is needed" in nested_test(POWER, OFFSET, rows(0.8), draws=99).text
