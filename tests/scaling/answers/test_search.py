from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from scaling.answers.additive import powers_of
from scaling.answers.cost import cost_over
from scaling.answers.search import Search, Task
from scaling.arrays import Floats
from scaling.laws import Law, law_over

REFERENCE = Path(__file__).parent / "data" / "elm_theory_reference.csv"
CHINCHILLA = law_over("chinchilla", ("n_params", "tokens"))
# the same values, but no sum of powers to the eye: the search has to work
HIDDEN = law_over("max(E + A*n_params^-alpha + B*tokens^-beta, 0)", ("n_params", "tokens"))

COSTS = ("6*n_params*tokens", "6*n_params^1.3*tokens", "2*n_params^0.5*tokens^0.8", "sqrt((6*n_params*tokens)^2)")


def near(u: Floats) -> bool:
    """Whether tokens per parameter are within a factor 1e10 of the start's: far off there is no optimum to find."""
    return bool(np.abs(u[1] - u[0] - np.log(20)).max() < np.log(1e10))


def task_of(law: Law, cost: str | None, start: tuple[float, ...] = (1e9, 2e10), **more: Floats) -> Task:
    d = len(law.inputs)
    limits = {"free": np.ones(d, bool), "low": np.full(d, -np.inf), "high": np.full(d, np.inf)} | more
    return Task(law, cost_over(law, cost), u=np.log(np.array(start)), **limits)  # type: ignore[arg-type]


def in_order(law: Law, **values: float | Floats) -> Floats:
    return np.atleast_2d(np.array([values[n] for n in law.names]).T)


parameters = st.fixed_dictionaries(
    {
        "E": st.floats(0, 3),
        "A": st.floats(20, 4000),
        "B": st.floats(20, 4000),
        "alpha": st.floats(0.2, 0.6),
        "beta": st.floats(0.2, 0.6),
    }
)


