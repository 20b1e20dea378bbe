from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special, stats

from scaling.tails import estimate

RNG = np.random.default_rng(0)
NORMAL = np.sort(RNG.normal(3.0, 2.0, (4, 64)), axis=1)


def best(loss: object, start: list[float]) -> np.ndarray:
    found = optimize.minimize(
        loss, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 9999}
    )
    return np.asarray(found.x)


def test_censored_normal_is_the_likelihood_optimum() -> None:
    for count in (16, 32, 64):
        for row, found in zip(NORMAL, estimate.censored_normal(NORMAL, count), strict=True):
            top = row[-count:]

            def loss(t: np.ndarray, top: np.ndarray = top, count: int = count) -> float:
                sd = np.exp(t[1])
                value = stats.norm.logpdf(top, t[0], sd).sum()
                return -float(value + (64 - count) * special.log_ndtr((top[0] - t[0]) / sd))

            mu, log_sd = best(loss, [3.0, 0.7])
            np.testing.assert_allclose(found, [mu, np.exp(log_sd)], rtol=1e-6)


@pytest.mark.parametrize("g", [-0.9, -0.4, 0.0, 0.5, 0.9])
def test_bent_tail_is_the_likelihood_optimum(g: float) -> None:
    count, m = 32, 64
    loglik, params = estimate.gtail_profile(NORMAL, count, np.array([g]))
    for row, value, (a, b) in zip(NORMAL, loglik[0], params[0], strict=True):
        top = row[-count:]

        def loss(t: np.ndarray, top: np.ndarray = top) -> float:
            scaled = (top - t[0]) / np.exp(t[1])
            w = 1 + g * scaled
            if w.min() <= 0:
                return 1e10
            z = np.log(w) / g if g else scaled
            return -float((-0.5 * z * z - t[1] - g * z).sum() + (m - count) * special.log_ndtr(z[0]))

        start = [a + 0.02 * b, np.log(b) + 0.02]
        assert loss(np.array([a, np.log(b)])) == pytest.approx(-value, rel=1e-7)
        assert -value <= loss(best(loss, start)) + 1e-6


def test_bent_tail_recovers_a_planted_shape() -> None:
    z = np.random.default_rng(5).standard_normal((200, 128))
    for g in (-0.5, 0.3):
        x = np.sort(1 + 2 * np.expm1(g * z) / g, axis=1)
        grid = np.linspace(-0.9, 0.9, 17)
        loglik, _ = estimate.gtail_profile(x, 64, grid)
        assert abs(grid[loglik.sum(axis=1).argmax()] - g) <= 0.12
        _, params = estimate.gtail_profile(x, 64, np.array([g]))
        np.testing.assert_allclose(params[0].mean(axis=0), [1, 2], rtol=0.04)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = np.array([-0.5, 0.2])
    whole = estimate.gtail_profile(NORMAL, 32, grid), estimate.gpd_profile(NORMAL, 16, grid)
    monkeypatch.setattr(estimate, "CHUNK", 1)
    for a, b in zip(
        whole, (estimate.gtail_profile(NORMAL, 32, grid), estimate.gpd_profile(NORMAL, 16, grid)), strict=True
    ):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-9)
        np.testing.assert_allclose(a[1], b[1], rtol=1e-6)


def test_top_moments_with_the_papers_constants() -> None:
    # q = 0.2: z 0.8416212336, mean shift 1.3998096020, variance ratio 0.2186425621.
    row = NORMAL[0]
    top = row[row >= np.quantile(row, 0.8)]
    sigma = np.sqrt(top.var(ddof=1) / 0.2186425621)
    np.testing.assert_allclose(estimate.top_moments(NORMAL)[0], [top.mean() - sigma * 1.3998096020, sigma], rtol=1e-8)


