from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.budgets import SurfaceExponent, against_surface
from scaling.errors import AnalysisError
from scaling.isoflop import IsoFlop, Options, Profile, Runs, isoflop

DATA = Path(__file__).parents[2] / "sweeps" / "published" / "data"
# alpha, beta of the surfaces 1.69 + 406.4 N^-alpha + 410.7 D^-beta behind the noise-free grids
SURFACES = {"symmetric": (0.31, 0.31), "chinchilla": (0.34, 0.28), "asymmetric": (0.465, 0.155)}
# relative error of D* at 1e24 FLOP by parabolas, in percent, as published for these grids
BIAS = {
    "symmetric": (0.0, 0.0, 0.0, 0.0),
    "chinchilla": (-0.327, -1.301, -2.903, -5.100),
    "asymmetric": (-1.675, -6.498, -13.910, -23.116),
}
NINE = [6e18, 1e19, 3e19, 6e19, 1e20, 3e20, 6e20, 1e21, 3e21]
DEFAULT = Options()
WHOLE = {"residual": "linear", "depth": None}


def optimum(alpha: float, beta: float, flops: float) -> tuple[float, float]:
    """N* and D* under C = 6 N D, by hand."""
    g = (alpha * 406.4 / (beta * 410.7)) ** (1 / (alpha + beta))
    return g * (flops / 6) ** (beta / (alpha + beta)), (flops / 6) ** (alpha / (alpha + beta)) / g


def noise_free(surface: str, grid: str, options: Options) -> IsoFlop:
    table = pl.read_csv(DATA / "synthetic_isoflop_noise_free.csv")
    return isoflop(
        Runs.of(table.filter((pl.col("surface") == surface) & (pl.col("grid") == grid)), "loss"), options=options
    )


@pytest.mark.parametrize(("i", "grid"), list(enumerate(("XS", "S", "L", "XL"))))
@pytest.mark.parametrize("surface", SURFACES)
def test_the_bias_of_parabolas(surface: str, i: int, grid: str) -> None:
    alpha, beta = SURFACES[surface]
    found = noise_free(surface, grid, Options(degree=2, draws=0, **WHOLE))
    assert found.n_params.exponent.value == pytest.approx(beta / (alpha + beta), abs=1e-6)
    assert found.tokens.exponent.value == pytest.approx(alpha / (alpha + beta), abs=1e-6)
    off = 100 * (found.tokens.predict(1e24).value / optimum(alpha, beta, 1e24)[1] - 1)
    assert off == pytest.approx(BIAS[surface][i], abs=6e-4)
    assert found.findings == ()


@pytest.mark.parametrize("surface", SURFACES)
def test_cubics_are_nearly_free_of_it(surface: str) -> None:
    found = noise_free(surface, "L", Options(draws=0, **WHOLE))
    true = optimum(*SURFACES[surface], 1e24)
    assert found.tokens.predict(1e24).value == pytest.approx(true[1], rel=4e-3)
    assert found.n_params.predict(1e24).value == pytest.approx(true[0], rel=4e-3)
    if surface == "asymmetric":
        assert "parabolas put N* at 1.17 times" in " ".join(found.notes)


def chinchilla() -> Runs:
    """The 240 points of figure 4 of arXiv 2203.15556 that Besiroglu et al. 2024 keep."""
    table = pl.read_csv(DATA / "chinchilla.csv").filter(pl.col("loss") < 3.44)
    size, flops = table["Model Size"].to_numpy(), table["Training FLOP"].to_numpy()
    return Runs(flops, size, table["loss"].to_numpy(), flops / (6 * size))


@pytest.mark.parametrize(("degree", "exponent"), [(2, 0.513), (3, 0.479)])
def test_chinchillas_nine_budgets(degree: int, exponent: float) -> None:
    options = Options(degree=degree, weighted=False, keep_open=True, draws=200, **WHOLE)  # type: ignore[arg-type]
    found = isoflop(chinchilla(), budgets=NINE, within=0.1, options=options)
    assert len(found.found) == 9
    assert found.n_params.exponent.value == pytest.approx(exponent, abs=5e-4)
    assert "the budget 1e+20 lies at 0." in " ".join(found.n_params.why)
    far = min(found.n_params.influence, key=lambda i: i.ratio)
    assert far.budget == 1e20
    if degree == 2:
        assert far.ratio == pytest.approx(0.6, abs=0.02)
    assert against_surface(found.n_params, SurfaceExponent(0.5126, 0.02)).disagree is False


