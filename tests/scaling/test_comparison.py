"""Laws compared by what they predict; criteria against their formulas; nested laws under the truth."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from scipy import optimize, stats
from typer.testing import CliRunner, Result

from scaling import compare as command
from scaling.arrays import Floats
from scaling.comparison import (
    aicc,
    choose_law,
    compare_aicc,
    compare_laws,
    costs,
    held_out,
    likelihood_of,
    nested_test,
    nested_tests,
    rolling,
)  # fmt: skip
from scaling.errors import AnalysisError
from scaling.findings import LawFit
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

SPECS = Path(__file__).parents[2] / "sweeps" / "published"
X = 2.0 ** np.arange(4, 16)
POWER, OFFSET = law_over("power", "x"), law_over("power_offset", "x")
L2, STUDENT = Objective("l2"), Objective("student", nu=4.0)


def rows(floor: float, noise: float = 0.01, seed: int = 0, x: Floats = X) -> Rows:
    y = (floor + 3.0 * x**-0.4) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(x)))
    return Rows(x, y)


# -- held out ----------------------------------------------------------------------------------------


def test_the_law_that_predicts_is_chosen() -> None:
    found = compare_laws([POWER, OFFSET], rows(0.8))
    assert found.best == "power_offset"
    scores = {s.law: s for s in found.scores}
    better, worse = scores["power_offset"], scores["power"]
    assert better.error is not None
    assert worse.error is not None
    assert better.error < 0.5 * worse.error
    assert found.tested >= 3
    assert found.frontier < X[-found.tested]
    data = found.to_json()
    assert data["best"] == "power_offset"
    assert data["scores"][0]["likelihood"] == "student"


def test_scores_are_those_of_the_dearest_decade() -> None:
    data = rows(0.8, noise=1e-6)
    found = compare_laws([POWER], data, objective=L2, draws=0)
    cheap = X.max() / 10 >= X
    assert (found.trained, found.tested) == (cheap.sum(), (~cheap).sum())
    slope, level = np.polyfit(np.log(X[cheap]), np.log(data.y[cheap]), 1)
    ratio = np.exp(level) * X[~cheap] ** slope / data.y[~cheap]
    (one,) = found.scores
    assert one.error == pytest.approx(np.median(np.abs(ratio - 1)), rel=1e-6)
    assert one.misses == pytest.approx(np.log(ratio), rel=1e-6)
    assert one.log_score is None  # no draws, no interval
    assert "log_score" not in one.to_json()


def test_a_calibrated_law_has_the_log_score_of_its_noise() -> None:
    x = 2.0 ** np.arange(4, 16, 0.125)
    (one,) = compare_laws([POWER], rows(0.0, noise=0.02, x=x), objective=L2).scores
    entropy = -0.5 * np.log(2 * np.pi * np.e * 0.02**2)
    assert one.log_score == pytest.approx(entropy, abs=0.25)


def test_a_tie_goes_to_fewer_parameters() -> None:
    wins = [compare_laws([OFFSET, POWER], rows(0.0, seed=s), draws=200).best for s in range(6)]
    assert wins.count("power") >= 4
    found = compare_laws([OFFSET, POWER], rows(0.0, seed=3), draws=0)
    assert found.best == "power"


def test_the_dearest_decade_is_held_out() -> None:
    cost = 10.0 ** np.arange(0, 5, 0.25)
    assert np.array_equal(held_out(cost), cost > 10**3.75 * 1.001)
    assert held_out(np.linspace(1, 2, 20)).sum() == 4  # no decade: a fifth
    steep = held_out(10.0 ** np.arange(12))
    assert np.array_equal(np.flatnonzero(steep), [9, 10, 11])  # at least three
    for few in (np.array([1.0, 2, 3]), np.ones(9)):
        with pytest.raises(AnalysisError, match="too few"):
            held_out(few)


def test_what_rows_cost() -> None:
    surface = law_over("chinchilla", ("n_params", "tokens"))
    x = np.array([[1e8, 2e8], [1e9, 3e9]])
    assert costs(surface, Rows(x, np.ones(2))) == pytest.approx(6 * x[0] * x[1])
    assert costs(surface, Rows(x, np.ones(2), cost=np.array([5.0, 6.0]))) == pytest.approx([5, 6])
    with pytest.raises(AnalysisError, match="give a cost"):
        costs(law_over("architecture", ("width", "depth")), Rows(x, np.ones(2)))


def test_laws_that_can_not_be_compared() -> None:
    with pytest.raises(AnalysisError, match="no laws"):
        compare_laws([], rows(0.8))
    with pytest.raises(AnalysisError, match="laws over other inputs"):
        compare_laws([POWER, law_over("power_offset", "y")], rows(0.8))
    with pytest.raises(AnalysisError, match="two laws have the same name"):
        compare_laws([POWER, POWER], rows(0.8))
    broken = compare_laws([law_over("bnsl2", "x")], rows(0.8), draws=0)  # nine parameters, eight rows
    assert broken.best is None
    assert "No law could be fitted" in broken.why
    assert "best" not in broken.to_json()


def test_laws_may_have_names_of_their_own() -> None:
    held = law_over("power_offset", "x", {"E": 0.8})
    found = compare_laws({"known floor": held, "free floor": OFFSET}, rows(0.8), draws=0)
    assert [s.law for s in found.scores] == ["known floor", "free floor"]
    assert found.best == "known floor"  # as good, with fewer parameters


def test_a_law_is_chosen_and_fitted_to_all_rows() -> None:
    data = rows(0.8)
    fit, found = choose_law([POWER, OFFSET], data, draws=100)
    assert fit.law == OFFSET
    assert (found.best, len(fit.rows)) == ("power_offset", len(X))
    assert fit.params["alpha"].lo is not None
    with pytest.raises(AnalysisError, match="none of bnsl2 can be fitted"):
        choose_law([law_over("bnsl2", "x")], rows(0.8))


@pytest.mark.parametrize("shape", ["power", "power_offset"])
def test_the_chosen_law_extrapolates_better_than_the_other_one_always_would(shape: str) -> None:
    x, far = 2.0 ** np.arange(4, 14, 0.5), np.array([2.0**18])
    floor = 0.0 if shape == "power" else 0.6
    misses: dict[str, list[float]] = {"chosen": [], "power": [], "power_offset": []}
    for seed in range(10):
        data = rows(floor, noise=0.02, seed=seed, x=x)
        fits = {law.name: fit_law(law, data, objective=L2, draws=0) for law in (POWER, OFFSET)}
        fits["chosen"] = choose_law([POWER, OFFSET], data, objective=L2, draws=0)[0]
        for name, fit in fits.items():
            misses[name].append(float(np.log(fit.law.value(fit.point, far)[0] / (floor + 3.0 * far[0] ** -0.4))))
    size = {name: float(np.sqrt(np.mean(np.square(m)))) for name, m in misses.items()}
    assert size["chosen"] < max(size["power"], size["power_offset"])
    assert size["chosen"] < 3 * size[shape]


# -- information criteria ----------------------------------------------------------------------------


def test_aicc_of_least_squares_is_its_formula() -> None:
    data = rows(0.8)
    fit = fit_law(POWER, data, objective=L2, draws=0)
    design = np.column_stack([np.ones(len(X)), np.log(X)])
    residuals = np.log(data.y) - design @ np.linalg.lstsq(design, np.log(data.y), rcond=None)[0]
    n, k = len(X), 3
    likelihood = stats.norm.logpdf(residuals, scale=np.sqrt(np.mean(residuals**2))).sum()
    assert aicc(fit) == pytest.approx(-2 * likelihood + 2 * k + 2 * k * (k + 1) / (n - k - 1), rel=1e-9)


def test_aicc_of_student_is_its_formula() -> None:
    data = rows(0.8)

    def loss(theta: Floats) -> float:
        r = np.log(data.y) - theta[0] + theta[1] * np.log(X)
        return -float(stats.t.logpdf(r, 4, scale=np.exp(theta[2])).sum())

    best = optimize.minimize(loss, [1.0, 0.3, -2.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11})
    n, k = len(X), 3
    found = aicc(fit_law(POWER, data, objective=STUDENT, draws=0))
    assert found == pytest.approx(2 * best.fun + 2 * k + 2 * k * (k + 1) / (n - k - 1), rel=1e-6)


def test_rows_of_one_cluster_count_once() -> None:
    data = rows(0.8)
    twice = Rows(np.tile(X, 2), np.tile(data.y, 2), cluster=np.tile(np.arange(len(X)), 2))
    one, other = (fit_law(POWER, r, objective=L2, draws=0) for r in (data, twice))
    assert aicc(other) == pytest.approx(aicc(one), rel=1e-9)


def test_weights_enter_the_likelihood() -> None:
    sigma = np.where(np.arange(len(X)) % 2 == 0, 0.005, 0.05)
    data = rows(0.0)
    weighted = Rows(X, data.y, sigma * data.y, np.inf)
    found = aicc(fit_law(POWER, weighted, objective=L2, draws=0))
    design = np.column_stack([np.ones(len(X)), np.log(X)]) / sigma[:, None]
    target = np.log(data.y) / sigma
    rss = np.linalg.lstsq(design, target, rcond=None)[1][0]
    n, k = len(X), 3
    scale = sigma * np.sqrt(rss / n)
    residuals = (target - design @ np.linalg.lstsq(design, target, rcond=None)[0]) * sigma
    expected = -2 * stats.norm.logpdf(residuals, scale=scale).sum() + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert found == pytest.approx(expected, rel=1e-9)


def test_too_few_rows_have_no_criterion() -> None:
    few = rows(0.0).take(np.arange(4))
    fit = fit_law(POWER, few, objective=L2, draws=0)
    assert fit.params
    assert aicc(fit) is None
    with pytest.raises(AnalysisError, match="too few rows for AICc: 4, with 2 and 2"):
        compare_aicc(fit, fit)


def test_likelihoods_of_different_quantities_are_not_compared() -> None:
    data = rows(0.8)
    log = fit_law(POWER, data, objective=L2, draws=0)
    raw = fit_law(POWER, data, objective=Objective("l2", "linear"), draws=0)
    with pytest.raises(AnalysisError, match=r"residual: log, power residual: linear: .* different quantities"):
        compare_aicc(log, raw)
    with pytest.raises(AnalysisError, match="different rows"):
        compare_aicc(log, fit_law(POWER, data.take(np.arange(6)), objective=L2, draws=0))
    with pytest.raises(AnalysisError, match="objective: l2, power with student: fit both with one"):
        compare_aicc(log, fit_law(POWER, data, objective=STUDENT, draws=0))
    with pytest.raises(AnalysisError, match="AICc wants a likelihood"):
        aicc(fit_law(POWER, data, draws=0))
    assert compare_aicc(fit_law(OFFSET, data, objective=L2, draws=0), log) < 0


def test_every_objective_has_its_likelihood_or_none() -> None:
    assert likelihood_of(L2) == L2
    assert likelihood_of(Objective("huber", "logit")) == Objective("student", "logit")
    assert likelihood_of(Objective("binomial")) is None


# -- rolling and nested ------------------------------------------------------------------------------


def test_stopping_earlier_would_have_been_worse() -> None:
    stops = rolling(POWER, rows(0.8, noise=1e-4), objective=L2)
    assert len(stops) >= 3
    errors = [{f: e for f, e, _ in s.errors} for s in stops]
    for s, e in zip(stops[:-2], errors, strict=False):
        seen = s.cost >= X
        slope, level = np.polyfit(np.log(X[seen]), np.log(rows(0.8, noise=1e-4).y[seen]), 1)
        window = (2 * s.cost < X) & (8 * s.cost >= X)
        wrong = np.abs(np.exp(level) * X[window] ** slope / rows(0.8, noise=1e-4).y[window] - 1)
        assert e[4.0] == pytest.approx(np.median(wrong), rel=1e-6)
    first, last = errors[0], errors[-1]
    assert first[4.0] is not None
    assert first[16.0] is not None
    assert first[16.0] > first[4.0]  # a law without the floor is wrong further out
    assert last[16.0] is None
    assert [e["factor"] for e in stops[-1].to_json()["errors"]] in ([], [4.0])


def test_a_floor_is_found_needed_or_not() -> None:
    found = nested_test(POWER, OFFSET, rows(0.8), draws=99)
    assert found.p < 0.05
    assert found.text == "What power_offset has beyond power is needed (p = 0.01, 99 wild bootstraps)."
    one, other = (fit_law(law, rows(0.8), objective=L2, draws=0).value for law in (POWER, OFFSET))
    assert found.statistic == pytest.approx(len(X) * np.log(one / other), rel=1e-9)


def test_a_floor_that_is_not_there_is_seldom_found() -> None:
    x = 2.0 ** np.arange(4, 16, 0.5)
    p = np.array([nested_test(POWER, OFFSET, rows(0.0, seed=s, x=x), draws=99).p for s in range(30)])
    # at the edge of the full law half of all statistics are 0, with p = 1; the others are uniform below one half
    assert 0.25 <= np.mean(p > 0.9) <= 0.75
    assert np.sum(p < 0.1) <= 7  # more than 7 of 30 at a rate of 0.1: 1 in 100


def test_pairs_that_are_known_to_lie_inside_each_other() -> None:
    laws = [OFFSET, POWER, law_over("power_offset", "x", {"E": 0.8}), law_over("power_shift", "x")]
    found, why = nested_tests(laws, rows(0.8))
    assert why == []
    assert [(t.simple, t.full) for t in found] == [("power", "power_offset"), ("power_offset", "power_shift")]
    with pytest.raises(AnalysisError, match="does not lie inside"):
        nested_test(OFFSET, POWER, rows(0.8), draws=9)


# -- the command -------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.app, list(arguments), env={"COLUMNS": "80"})


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A spec over a table of one axis."""
    data = rows(0.8)
    lines = ["x,val_loss", *(f"{a},{b!r}" for a, b in zip(X, data.y.tolist(), strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: one\nquestion: Which law?\nresults: {path: table.csv}\naxes: [x]\nfit:\n  of: val_loss\n  laws:\n"
        "    - {law: power, over: x}\n    - {law: power_offset, over: x, name: held, freeze: {E: 0.8}}\n"
        "    - {law: power_offset, over: x}\n"
    )
    return str(spec)


def test_command(table: str) -> None:
    shown = run(table, "--laws", "power_shift", "--nested")
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    assert "val_loss over x: fitted to 8 rows, scored on 4 of cost above 2048." in words
    assert "What power_offset has beyond power is needed" in words
    assert "Had the experiment stopped earlier" in words
    for name in ("power", "power_offset", "power_shift"):
        assert name in words
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_command_as_json(table: str) -> None:
    made = run(table, "--json")
    assert made.exit_code == 0, made.output
    data: dict[str, Any] = orjson.loads(made.stdout)
    assert data["schema"] == 1
    (one,) = data["comparisons"]
    assert len(one["scores"]) == 3  # the law with a held floor is a law of its own
    assert one["best"] != "power"
    assert one["rolling"][0]["errors"][0]["factor"] == 4.0


def test_laws_of_one_name_that_differ_are_kept_apart() -> None:
    data = rows(0.8)
    held = law_over("power_offset", "x", {"E": 0.8})
    fits = [LawFit(n, "val_loss", ("x",), {}, fit_law(law, data, draws=0)) for n, law in
            (("free", OFFSET), ("held", held), ("again", OFFSET))]  # fmt: skip
    (one,) = command.subjects(fits, ["power"])
    assert one.laws == {"power_offset": OFFSET, "held": held, "power": POWER}


def test_what_is_wrong_is_said(table: str) -> None:
    made = run(table, "--laws", "powr")
    assert made.exit_code == 2
    assert "law 'powr' is not known. Did you mean 'power'?" in made.output
