from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.errors import AnalysisError
from scaling.tails.order import (
    best_of_curve,
    median_of_best,
    pass_at_k,
    pass_at_k_interval,
    pass_at_k_stderr,
    powers,
    selected_curve,
    unbiased_variance,
    weights,
    with_replacement_curve,
)

SAMPLES = np.random.default_rng(4).standard_normal((3, 9))
TIED = np.array([[0.0, 1.0, 1.0, 1.0, 2.0, 2.0, -3.0, 0.0, 5.0]])
EVERY_K = list(range(1, 10))

lists = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30)


def enumerated(row: np.ndarray, k: int) -> float:
    return float(np.mean([max(s) for s in combinations(row, k)]))


@pytest.mark.parametrize("samples", [SAMPLES, TIED])
def test_curve_is_the_mean_maximum_over_all_subsets(samples: np.ndarray) -> None:
    truth = [[enumerated(row, k) for k in EVERY_K] for row in samples]
    np.testing.assert_allclose(best_of_curve(samples, EVERY_K).value, truth, rtol=1e-12, atol=1e-14)


def test_lower_is_better_mirrors() -> None:
    low = best_of_curve(SAMPLES, EVERY_K, best="min", stderr=True)
    high = best_of_curve(-SAMPLES, EVERY_K, stderr=True)
    np.testing.assert_array_equal(low.value, -high.value)
    np.testing.assert_array_equal(low.stderr, high.stderr)


def test_jackknife_equals_leaving_each_sample_out() -> None:
    curve = best_of_curve(SAMPLES, EVERY_K, stderr=True)
    assert curve.stderr is not None
    for i, row in enumerate(SAMPLES):
        for j, k in enumerate(EVERY_K[:-1]):
            left_out = np.array([enumerated(np.delete(row, d), k) for d in range(9)])
            assert curve.stderr[i, j] == pytest.approx(np.sqrt(8 / 9 * ((left_out - left_out.mean()) ** 2).sum()))
    assert np.isnan(curve.stderr[:, -1]).all()


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_unbiased_variance_equals_enumeration_of_disjoint_pairs(k: int) -> None:
    for row, found in zip(SAMPLES, unbiased_variance(SAMPLES, k), strict=True):
        pairs = [
            max(row[list(a)]) * max(row[list(b)])
            for a in combinations(range(9), k)
            for b in combinations(sorted(set(range(9)) - set(a)), k)
        ]
        assert found == pytest.approx(enumerated(row, k) ** 2 - np.mean(pairs), rel=1e-10, abs=1e-13)


def test_jackknife_and_unbiased_variance_match_the_truth() -> None:
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((4000, 64))
    for k in (4, 16, 32):
        curve = best_of_curve(draws, [k], stderr=True)
        assert curve.stderr is not None
        true = curve.value.var()
        assert 0.95 < np.mean(curve.stderr**2) / true < 1.3
        assert np.mean(unbiased_variance(draws, k)) == pytest.approx(true, rel=0.1)


