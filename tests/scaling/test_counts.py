from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scaling.budgets import Optima, budget_laws
from scaling.counts import (
    check_schedule,
    check_warmup,
    constant_product,
    exponent_sum,
    same_counts,
    slope,
    unfinished,
)
from scaling.errors import AnalysisError

NANOCHAT = Path(__file__).parents[2] / "sweeps" / "published" / "data" / "nanochat.csv"


def optima(count: str) -> list[np.ndarray]:
    """flops, n_params, tokens of karpathy/nanochat's isoFLOP optima under one way to count."""
    part = pl.read_csv(NANOCHAT).filter(pl.col("param_count") == count)
    return [part[c].cast(pl.Float64).to_numpy() for c in ("flops", "n_opt", "tokens_opt")]


def test_the_check_fires_for_all_parameters() -> None:
    (found,) = constant_product(*optima("all_parameters"))
    assert found.level == "fault"
    assert "drifts from 1.95 to 2.6 along flops" in found.text
    assert "embeddings" in found.text
    # the drift of the ratio is what the exponents miss 1 by
    assert found.numbers["slope"] == pytest.approx(1 - 0.856, abs=5e-4)


def test_and_only_warns_for_transformer_matrices() -> None:
    (found,) = constant_product(*optima("transformer_matrices_only"))
    assert found.level == "warning"
    assert "within its scatter" in found.text
    assert "head" in found.text


def test_projections_and_head_only_scatter() -> None:
    (found,) = constant_product(*optima("projections_and_lm_head"))
    assert found.level == "note"
    assert "6.68 to 7.55" in found.text


@pytest.mark.parametrize(
    ("count", "a", "b"),
    [
        ("projections_and_lm_head", 0.524, 0.479),
        ("all_parameters", 0.366, 0.490),
        ("transformer_matrices_only", 0.681, 0.397),
    ],
)
def test_published_sums(count: str, a: float, b: float) -> None:
    sizes, data, findings = budget_laws(Optima(*optima(count)))
    assert sizes.exponent.value == pytest.approx(a, abs=6e-4)
    assert data.exponent.value == pytest.approx(b, abs=6e-4)
    assert [f.level for f in findings] == (["fault"] if count == "all_parameters" else [])


def test_a_constant_product_says_nothing() -> None:
    n = np.geomspace(1e7, 1e9, 6)
    d = 1e10 / np.sqrt(n / 1e8)
    assert constant_product(6 * n * d * np.array([1, 1.01, 0.99, 1, 1, 1]), n, d) == ()


def test_runs_of_a_count_that_leaves_out_the_head() -> None:
    """C = 6 (N + head) D with a head that grows as the root of N: the ratio falls with N, not with the budget."""
    n = np.tile(np.geomspace(1e6, 1e9, 10), 3)
    c = np.repeat([1e17, 1e18, 1e19], 10)
    head = 5e2 * np.sqrt(n)
    d = c / (6 * (n + head))
    (found,) = constant_product(c, n, d)
    assert found.level == "fault"
    assert "along n_params" in found.text
    assert "leaves out" in found.text
    by_hand = np.polyfit(np.log(n), np.log(c / n / d), 1)[0]
    assert found.numbers["slope"] == pytest.approx(by_hand, rel=1e-9)


def test_exponents_that_sum_to_one_within_their_error() -> None:
    assert exponent_sum(0.5, 0.515) == ()
    assert exponent_sum(0.5, 0.55, stderr=0.03) == ()
    (warned,) = exponent_sum(0.5, 0.55, stderr=0.01)
    assert warned.level == "warning"
    assert "1.050 ± 0.010" in warned.text
    (fault,) = exponent_sum(0.37, 0.49)
    assert fault.level == "fault"


def test_slope_against_numpy() -> None:
    x, y = np.arange(8.0), np.array([1, 3, 2, 5, 4, 7, 6, 8.0])
    value, covariance = np.polyfit(x, y, 1, cov=True)
    found = slope(x, y)
    assert found.value == pytest.approx(value[0])
    assert found.stderr == pytest.approx(np.sqrt(covariance[0, 0]))
    assert found.sure
    assert slope(x[:2], y[:2]).stderr is None


def test_counts_must_be_one_and_known() -> None:
    assert same_counts(["all", "all"]) == "all"
    with pytest.raises(AnalysisError, match=r"all \(2 rows\), no_embedding \(1 rows\) in one fit"):
        same_counts(["all", "no_embedding", "all"])
    with pytest.raises(AnalysisError, match=r"'no_embeding' is no way to count .* Did you mean 'no_embedding'"):
        same_counts(["no_embeding"])


def test_rows_that_cannot_enter() -> None:
    with pytest.raises(AnalysisError, match="row 2: tokens = 0, must be > 0"):
        constant_product(np.ones(2), np.ones(2), np.array([1.0, 0.0]))


def test_a_fixed_warmup_spoils_short_runs() -> None:
    tokens = np.geomspace(2e9, 5e11, 6)
    (found,) = check_warmup(tokens, np.full(6, 1.57e9))
    assert "2 of 6 rows" in found.text
    assert "always 1.57e+09 tokens" in found.text
    assert found.numbers["largest_share"] == pytest.approx(1.57 / 2)
    assert check_warmup(tokens, 0.05 * tokens) == ()


def test_rows_before_the_end_of_their_schedule() -> None:
    tokens, planned = np.array([1e9, 2e9, 3e9, 4e9]), np.array([4e9, 2e9, np.nan, 4e9])
    np.testing.assert_array_equal(unfinished(tokens, planned), [True, False, False, False])
    (found,) = check_schedule(tokens, planned)
    assert found.level == "warning"
    assert "1 of 4 rows (row 1 stops at 25%)" in found.text
    assert check_schedule(tokens, tokens) == ()
    assert check_schedule(tokens, 2 * tokens)[0].level == "fault"
