"""Designs against the closed form of Bayesian linear regression, against simulation, and plain linear algebra."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.design import candidates, cure, design_condition, next_runs, parameter_goal, prediction_goal, score
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

DATA = Path(__file__).parents[2] / "sweeps" / "published" / "data"
CHINCHILLA = law_over("chinchilla", ("n_params", "tokens"))
TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
POINT = np.array([TRUTH[n] for n in CHINCHILLA.names])
X = 2.0 ** np.arange(4, 12)


def places(name: str, **where: str) -> np.ndarray:
    table = pl.read_csv(DATA / f"{name}.csv", comment_prefix="#", infer_schema_length=None)
    for column, value in where.items():
        table = table.filter(pl.col(column) == value)
    return table.select("n_params", "tokens").cast(pl.Float64).to_numpy().T


def power_fit(noise: float = 0.02, seed: int = 0) -> Fit:
    y = 3.0 * X**-0.3 * np.exp(noise * np.random.default_rng(seed).standard_normal(len(X)))
    rows = Rows(X, y, noise * y, np.inf)
    return fit_law(law_over("power", "x"), rows, objective=Objective("l2"), draws=20_000)


def by_hand(x: np.ndarray) -> float:
    """The condition number of d log L / d (log E, log A, alpha, log B, beta) with centred inputs and unit columns."""
    n, d = np.log(x) - np.log(x).mean(axis=1, keepdims=True)
    first, second = (TRUTH[a] * v ** -TRUTH[e] for a, v, e in (("A", x[0], "alpha"), ("B", x[1], "beta")))
    loss = TRUTH["E"] + first + second
    columns = np.array([TRUTH["E"] + 0 * n, first, -n * first, second, -d * second]) / loss
    return float(np.linalg.cond((columns / np.linalg.norm(columns, axis=1, keepdims=True)).T))


@pytest.mark.parametrize(
    ("design", "least", "most"),
    [("collinear_20_tokens_per_param", 1e5, 1e8), ("single_token_budget", 1e14, np.inf), ("tiny_range", 1e3, 1e6)],
)
def test_designs_of_a_known_law(design: str, least: float, most: float) -> None:
    x = places("synthetic_unidentifiable_designs", design=design)
    found, words = design_condition(CHINCHILLA, POINT, x)
    assert least < found <= most
    if np.isfinite(found):
        assert found == pytest.approx(by_hand(x), rel=1e-3)
    assert "A" in words or "B" in words


def test_a_design_of_equal_compute_tells_all_parameters_apart() -> None:
    found, _ = design_condition(CHINCHILLA, POINT, places("synthetic_chinchilla_twin"))
    assert found == pytest.approx(24.5, abs=0.1)


def test_two_runs_off_the_path_cure_a_collinear_design() -> None:
    x = places("synthetic_unidentifiable_designs", design="collinear_20_tokens_per_param")
    n = np.geomspace(x[0].min(), x[0].max(), 5)
    offered = np.array(np.meshgrid(n, 20 * n)).reshape(2, -1)
    chosen, after = cure(CHINCHILLA, POINT, x, offered)
    assert len(chosen) == 2
    assert after < 1e3


def test_the_gain_of_runs_is_that_of_bayesian_linear_regression() -> None:
    # a power law is linear in (log A, alpha): with noise known, draws are the posterior under a flat prior
    fit = power_fit()
    offered = np.array([[8.0, 4096.0, 100.0]])
    plan = next_runs(fit, parameter_goal(fit.law, "alpha"), offered, np.array([1.0, 1.0, 1.0]), 3.0, noise=0.02)
    design = np.column_stack([np.ones(len(X)), -np.log(X)])
    precision = design.T @ design / 0.02**2
    assert plan.before == pytest.approx(np.sqrt(np.linalg.inv(precision)[1, 1]), rel=0.03)
    for pick in plan.picks:
        row = np.array([1.0, -np.log(pick.at["x"])])
        precision = precision + np.outer(row, row) / 0.02**2
        assert pick.after == pytest.approx(np.sqrt(np.linalg.inv(precision)[1, 1]), rel=0.03)
    assert {p.at["x"] for p in plan.picks} <= {8.0, 4096.0}  # the ends, never the middle


def test_a_plan_keeps_what_it_promises_in_simulation() -> None:
    fit = power_fit()
    goal = prediction_goal(fit.law, {"x": 1e5})
    plan = next_runs(fit, goal, candidates(fit), candidates(fit)[0], 5e4, noise=0.02)
    assert plan.after < plan.before
    assert score(fit, goal, plan, noise=0.02) == pytest.approx(plan.after, rel=0.2)


@given(budget=st.floats(1, 1e4), per_place=st.integers(1, 4), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_no_plan_costs_more_than_its_budget(budget: float, per_place: int, seed: int) -> None:
    fit = FITS.setdefault(seed, power_fit(seed=seed))
    offered = candidates(fit)
    plan = next_runs(fit, parameter_goal(fit.law, "A"), offered, offered[0], budget, per_place=per_place)
    assert plan.cost <= budget
    seen = [tuple(p.at.values()) for p in plan.picks]
    assert all(seen.count(s) <= per_place for s in seen)
    after = [p.after for p in plan.picks]
    assert after == sorted(after, reverse=True)


FITS: dict[int, Fit] = {}


def test_what_trades_off_is_run_first() -> None:
    n = 10.0 ** np.arange(7, 9.6, 0.25)
    x = np.array([n, 20 * n * np.tile([0.995, 1.005], 6)[: len(n)]])
    y = CHINCHILLA.value(POINT, x) * np.exp(0.002 * np.random.default_rng(0).standard_normal(len(n)))
    fit = fit_law(CHINCHILLA, Rows(x, y, 0.002 * y, 99), objective=Objective("l2"), draws=500)
    if fit.status == "refused":
        pytest.fail(str(fit.why))
    offered = candidates(fit)
    plan = next_runs(fit, parameter_goal(fit.law, "alpha"), offered, 6 * offered[0] * offered[1], 1e21)
    assert [p.aim for p in plan.picks[:2]] == ["weak direction"] * 2


def test_what_is_wrong_is_said() -> None:
    fit = power_fit()
    with pytest.raises(AnalysisError, match=r"no parameter 'alhpa'. Did you mean 'alpha'"):
        parameter_goal(fit.law, "alhpa")
    with pytest.raises(AnalysisError, match="x is missing"):
        prediction_goal(fit.law, {})
    bare = fit_law(fit.law, fit.rows, draws=0)
    with pytest.raises(AnalysisError, match="without draws"):
        next_runs(bare, parameter_goal(fit.law, "A"), np.array([[1.0]]), np.array([1.0]), 1.0)
    none = next_runs(fit, parameter_goal(fit.law, "A"), np.array([[1.0, 2.0]]), np.array([9.0, 9.0]), 1.0)
    assert none.picks == ()
    assert "No run within 1" in none.text