def test_weights_against_exact_binomials() -> None:
    n = 100_000
    for k in (1, 7, 1000, n // 2, n - 1):
        found = weights(n, k)[0]
        for i in (n, n - 1, n - 10, n - 100):
            if i < k:
                continue
            w = Fraction(k, n)  # C(i-1, k-1) / C(n, k), by the exact recurrence
            for j in range(n, i, -1):
                w *= Fraction(j - k, j - 1)
            assert found[i - 1] == pytest.approx(float(w), rel=1e-13, abs=1e-300)
    assert weights(40, 7)[0, 11] == pytest.approx(comb(11, 6) / comb(40, 7), rel=1e-14)


def test_a_million_samples() -> None:
    n = 1_000_000
    curve = best_of_curve(np.arange(1.0, n + 1), [1, 1000, n])
    # The mean maximum of k of 1 … n without replacement is k (n + 1) / (k + 1).
    np.testing.assert_allclose(curve.value[0], [k * (n + 1) / (k + 1) for k in (1, 1000, n)], rtol=1e-12)
    assert powers(n)[-1] == n


@given(lists)
@settings(max_examples=100, deadline=None)
def test_curve_rises_ever_slower_from_the_mean_to_the_maximum(row: list[float]) -> None:
    n = len(row)
    value = best_of_curve(np.array(row), range(1, n + 1)).value[0]
    size = 1e-9 * (1 + np.abs(row).max())
    assert value[0] == pytest.approx(np.mean(row), abs=size)
    assert value[-1] == max(row)
    assert (np.diff(value) >= -size).all()
    assert (np.diff(value, 2) <= size).all()


@given(lists, st.floats(0.01, 100), st.floats(-100, 100), st.randoms())
@settings(max_examples=60, deadline=None)
def test_order_unit_and_origin_do_not_matter(row: list[float], unit: float, origin: float, random: object) -> None:
    before = best_of_curve(np.array(row), stderr=True)
    mixed = list(row)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    after = best_of_curve(origin + unit * np.array(mixed), stderr=True)
    size = 1e-9 * (1 + unit * np.abs(row).max() + abs(origin))
    np.testing.assert_allclose(after.value, origin + unit * before.value, rtol=1e-10, atol=size)
    np.testing.assert_allclose(after.stderr, unit * np.asarray(before.stderr), rtol=1e-6, atol=size)


def test_unbiased_over_repetitions() -> None:
    rng = np.random.default_rng(7)
    value = best_of_curve(rng.exponential(size=(10_000, 20)), [1, 5, 20]).value
    truth = [sum(1 / j for j in range(1, k + 1)) for k in (1, 5, 20)]
    assert (np.abs(value.mean(axis=0) - truth) < 4 * value.std(axis=0) / 100).all()


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = best_of_curve(SAMPLES, EVERY_K, stderr=True)
    monkeypatch.setattr("scaling.tails.order.CHUNK_BYTES", 8)
    monkeypatch.setattr("scaling.tails.order.MOST_WEIGHTS", 9)
    parts = best_of_curve(SAMPLES, EVERY_K, stderr=True)
    np.testing.assert_allclose(parts.value, whole.value, rtol=1e-14)
    np.testing.assert_allclose(parts.stderr, whole.stderr, rtol=1e-14)


def test_samples_are_left_as_they_are() -> None:
    samples = SAMPLES.copy()
    best_of_curve(samples, stderr=True)
    np.testing.assert_array_equal(samples, SAMPLES)


def test_intervals_only_where_they_cover() -> None:
    curve = best_of_curve(np.random.default_rng(0).standard_normal((500, 64)), [1, 8, 9, 64], stderr=True)
    lo, hi = curve.interval()
    assert np.isnan(lo[:, 2:]).all()
    assert np.isnan(hi[:, 2:]).all()
    covered = (lo[:, 1] < 1.4236003060) & (hi[:, 1] > 1.4236003060)
    assert 0.87 < covered.mean() < 0.97
    mean, error = curve.mean()
    assert abs(mean[1] - 1.4236) < 4 * error[1]
    with pytest.raises(AnalysisError, match="stderr=True"):
        best_of_curve(SAMPLES).interval()


def test_beyond_the_samples_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"k = 10 > n = 9: not an estimate from the data; ask for a prediction"):
        best_of_curve(SAMPLES, [1, 10])
    with pytest.raises(AnalysisError, match="k = 0 draws"):
        best_of_curve(SAMPLES, [0])
    with pytest.raises(AnalysisError, match=r"k must be whole numbers, not \[1.5\]"):
        best_of_curve(SAMPLES, [1.5])  # type: ignore[list-item]
    with pytest.raises(AnalysisError, match="2k samples"):
        unbiased_variance(SAMPLES, 5)
    with pytest.raises(AnalysisError, match="Did you mean 'max'"):
        best_of_curve(SAMPLES, best="maxx")  # type: ignore[arg-type]


def test_what_is_not_finite_is_refused_with_its_place() -> None:
    bad = SAMPLES.copy()
    bad[1, 4], bad[2, 2] = np.nan, -np.inf
    with pytest.raises(AnalysisError, match=r"prompt 1, sample 4: reward nan \(2 such\), must be finite"):
        best_of_curve(bad)
    bad[0, 0] = np.inf
    with pytest.raises(AnalysisError, match="prompt 0, sample 0: reward inf"):
        best_of_curve(bad, failed="worst")


def test_failures_as_the_worst_rank() -> None:
    row = np.array([np.nan, 1.0, -np.inf, 2.0, 3.0])
    curve = best_of_curve(row, [1, 2, 3, 4, 5], failed="worst", stderr=True)
    # Three or more draws hold a success: the subsets' maxima are finite.
    finite = [np.mean([max(s) for s in combinations([-9e99, -9e99, 1.0, 2.0, 3.0], k)]) for k in (3, 4, 5)]
    np.testing.assert_allclose(curve.value[0, 2:], finite)
    assert np.isneginf(curve.value[0, :2]).all()
    assert curve.stderr is not None
    assert np.isnan(curve.stderr[0, :2]).all()
    assert np.isfinite(curve.stderr[0, 2:4]).all()


