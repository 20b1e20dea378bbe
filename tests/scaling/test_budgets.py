from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.budgets import (
    Optima,
    SurfaceExponent,
    against_surface,
    assign_budgets,
    budget_laws,
    group_budgets,
    surface_exponent,
)
from scaling.errors import AnalysisError
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.rows import Rows

PORIAN = Path(__file__).parents[2] / "sweeps" / "published" / "data" / "porian_optima.csv"
PUBLISHED = {
    "1_kaplan_reproduction": 0.8353, "2_count_last_layer": 0.7065, "3_correct_warmup": 0.6020,
    "4_cosine_decay": 0.5715, "5_tuned_no_decay": 0.4969, "att:base/long/kaplan": 0.7171,
    "att:base/short/kaplan": 0.6223, "att:base/short/chinchilla": 0.5772, "att:tuned/short/const": 0.5053,
    "kaplan_tuned": 0.7115,
}  # fmt: skip


def test_budgets_are_not_rounded() -> None:
    """To one digit 1.5e19 and 2.4e19 are both 2e19."""
    np.testing.assert_array_equal(group_budgets(np.array([2.4e19, 1.5e19, 2.38e19, 1.5e19, 1e18])), [2, 1, 2, 1, 0])


@given(st.lists(st.floats(1e15, 1e25), min_size=1, max_size=40), st.sampled_from([0.02, 0.05, 0.2]))
@settings(deadline=None, max_examples=100)
def test_a_budget_stays_within_its_tolerance(flops: list[float], within: float) -> None:
    values = np.array(flops)
    labels = group_budgets(values, within)
    assert sorted(set(labels.tolist())) == list(range(labels.max() + 1))
    for i in range(labels.max() + 1):
        part = values[labels == i]
        centre = (part.min() + part.max()) / 2
        assert np.all(np.abs(part / centre - 1) <= within * (1 + 1e-9))
        if i:
            assert part.min() > values[labels == i - 1].max()


@given(st.permutations(list(np.geomspace(1e18, 2e18, 12))))
@settings(deadline=None, max_examples=20)
def test_order_does_not_matter_and_a_chain_is_cut(flops: list[float]) -> None:
    values = np.array(flops)
    labels = group_budgets(values)
    np.testing.assert_array_equal(labels[np.argsort(values)], group_budgets(np.sort(values)))
    assert labels.max() >= 5


def test_two_clouds_of_a_chain_part_at_their_gap() -> None:
    np.testing.assert_array_equal(group_budgets(np.array([1.0, 1.04, 1.08, 1.13, 1.17]) * 1e18), [0, 0, 0, 1, 1])


def test_named_budgets() -> None:
    flops = np.array([9e18, 1.1e19, 1.11e19, 6e18, 8.9e18])
    np.testing.assert_array_equal(assign_budgets(flops, np.array([6e18, 1e19]), 0.1), [1, 1, -1, 0, -1])


def test_bad_input() -> None:
    with pytest.raises(AnalysisError, match="row 2: flops = -1, must be > 0"):
        group_budgets(np.array([1.0, -1.0]))
    with pytest.raises(AnalysisError, match="within = 5: a relative tolerance"):
        group_budgets(np.array([1.0]), within=5)


@pytest.mark.parametrize(("config", "exponent"), PUBLISHED.items())
def test_published_exponents_of_porian_et_al(config: str, exponent: float) -> None:
    """Table of arXiv 2406.19146, from the optima of formll/resolving-scaling-law-discrepancies."""
    part = pl.read_csv(PORIAN).filter(pl.col("config") == config).drop_nulls("n_opt")
    optima = Optima(*(part[c].to_numpy() for c in ("flops", "n_opt", "tokens_opt", "log_n_opt_sd")))
    sizes, data, findings = budget_laws(optima)
    assert sizes.exponent.value == pytest.approx(exponent, abs=5e-5)
    assert data.exponent.value == pytest.approx(1 - exponent, abs=2e-3)
    assert sizes.exponent.lo < exponent < sizes.exponent.hi
    assert findings == ()


def power(m: int, exponent: float, sd: float, seed: int) -> Optima:
    budgets = np.geomspace(1e18, 1e21, m)
    n = 3.0 * (budgets / 1e18) ** exponent * 1e8
    n = n * np.exp(sd * np.random.default_rng(seed).standard_normal(m))
    return Optima(budgets, n, budgets / (6 * n), np.full(m, sd))