def test_what_of_chinchilla_is_bracketed() -> None:
    """The smallest model at 1e20 FLOP has the smallest loss there, so that budget has no optimum."""
    found = isoflop(chinchilla(), budgets=NINE, within=0.1)
    refused = {p.budget: p for p in found.profiles if p.status == "refused"}
    assert "the smallest loss is at the smallest size tried, 6.32e+08. Add n_params = 4.21e+08" in refused[1e20].why[0]
    assert f"{len(refused)} of 9 budgets have no optimum." in found.notes
    assert found.n_params.exponent.lo < 0.5126 < found.n_params.exponent.hi
    assert "116 of 240 rows are within 10% of no budget: left out." in found.notes


@pytest.mark.parametrize(
    ("config", "exponent"),
    [
        ("1_kaplan_reproduction", 0.865),
        ("2_count_last_layer", 0.695),
        ("3_correct_warmup", 0.593),
        ("4_cosine_decay", 0.552),
        ("5_tuned_no_decay", 0.501),
    ],
)
def test_five_point_parabolas_of_porian_et_al(config: str, exponent: float) -> None:
    table = pl.read_csv(DATA / "porian_points.csv").filter(pl.col("config") == config)
    options = Options(degree=2, points=5, weighted=False, keep_open=True, draws=0)
    found = isoflop(Runs.of(table, "loss"), options=options)
    assert found.n_params.exponent.value == pytest.approx(exponent, abs=5e-4)


def test_profiles_and_surface_disagree_where_runs_are_badly_tuned() -> None:
    """The surface's exponent of column 2 is 0.561; of the tuned column 5 it is 0.529."""
    table = pl.read_csv(DATA / "porian_points.csv")
    laws = {
        c: isoflop(Runs.of(table.filter(pl.col("config") == c), "loss")).n_params
        for c in ("2_count_last_layer", "5_tuned_no_decay")
    }
    assert against_surface(laws["2_count_last_layer"], SurfaceExponent(0.561, 0.02)).disagree
    assert not against_surface(laws["5_tuned_no_decay"], SurfaceExponent(0.529, 0.02)).disagree


# -- planted designs -------------------------------------------------------------------------------


def planted(
    sd: float = 0.0, seed: int = 0, *, budgets: tuple[float, ...] = (1e18, 1e19, 1e20, 1e21), sizes: int = 9,
    centre: float = 1.0, copies: int = 1,
) -> Runs:  # fmt: skip
    """log loss = log 3 + 0.02 t^2, t = log(N / N*), N* = 1e8 sqrt(C / 1e18): a parabola exactly."""
    c = np.repeat(np.array(budgets), sizes * copies)
    t = np.tile(np.repeat(np.linspace(-1.5, 1.5, sizes) + np.log(centre), copies), len(budgets))
    n = 1e8 * np.sqrt(c / 1e18) * np.exp(t)
    noise = sd * np.random.default_rng(seed).standard_normal(len(n))
    return Runs(c, n, 3 * np.exp(0.02 * t**2 + noise), c / (6 * n))


@given(centre=st.floats(0.5, 2), degree=st.sampled_from([2, 3]), unit=st.floats(0.1, 10))
@settings(deadline=None, max_examples=30)
def test_a_parabola_is_found_exactly(centre: float, degree: int, unit: float) -> None:
    runs = planted(centre=centre)
    found = isoflop(Runs(runs.flops, runs.n_params, unit * runs.loss, runs.tokens), options=Options(degree=degree))
    assert found.n_params.exponent.value == pytest.approx(0.5, abs=1e-7)
    for p in found.profiles:
        assert p.n_params.value == pytest.approx(1e8 * np.sqrt(p.budget / 1e18), rel=1e-6)
        assert p.loss.value == pytest.approx(3 * unit, rel=1e-9)
        assert p.tokens.value == pytest.approx(p.budget / 6 / p.n_params.value, rel=1e-6)