def test_other_metric_of_the_selected_sample() -> None:
    reward = np.array([[3.0, 1.0, 2.0, 2.0]])
    gold = np.array([[0.0, 5.0, 1.0, 3.0]])
    for k in (1, 2, 3, 4):
        picks = []
        for s in combinations(range(4), k):
            top = max(reward[0, list(s)])
            picks.append(np.mean([gold[0, i] for i in s if reward[0, i] == top]))
        assert selected_curve(reward, gold, [k]).value[0, 0] == pytest.approx(np.mean(picks))
    with pytest.raises(AnalysisError, match="shape"):
        selected_curve(reward, gold[:, :3])


def test_drawing_with_replacement_is_low() -> None:
    n = 64
    draws = np.random.default_rng(2).exponential(size=(4000, n))
    gaps = with_replacement_curve(draws, [n])[:, 0] - best_of_curve(draws, [n]).value[:, 0]
    # The j highest are all missed with chance (1 - j/n)^n; the j-th spacing from the top is 1/j in the mean.
    truth = -sum((1 - j / n) ** n / j for j in range(1, n))
    assert gaps.mean() == pytest.approx(truth, abs=4 * gaps.std() / np.sqrt(4000))


def test_median_of_best_covers_without_a_distribution() -> None:
    rng = np.random.default_rng(3)
    draws = rng.exponential(size=(2000, 64))
    truth = -np.log1p(-(0.5**0.25))
    middle, lo, hi = median_of_best(draws, 4)
    assert hi is not None
    assert 0.94 < ((lo <= truth) & (truth <= hi)).mean() < 0.985
    assert np.median(middle) == pytest.approx(truth, rel=0.1)
    _, lo, hi = median_of_best(draws, 500)
    assert hi is None
    assert (lo <= -np.log1p(-(0.5 ** (1 / 500)))).mean() > 0.94


def exact_pass(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


def test_pass_at_k_against_exact_rationals() -> None:
    cases = [(n, c) for n in (1, 2, 7, 40) for c in range(n + 1)] + [(10_000, c) for c in (1, 3, 50, 5000, 9999)]
    for n, c in cases:
        ks = [k for k in (1, 2, 5, 7, 20, 39, 40, 1000, 9999, 10_000) if k <= n]
        found = pass_at_k(n, c, ks)[0]
        np.testing.assert_allclose(found, [float(exact_pass(n, c, k)) for k in ks], rtol=1e-14)


def test_pass_at_k_of_many_problems_at_once() -> None:
    n, c = np.array([10, 12, 50, 10]), np.array([0, 5, 50, 10])
    np.testing.assert_allclose(
        pass_at_k(n, c, [1, 8]),
        [[float(exact_pass(int(a), int(b), k)) for k in (1, 8)] for a, b in zip(n, c, strict=True)],
    )


def test_pass_at_k_is_the_best_of_k_of_zeros_and_ones() -> None:
    curve = best_of_curve(np.array([1.0] * 3 + [0.0] * 17), range(1, 21), stderr=True)
    np.testing.assert_allclose(pass_at_k(20, 3, range(1, 21)), curve.value, rtol=1e-12)
    np.testing.assert_allclose(pass_at_k_stderr(20, 3, range(11, 20)), curve.stderr[:, 10:-1], rtol=1e-9)  # type: ignore[index]


@pytest.mark.parametrize("k", [1, 3, 6])
def test_pass_at_k_variance_is_exactly_unbiased(k: int) -> None:
    n, p = 12, 0.3
    chance = np.array([comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
    value = pass_at_k(n, np.arange(n + 1), k)[:, 0]
    assert chance @ value == pytest.approx(1 - (1 - p) ** k, rel=1e-12)
    variance = chance @ value**2 - (chance @ value) ** 2
    assert chance @ pass_at_k_stderr(n, np.arange(n + 1), k)[:, 0] ** 2 == pytest.approx(variance, rel=1e-10)


def test_pass_at_k_interval_covers_exactly() -> None:
    n = 30
    for p in (0.02, 0.2, 0.7):
        chance = np.array([comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
        lo, hi = pass_at_k_interval(n, np.arange(n + 1), 5)
        truth = 1 - (1 - p) ** 5
        assert chance @ ((lo[:, 0] <= truth) & (truth <= hi[:, 0])) >= 0.95
    lo, hi = pass_at_k_interval(30, 0, [1])
    assert lo[0, 0] == 0
    assert hi[0, 0] == pytest.approx(1 - 0.025 ** (1 / 30))


def test_counts_that_cannot_be() -> None:
    with pytest.raises(AnalysisError, match=r"problem 1: k = 200 > n = 100"):
        pass_at_k([300, 100], [2, 0], 200)  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match=r"problem 0: c = 4 passes among n = 3 samples can't be"):
        pass_at_k(3, 4, 1)
    with pytest.raises(AnalysisError, match="whole numbers"):
        pass_at_k(3, 0.5, 1)  # type: ignore[arg-type]
