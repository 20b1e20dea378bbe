from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.optimize import curve_fit
from scipy.stats import linregress

from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

DATA = Path(__file__).parent / "data"
L2 = Objective("l2")
RAW = Objective("l2", "linear")


def table(name: str) -> pl.DataFrame:
    return pl.read_csv(DATA / f"hyperp_{name}.csv", comment_prefix="#", infer_schema_length=None)


def published(name: str, column: str) -> float:
    return float(table("fits").filter((pl.col("name") == name) & (pl.col("origin") == column))["exponent"][0])


def lr_fit(by: str, objective: Objective) -> Fit:
    t = table(f"lr_vs_{by}")
    x = t["tokens" if by == "tokens" else "batch_tokens"].to_numpy().astype(float)
    return fit_law(law_over("power", by), Rows(x, t["lr_opt_fitted"].to_numpy()), objective=objective)


@pytest.mark.parametrize("by", ["tokens", "batch"])
def test_learning_rate_laws_of_the_published_tables(by: str) -> None:
    raw, log = lr_fit(by, RAW), lr_fit(by, L2)
    assert -raw.params["alpha"].value == pytest.approx(published(f"lr_vs_{by}", "refit_nls"), abs=5e-5)
    assert -log.params["alpha"].value == pytest.approx(published(f"lr_vs_{by}", "refit_loglog_ols"), abs=5e-6)
    slope = linregress(np.log(log.rows.x[0]), np.log(log.rows.y))
    assert -log.params["alpha"].value == pytest.approx(slope.slope, abs=1e-10)
    assert np.log(log.params["A"].value) == pytest.approx(slope.intercept, abs=1e-8)


def test_the_tokens_law_as_printed() -> None:
    raw = lr_fit("tokens", RAW)
    assert raw.params["alpha"].value == pytest.approx(0.320, abs=1e-3)
    assert 24.2 < raw.params["A"].value < 24.3


@pytest.mark.parametrize("series", ["muon", "muonh", "hyperp"])
def test_loss_against_flops_as_published(series: str) -> None:
    t = table("flops_scaling")
    x, y = t["flops"].to_numpy(), t[f"val_loss_{series}"].to_numpy()
    found = fit_law(law_over("power_offset", "flops"), Rows(x, y), objective=RAW)
    row = table("fits").filter((pl.col("name") == f"loss_vs_flops_{series}") & (pl.col("origin") == "refit"))
    assert found.params["alpha"].value == pytest.approx(-row["exponent"][0], rel=1e-4)
    assert found.params["E"].value == pytest.approx(row["offset"][0], rel=1e-4)
    assert found.params["A"].value == pytest.approx(row["A"][0], rel=1e-3)
    (e, a, b), _ = curve_fit(
        lambda x, e, a, b: e + a * (x / 1e21) ** -b, x, y, p0=(1.5, 0.5, 0.15), xtol=1e-14, ftol=1e-14
    )
    assert found.params["E"].value == pytest.approx(e, rel=1e-5)
    assert found.params["A"].value == pytest.approx(a * 1e21**b, rel=1e-4)


def rows(
    noise: float = 0.002, seed: int = 0, widths: tuple[float, ...] = (16, 32, 64, 128, 256), dof: float = 20
) -> Rows:
    x = np.array(widths)
    clean = 1.6 + 2.5 * x**-0.5
    y = clean * np.exp(noise * np.random.default_rng(seed).standard_normal(len(x)))
    return Rows(x, y, noise * y, dof)


def test_an_exact_law_is_found_exactly() -> None:
    x = np.array([16.0, 32, 64, 128, 256, 512])
    found = fit_law(law_over("power_offset", "width"), Rows(x, 1.6 + 2.5 * x**-0.5))
    assert found.params["E"].value == pytest.approx(1.6, rel=1e-6)
    assert found.params["A"].value == pytest.approx(2.5, rel=1e-6)
    assert found.params["alpha"].value == pytest.approx(0.5, rel=1e-6)


def test_robust_objective_shrugs_off_an_outlier() -> None:
    x = 2.0 ** np.arange(4, 13)
    y = 3.0 * x**-0.3
    y[4] *= 1.3
    clean = fit_law(law_over("power", "width"), Rows(x, y))
    plain = fit_law(law_over("power", "width"), Rows(x, y), objective=L2)
    assert clean.params["A"].value == pytest.approx(3.0, rel=1e-3)
    assert abs(plain.params["A"].value - 3.0) > 0.05


def test_weights_follow_standard_errors() -> None:
    x = np.array([16.0, 32, 64, 128])
    y = 2.0 * x**-0.3 * np.array([1.0, 1.05, 0.97, 1.02])
    s = np.array([0.05, 0.05, 0.05, 0.05]) * y
    s[1] *= 4
    found = fit_law(law_over("power", "width"), Rows(x, y, s, 20), objective=L2)
    slope = np.polyfit(np.log(x), np.log(y), 1, w=y / s)
    assert -found.params["alpha"].value == pytest.approx(slope[0], abs=1e-9)


def test_no_freedom_is_refused() -> None:
    found = fit_law(law_over("power_offset", "width"), rows(widths=(16, 32, 64)))
    assert found.status == "refused"
    assert found.params == {}
    assert found.draws is None
    assert found.why == (
        "power_offset over width: 3 distinct width, 3 parameters: no freedom left. Needs >= 5 (>= 4 for power).",
    )
    with pytest.raises(AnalysisError, match="was refused"):
        found.predict(np.array([100.0]))