def test_the_standard_error_is_that_of_the_draws() -> None:
    (profile,) = isoflop(planted(budgets=(1e19,)), options=Options(degree=2, noise=1e-3, draws=20_000)).profiles
    assert profile.log_stderr == pytest.approx(np.std(profile.draws), rel=0.03)
    # 2 * 0.02 t = b: the error of the slope over the curvature
    t = np.linspace(-1.5, 1.5, 9)
    assert profile.log_stderr == pytest.approx(1e-3 / np.sqrt((t**2).sum()) / 0.04, rel=1e-6)


@pytest.mark.parametrize("degree", [2, 3])
def test_intervals_cover(degree: int) -> None:
    size = exponent = 0
    for seed in range(150):
        options = Options(degree=degree, draws=300)  # type: ignore[arg-type]
        found = isoflop(planted(1.5e-3, seed), options=options)
        first, law = found.profiles[0].n_params, found.n_params.exponent
        size += first.lo < 1e8 < first.hi
        exponent += law.lo < 0.5 < law.hi
    assert 0.90 <= size / 150 <= 0.99
    assert 0.90 <= exponent / 150 <= 0.995


def test_where_noise_comes_from() -> None:
    single = isoflop(planted(2e-3, 1, sizes=15))
    assert single.noise.source == "scatter"
    assert single.noise.sd == pytest.approx(2e-3, rel=0.3)
    replicated = isoflop(planted(2e-3, 1, copies=3))
    assert replicated.noise.source == "replicates"
    assert replicated.noise.dof == 4 * 9 * 2
    assert replicated.noise.sd == pytest.approx(2e-3, rel=0.2)
    assert replicated.profiles[0].log_stderr < single.profiles[0].log_stderr
    assert isoflop(planted(sizes=9), options=Options(noise=0.004)).noise.source == "given"


def test_exact_fits_have_no_interval() -> None:
    found = isoflop(planted(sizes=5, budgets=(1e19,)))
    assert found.noise.source == "none"
    assert found.profiles[0].n_params.lo is None
    assert "no interval" in found.profiles[0].why[0]


def only(runs: Runs, options: Options = DEFAULT) -> Profile:
    (profile,) = isoflop(runs, options=options).profiles
    return profile


def test_an_optimum_at_the_edge() -> None:
    found = only(planted(budgets=(1e18,), centre=6.0))
    assert found.status == "refused"
    smallest = 1e8 * 6 * np.exp(-1.5)
    assert f"the smallest size tried, {smallest:.3g}. Add n_params =" in found.why[0]
    assert found.to_json()["status"] == "refused"
    kept = only(planted(budgets=(1e18,), centre=6.0), Options(keep_open=True, degree=2))
    assert kept.status == "open"
    assert kept.n_params.value == pytest.approx(1e8, rel=1e-6)
    assert "Kept all the same" in kept.why[0]


def test_a_side_that_does_not_rise_above_the_noise() -> None:
    """Sizes end at exp(0.41) N*: a rise of 0.02 * 0.41^2 = 0.0033, against 2 * 0.003."""
    runs = planted(budgets=(1e18,), sizes=12)
    t = np.log(runs.n_params / 1e8)
    runs = runs.take(t < 0.5)
    found = only(runs, Options(noise=0.003))
    assert found.status == "refused"
    assert "no size above the optimum, up to 1.51e+08, stands 2 noise units (0.6 %) higher" in found.why[0]
    assert "Add n_params = 2.26e+08, 3.39e+08" in found.why[0]
    assert only(runs, Options(noise=0.001)).status == "ok"
    mirrored = only(Runs(runs.flops, 1e16 / runs.n_params, runs.loss), Options(noise=0.003))
    assert "no size below the optimum, down to 6.64e+07, stands 2 noise units" in mirrored.why[0]
    assert "Add n_params = 4.43e+07, 2.95e+07" in mirrored.why[0]
    assert only(runs, Options(noise=0.003, bracket=1.0)).status == "ok"


def test_a_cap_is_refused() -> None:
    runs = planted(budgets=(1e18,))
    bumps = np.array([0, 0.02, 0.03, 0.03, -0.001, 0.03, 0.03, 0.02, 0])
    found = only(Runs(runs.flops, runs.n_params, 3 + bumps, runs.tokens), Options(degree=2))
    assert found.status == "refused"
    assert "the parabola has no minimum within the sizes tried. Add n_params =" in found.why[0]


