from __future__ import annotations

import csv
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.errors import AnalysisError
from scaling.tails import models

DATA = Path(__file__).parent / "data"


def table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize(
    ("column", "function"),
    [
        ("e_max", models.normal_max),
        ("sd_max", models.normal_max_sd),
        ("median_max", models.normal_max_median),
    ],
)
def test_normal_against_the_oracle(column: str, function: object) -> None:
    rows = table("normal_oracle.csv")
    assert len(rows) == 54
    n = np.array([float(r["n"]) for r in rows])
    found = function(n)  # type: ignore[operator]
    np.testing.assert_allclose(found, [float(r[column]) for r in rows], rtol=1e-13, atol=1e-13)


def parameters(text: str) -> dict[str, float]:
    return {k: float(v) for k, v in (part.split("=") for part in text.split(";"))}


def test_closed_forms_against_the_oracle() -> None:
    count = 0
    for r in table("tail_oracle.csv"):
        n, family = float(r["n"]), r["family"]
        p = parameters(r["params"]) if "=" in r["params"] else {}
        value = {
            "uniform": lambda n, _: models.uniform_max(n),
            "exponential": lambda n, _: models.exponential_max(n),
            "gumbel": lambda n, _: models.gumbel_max(n),
            "logistic": lambda n, _: models.logistic_max(n),
            "gpd": lambda n, p: models.gpd_max(n, p["xi"]),
            "pareto": lambda n, p: models.pareto_max(n, p["alpha"], p["xm"]),
            "beta": lambda n, p: models.gpd_max(n, -1 / p["b"]) / p["b"],
            "lognormal": lambda n, p: models.lognormal_max(n, p["mu"], p["sigma"]),
        }.get(family)
        if value is None:
            continue
        count += 1
        assert float(value(n, p)) == pytest.approx(float(r["e_max"]), rel=1e-12, abs=1e-14), (family, r["params"], n)
    assert count > 300


@pytest.mark.parametrize("n", [1e7, 1e9, 1e12])
def test_normal_of_very_many_draws(n: float) -> None:
    with mp.workdps(40):

        def density(z: mp.mpf) -> mp.mpf:
            return z * n * mp.npdf(z) * mp.exp((n - 1) * mp.log1p(-mp.erfc(z / mp.sqrt(2)) / 2))

        truth = mp.quad(density, [x / 2 for x in range(4, 34)])
    assert float(models.normal_max(n)) == pytest.approx(float(truth), rel=1e-13)


def test_exponential_of_very_many_draws() -> None:
    with mp.workdps(40):
        assert float(models.exponential_max(1e12)) == pytest.approx(float(mp.harmonic(10**12)), rel=1e-14)


@pytest.mark.parametrize("xi", [-0.9, -0.4, -1e-3, -1e-9, 1e-12, 1e-5, 0.3, 0.95])
@pytest.mark.parametrize("n", [1, 2.5, 1000, 1e12])
def test_gpd_against_mpmath(xi: float, n: float) -> None:
    with mp.workdps(60):
        x = mp.mpf(xi)
        truth = (mp.gamma(1 - x) * mp.exp(mp.loggamma(n + 1) - mp.loggamma(n + 1 - x)) - 1) / x
    assert float(models.gpd_max(n, xi)) == pytest.approx(float(truth), rel=1e-12)


@pytest.mark.parametrize("xi", [-0.4, -0.0101, -0.0099, 0.0, 1e-7, 0.2, 0.5])
@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("n", [4, 64, 1024])
def test_peaks_over_threshold_against_quadrature(xi: float, share: float, n: int) -> None:
    with mp.workdps(30):

        def density(y: mp.mpf) -> mp.mpf:
            height = mp.expm1(xi * y) / xi if xi else y
            return height * n * (1 - share * mp.exp(-y)) ** (n - 1) * share * mp.exp(-y)

        truth = mp.quad(density, [*range(0, 41, 2), 60, 90, 150])
    assert float(models.peaks_max(n, xi, share)) == pytest.approx(float(truth), rel=1e-11)


def test_threshold_at_the_bottom_is_the_whole_tail() -> None:
    n = np.array([1.0, 5, 300])
    for xi in (-0.5, 0.0, 0.4):
        np.testing.assert_allclose(models.peaks_max(n, xi, 1.0), models.gpd_max(n, xi), rtol=1e-11)


def test_bulk_below_the_threshold() -> None:
    ordered = np.array([[0.0, 1.0, 3.0, 4.0, 9.0]])
    n = np.array([1.0, 3.0])
    # E[(u - max)+] for u = 4 under the empirical distribution, by its four steps below u.
    truth = [(1 / 5) ** k * 1 + (2 / 5) ** k * 2 + (3 / 5) ** k * 1 for k in n]
    np.testing.assert_allclose(models.loss_below(ordered, 4, n)[0], truth)


def test_weibull_against_mpmath() -> None:
    for c in (0.5, 1.0, 2.0, 3.6):
        for n in (1, 8, 500):
            with mp.workdps(25):

                def above(x: mp.mpf, n: int = n, c: float = c) -> mp.mpf:
                    return 1 - (1 - mp.exp(-(x**c))) ** n

                truth = mp.quad(
                    above, [mp.mpf(p) ** (1 / mp.mpf(c)) for p in (0, 0.01, 0.1, 0.5, 1, 2, 4, 8, 16, 40, 90)]
                )
            assert float(models.weibull_max(n, c)) == pytest.approx(float(truth), rel=1e-6)
    np.testing.assert_allclose(models.weibull_max(np.array([7.0]), 1.0), models.exponential_max(7), rtol=1e-12)


def test_gpd_median_needs_no_mean() -> None:
    n, xi, share = 100.0, 1.3, 0.25
    x = float(models.gpd_median(n, xi, share))
    survival = share * (1 + xi * x) ** (-1 / xi)
    assert (1 - survival) ** n == pytest.approx(0.5)


def test_a_tail_without_a_mean_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"xi = 1.08\) has no mean; ask for the median"):
        models.gpd_max(10, 1.08)
    with pytest.raises(AnalysisError, match=r"N = 0.5 draws"):
        models.normal_max(0.5)


def test_bent_tail_at_zero_is_normal() -> None:
    n = np.array([1.0, 64, 1e6])
    np.testing.assert_allclose(models.gtail_max(n, 0.0), models.normal_max(n), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(models.gtail_max(n, 1e-9), models.normal_max(n), rtol=1e-7, atol=1e-8)


@given(st.floats(1, 1e9), st.floats(1.001, 10), st.floats(-0.9, 0.9))
@settings(max_examples=60, deadline=None)
def test_more_draws_reach_higher(n: float, factor: float, shape: float) -> None:
    for rise in (
        models.normal_max(np.array([n, factor * n])),
        models.gtail_max(np.array([n, factor * n]), shape),
        models.gpd_max(np.array([n, factor * n]), shape),
        models.peaks_max(np.array([n, factor * n]), shape, 0.25),
    ):
        assert rise[1] >= rise[0] * (1 - 1e-12) - 1e-12