def test_rounded_rewards_by_the_likelihood_of_cells() -> None:
    fine = np.random.default_rng(1).normal(3.0, 0.6, (300, 200))
    coarse = np.sort(np.round(fine), axis=1)
    mean, sd = estimate.rounded_normal(coarse, 100, 1.0).mean(axis=0)
    assert mean == pytest.approx(3.0, abs=0.02)
    assert sd == pytest.approx(0.6, abs=0.02)
    naive = estimate.censored_normal(coarse, 100).mean(axis=0)
    assert abs(naive[1] - 0.6) > 3 * abs(sd - 0.6)


def test_rounded_likelihood_against_scipy() -> None:
    row = np.sort(np.round(np.random.default_rng(2).normal(0, 1.3, (1, 60))), axis=1)
    count = 30
    u = row[0, -count]
    inside = row[0][row[0] >= u]

    def loss(t: np.ndarray) -> float:
        sd = np.exp(t[1])
        cells = stats.norm.cdf((inside + 0.5 - t[0]) / sd) - stats.norm.cdf((inside - 0.5 - t[0]) / sd)
        return -float(np.log(cells).sum() + (row[0] < u).sum() * special.log_ndtr((u - 0.5 - t[0]) / sd))

    mu, log_sd = best(loss, [0.0, 0.0])
    np.testing.assert_allclose(estimate.rounded_normal(row, count, 1.0)[0], [mu, np.exp(log_sd)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("xi", [-0.6, 0.0, 0.4])
def test_gpd_scale_is_the_likelihood_optimum(xi: float) -> None:
    loglik, params = estimate.gpd_profile(NORMAL, 16, np.array([xi]))
    y, _ = estimate.over_threshold(NORMAL, 16)
    for excess, value, (_, sigma) in zip(y, loglik[0], params[0], strict=True):
        truth = stats.genpareto.logpdf(excess, xi, scale=sigma).sum()
        assert value == pytest.approx(truth, abs=1e-4)
        around = [stats.genpareto.logpdf(excess, xi, scale=sigma * f).sum() for f in (0.99, 1.01)]
        assert max(around) <= truth + 1e-9


def test_gpd_moments_and_posterior_mean_recover_the_shape() -> None:
    x = np.sort(stats.genpareto.rvs(0.2, scale=3, size=(40, 4000), random_state=1), axis=1)
    _, sigma, xi = estimate.gpd_moments(x, 3999).mean(axis=0)
    assert xi == pytest.approx(0.2, abs=0.02)
    assert sigma == pytest.approx(3, rel=0.02)
    _, sigma, xi = estimate.gpd_lone(x, 3999, prior=False).mean(axis=0)
    assert xi == pytest.approx(0.2, abs=0.02)
    assert sigma == pytest.approx(3, rel=0.02)
    shrunk = estimate.gpd_lone(x[:, :40], 20)[:, 2]
    assert shrunk.std() < estimate.gpd_lone(x[:, :40], 20, prior=False)[:, 2].std()


def test_gpd_moments_stay_feasible() -> None:
    x = np.sort(np.random.default_rng(3).uniform(size=(200, 40)), axis=1)
    u, sigma, xi = estimate.gpd_moments(x, 10).T
    ended = xi < 0
    assert (u[ended] - sigma[ended] / xi[ended] >= x[ended, -1] - 1e-12).all()


def test_censored_weibull_is_the_likelihood_optimum() -> None:
    x = np.sort(2 * np.random.default_rng(4).weibull(1.5, (3, 80)), axis=1)
    for row, found in zip(x, estimate.censored_weibull(x, 40), strict=True):

        def loss(t: np.ndarray, row: np.ndarray = row) -> float:
            law = stats.weibull_min(np.exp(t[1]), scale=np.exp(t[0]))
            return -float(law.logpdf(row[-40:]).sum() + 40 * law.logcdf(row[-40]))

        np.testing.assert_allclose(found, np.exp(best(loss, [0.7, 0.4])), rtol=1e-5)


def test_exponential_tail() -> None:
    u, scale = estimate.mean_excess(NORMAL, 16)[0]
    assert u == NORMAL[0, 47]
    assert scale == pytest.approx((NORMAL[0, 48:] - NORMAL[0, 47]).mean())
