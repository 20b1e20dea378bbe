"""Every registered law against finite differences, its own printed formula and published values."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from scaling.arrays import Floats
from scaling.fitting import fit_law
from scaling.laws import Law, law_over
from scaling.objectives import Objective
from scaling.registry import REGISTRY
from scaling.rows import Rows

EXTRA = {"power_multi": ("n_params", "tokens", "batch"), "architecture": ("width", "depth", "tokens")}


def inputs(name: str) -> tuple[str, ...]:
    return EXTRA.get(name) or REGISTRY[name].inputs


def places(law: Law) -> Floats:
    """Where a law is evaluated: inputs of about 1, whole numbers where they count draws or experts."""
    rng = np.random.default_rng(len(law.text))
    x = rng.uniform(0.6, 2.4, (len(law.inputs), 6))
    if "T" in law.inputs or "experts" in law.inputs:
        x += 1.5
    return np.ceil(x + 1) if law.inputs == ("n",) else x


def typical(law: Law) -> Floats:
    rng = np.random.default_rng(3)
    out = []
    for p in law.parameters:
        share = rng.uniform(0.35, 0.65)
        low, high = p.start
        if p.linear:
            out.append(rng.uniform(0.3, 0.9))
        else:
            out.append(low * (high / low) ** share if p.positive else low + (high - low) * share)
    return np.array(out)


@pytest.mark.parametrize("name", REGISTRY)
def test_derivatives_agree_with_finite_differences(name: str) -> None:
    law = law_over(name, inputs(name))
    x, theta = places(law), law.encode(typical(law))
    logs = np.log(x)[:, None, :]
    jet = law.jet(theta[None, :], logs)
    np.testing.assert_allclose(jet.value[0], law.value(law.decode(theta), x), rtol=1e-12)
    size = np.abs(jet.value).max()
    for i, step in enumerate(np.eye(len(theta)) * 1e-5):
        up, down = (law.jet((theta + s)[None, :], logs) for s in (step, -step))
        slope = (up.value - down.value) / 2e-5
        np.testing.assert_allclose(np.broadcast_to(jet.gradient[i], (1, 6)), slope, rtol=2e-6, atol=1e-7 * size)
        for j in range(i, len(theta)):
            bend = np.broadcast_to(jet.hessian.get((i, j), 0.0), (1, 6))
            change = np.broadcast_to((np.asarray(up.gradient[j]) - down.gradient[j]) / 2e-5, (1, 6))
            np.testing.assert_allclose(bend, change, rtol=2e-6, atol=2e-7 * size)


@pytest.mark.parametrize("name", REGISTRY)
def test_slopes_by_parameter_and_by_input(name: str) -> None:
    law = law_over(name, inputs(name))
    x, parameters = places(law), typical(law)
    slopes = law.gradient(parameters, x)
    for i, step in enumerate(np.eye(len(parameters)) * 1e-6):
        change = (law.value(parameters + step, x) - law.value(parameters - step, x)) / 2e-6
        np.testing.assert_allclose(slopes[i], change, rtol=1e-5, atol=1e-7)
    for i, step in enumerate(np.eye(len(law.inputs))[:, :, None] * 1e-6):
        change = (law.value(parameters, x + step) - law.value(parameters, x - step)) / 2e-6
        np.testing.assert_allclose(law.partial(parameters, x, i), change, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [n for n in REGISTRY if law_over(n, inputs(n)).scales])
def test_a_change_of_units_is_undone(name: str) -> None:
    law = law_over(name, inputs(name))
    x, parameters = places(law), typical(law)
    assert law.scales is not None
    scale = np.array([3e5, 7e-4, 2e9])[list(law.scales)]
    if law.inputs == ("n",):
        return
    np.testing.assert_allclose(
        law.value(law.restore(parameters, scale), x * scale[:, None]), law.value(parameters, x), rtol=1e-8
    )
    np.testing.assert_allclose(law.scaled(law.restore(parameters, scale), scale), parameters, rtol=1e-12)


N, D, U = np.array([1e8, 7e9, 3e8]), np.array([2e9, 1.4e12, 9e9]), np.array([2e9, 1e11, 1e9])


@pytest.mark.parametrize(
    ("name", "values", "x", "truth"),
    [
        (
            "chinchilla",
            {"E": 1.8172, "A": 482.01, "alpha": 0.3478, "B": 2085.43, "beta": 0.3658},
            (N, D),
            1.8172 + 482.01 / N**0.3478 + 2085.43 / D**0.3658,
        ),
        (
            "kaplan_joint",
            {"N_c": 6.4e13, "alpha_N": 0.076, "alpha_D": 0.103, "D_c": 1.8e13},
            (N, D),
            ((6.4e13 / N) ** (0.076 / 0.103) + 1.8e13 / D) ** 0.103,
        ),
        (
            "chinchilla_tied",
            {"E": 1.5, "A": 120.0, "eta": 0.12, "B": 300.0},
            (N, D),
            1.5 + 120.0 * N**-0.24 + 300.0 * D**-0.24,
        ),
        (
            "bnsl",
            {"a": 0.414, "b": 2.277, "c0": 0.055, "c1": 5.66, "f1": 0.0592, "d1": 612.6},
            (np.array([1.0, 400, 5000]),),
            0.414 + 2.277 * np.array([1.0, 400, 5000]) ** -0.055
            * (1 + (np.array([1.0, 400, 5000]) / 612.6) ** (1 / 0.0592)) ** (-5.66 * 0.0592),
        ),
        (
            "log_sigmoid",
            {"a": -0.3, "k": 2.0, "x0": 1.1},
            (np.array([0.5, 1.0, 2.0]),),
            1 - -0.3 * np.log(1 - 1 / (1 + np.exp(-2.0 * (np.array([0.5, 1.0, 2.0]) - 1.1)))),
        ),
        (
            "exponential_max",
            {"mu": -2.0, "sigma": 1.5},
            (np.array([1.0, 4.0, 50.0]),),
            -2.0 + 1.5 * np.array([sum(1 / k for k in range(1, n + 1)) for n in (1, 4, 50)]),
        ),
        (
            "gpd_max",
            {"mu": 0.5, "sigma": 1.2, "xi": 0.2},
            (np.array([1.0, 10.0, 1e4]),),
            0.5 + 1.2 / 0.2 * (np.exp(gammaln(np.array([2.0, 11.0, 10001.0])) + gammaln(0.8)
                                      - gammaln(np.array([1.8, 10.8, 10000.8]))) - 1),
        ),
    ],
)  # fmt: skip
def test_laws_are_the_published_formulas(
    name: str, values: dict[str, float], x: tuple[Floats, ...], truth: Floats
) -> None:
    law = law_over(name, inputs(name))
    assert set(law.names) == set(values)
    got = law.value(np.array([values[n] for n in law.names]), np.array(x))
    np.testing.assert_allclose(got, truth, rtol=1e-11)


def test_the_expected_largest_of_normals_is_the_integral() -> None:
    law = law_over("gaussian_max", "n")
    z = np.linspace(-12, 12, 200_001)
    for n in (2, 17, 1000):
        truth = np.trapezoid(z * n * norm.pdf(z) * norm.cdf(z) ** (n - 1), z)
        assert law.value(np.array([0.0, 1.0]), np.array([float(n)]))[0] == pytest.approx(truth, rel=1e-9)


def test_effective_data_saturates_and_does_not_cancel() -> None:
    law = law_over("data_constrained", ("n_params", "tokens", "unique_tokens"))
    place = np.array([[1e8], [1.28e11], [1e9]])
    values = {"E": 1.9, "A": 520.0, "alpha": 0.35, "B": 1490.0, "beta": 0.35, "R_N": 5.3}
    losses = [
        law.value(np.array([(values | {"R_D": r})[n] for n in law.names]), place)[0]
        for r in (1e-2, 1.0, 15.0, 1e3, 1e15, 1e18)
    ]
    assert all(a > b for a, b in pairwise(losses[:5]))
    # 1 - exp(-x) would be 0 here: repeated data would be worth nothing, in place of as much as new data
    assert losses[-1] == pytest.approx(losses[-2], rel=1e-9)
    fresh = law_over("chinchilla", ("n_params", "tokens"))
    once = {"n_params": 1e8, "tokens": 1e9, "unique_tokens": 1e9}
    law_once = law.value(
        np.array([(values | {"R_D": 15.0})[n] for n in law.names]), np.array([[v] for v in once.values()])
    )
    size = 1e9 * (0.35 * 520.0 / (0.35 * 1490.0)) ** (1 / 0.35)
    effective = size * (1 - 5.3 * np.expm1(-(1e8 / size - 1) / 5.3))
    other = fresh.value(np.array([1.9, 520.0, 0.35, 1490.0, 0.35]), np.array([[effective], [1e9]]))
    assert law_once[0] == pytest.approx(other[0], rel=1e-12)


@pytest.mark.parametrize(
    ("text", "over", "values"),
    [
        ("E + A/width^a + B*exp(-depth/d0)", ("width", "depth"), {"E": 1.2, "A": 3.0, "a": 0.5, "B": 0.8, "d0": 6.0}),
        ("a + b*log(tokens)", "tokens", {"a": 9.0, "b": -0.3}),
        ("k0*exp(-k*x)", "x", {"k0": 3.0, "k": 0.4}),
    ],
)
def test_a_formula_of_the_user_is_fitted_like_a_named_law(
    text: str, over: tuple[str, ...] | str, values: dict[str, float]
) -> None:
    law = law_over(text, over)
    grid = np.array(np.meshgrid(2.0 ** np.arange(4, 11), np.arange(2.0, 14, 2))).reshape(2, -1)
    x = (
        grid
        if len(law.inputs) == 2
        else 2.0 ** np.arange(-2, 5)[None, :]
        if "exp" in text
        else 10.0 ** np.arange(2, 9)[None, :]
    )
    y = law.value(np.array([values[n] for n in law.names]), x)
    fit = fit_law(law, Rows(x, y), objective=Objective("l2", "linear"), draws=0)
    for name, truth in values.items():
        assert fit.params[name].value == pytest.approx(truth, rel=1e-5), (name, fit.why)


def test_frozen_and_tied_parameters_leave_the_fit() -> None:
    law = law_over("chinchilla", ("n_params", "tokens"), freeze={"E": 1.7}, tie={"beta": "alpha"})
    assert law.names == ("A", "alpha", "B")
    assert law.fixed == (("E", 1.7),)
    x = np.array(np.meshgrid(10.0 ** np.arange(7, 11), 10.0 ** np.arange(8, 12))).reshape(2, -1)
    fit = fit_law(law, Rows(x, 1.7 + 400 * x[0] ** -0.3 + 900 * x[1] ** -0.3), draws=0)
    assert fit.params["alpha"].value == pytest.approx(0.3, rel=1e-7)
    assert fit.params["B"].value == pytest.approx(900, rel=1e-6)


def test_information_of_channels_is_the_reference() -> None:
    path = Path(__file__).parent / "answers" / "data" / "elm_theory_reference.csv"
    table = pl.read_csv(path, comment_prefix="#", infer_schema_length=None)
    law = law_over("info_channels", ("N", "k_e", "k_c"))
    for row in table.rows(named=True):
        given = {"s_max": row["s_max"], "kappa_e": row["kappa_e"], "alpha_e": row["alpha_e"], "kappa_c": row["kappa_c"],
                 "alpha_c": row["alpha_c"], "rho": row["rho"], "E": 0.0, "A": 1.0, "gamma": -1.0}  # fmt: skip
        place = np.array([[row["N_opt"]], [row["k_e_opt"]], [row["k_c_opt"]]])
        got = law.value(np.array([given[n] for n in law.names]), place)[0]
        assert got == pytest.approx(row["I_opt_bits"], rel=1e-5)


def test_planted_channels_are_found() -> None:
    law = law_over("info_channels", ("N", "k_e", "k_c"), freeze={"gamma": 1.0})
    truth = {"E": 1.2, "A": 30.0, "rho": 0.01, "s_max": 10.0, "kappa_e": 200.0, "alpha_e": 1.0, "kappa_c": 100.0,
             "alpha_c": 1.2}  # fmt: skip
    grid = np.array(
        np.meshgrid(2.0 ** np.arange(3, 11), 10.0 ** np.arange(1, 4.1, 0.5), 10.0 ** np.arange(1, 3.6, 0.5))
    )
    x = grid.reshape(3, -1)
    y = law.value(np.array([truth[n] for n in law.names]), x)
    fit = fit_law(law, Rows(x, y), objective=Objective("l2"), draws=0)
    assert fit.params, fit.why
    for name, value in truth.items():
        assert fit.params[name].value == pytest.approx(value, rel=1e-4), name
