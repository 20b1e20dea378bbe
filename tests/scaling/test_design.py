"""Identifiability of designs: condition numbers by hand, the cure against every pair, words."""

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.arrays import Floats
from scaling.design import around, cure, design_check, possible, sensitivity, weak_direction
from scaling.errors import AnalysisError
from scaling.laws import law_over
from scaling.registry import REGISTRY

DATA = Path(__file__).parents[2] / "sweeps" / "published" / "data"
CHINCHILLA = law_over("chinchilla", ("n_params", "tokens"))
TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
POINT = np.array([TRUTH[n] for n in CHINCHILLA.names])
SIZES = 10.0 ** np.arange(7, 10.2, 0.2)
ON_PATH = np.array([SIZES, 20 * SIZES])


def places(name: str, **where: str) -> Floats:
    table = pl.read_csv(DATA / f"{name}.csv", comment_prefix="#", infer_schema_length=None)
    for column, value in where.items():
        table = table.filter(pl.col(column) == value)
    return table.select("n_params", "tokens").cast(pl.Float64).to_numpy().T


def designs(name: str) -> Floats:
    return places("synthetic_unidentifiable_designs", design=name)


def by_hand(x: Floats) -> float:
    """The condition number of d log L / d (E, log A, alpha, log B, beta) with centred inputs and unit columns."""
    n, d = np.log(x) - np.log(x).mean(axis=1, keepdims=True)
    first, second = (TRUTH[a] * v ** -TRUTH[e] for a, v, e in (("A", x[0], "alpha"), ("B", x[1], "beta")))
    columns = np.array([0 * n + 1, first, -n * first, second, -d * second]) / (TRUTH["E"] + first + second)
    return float(np.linalg.cond((columns / np.linalg.norm(columns, axis=1, keepdims=True)).T))


def test_designs_that_tell_all_parameters_apart() -> None:
    twin = design_check(CHINCHILLA, places("synthetic_chinchilla_twin"), TRUTH)
    assert (twin.status, twin.cure, twin.mixed) == ("ok", None, ())
    assert twin.condition == pytest.approx(24.52, abs=0.005)
    figure = pl.read_csv(DATA / "chinchilla.csv").filter(pl.col("loss") < 3.44)
    n, flops = figure["Model Size"].to_numpy(), figure["Training FLOP"].to_numpy()
    assert design_check(CHINCHILLA, np.array([n, flops / 6 / n]), POINT).condition == pytest.approx(33.02, abs=0.005)


@pytest.mark.parametrize(("design", "status"), [("collinear_20_tokens_per_param", "refused"), ("tiny_range", "weak")])
def test_designs_that_do_not(design: str, status: str) -> None:
    x = designs(design)
    found = design_check(CHINCHILLA, x, TRUTH)
    assert found.status == status
    assert found.condition == pytest.approx(by_hand(x), rel=1e-3)
    assert found.cure is not None
    added = np.array([[place[n] for n in CHINCHILLA.inputs] for place in found.cure.places]).T
    assert found.cure.condition == pytest.approx(by_hand(np.hstack([x, added])), rel=1e-6)
    assert found.cure.condition < 1e3
    cost = 6 * x[0] * x[1]
    assert found.cure.share == pytest.approx((6 * added[0] * added[1]).sum() / cost.sum(), rel=1e-9)
    assert found.cure.share <= 0.1


def test_two_runs_off_the_path_make_a_condition_of_millions_one_of_hundreds() -> None:
    x, off = designs("collinear_20_tokens_per_param"), np.array([[5e7, 2e9], [4e10, 1.2e9]])
    assert design_check(CHINCHILLA, x, TRUTH).condition > 1e6
    assert design_check(CHINCHILLA, np.hstack([x, off]), TRUTH).condition == pytest.approx(394, abs=1)


def test_one_token_budget() -> None:
    found = design_check(CHINCHILLA, designs("single_token_budget"), TRUTH)
    assert found.condition == np.inf
    assert "condition" not in found.to_json()
    assert found.text.startswith(
        "chinchilla over n_params, tokens: 16 distinct places, but tokens is 1e+10 in every row. B and beta can't be "
        "told apart (condition inf). The data fix only B/tokens^beta near tokens = 1e10. Fits: power_offset over "
        "n_params. To separate them add e.g. n_params="
    )


def test_words_of_a_collinear_design() -> None:
    found = design_check(CHINCHILLA, ON_PATH)  # without a guess
    text = found.text
    assert "but log tokens = log n_params + 3.00 (r = 1.0000)" in text
    assert "A, alpha, B and beta can't be told apart" in text
    assert "Fits: power_offset over flops." in text
    assert "% of the present cost; condition then" in text
    assert found.to_json()["instead"] == "power_offset over flops"


def test_words_of_a_narrow_design() -> None:
    width = np.geomspace(100, 130, 8)
    found = design_check(law_over("power_offset", "width"), width, {"E": 1.6, "A": 3, "alpha": 0.4})
    term = 3 * width**-0.4
    columns = np.array([np.ones(8), term, -np.log(width / np.exp(np.log(width).mean())) * term]) / (1.6 + term)
    kappa = float(np.linalg.cond((columns / np.linalg.norm(columns, axis=1, keepdims=True)).T))
    assert found.condition == pytest.approx(kappa, rel=1e-6)
    assert found.text.startswith(
        f"power_offset over width: 8 distinct places. E and A trade off (condition {kappa:.2g}). The data fix only "
        "E + A/width^alpha near width = 110. To separate them add e.g. width="
    )
    assert found.instead is None