def test_repeats_of_a_scale_are_not_freedom() -> None:
    found = fit_law(law_over("power", "width"), Rows(np.array([16.0, 16, 32, 32]), np.array([2.0, 2.1, 1.8, 1.9])))
    assert found.status == "refused"


def test_one_degree_of_freedom_is_weak() -> None:
    found = fit_law(law_over("power_offset", "width"), rows(widths=(16, 32, 64, 128)))
    assert found.status == "weak"
    assert "one degree of freedom" in " ".join(found.why)


def test_few_points_without_replicates_have_no_interval() -> None:
    r = rows(widths=(16, 32, 64, 128))
    found = fit_law(law_over("power", "width"), Rows(r.x, r.y))
    assert found.status == "weak"
    assert found.params["alpha"].lo is None
    assert "No intervals: 4 points" in " ".join(found.why)
    answer = found.predict(np.array([512.0]))
    assert answer.lo is None
    assert np.isfinite(answer.value).all()


def test_a_floor_the_data_do_not_show_is_said() -> None:
    x = np.array([16.0, 32, 64, 128, 256])
    y = 3.0 * x**-0.1 * np.exp(0.004 * np.random.default_rng(3).standard_normal(5))
    found = fit_law(law_over("power_offset", "width"), Rows(x, y, 0.004 * y, 20))
    assert found.status == "weak"
    assert "E" in " ".join(found.why)
    assert found.params["E"].lo == pytest.approx(0.0, abs=0.05)


def test_points_off_the_law_widen_the_interval() -> None:
    x = np.array([16.0, 32, 64, 128, 256])
    y = 3.0 * x**-0.1 * np.array([1, 1.03, 0.97, 1.03, 0.98])
    tight = fit_law(law_over("power", "width"), Rows(x, 3.0 * x**-0.1, 0.002 * y, 20)).params["alpha"]
    found = fit_law(law_over("power", "width"), Rows(x, y, 0.002 * y, 20))
    wide = found.params["alpha"]
    assert wide.hi - wide.lo > 5 * (tight.hi - tight.lo)
    assert "more than replicates do" in " ".join(found.why)


def test_same_rows_in_another_order_are_the_same_fit() -> None:
    r = rows()
    order = np.array([3, 0, 4, 1, 2])
    law = law_over("power_offset", "width")
    a, b = fit_law(law, r), fit_law(law, Rows(r.x[:, order], r.y[order], r.stderr[order], r.dof))
    assert a.params == b.params
    assert np.array_equal(a.draws, b.draws)
    assert a.value == b.value


def test_interval_methods_follow_the_rows() -> None:
    law = law_over("power", "width")
    many = rows(widths=tuple(2.0 ** np.arange(4, 14, 0.4)))
    assert fit_law(law, Rows(many.x, many.y)).diagnostics.method == "cluster bootstrap"
    r = rows()
    assert fit_law(law, Rows(r.x, r.y)).diagnostics.method == "wild bootstrap"
    assert fit_law(law, r).diagnostics.method == "replicate noise"
    assert fit_law(law, Rows(r.x, r.y, r.stderr, 4)).diagnostics.method == "wild bootstrap"


def test_prediction_intervals_grow_with_distance_and_noise() -> None:
    found = fit_law(law_over("power_offset", "width"), rows())
    near, far = found.predict(np.array([256.0, 4096.0])), found.predict(np.array([256.0, 4096.0]), noise=0.01)
    width, noisy = near.hi - near.lo, far.hi - far.lo
    assert width[1] > width[0]
    assert (noisy > width).all()
    assert "assumes the law holds" in near.basis


def test_a_law_that_bends_away_has_model_error() -> None:
    x = 2.0 ** np.arange(4, 14)
    bent = 3.0 * x**-0.1 * np.exp(0.01 * (np.log2(x) - 8) ** 2 / 4)
    found = fit_law(law_over("power", "width"), Rows(x, bent, 1e-4 * bent, 20))
    straight = fit_law(law_over("power", "width"), Rows(x, 3.0 * x**-0.1, 1e-4 * bent, 20))
    assert found.diagnostics.model.sd > 0.005
    assert straight.diagnostics.model.sd == 0.0
    assert "rolling origin" in found.predict(np.array([2.0**15])).basis


@pytest.mark.parametrize(
    ("x", "y", "part"),
    [([16, 32, 64], [2.0, -1.9, 1.8], "must be > 0 under residual: log"), ([0, 32, 64], [2.0, 1.9, 1.8], "width = 0")],
)
def test_rows_that_have_no_logarithm_are_named(x: list[float], y: list[float], part: str) -> None:
    names = ("run a", "run b", "run c")
    with pytest.raises(AnalysisError, match=part):
        fit_law(law_over("power", "width"), Rows(np.array(x, dtype=float), np.array(y), ids=names))


@pytest.mark.parametrize(("count", "replicated"), [(5, True), (7, False)])
def test_coverage_of_the_exponent(count: int, replicated: bool) -> None:
    law, held = law_over("power", "width"), 0
    x = 2.0 ** np.linspace(4, 9, count)
    for i in range(200):
        y = 3.0 * x**-0.3 * np.exp(0.02 * np.random.default_rng([9, i]).standard_normal(count))
        r = Rows(x, y, 0.02 * y, 40) if replicated else Rows(x, y)
        alpha = fit_law(law, r, draws=200, seed=i).params["alpha"]
        held += alpha.lo <= 0.3 <= alpha.hi
    assert 180 <= held <= 198
