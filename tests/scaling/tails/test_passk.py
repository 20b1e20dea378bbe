from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from scaling.errors import AnalysisError
from scaling.tails.order import pass_at_k
from scaling.tails.passk import beta_binomial_pass, fit_beta_binomial, fit_pass, stopped_sampling


def counts(a: float, b: float, problems: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.full(problems, n), rng.binomial(n, rng.beta(a, b, problems))


def test_beta_binomial_is_the_likelihood_optimum() -> None:
    n, c = counts(0.4, 6.0, 100, 50, 1)

    def loss(t: np.ndarray) -> float:
        a, b = np.exp(t)
        return -float((special.betaln(c + a, n - c + b) - special.betaln(a, b)).sum())

    best = optimize.minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    found = fit_beta_binomial(n, c, np.ones((1, 100)))[0]
    np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-5)


def test_resamples_equal_fits_of_their_own() -> None:
    n, c = counts(0.4, 6.0, 40, 50, 2)
    pick = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), 3)
    together = fit_beta_binomial(n, c, pick.astype(float), np.array([[1.0, 9.0]]))
    for w, found in zip(pick, together, strict=True):
        alone = fit_beta_binomial(np.repeat(n, w), np.repeat(c, w), np.ones((1, 40)))[0]
        np.testing.assert_allclose(found, alone, rtol=1e-4)


def test_closed_form_of_pass_at_k() -> None:
    # E over p ~ Beta(a, b) of 1 - (1-p)^k.
    p = np.random.default_rng(3).beta(0.5, 4, 400_000)
    for k in (1.0, 10.0, 300.0):
        found = float(beta_binomial_pass(0.5, 4.0, np.array([k]))[0])
        assert found == pytest.approx(float((1 - (1 - p) ** k).mean()), rel=5e-3)


def test_prediction_beyond_the_samples() -> None:
    covered, off = 0, []
    for seed in range(20):
        a, b = 0.4, 8.0
        n, c = counts(a, b, 150, 100, seed)
        fit = fit_pass(n, c)
        assert fit.params["a"].value == pytest.approx(a, rel=0.5)
        truth = float(beta_binomial_pass(a, b, np.array([3000.0]))[0])
        found = fit.predict([3000])
        assert found.lo is not None
        assert found.hi is not None
        covered += bool(found.lo[0] <= truth <= found.hi[0])
        off.append(found.value[0] / truth - 1)
    assert covered >= 17
    assert np.sqrt(np.mean(np.square(off))) < 0.08
    plug_in = np.mean(1 - (1 - c / n) ** 3000)
    assert abs(plug_in / truth - 1) > 0.08


def test_inside_the_samples_the_unbiased_estimate() -> None:
    n, c = counts(0.5, 5, 60, 64, 5)
    fit = fit_pass(n, c)
    np.testing.assert_allclose(fit.predict([1, 10, 64]).value, pass_at_k(n, c, [1, 10, 64]).mean(axis=0))
    assert np.isnan(fit.predict(64 * 100 + 1).value[0])
    assert (np.diff(fit.predict(np.geomspace(65, 6400, 30)).value) > 0).all()


def test_stopped_sampling_is_seen() -> None:
    rng = np.random.default_rng(6)
    p = rng.beta(0.4, 20, 150)
    draws = np.minimum(rng.geometric(np.maximum(p, 1e-12)), 10_000)
    n = np.maximum(60, -(-draws // 60) * 60)
    c = np.where(draws < 10_000, 1, 0)
    n = np.where(c == 0, n.max(), n)
    assert stopped_sampling(n, c)
    fit = fit_pass(n, c)
    assert fit.status == "weak"
    assert "sampling stopped at the first success" in " ".join(fit.why)
    assert "alpha" not in fit.params
    truth = float(beta_binomial_pass(0.4, 20.0, np.array([1000.0]))[0])
    assert fit.predict(1000).value[0] == pytest.approx(truth, rel=0.1)
    fixed, c = counts(0.4, 20, 150, 100, 6)
    assert not stopped_sampling(fixed, c)


def test_refusals() -> None:
    assert fit_pass([10] * 20, [0] * 20).why == ("No pass among 200 samples of 20 problems: nothing to extrapolate.",)
    assert fit_pass([10] * 20, [10] * 20).status == "refused"
    few = fit_pass([10] * 3, [1, 2, 3])
    assert "3 problems" in few.why[0]
    with pytest.raises(AnalysisError, match="pass@k was refused: 3 problems"):
        few.predict(10)
    with pytest.raises(AnalysisError, match="c = 11 passes among n = 10"):
        fit_pass([10] * 20, [11] * 20)
    assert few.to_json()["params"] == {}


def test_many_zeros_are_told() -> None:
    n, c = counts(0.05, 10, 100, 50, 7)
    fit = fit_pass(n, c)
    assert fit.status == "weak"
    assert f"{(c == 0).sum()} of 100 problems have no pass" in fit.why[0]
