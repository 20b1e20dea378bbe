"""Objectives against their definitions, finite differences and other libraries."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm, t

from scaling.errors import AnalysisError
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective, link_slopes, linked, parts, unlinked
from scaling.rows import Rows

R = np.array([-7.0, -1.1, -0.3, 0.2, 0.9, 5.0])
HIDDEN = np.array([True, False, True, False, True, True])
SHARES = np.array([0.0, 0.2, 0.5, 0.7, 0.9, 1.0])
ALL = [
    Objective("huber", delta=1.0),
    Objective("l2"),
    Objective("student", nu=3.0, sigma=0.7),
    Objective("envelope", delta=1.0, penalty=4.0),
    Objective("censored", sigma=0.8),
    Objective("binomial", "logit"),
]


@pytest.mark.parametrize("objective", ALL, ids=lambda o: o.name)
def test_derivatives_agree_with_finite_differences(objective: Objective) -> None:
    here, up, down = (parts(objective, R + h, HIDDEN, SHARES) for h in (0, 1e-6, -1e-6))
    np.testing.assert_allclose(here.psi, (up.rho - down.rho) / 2e-6, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(here.bend, (up.psi - down.psi) / 2e-6, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("objective", [o for o in ALL if o.name != "binomial"], ids=lambda o: o.name)
def test_the_touching_parabola_lies_above(objective: Objective) -> None:
    at = parts(objective, R, HIDDEN, SHARES)
    for shift in np.linspace(-9, 9, 61):
        moved = parts(objective, R + shift, HIDDEN, SHARES).rho
        assert np.all(moved <= at.rho + at.psi * shift + 0.5 * at.touching * shift**2 + 1e-12)


def test_objectives_are_negative_log_likelihoods() -> None:
    student = parts(Objective("student", nu=3.0, sigma=0.7), R).rho / 0.49
    density = -t.logpdf(R / 0.7, 3.0)
    np.testing.assert_allclose(student - student[0], density - density[0], rtol=1e-10)
    censored = parts(Objective("censored", sigma=0.8), R, np.ones(6, dtype=bool)).rho / 0.64
    np.testing.assert_allclose(censored, -norm.logcdf(R / 0.8), rtol=1e-12)
    p = expit(R)
    counts = parts(Objective("binomial", "logit"), R, y=SHARES).rho
    direct = -(SHARES * np.log(p) + (1 - SHARES) * np.log1p(-p))
    entropy = -sum(np.where(s > 0, s * np.log(np.where(s > 0, s, 1)), 0) for s in (SHARES, 1 - SHARES))
    np.testing.assert_allclose(counts, direct - entropy, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("residual", ["log", "linear", "logit"])
def test_links_have_their_slopes_and_inverse(residual: str) -> None:
    y = np.array([0.1, 0.4, 0.93])
    first, second = link_slopes(residual, y)
    up, down = linked(residual, y + 1e-6), linked(residual, y - 1e-6)
    np.testing.assert_allclose(np.broadcast_to(first, 3), (up - down) / 2e-6, rtol=1e-8)
    slopes = [np.broadcast_to(link_slopes(residual, y + h)[0], 3) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.broadcast_to(second, 3), (slopes[0] - slopes[1]) / 2e-6, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(unlinked(residual, linked(residual, y)), y, rtol=1e-14)


X = 2.0 ** np.arange(4, 14)


def test_student_scale_and_law_maximise_the_likelihood() -> None:
    y = 3.0 * X**-0.3 * np.exp(0.05 * np.random.default_rng(0).standard_t(3, len(X)))
    fit = fit_law(law_over("power", "x"), Rows(X, y), objective=Objective("student", nu=3.0), draws=0)

    def negative(v: np.ndarray) -> float:
        r = v[0] - v[1] * np.log(X) - np.log(y)
        return float(-(t.logpdf(r / np.exp(v[2]), 3.0) - v[2]).sum())

    best = minimize(
        negative, [1.1, 0.3, -3.0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 9000}
    )
    assert fit.params["alpha"].value == pytest.approx(best.x[1], abs=1e-6)
    assert fit.objective.sigma == pytest.approx(np.exp(best.x[2]), rel=1e-5)


def test_censored_rows_enter_as_bounds() -> None:
    rng = np.random.default_rng(1)
    x = np.repeat(X, 8)
    truth = 5.0 * x**0.6
    seen = truth * np.exp(0.3 * rng.standard_normal(len(x)))
    cap = 400.0
    hidden = seen > cap
    y = np.minimum(seen, cap)
    law = law_over("power", "x")
    told = fit_law(law, Rows(x, y, censored=hidden), objective=Objective("censored"), draws=0)
    naive = fit_law(law, Rows(x, y), objective=Objective("l2"), draws=0)

    def negative(v: np.ndarray) -> float:
        z = (v[0] + v[1] * np.log(x) - np.log(y)) / np.exp(v[2])
        return float(-np.where(hidden, norm.logcdf(z), norm.logpdf(z) - v[2]).sum())

    best = minimize(
        negative, [1.0, 0.5, -1.0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 9000}
    )
    assert -told.params["alpha"].value == pytest.approx(best.x[1], abs=1e-5)
    assert told.objective.sigma == pytest.approx(np.exp(best.x[2]), rel=1e-5)
    assert abs(-told.params["alpha"].value - 0.6) < 0.03
    assert -naive.params["alpha"].value < 0.5  # a cap taken for a value flattens the law


def test_binomial_counts_are_a_logistic_regression() -> None:
    rng = np.random.default_rng(2)
    trials = np.full(len(X), 60.0)
    y = rng.binomial(60, expit(-3.0 + 1.0 * np.log(X / 20))) / 60
    law = law_over("1/(1 + (x0/x)^k)", "x", bounds={"x0": (1.0, 1e4), "k": (0.05, 10)})
    fit = fit_law(law, Rows(X, y, trials=trials), objective=Objective("binomial", "logit"), draws=200)

    def negative(v: np.ndarray) -> float:
        eta = v[0] + v[1] * np.log(X)
        return float((trials * (np.logaddexp(0, eta) - y * eta)).sum())

    best = minimize(negative, [-6.0, 1.0], method="BFGS", options={"gtol": 1e-9})
    assert fit.params["k"].value == pytest.approx(best.x[1], rel=1e-4)
    assert fit.params["x0"].value == pytest.approx(np.exp(-best.x[0] / best.x[1]), rel=1e-4)


def test_least_absolute_deviations_is_the_linear_programme() -> None:
    from scipy.optimize import linprog

    y = 3.0 * X**-0.3 * np.exp(0.05 * np.random.default_rng(4).standard_t(2, len(X)))
    fit = fit_law(law_over("power", "x"), Rows(X, y), objective=Objective("lad"), draws=0)
    n = len(X)
    design = np.column_stack([np.ones(n), np.log(X)])
    best = linprog(
        np.r_[0, 0, np.ones(2 * n)],
        A_eq=np.hstack([design, np.eye(n), -np.eye(n)]),
        b_eq=np.log(y),
        bounds=[(None, None)] * 2 + [(0, None)] * (2 * n),
    )
    assert fit.value == pytest.approx(best.fun, rel=1e-6)


def test_an_envelope_lies_below_the_middle() -> None:
    y = 3.0 * X**-0.3 * np.exp(0.1 * np.abs(np.random.default_rng(5).standard_normal(len(X))))
    law = law_over("power", "x")
    middle = fit_law(law, Rows(X, y), draws=0)
    lower = fit_law(law, Rows(X, y), objective=Objective("envelope", penalty=50.0), draws=0)
    assert np.mean(lower.predict(X).value < middle.predict(X).value) == 1.0
    assert "biased for their middle" in " ".join(lower.why)


@pytest.mark.parametrize(
    ("objective", "y", "part"),
    [
        (Objective(residual="logit"), 1.2, "between 0 and 1 under residual: logit"),
        (Objective("binomial", "logit"), -0.1, "a share from 0 to 1"),
        (Objective(), 0.0, "residual: linear takes any number"),
    ],
)
def test_a_response_outside_the_domain_is_named(objective: Objective, y: float, part: str) -> None:
    values = np.full(len(X), 0.5)
    values[3] = y
    with pytest.raises(AnalysisError, match=part):
        fit_law(law_over("power", "x"), Rows(X, values), objective=objective)
