"""Shipped public tables through their shipped specs: published values, and values recomputed by other programs."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scaling.findings import Analysis, LawFit, LawPrediction
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows
from scaling.sources import analysis_of

SPECS = Path(__file__).parents[2] / "sweeps" / "published"


@cache
def analysis(name: str, *only: str, draws: int = 100) -> Analysis:
    return analysis_of(SPECS / f"{name}.yaml", [f"fit.bootstrap={draws}"], only=only)


def fitted(found: Analysis, name: str, **group: object) -> LawFit:
    (fit,) = [f for f in found.fits if f.name == name and all(f.group.get(k) == v for k, v in group.items())]
    return fit


def values(fit: LawFit) -> dict[str, float]:
    return {k: v.value for k, v in fit.fit.params.items()}


# -- repeated data ---------------------------------------------------------------------------------


def test_the_published_repetition_constants_are_a_local_minimum() -> None:
    near = fitted(analysis("datablations", "near the published values"), "near the published values")
    assert values(near) == pytest.approx({"R_D": 15.3718, "R_N": 5.3151}, rel=1e-5)
    assert near.fit.value == pytest.approx(0.0158259, abs=1e-7)


def test_repetition_constants_have_several_basins_and_no_upper_end() -> None:
    best = fitted(analysis("datablations", "everywhere", draws=1000), "everywhere").fit
    assert best.value <= 0.0158047 + 1e-7
    assert best.status == "weak"
    basins = [b["R_D"] for b in best.diagnostics.basins]
    assert any(b == pytest.approx(95.365, rel=1e-3) for b in basins)
    assert any(b == pytest.approx(15.37, rel=1e-3) for b in basins)
    assert "basins of nearly equal misfit" in " ".join(best.why)
    assert best.params["R_D"].hi is None
    assert best.params["R_D"].lo is not None


# -- over-training ---------------------------------------------------------------------------------


def miss(p: LawPrediction) -> float:
    assert p.observed is not None
    return p.value / p.observed - 1


@pytest.mark.parametrize(
    ("name", "law", "misses"),
    [
        ("gadre_c4", (0.12124, 141.3, 189.5, 1.50826), {(1, 20): -0.78e-2, (1, 80): 1.50e-2, (7, 20): -4.295e-2}),
        ("gadre_rpj", (0.13643, 212.2, 366.7, 1.83665), {(1, 20): -0.11e-2, (1, 640): 0.7103e-2, (7, 20): 0.732e-2}),
    ],
)
def test_five_small_runs_predict_over_trained_ones(
    name: str, law: tuple[float, ...], misses: dict[tuple[int, int], float]
) -> None:
    found = analysis(name)
    eta, a, b, floor = law
    fit = values(fitted(found, "five runs"))
    # published as (a M^eta + b M^-eta) C^-eta with C = 6 N D and M = D / N
    published = {"eta": eta, "A": a / 6**eta, "B": b / 6**eta, "E": floor}
    assert fit == pytest.approx(published, rel=1e-3)
    scored = [p for p in found.predictions if p.fit.name == "five runs" and p.observed is not None]
    for (size, multiple), expected in misses.items():
        low, high = (1e9, 2e9) if size == 1 else (6e9, 8e9)
        (one,) = [
            p for p in scored
            if low < p.at["n_params"] < high and round(p.at["tokens"] / p.at["n_params"]) == multiple
        ]  # fmt: skip
        assert miss(one) == pytest.approx(expected, abs=5e-5 if abs(expected) < 0.9e-2 else 6e-5)


def test_all_over_trained_runs_at_once() -> None:
    c4, rpj = (fitted(analysis(n), "all runs") for n in ("gadre_c4", "gadre_rpj"))
    assert values(c4) == pytest.approx(
        {"A": 122.55, "B": 242.61, "E": 1.62002, "alpha": 0.25257, "beta": 0.26223}, rel=5e-5
    )
    assert c4.fit.value == pytest.approx(5.2995e-4, rel=1e-4)
    assert rpj.fit.value == pytest.approx(4.2651e-4, rel=1e-4)


def test_error_of_tasks_from_the_loss() -> None:
    c4 = values(fitted(analysis("gadre_c4"), "error of 17 tasks"))
    assert c4 == pytest.approx({"eps": 0.84974, "k": 2.0789, "gamma": 0.7561}, rel=1e-4)


# -- shapes, with checkpoints ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "delta", "optimum"),
    [
        ("hot", "1e-3", 1.981612808e-3), ("hot", "1e-4", 2.075051555e-4),
        ("cool_end", "1e-3", 1.964086436e-3), ("cool_end", "1e-4", 2.04779068e-4),
        ("hot_100bplus", "1e-3", 6.592534166e-3), ("hot_100bplus", "1e-4", 6.923289081e-4),
    ],
)  # fmt: skip
def test_no_objective_is_above_the_known_optimum(table: str, delta: str, optimum: float) -> None:
    name = f"Huber {delta}"
    fit = fitted(analysis(f"gemstones_{table}", name), name).fit
    assert fit.value <= optimum * (1 + 1e-7)
    assert fit.diagnostics.method == "cluster bootstrap"
    assert fit.rows.cluster is not None
    assert len(set(fit.rows.cluster)) in (20, 22)  # runs, not checkpoints


# -- optima of equal compute -----------------------------------------------------------------------


EXPONENTS = {
    "1_kaplan_reproduction": 0.8353, "2_count_last_layer": 0.7065, "3_correct_warmup": 0.6020, "4_cosine_decay": 0.5715,
    "5_tuned_no_decay": 0.4969, "att:base/long/kaplan": 0.7171, "att:base/short/kaplan": 0.6223,
    "att:base/short/chinchilla": 0.5772, "att:tuned/short/const": 0.5053, "kaplan_tuned": 0.7115,
}  # fmt: skip


@pytest.mark.parametrize("config", EXPONENTS)
def test_exponents_of_the_optimal_size(config: str) -> None:
    fit = fitted(analysis("porian_optima"), "optimal size", config=config)
    assert -values(fit)["alpha"] == pytest.approx(EXPONENTS[config], abs=5e-5)


def test_a_loss_law_that_is_not_its_starting_point() -> None:
    fit = fitted(analysis("porian_optima"), "frontier", config="5_tuned_no_decay")
    assert values(fit) == pytest.approx({"E": 1.625, "A": 81.3, "alpha": 0.0898}, rel=1e-3)
    assert fit.fit.value <= 2.2190e-6


# -- routed models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("router", "expected"),
    [
        ("RL-R", {"a": -0.0829, "b": -0.1221, "c": 0.0112, "d": 1.106, "E_start": 1.36, "E_max": 562}),
        ("Hash", {"a": -0.0874, "b": -0.1376, "c": 0.0126, "d": 1.159, "E_start": 3.98, "E_max": 458}),
    ],
)
def test_routed_laws(router: str, expected: dict[str, float]) -> None:
    fit = fitted(analysis("routed_lm"), "routed", router=router)
    assert values(fit) == pytest.approx(expected, rel=1e-2)
    assert fit.fit.diagnostics.rms == pytest.approx(0.76e-2 if router == "RL-R" else 0.71e-2, abs=1e-4)


def test_the_dense_law() -> None:
    fit = values(fitted(analysis("routed_lm"), "dense"))
    assert fit["alpha"] == pytest.approx(0.07876, abs=1e-5)
    assert fit["N_c"] == pytest.approx(3.42e13, rel=2e-3)


# -- a model ladder --------------------------------------------------------------------------------


def test_a_ladder_of_small_runs_predicts_the_large_one_honestly() -> None:
    found = analysis("olmo_ladder", draws=1000)
    scored = {p.fit.name: p for p in found.predictions if p.observed is not None}
    expected = {"C4": -1.981, "HellaSwag": -0.285, "MMLU": 1.277, "ARC challenge": 6.962}
    for name, percent in expected.items():
        assert 100 * miss(scored[name]) == pytest.approx(percent, abs=0.01), name
    for name in ("C4", "HellaSwag", "MMLU"):
        p = scored[name]
        assert p.lo is not None
        assert p.lo < p.observed < p.hi, name


def test_the_ladder_s_loss_law() -> None:
    fit = values(fitted(analysis("olmo_ladder", "C4"), "C4"))
    assert fit == pytest.approx({"A": 12.483, "B": 33.477, "E": 0.9344, "alpha": 0.10360, "beta": 0.16197}, rel=5e-5)


# -- tables with a known truth ---------------------------------------------------------------------

TWIN = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}


def test_the_twin_without_noise_is_exact() -> None:
    found = fitted(analysis("synthetic_chinchilla_twin"), "without noise").fit
    assert {k: v.value for k, v in found.params.items()} == pytest.approx(TWIN, rel=1e-9)
    assert found.diagnostics.condition == pytest.approx(24.5, abs=0.1)


def test_the_twin_with_outliers() -> None:
    robust = values(fitted(analysis("synthetic_chinchilla_twin"), "Huber 1e-3"))
    assert robust == pytest.approx({"A": 429.1, "B": 2091.3, "E": 1.80565, "alpha": 0.34086, "beta": 0.36567}, rel=1e-4)
    plain = values(fitted(analysis("synthetic_chinchilla_twin"), "least squares"))
    assert plain["E"] == pytest.approx(1.687, abs=1e-3)
    assert plain["alpha"] == pytest.approx(0.298, abs=1e-3)


def test_repetition_of_a_known_truth() -> None:
    found = analysis("synthetic_data_constrained")
    exact = values(fitted(found, "without noise"))
    assert exact == pytest.approx({"R_D": 15.387756, "R_N": 5.309743}, rel=1e-6)
    noisy = values(fitted(found, "with noise"))
    assert noisy == pytest.approx({"R_D": 15.28, "R_N": 5.33}, rel=1e-2)


def test_kaplan_s_joint_law_is_exact() -> None:
    (fit,) = analysis("synthetic_kaplan_joint").fits
    truth = {"alpha_N": 0.076, "alpha_D": 0.103, "N_c": 6.4e13, "D_c": 1.8e13}
    assert values(fit) == pytest.approx(truth, rel=1e-9)


def test_surfaces_of_equal_compute_are_exact() -> None:
    exponents = {"symmetric": (0.31, 0.31), "chinchilla": (0.34, 0.28), "asymmetric": (0.465, 0.155)}
    for fit in analysis("synthetic_isoflop").fits:
        alpha, beta = exponents[str(fit.group["surface"])]
        truth = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": alpha, "beta": beta}
        assert values(fit) == pytest.approx(truth, rel=1e-6)


def test_designs_that_identify_nothing() -> None:
    fits = {str(f.group["design"]): f.fit for f in analysis("synthetic_designs").fits}
    collinear, single, narrow = (
        fits[k] for k in ("collinear_20_tokens_per_param", "single_token_budget", "tiny_range")
    )
    assert collinear.status == single.status == "refused"
    assert "log tokens = log n_params + 3.00 (r = 1.0000)" in collinear.why[0]
    assert "tokens is 1e+10 in every row" in single.why[0]
    assert narrow.status in ("weak", "refused")
    for name in ("alpha", "beta"):
        interval = narrow.params.get(name)
        assert interval is None or interval.hi is None or interval.hi - interval.lo > 0.4


def test_another_tables_rows_under_the_same_law_as_plain_numpy() -> None:
    # the over-training table again, by hand: the spec, the reading and the grouping change nothing
    table = pl.read_csv(SPECS / "data" / "gadre_c4.csv", comment_prefix="#", infer_schema_length=None)
    from scaling.fitting import fit_law

    x = np.array([table["n_params"], table["tokens"]], dtype=float)
    law = law_over("chinchilla", ("n_params", "tokens"))
    direct = fit_law(law, Rows(x, table["loss_c4_val"].to_numpy()), objective=Objective("huber", delta=1e-3), draws=0)
    assert direct.value == pytest.approx(fitted(analysis("gadre_c4"), "all runs").fit.value, rel=1e-12)


def test_a_break_beyond_the_data_is_found_from_a_table_without_noise() -> None:
    found = analysis("synthetic_broken_law")
    (fit,) = [f for f in found.fits if f.fit.law.name == "bnsl"]
    truth = {"a": 0.41388453, "b": 2.27727229, "c0": 0.05507735, "d1": 612.583617, "f1": 0.05919304, "c1": 5.66290382}
    assert values(fit) == pytest.approx(truth, rel=1e-3)  # the rows end at x = 405
    scored = [p for p in found.predictions if p.fit is fit and p.observed is not None]
    assert len(scored) > 50
    error = np.array([np.log(p.value / p.observed) for p in scored])
    assert np.sqrt(np.mean(error**2)) < 1e-4


def test_counts_that_flops_do_not_follow_are_told() -> None:
    notes = analysis("nanochat").notes
    (fault,) = [n for n in notes if n.startswith("param_count all_parameters: ")]
    assert "drifts from 1.95 to 2.6 along flops" in fault
    (warning,) = [n for n in notes if n.startswith("param_count transformer_matrices_only: ")]
    assert "within its scatter" in warning
    sums = {}
    for f in analysis("nanochat").fits:
        sums.setdefault(f.group["param_count"], []).append(-values(f)["alpha"])
    assert sum(sums["all_parameters"]) == pytest.approx(0.856, abs=2e-3)
    assert sum(sums["projections_and_lm_head"]) == pytest.approx(1.003, abs=2e-3)


def test_two_tuned_names_are_read_as_pairs() -> None:
    found = analysis("synthetic_lr_batch", draws=400)
    assert all(j.status == "ok" for j in found.joint)
    (lr,) = [f for f in found.fits if f.of == "lr.optimum"]
    for name, truth in {"p_n_params": -0.713, "p_tokens": 0.307}.items():
        at = lr.fit.params[name]
        assert at.lo < truth < at.hi
        assert at.hi - at.lo < 0.06
    (batch,) = [f for f in found.fits if f.of == "batch.optimum"]
    assert values(batch)["p_tokens"] == pytest.approx(0.571, abs=0.015)