def test_a_place_run_twice_is_one_place() -> None:
    found = design_check(CHINCHILLA, ON_PATH[:, :5].repeat(4, axis=1))
    assert found.status == "refused"
    assert found.text == (
        "chinchilla over n_params, tokens: 5 distinct places, 5 parameters: no freedom left. Needs >= 7."
    )


def test_columns_at_right_angles_have_condition_one() -> None:
    # log y = log A - alpha (log x - mean log x): constant and centred slope
    assert design_check(law_over("power", "x"), 2.0 ** np.arange(6)).condition == pytest.approx(1, abs=1e-12)


def test_the_cure_is_the_best_of_all_pairs() -> None:
    x = designs("collinear_20_tokens_per_param")
    offered = np.array(np.meshgrid([2e7, 3e8, 4e9], [5e8, 7e9, 9e10])).reshape(2, -1)
    found = cure(CHINCHILLA, x, POINT, offered)
    assert found is not None
    total = (x[0] * x[1]).sum()
    pairs = [offered[:, list(pair)] for pair in combinations(range(9), 2)]
    cheap = [pair for pair in pairs if (pair[0] * pair[1]).sum() <= 0.1 * total]
    assert 0 < len(cheap) < len(pairs)
    assert found.condition == pytest.approx(min(by_hand(np.hstack([x, pair])) for pair in cheap), rel=0.02)
    assert cure(CHINCHILLA, x, POINT, offered[:, :1]) is None


def test_rows_of_other_weight_and_price() -> None:
    x = designs("tiny_range")
    exact = design_check(CHINCHILLA, x, TRUTH, scale=np.full(16, 3.0))
    plain = design_check(CHINCHILLA, x, TRUTH)
    assert exact.condition == pytest.approx(plain.condition, rel=1e-6)  # a common weight changes nothing
    first = np.where(np.arange(16) < 8, 1.0, 1e-3)
    assert design_check(CHINCHILLA, x, TRUTH, scale=first).condition > plain.condition
    hours = design_check(CHINCHILLA, x, TRUTH, cost=6 * x[0] * x[1] / 1e18)
    assert hours.cure is not None
    assert plain.cure is not None
    assert hours.cure.places == plain.cure.places
    assert hours.cure.share == pytest.approx(plain.cure.share, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(6, 12))
def test_the_weak_direction_is_what_rows_tell_least_of(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((rows, 4)) * rng.uniform(0.1, 10, 4)
    covariance, size = np.linalg.inv(columns.T @ columns), np.linalg.norm(columns, axis=0)
    weak = weak_direction(columns)
    assert np.linalg.norm(weak / size) == pytest.approx(1)
    others = rng.standard_normal((50, 4))
    others *= size / np.linalg.norm(others, axis=1, keepdims=True)
    assert weak @ covariance @ weak >= np.einsum("ki,ij,kj->k", others, covariance, others).max() * (1 - 1e-9)


def test_jacobian_by_finite_differences() -> None:
    x = places("synthetic_chinchilla_twin")[:, :20]
    middle = np.exp(np.log(x).mean(axis=1))
    found = sensitivity(CHINCHILLA, POINT, x)
    theta = CHINCHILLA.encode(CHINCHILLA.scaled(POINT, middle))
    for i, step in enumerate(1e-6 * np.eye(5)):
        up, down = (np.log(CHINCHILLA.value(CHINCHILLA.decode(t), x / middle[:, None])) for t in
                    (theta + step, theta - step))  # fmt: skip
        assert found[:, i] == pytest.approx((up - down) / 2e-6, abs=1e-8)


SIBLINGS = {"geometric_repeat", "info_channels_error", "bnsl2"}  # slow to compile, and built like another law


@pytest.mark.parametrize("name", sorted({*REGISTRY} - SIBLINGS))
def test_every_law_can_be_checked_before_any_run(name: str) -> None:
    inputs = REGISTRY[name].inputs or ("first", "second")
    law = law_over(name, inputs)
    wide = np.array(np.meshgrid(*[np.geomspace(3, 3000, 24 // len(inputs))] * len(inputs))).reshape(len(inputs), -1)
    found = design_check(law, wide[:, possible(law, wide)])
    assert np.isfinite(found.condition) or found.status == "refused"
    assert found.text.startswith(f"{name} over")
    assert found.status == "ok" or found.cure is not None


def test_repetition_is_no_less_than_one_epoch() -> None:
    law = law_over("data_constrained", ("n_params", "tokens", "unique_tokens"))
    grid = around(law, np.array([[1e8, 1e9], [1e9, 1e11], [1e9, 1e10]]))
    assert grid.shape[1] > 20
    assert (grid[2] <= grid[1]).all()


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(AnalysisError, match=r"no parameter 'aplha'\. Did you mean 'alpha'"):
        design_check(CHINCHILLA, ON_PATH, {**TRUTH, "aplha": 0.3})
    with pytest.raises(AnalysisError, match="guess for chinchilla: alpha is missing"):
        design_check(CHINCHILLA, ON_PATH, {k: v for k, v in TRUTH.items() if k != "alpha"})
    with pytest.raises(AnalysisError, match="n_params, tokens must be finite numbers > 0"):
        design_check(CHINCHILLA, -ON_PATH)
    with pytest.raises(AnalysisError, match="no finite response"):
        design_check(CHINCHILLA, ON_PATH, {**TRUTH, "E": np.nan})