@settings(max_examples=50, deadline=None)
@given(parameters, st.floats(1e18, 1e27), st.sampled_from(COSTS))
def test_search_is_the_closed_form_to_1e_9(p: dict[str, float], budget: float, cost: str) -> None:
    level = np.array([np.log(budget)])
    closed = Search(task_of(CHINCHILLA, cost), in_order(CHINCHILLA, **p), level).run()
    assume(near(closed.u))
    search = Search(task_of(HIDDEN, cost), in_order(HIDDEN, **p), level).run()
    assert powers_of(CHINCHILLA, in_order(CHINCHILLA, **p)) is not None
    assert powers_of(HIDDEN, in_order(HIDDEN, **p)) is None
    np.testing.assert_allclose(search.u, closed.u, rtol=0, atol=1e-9)
    np.testing.assert_allclose(search.value, closed.value, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(parameters, st.floats(1e19, 1e26))
def test_closed_form_is_the_minimum_of_scipy(p: dict[str, float], budget: float) -> None:
    found = Search(task_of(CHINCHILLA, None), in_order(CHINCHILLA, **p), np.array([np.log(budget)])).run()
    assume(near(found.u))

    def loss(log_n: float) -> float:
        n = np.exp(log_n)
        return float(p["A"] * n ** -p["alpha"] + p["B"] * (budget / (6 * n)) ** -p["beta"])

    best = minimize_scalar(
        loss, bounds=(found.u[0, 0] - 12, found.u[0, 0] + 12), method="bounded", options={"xatol": 1e-9}
    )
    assert found.u[0, 0] == pytest.approx(best.x, abs=1e-5)
    assert found.value[0] - p["E"] <= best.fun * (1 + 1e-12)
    g = (p["alpha"] * p["A"] / (p["beta"] * p["B"])) ** (1 / (p["alpha"] + p["beta"]))
    n = g * (budget / 6) ** (p["beta"] / (p["alpha"] + p["beta"]))
    assert np.exp(found.u[0, 0]) == pytest.approx(n, rel=1e-11)


@settings(max_examples=30, deadline=None)
@given(parameters, st.floats(1e20, 1e26), st.sampled_from([1e9, 1e11, 2e12, 1e14]))
def test_a_lifetime_s_optimum_meets_its_first_order_condition(
    p: dict[str, float], budget: float, served: float
) -> None:
    """eps_N / eps_D = 1 + D_inf / (3 D) for C = 6 N D + 2 N D_inf (Sardana et al. 2024)."""
    cost = f"6*n_params*tokens + 2*n_params*{served!r}"
    found = Search(task_of(CHINCHILLA, cost), in_order(CHINCHILLA, **p), np.array([np.log(budget)])).run()
    assume(near(found.u))
    n, d = np.exp(found.u[:, 0])
    ratio = (p["alpha"] * p["A"] * n ** -p["alpha"]) / (p["beta"] * p["B"] * d ** -p["beta"])
    assert ratio == pytest.approx(1 + served / (3 * d), rel=1e-9)
    assert 6 * n * d + 2 * n * served == pytest.approx(budget, rel=1e-11)


@settings(max_examples=12, deadline=None)
@given(parameters, st.floats(1e19, 1e26))
def test_the_cheapest_place_for_a_loss_is_the_best_place_for_its_cost(p: dict[str, float], budget: float) -> None:
    for law, cost in ((CHINCHILLA, None), (HIDDEN, None), (CHINCHILLA, "6*n_params*tokens + 2*n_params*1e10")):
        task, values = task_of(law, cost), in_order(law, **p)
        best = Search(task, values, np.array([np.log(budget)])).run()
        assume(near(best.u))
        back = Search(task, values, best.value, cheapest=True).run()
        excess = (best.value[0] - p["E"]) / best.value[0]  # what rounding leaves of the loss above the floor
        assert back.value[0] == pytest.approx(np.log(budget), abs=1e-13 / excess + 1e-9)
        np.testing.assert_allclose(back.u, best.u, atol=1e-12 / excess + 1e-8)


def elm() -> Law:
    """Channels of a network of N neurons with k_e parameters and k_c inputs each."""
    h = {k: f"({k}^alpha_{k[2]}/({k}^alpha_{k[2]} + kappa_{k[2]}^alpha_{k[2]}))" for k in ("k_e", "k_c")}
    bits = f"log(1 + s_max*{h['k_e']}*{h['k_c']})/(2*log(2))"
    return law_over(f"E + A/(neurons/(1 + rho*(neurons - 1))*{bits})", ("neurons", "k_e", "k_c"))


def reference() -> list[dict[str, str]]:
    with REFERENCE.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize("row", reference(), ids=lambda row: f"{row['case']}-{row['P']}")
def test_three_inputs_against_the_tabled_optimum(row: dict[str, str]) -> None:
    law = elm()
    shapes = {k: float(row[k]) for k in ("rho", "s_max", "kappa_e", "alpha_e", "kappa_c", "alpha_c")}
    values = in_order(law, E=1.0, A=30.0, **shapes)
    fixed = bool(row["k_c_fixed"])
    task = task_of(law, "neurons*(k_e + k_c)", (100.0, 300.0, 300.0), free=np.array([True, True, not fixed]))
    found = Search(task, values, np.array([np.log(float(row["P"]))])).run()
    n, k_e, k_c = np.exp(found.u[:, 0])
    assert n == pytest.approx(float(row["N_opt"]), rel=1e-5)
    assert k_e == pytest.approx(float(row["k_e_opt"]), rel=1e-5)
    assert k_c == pytest.approx(float(row["k_c_opt"]), rel=1e-5)
    assert 30 / (found.value[0] - 1) == pytest.approx(float(row["I_opt_bits"]), rel=1e-6)


def test_four_inputs_with_limits_against_slsqp() -> None:
    names = ("width", "depth", "n_params", "tokens")
    law = law_over("architecture", names)
    values = {"E": 1.5, "A_width": 8.0, "A_depth": 3.0, "A_n_params": 90.0, "A_tokens": 300.0,
              "gamma_width": 0.4, "gamma_depth": 0.6, "gamma_n_params": 0.3, "gamma_tokens": 0.28}  # fmt: skip
    cost = "6*n_params*tokens*width^0.2*depth^0.1"
    high = np.log(np.array([4000.0, 30.0, np.inf, 2e11]))
    low = np.log(np.array([1.0, 1.0, 1.0, 1.0]))
    task = task_of(law, cost, (500, 10, 1e8, 2e9), low=low, high=high)
    found = Search(task, in_order(law, **values), np.array([np.log(1e22)])).run()
    amplitude = np.array([values[f"A_{n}"] for n in names])
    gamma = np.array([values[f"gamma_{n}"] for n in names])
    power = np.array([0.2, 0.1, 1, 1])
    peer = minimize(
        lambda u: (amplitude * np.exp(-gamma * u)).sum(), np.log([500, 10, 1e9, 1e10]), method="SLSQP",
        constraints={"type": "eq", "fun": lambda u: power @ u + np.log(6) - np.log(1e22)},
        bounds=[(0, h if np.isfinite(h) else None) for h in high], options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    np.testing.assert_allclose(found.u[:, 0], peer.x, atol=2e-5)
    assert found.value[0] - 1.5 == pytest.approx(peer.fun, rel=1e-10)
    assert (np.abs(found.u[:, 0] - high) < 1e-9).sum() == 3


def test_draws_at_limits_are_solved_each_on_their_own() -> None:
    rng = np.random.default_rng(0)
    values = in_order(CHINCHILLA, E=np.full(50, 1.7), A=400 * np.exp(rng.normal(size=50)), B=np.full(50, 410.0),
                      alpha=np.full(50, 0.34), beta=np.full(50, 0.3))  # fmt: skip
    high = np.log(np.array([np.inf, 1e12]))
    level = np.full(50, np.log(5.76e23))
    together = Search(task_of(CHINCHILLA, None, high=high), values, level).run()
    unlimited = Search(task_of(CHINCHILLA, None), values, level).run()
    over = unlimited.u[1] > high[1]
    assert 0 < over.sum() < 50
    np.testing.assert_array_equal(together.u[:, ~over], unlimited.u[:, ~over])
    np.testing.assert_allclose(np.exp(together.u[:, over]), np.repeat([[9.6e10], [1e12]], over.sum(), 1), rtol=1e-12)


def test_a_vanished_term_sends_its_input_to_0() -> None:
    for law in (CHINCHILLA, HIDDEN):
        values = in_order(law, E=1.7, A=400.0, B=0.0, alpha=0.3, beta=0.3)
        found = Search(task_of(law, None), values, np.array([np.log(1e22)])).run()
        np.testing.assert_array_equal(found.u[:, 0], [np.inf, -np.inf])
        low = np.log(np.array([1.0, 1e9]))
        held = Search(task_of(law, None, low=low), values, np.array([np.log(1e22)])).run()
        np.testing.assert_allclose(np.exp(held.u[:, 0]), [1e22 / 6e9, 1e9], rtol=1e-12)


def test_what_no_cost_reaches() -> None:
    for law in (CHINCHILLA, HIDDEN):
        values = in_order(law, E=1.7, A=400.0, B=410.0, alpha=0.3, beta=0.3)
        found = Search(task_of(law, None), values, np.array([1.69]), cheapest=True).run()
        assert found.value[0] == np.inf


def test_limits_that_leave_money_or_cost_too_much() -> None:
    values = in_order(CHINCHILLA, E=1.7, A=400.0, B=410.0, alpha=0.3, beta=0.3)
    level = np.array([np.log(1e22)])
    high = np.log(np.array([1e9, 1e10]))
    full = Search(task_of(CHINCHILLA, None, high=high), values, level).run()
    np.testing.assert_allclose(full.u[:, 0], high)
    low = np.log(np.array([1e12, 1e12]))
    assert Search(task_of(CHINCHILLA, None, low=low), values, level).run().value[0] == np.inf
