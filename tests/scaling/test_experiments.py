"""Plans against the closed form of Bayesian linear regression and against simulated experiments."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from scaling import next as command
from scaling.arrays import Floats
from scaling.errors import AnalysisError
from scaling.experiments import (
    Plan,
    best_input_goal,
    beyond,
    candidates,
    next_experiments,
    parameter_goal,
    prediction_goal,
    reach_goal,
    score,
    tamed,
)  # fmt: skip
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

SPECS = Path(__file__).parents[2] / "sweeps" / "published"
L2 = Objective("l2")
NOISE = 0.02
X = 2.0 ** np.arange(4, 12)
POWER = law_over("power", "x")
CHINCHILLA = law_over("chinchilla", ("n_params", "tokens"))
TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
POINT = np.array([TRUTH[n] for n in CHINCHILLA.names])


@cache
def posterior() -> Fit:
    """A power law whose draws have exactly the moments of its linear regression in logarithms, noise known."""
    rng = np.random.default_rng(0)
    rows = Rows(X, 3.0 * X**-0.3 * np.exp(NOISE * rng.standard_normal(len(X))))
    fit = fit_law(POWER, rows, objective=L2, draws=0)
    z = rng.standard_normal((4000, 2))
    z = (z - z.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T
    theta = np.array([np.log(fit.point[0]), fit.point[1]]) + z @ np.linalg.cholesky(np.linalg.inv(precision(X))).T
    return replace(fit, draws=np.column_stack([np.exp(theta[:, 0]), theta[:, 1]]))


def precision(x: Floats) -> Floats:
    """Of (log A, alpha), given responses at x [n]."""
    design = np.column_stack([np.ones(len(x)), -np.log(x)])
    return np.asarray(design.T @ design / NOISE**2)


def errors(x: Floats, goal: Floats) -> float:
    """The standard error of goal . (log A, alpha)."""
    return float(np.sqrt(goal @ np.linalg.inv(precision(x)) @ goal))


@cache
def surface() -> Fit:
    """Chinchilla on a 5 x 5 grid."""
    x = np.array(np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5))).reshape(2, -1)
    y = CHINCHILLA.value(POINT, x) * np.exp(0.003 * np.random.default_rng(1).standard_normal(x.shape[1]))
    return fit_law(CHINCHILLA, Rows(x, y), objective=L2, draws=1000)


def paid(places: Floats) -> Floats:
    return np.asarray(6 * places[0] * places[1])


@pytest.mark.parametrize(("goal", "direction"), [("alpha", (0.0, 1.0)), ("place", (1.0, -np.log(1e5)))])
def test_gains_are_those_of_bayesian_linear_regression(goal: str, direction: tuple[float, float]) -> None:
    fit, offered = posterior(), np.geomspace(8, 1e4, 9)[None]
    asked = parameter_goal(POWER, "alpha") if goal == "alpha" else prediction_goal(POWER, {"x": 1e5})
    plan = next_experiments(fit, asked, offered, offered[0], 2e4, noise=NOISE)
    seen, towards = X, np.array(direction)
    assert plan.before == pytest.approx(errors(seen, towards), rel=1e-9)
    assert len(plan.picks) >= 4
    for pick in plan.picks:
        assert pick.before == pytest.approx(errors(seen, towards), rel=1e-9)
        seen = np.append(seen, pick.at["x"])
        assert pick.after == pytest.approx(errors(seen, towards), rel=1e-9)
    assert plan.after == plan.picks[-1].after


def test_the_first_run_is_the_best_of_all_per_cost_or_alone() -> None:
    offered, towards = np.geomspace(8, 1e4, 9)[None], np.array([0.0, 1.0])
    before = errors(X, towards) ** 2
    gains = np.array([before - errors(np.append(X, x), towards) ** 2 for x in offered[0]])
    plan = next_experiments(posterior(), parameter_goal(POWER, "alpha"), offered, offered[0], 2e4, noise=NOISE)
    worth = gains >= 0.01 * before
    best = {float(offered[0][np.argmax(np.where(worth, gains / p, 0))]) for p in (offered[0], 1.0)}
    assert plan.picks[0].at["x"] in best


@pytest.mark.parametrize("x", [1e5, 10.0])
def test_a_linear_plan_keeps_what_it_promises_in_simulation(x: float) -> None:
    fit, goal = posterior(), prediction_goal(POWER, {"x": x})
    plan = next_experiments(fit, goal, candidates(fit), candidates(fit)[0], 5e4, noise=NOISE)
    assert plan.after < 0.8 * plan.before
    # the rows scatter by their own amount, so the plan is scored under that
    own = next_experiments(fit, goal, candidates(fit), candidates(fit)[0], 5e4)
    added = np.append(X, [p.at["x"] for p in own.picks])
    design = np.column_stack([np.ones(len(added)), -np.log(added)])
    s = float(np.sqrt(np.mean(fit.scatter() ** 2)))
    towards = np.array([1.0, -np.log(x)])
    exact = s * np.sqrt(towards @ np.linalg.inv(design.T @ design) @ towards)
    assert score(fit, goal, own, simulations=2000) == pytest.approx(exact, rel=0.06)


@pytest.mark.parametrize("kind", ["prediction", "allocation", "exponent"])
def test_a_plan_for_a_surface_keeps_what_it_promises_in_simulation(kind: str) -> None:
    fit = surface()
    goal = {
        "prediction": lambda: prediction_goal(CHINCHILLA, {"n_params": 7e10, "tokens": 1.4e12}),
        "allocation": lambda: best_input_goal(fit, "n_params", 1e24),
        "exponent": lambda: parameter_goal(CHINCHILLA, "alpha"),
    }[kind]()
    offered = candidates(fit)
    plan = next_experiments(fit, goal, offered, paid(offered), 3e22)
    assert plan.cost <= 3e22
    assert plan.after < 0.75 * plan.before
    assert score(fit, goal, plan, simulations=300) == pytest.approx(plan.after, rel=0.25)


def test_rows_of_known_error_are_simulated_with_it() -> None:
    sigma = np.where(np.arange(len(X)) % 2 == 0, 0.002, 0.05)
    y = 3.0 * X**-0.3 * np.exp(sigma * np.random.default_rng(3).standard_normal(len(X)))
    fit = fit_law(POWER, Rows(X, y, sigma * y, np.inf), objective=L2, draws=2000)
    plan = Plan("alpha", next_experiments(
        fit, parameter_goal(POWER, "alpha"), np.array([[4096.0]]), np.ones(1), 1.0, noise=0.002).picks, 1.0, 1.0, 1.0
    )  # fmt: skip
    assert len(plan.picks) == 1
    design = np.column_stack([np.ones(len(X) + 1), -np.log(np.append(X, 4096.0))])
    weight = 1 / np.append(sigma, 0.002) ** 2
    exact = np.sqrt(np.linalg.inv(design.T @ (weight[:, None] * design))[1, 1])
    found = score(fit, parameter_goal(POWER, "alpha"), plan, noise=0.002, simulations=2000)
    # the scale of the noise is that of eight residuals
    assert 0.5 * exact < found < 2 * exact


@given(budget=st.floats(10, 1e5), per_place=st.integers(1, 4), most=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_no_plan_costs_more_than_its_budget(budget: float, per_place: int, most: int) -> None:
    fit = posterior()
    offered = candidates(fit)
    plan = next_experiments(
        fit, parameter_goal(POWER, "A"), offered, offered[0], budget, per_place=per_place, most=most
    )
    assert plan.cost <= budget * (1 + 1e-9)
    assert len(plan.picks) <= most
    seen = [p.at["x"] for p in plan.picks]
    assert all(seen.count(x) <= per_place for x in seen)
    after = [plan.before, *(p.after for p in plan.picks)]
    assert after == sorted(after, reverse=True)
    for p in plan.picks:
        assert p.aim != "goal" or p.after**2 <= 0.99 * p.before**2 * (1 + 1e-9)


def test_one_run_in_five_tests_the_law() -> None:
    fit = surface()
    offered = candidates(fit)
    plan = next_experiments(fit, parameter_goal(CHINCHILLA, "alpha"), offered, paid(offered), 1e23)
    assert [i for i, p in enumerate(plan.picks) if p.aim == "test"] == [4, 9]
    for p in (plan.picks[4], plan.picks[9]):
        assert p.cost <= 1e23 / 5
        at = np.array([[p.at["n_params"]], [p.at["tokens"]]])
        assert beyond(fit.rows.x, at)[0] > 0.5
    assert plan.picks[4].at != plan.picks[9].at


def test_distance_from_the_hull() -> None:
    corners = np.exp(np.array([[0.0, 2.0, 0.0, 0.5], [0.0, 0.0, 2.0, 0.5]]))
    asked = np.exp(np.array([[0.5, 0.9, 3.0, -1.0, 2.0], [0.5, 0.9, 0.0, -1.0, 2.0]]))
    assert beyond(corners, asked) == pytest.approx([0, 0, 1, np.sqrt(2), np.sqrt(2)], abs=1e-4)


@cache
def near_path() -> Fit:
    """Tokens within 0.3 % of 20 per parameter."""
    n = 10.0 ** np.arange(7, 9.6, 0.25)
    x = np.array([n, 20 * n * np.tile([0.997, 1.003], 6)[: len(n)]])
    y = CHINCHILLA.value(POINT, x) * np.exp(0.002 * np.random.default_rng(0).standard_normal(len(n)))
    return fit_law(CHINCHILLA, Rows(x, y, 0.002 * y, 99), objective=L2, draws=500)


def test_what_trades_off_is_run_first() -> None:
    fit = near_path()
    assert fit.status == "weak"
    offered = candidates(fit)
    plan = next_experiments(fit, parameter_goal(CHINCHILLA, "alpha"), offered, paid(offered), 1e21)
    assert [p.aim for p in plan.picks[:3]] == ["weak direction", "weak direction", "goal"]
    assert plan.condition is not None
    assert plan.condition[0] > 1e3
    assert plan.condition[1] < 0.1 * plan.condition[0]
    ratio = np.array([p.at["tokens"] / p.at["n_params"] for p in plan.picks[:2]])
    assert (np.abs(np.log(ratio / 20)) > 0.5).all()  # off the path
    assert f"condition from {plan.condition[0]:.2g} to {plan.condition[1]:.2g}." in plan.text


@pytest.mark.parametrize("kind", ["prediction", "allocation"])
def test_a_plan_where_parameters_trade_off_keeps_what_it_promises_in_simulation(kind: str) -> None:
    # covariances of the draws, which follow a bent ridge, promise 2 to 5 times too little here
    fit = near_path()
    goal = prediction_goal(CHINCHILLA, {"n_params": 1e10, "tokens": 2e11})
    if kind == "allocation":
        goal = best_input_goal(fit, "n_params", 1e23)
    offered = candidates(fit)
    plan = next_experiments(fit, goal, offered, paid(offered), 1e21, noise=0.002)
    assert plan.after < 0.5 * plan.before
    assert score(fit, goal, plan, noise=0.002) == pytest.approx(plan.after, rel=0.4)
    assert any("simulate the plan" in reason for reason in plan.why)


def test_places_that_can_be_run() -> None:
    fit = surface()
    cells, grid = candidates(fit, "cells"), candidates(fit)
    assert cells.shape == (2, 25)
    assert {tuple(c) for c in cells.T} <= {tuple(c) for c in grid.T}
    assert grid.min(axis=1) == pytest.approx([1e8, 1e9])
    assert grid.max(axis=1) == pytest.approx([1e11, 1e12])
    ratio = grid[1] / grid[0]
    assert ratio.min() >= 0.1 / 10 * (1 - 1e-9)
    assert ratio.max() == pytest.approx(1e4)
    assert (ratio > 0.01).any()


def test_log_of_the_best_size_is_its_closed_form() -> None:
    # Hoffmann et al. 2022, equation 4
    fit = surface()
    assert fit.draws is not None
    e, a, alpha, b, beta = fit.draws[:50].T
    g = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    best = np.log(g) + beta / (alpha + beta) * np.log(1e24 / 6)
    assert best_input_goal(fit, "n_params", 1e24)(fit.draws[:50]) == pytest.approx(best, rel=1e-9)
    loss = e + (a * g**-alpha + b * g**beta) * (1e24 / 6) ** (-alpha * beta / (alpha + beta))
    for k in range(3):
        found = reach_goal(fit, float(loss[k]))(fit.draws[k : k + 1])
        assert found == pytest.approx([np.log(1e24)], rel=1e-6)


def test_a_goal_may_be_its_values() -> None:
    fit = surface()
    assert fit.draws is not None
    offered, goal = candidates(fit), parameter_goal(CHINCHILLA, "beta")
    one = next_experiments(fit, goal, offered, paid(offered), 1e22)
    assert next_experiments(fit, goal(fit.draws), offered, paid(offered), 1e22) == one


def test_draws_without_a_value_are_said() -> None:
    fit = surface()
    assert fit.draws is not None
    floor = float(np.quantile(fit.draws[:, CHINCHILLA.names.index("E")], 0.9))
    offered = candidates(fit)
    plan = next_experiments(fit, reach_goal(fit, floor), offered, paid(offered), 1e22, name="log cost")
    assert any("of the draws log cost has no value" in reason for reason in plan.why)


def test_far_draws_do_not_stretch_a_covariance() -> None:
    z = np.random.default_rng(0).standard_normal((1000, 2))
    wild = z.copy()
    wild[:3] = [[1e9, np.inf], [np.nan, -1e9], [-1e9, np.nan]]
    assert tamed(z) == pytest.approx(z - z.mean(axis=0))
    assert np.std(tamed(wild), axis=0) == pytest.approx(np.std(z, axis=0), rel=0.1)


def test_words() -> None:
    fit = posterior()
    plan = next_experiments(
        fit, parameter_goal(POWER, "alpha"), np.array([[4096.0]]), np.array([2e18]), 4e18, name="alpha", noise=NOISE
    )
    shown = f"s.e. of alpha from {plan.before:.3g} to {plan.after:.3g}."
    assert plan.text == f"2 runs, 4e+18 FLOP: {shown}"
    assert plan.to_json()["picks"][1] == {
        "at": {"x": 4096.0}, "cost": 2e18, "aim": "goal", "before": plan.picks[1].before, "after": plan.after,
    }  # fmt: skip
    none = next_experiments(fit, parameter_goal(POWER, "A"), np.array([[8.0]]), np.array([9.0]), 1.0, name="A")
    assert none.picks == ()
    assert none.text.startswith("No run within 1 FLOP would lower the variance of A by 1%")


def test_what_is_wrong_is_said() -> None:
    fit = posterior()
    with pytest.raises(AnalysisError, match=r"no parameter 'alhpa'\. Did you mean 'alpha'"):
        parameter_goal(POWER, "alhpa")
    with pytest.raises(AnalysisError, match="x is missing"):
        prediction_goal(POWER, {})
    with pytest.raises(AnalysisError, match=r"no input 'y'\. Known: x"):
        prediction_goal(POWER, {"y": 1.0})
    with pytest.raises(AnalysisError, match="x = -1, must be"):
        prediction_goal(POWER, {"x": -1.0})
    with pytest.raises(AnalysisError, match="no input 'token'"):
        best_input_goal(surface(), "token", 1e24)
    goal, one = parameter_goal(POWER, "A"), np.array([[1.0]])
    with pytest.raises(AnalysisError, match="without draws"):
        next_experiments(replace(fit, draws=None), goal, one, np.ones(1), 1.0)
    with pytest.raises(AnalysisError, match="cost of every candidate"):
        next_experiments(fit, goal, one, np.zeros(1), 1.0)
    with pytest.raises(AnalysisError, match="same in every draw"):
        next_experiments(fit, np.ones(4000), one, np.ones(1), 1.0)
    with pytest.raises(AnalysisError, match="no value in most"):
        next_experiments(fit, np.full(4000, np.nan), one, np.ones(1), 1.0)
    with pytest.raises(AnalysisError, match=r"\(5,\) values for 4000 draws"):
        next_experiments(fit, np.ones(5), one, np.ones(1), 1.0)
    with pytest.raises(AnalysisError, match="a plan without runs"):
        score(fit, goal, Plan("A", (), 1.0, 1.0, 1.0))


# -- the command -------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.app, list(arguments), env={"COLUMNS": "80"})


TWIN = (str(SPECS / "synthetic_chinchilla_twin.yaml"), "fit.bootstrap=200", "--law", "without outliers")


def test_command() -> None:
    shown = run(*TWIN, "--goal", "best:n_params@1e24", "--budget", "1e22", "--limit", "tokens=1e12", "--simulate")
    assert shown.exit_code == 0, shown.output
    assert "FLOP: s.e. of log n_params at 1e24 from" in " ".join(shown.stdout.split())
    assert "In simulated experiments with these runs it is" in shown.stdout
    assert "Runs to add, in order" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize("goal", ["n_params=7e10,tokens=1.4e12", "parameter:alpha", "reach:2.0"])
def test_command_as_json(goal: str) -> None:
    made = run(*TWIN, "--goal", goal, "--budget", "1e22", "--runs", "3", "--json", "--candidates", "cells")
    assert made.exit_code == 0, made.output
    data: dict[str, Any] = orjson.loads(made.stdout)
    assert data["schema"] == 1
    assert 1 <= len(data["picks"]) <= 3
    assert data["after"] < data["before"]
    assert data["cost"] <= data["budget"]


def test_command_for_a_law_that_was_refused() -> None:
    asked = (str(SPECS / "synthetic_designs.yaml"), "fit.bootstrap=100", "--group",
             "design=collinear_20_tokens_per_param", "--goal", "parameter:alpha", "--budget", "1e21")  # fmt: skip
    shown = run(*asked)
    assert shown.exit_code == 0, shown.output
    assert "To separate them add e.g. n_params=" in " ".join(shown.stdout.split())
    data = orjson.loads(run(*asked, "--json").stdout)
    assert len(data["check"]["cure"]["places"]) == 2
    assert data["why"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--goal", "parametr:alpha", "--budget", "1e22"), "'parametr' is no kind of goal. Did you mean 'parameter'?"),
        (("--goal", "parameter:alpha", "--budget", "much"), "'much' is no number"),
        (("--goal", "parameter:alpha", "--budget", "1e22", "--limit", "token=1"), "no such input"),
        (("--goal", "parameter:alpha", "--budget", "1e22", "--limit", "tokens=1"), "no candidate lies within"),
        (("--budget", "1e22"), "give --goal and --budget"),
    ],
)
def test_command_with_wrong_arguments(arguments: tuple[str, ...], words: str) -> None:
    made = run(*TWIN, *arguments)
    assert made.exit_code == 2
    assert words in " ".join(made.output.replace("│", " ").split())