def test_too_few_sizes() -> None:
    found = only(planted(budgets=(1e18,), sizes=4))
    assert "4 sizes; a cubic with a test needs >= 5. Add n_params =" in found.why[0]
    assert only(planted(budgets=(1e18,), sizes=4), Options(degree=2)).status == "ok"


def test_rows_that_are_left_out_are_counted() -> None:
    runs = planted()
    loss = runs.loss.copy()
    loss[[0, 7]] = np.nan, np.inf
    odd = Runs(
        np.append(runs.flops, 5e19), np.append(runs.n_params, 1e8), np.append(loss, 3.0), np.append(runs.tokens, 1e11)
    )
    found = isoflop(odd)
    assert "2 of 37 rows diverged or have no loss: left out." in found.notes
    assert "rows left out, as their budgets have fewer than 3 sizes: 1 (budgets: 1)." in found.notes
    assert len(found.found) == 4


def test_budgets_that_differ_by_a_little_are_one() -> None:
    runs = planted()
    wobble = np.exp(np.random.default_rng(0).uniform(-0.04, 0.04, len(runs.flops)))
    found = isoflop(Runs(runs.flops * wobble, runs.n_params, runs.loss, runs.tokens * wobble))
    assert len(found.profiles) == 4
    assert found.n_params.exponent.value == pytest.approx(0.5, abs=5e-3)


def test_a_grid_that_drifts_is_told() -> None:
    parts = [planted(budgets=(c,), centre=s) for c, s in ((1e18, 0.6), (1e19, 0.9), (1e20, 1.35), (1e21, 2.0))]
    runs = Runs(*(np.concatenate([getattr(p, k) for p in parts]) for k in ("flops", "n_params", "loss", "tokens")))
    assert "centre/N* ~ C^+0.17" in " ".join(isoflop(runs, options=Options(degree=2)).notes)
    assert "centre/N*" not in " ".join(isoflop(planted(), options=Options(degree=2)).notes)


def test_far_sizes_do_not_bend_a_profile() -> None:
    """Sizes a thousand times too large, whose loss no cubic follows, leave the optimum alone."""
    runs = planted(budgets=(1e18,))
    size = np.append(runs.n_params, [1e10, 3e10, 1e11])
    loss = np.append(runs.loss, [6.0, 8.0, 9.0])
    far = Runs(np.full(12, 1e18), size, loss)
    assert only(far).n_params.value == pytest.approx(1e8, rel=1e-6)
    bent = only(far, Options(depth=None))
    assert abs(np.log(bent.n_params.value / 1e8)) > 0.1


def test_a_count_that_flops_do_not_follow_is_told() -> None:
    """Tokens that the budget would give for N + 3e8, with N alone in the table: a + b misses 1."""
    runs = planted()
    found = isoflop(Runs(runs.flops, runs.n_params, runs.loss, runs.flops / (6 * (runs.n_params + 3e8))))
    assert found.findings
    assert "must be 1 where C ~ N·D" in found.findings[0].text


def test_bad_input() -> None:
    one = np.ones(2)
    with pytest.raises(AnalysisError, match="row 2: n_params = 0, must be > 0"):
        Runs(one, np.array([1.0, 0.0]), one)
    with pytest.raises(AnalysisError, match="loss has 3 rows, flops has 2"):
        Runs(one, one, np.ones(3))
    with pytest.raises(AnalysisError, match=r"no column 'n_param'. Did you mean 'n_params'"):
        Runs.of(pl.DataFrame({"flops": [1.0], "n_params": [1.0], "val_loss": [1.0]}), n_params="n_param")
    with pytest.raises(AnalysisError, match="under residual: log"):
        isoflop(Runs(one, np.array([1.0, 2.0]), np.array([1.0, -1.0])))
    with pytest.raises(AnalysisError, match="points = 4: an odd number"):
        Options(points=4)
    with pytest.raises(AnalysisError, match="degree = 4"):
        Options(degree=4)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_draws_in_any_order() -> None:
    runs = planted(2e-3, 3)
    order = np.random.default_rng(0).permutation(len(runs.flops))
    one, other = isoflop(runs), isoflop(runs.take(order))
    assert one.n_params.exponent == other.n_params.exponent
    assert orjson.dumps(one.to_json()) == orjson.dumps(other.to_json())