def test_the_error_is_that_of_weighted_least_squares() -> None:
    exact = power(9, 0.5, 1e-12, 0)
    optima = replace(exact, log_stderr=np.full(9, 0.05))
    sizes, data, _ = budget_laws(optima, draws=20_000)
    x = np.log(optima.budgets)
    textbook = 0.05 / np.sqrt(((x - x.mean()) ** 2).sum())
    assert sizes.excess == 0.0
    assert sizes.stderr == pytest.approx(textbook, rel=0.03)
    # a budget fixes the product: what N* gains, D* loses
    np.testing.assert_allclose(sizes.draws[:, 1] + data.draws[:, 1], 1.0, atol=1e-9)


def test_intervals_cover() -> None:
    hits = 0
    for seed in range(200):
        found = budget_laws(power(7, 0.5, 0.05, seed), draws=300)[0].exponent
        hits += found.lo < 0.5 < found.hi
    assert 0.90 <= hits / 200 <= 0.99


def test_the_prediction_is_the_line() -> None:
    exact = budget_laws(power(5, 0.45, 1e-9, 0))[0]
    assert exact.predict(1e24).value == pytest.approx(3e8 * 1e6**0.45, rel=1e-6)
    assert exact.coefficient == pytest.approx(3e8 * 1e-18**0.45, rel=1e-6)
    wide = budget_laws(power(7, 0.45, 0.1, 1))[0]
    near, far = wide.predict(1e20), wide.predict(1e26)
    assert np.log(far.hi / far.lo) > 3 * np.log(near.hi / near.lo)


def test_a_budget_off_the_trend_is_named() -> None:
    optima = power(8, 0.5, 0.01, 5)
    optima.n_params[3] *= 0.6
    sizes = budget_laws(optima)[0]
    assert f"the budget {optima.budgets[3]:.3g} lies at 0.6 of the trend" in " ".join(sizes.why)
    assert sum("of the trend" in w for w in sizes.why) == 1
    assert sizes.influence[3].ratio == pytest.approx(0.6, abs=0.02)
    rest = np.delete(np.arange(8), 3)
    by_hand = np.polyfit(np.log(optima.budgets[rest]), np.log(optima.n_params[rest]), 1)[0]
    assert sizes.influence[3].exponent == pytest.approx(by_hand, abs=1e-9)
    assert sizes.excess > 0.05
    assert not any("of the trend" in w for w in budget_laws(power(8, 0.5, 0.01, 5))[0].why)


def test_too_little_to_say() -> None:
    refused, nothing, _ = budget_laws(Optima(np.array([1e18]), np.array([1e8])))
    assert refused.status == "refused"
    assert "1 budget with an optimum" in refused.why[0]
    assert nothing is None
    with pytest.raises(AnalysisError, match="was refused"):
        refused.predict(1e20)
    four = power(4, 0.5, 0.05, 0)
    bare = budget_laws(Optima(four.budgets, four.n_params))[0]
    assert bare.exponent.lo is None
    assert "no interval, 4 budgets without errors" in " ".join(bare.why)
    two = power(2, 0.5, 0.05, 0)
    ratio = budget_laws(two)[0]
    assert "untested" in " ".join(ratio.why)
    assert ratio.exponent.value == pytest.approx(np.log(two.n_params[1] / two.n_params[0]) / np.log(1e3))


def test_against_a_surface() -> None:
    law = budget_laws(power(9, 0.7, 0.05, 0))[0]
    apart = against_surface(law, SurfaceExponent(0.56, 0.02))
    assert apart.disagree
    assert "joint standard errors" in apart.text
    near = against_surface(law, SurfaceExponent(law.exponent.value + 0.01, 0.02))
    assert near.disagree is False
    assert "they agree" in near.text
    unknown = against_surface(law, SurfaceExponent(0.5))
    assert unknown.disagree is None
    assert "can't be judged" in unknown.text


def test_the_exponent_of_a_fitted_surface() -> None:
    rng = np.random.default_rng(0)
    n, d = (10 ** rng.uniform(*r, 60) for r in ((7, 9.5), (9, 11)))
    loss = (1.8 + 480 * n**-0.35 + 2100 * d**-0.37) * np.exp(0.002 * rng.standard_normal(60))
    fit = fit_law(law_over("chinchilla", ["n_params", "tokens"]), Rows(np.array([n, d]), loss), draws=200)
    found = surface_exponent(fit)
    assert found.value == pytest.approx(0.37 / 0.72, abs=4 * found.stderr)
    assert 0.001 < found.stderr < 0.05
    with pytest.raises(AnalysisError, match="no exponents alpha and beta"):
        surface_exponent(fit_law(law_over("power", "n_params"), Rows(n, loss), draws=0))


def test_plain_values() -> None:
    law = budget_laws(power(6, 0.5, 0.05, 0))[0]
    assert orjson.loads(orjson.dumps(law.to_json()))["exponent"]["value"] == law.exponent.value
