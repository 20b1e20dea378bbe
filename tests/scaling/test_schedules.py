import json
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from scaling.errors import AnalysisError
from scaling.schedules import LAWS, MPL, Anneal, Metrics, Schedule, Trace, app, fit_schedules, read_schedule

DATA = Path(__file__).parents[2] / "sweeps/published/data"
TRAIN = ("cosine_24000", "constant_24000", "wsdcon_9")
# arXiv 2503.12811, repository thu-yao-01-luo/MultiPowerLaw: L0, A, alpha, B, C, beta, gamma
PUBLISHED = {
    "25M": np.array([3.04045406, 0.52468604, 0.50786857, 363.78751622, 2.06560812, 0.58279013, 0.64142257]),
    "100M": np.array([2.6514477, 0.60115152, 0.45295811, 437.9464276, 2.13245612, 0.59785199, 0.65523644]),
}
METRICS = {
    "25M": (0.9988, 0.00376, 0.00465, 0.00110, 0.00409),
    "100M": (0.9983, 0.00435, 0.00592, 0.00142, 0.00583),
}
OBJECTIVE = {"25M": 2.91223e-4, "100M": 2.80962e-4}
ANNEAL = np.array([3.0, 0.5, 0.5, 1.6, 0.995])


@cache
def curves(model: str) -> pl.DataFrame:
    return pl.read_csv(DATA / f"lr_schedule_{model}.csv", comment_prefix="#")


@cache
def fitted(model: str, law: str):
    return fit_schedules(curves(model), TRAIN, law)


def named(name: str) -> Schedule:
    """The published schedules by definition."""
    last = 72000 if "72000" in name else 24000
    if name.startswith("cosine"):
        return Schedule.cosine(last, 3e-4, 3e-5, 2160)
    if name.startswith("constant"):
        return Schedule.constant(last, 3e-4, 2160)
    if name.startswith("wsdcon"):
        return Schedule.two_step(16000, 3e-4, int(name.split("_")[1]) * 1e-5, start=8000, warmup=2160)
    shape = Schedule.wsd_linear if name.startswith("wsdld") else Schedule.wsd_exponential
    return shape(24000, 3e-4, 3e-5, start=20000, warmup=2160)


def huber(r: np.ndarray) -> float:
    size = np.abs(r)
    return float(np.where(size < 1e-3, 0.5 * size**2, 1e-3 * (size - 5e-4)).sum())


def plain_mpl(p: np.ndarray, eta: np.ndarray, t: int) -> float:
    """The formula step by step, nothing merged."""
    k = np.arange(1, t + 1)
    summed = np.cumsum(eta)
    with np.errstate(divide="ignore"):
        u = p[4] * eta[k] ** -p[6] * (summed[t] - summed[k - 1])
    return float(p[0] + p[1] * summed[t] ** -p[2] - p[3] * ((eta[k - 1] - eta[k]) * (1 - (1 + u) ** -p[5])).sum())


def plain_anneal(p: np.ndarray, eta: np.ndarray, t: int) -> float:
    s2 = momentum = 0.0
    for k in range(1, t + 1):
        momentum = p[4] * momentum + eta[k - 1] - eta[k]
        s2 += momentum
    return float(p[0] + p[1] * eta[: t + 1].sum() ** -p[2] - p[3] * s2)


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_parameters_give_the_published_numbers(model: str) -> None:
    frame, law, total, found = curves(model), MPL(), 0.0, []
    for name in frame["schedule"].unique(maintain_order=True):
        part = frame.filter(pl.col("schedule") == name)
        y = part["loss"].to_numpy()
        seen = law.value(PUBLISHED[model], Trace.of(named(name), part["step"].to_numpy()))
        if name in TRAIN:
            total += huber(np.log(seen / y))
        else:
            found.append(Metrics.of(name, False, y, seen))
    assert total == pytest.approx(OBJECTIVE[model], abs=6e-10)
    for key, digits, expected in zip(Metrics.NUMBERS, (4, 5, 5, 5, 5), METRICS[model], strict=True):
        assert round(float(np.mean([getattr(m, key) for m in found])), digits) == expected


@pytest.mark.parametrize("model", PUBLISHED)
def test_schedules_are_read_exactly_from_the_logged_learning_rates(model: str) -> None:
    frame = curves(model)
    for name in frame["schedule"].unique(maintain_order=True):
        part = frame.filter(pl.col("schedule") == name)
        made = read_schedule(name, part["step"].to_numpy(), part["lr"].to_numpy(), 2160)
        np.testing.assert_allclose(made.eta, named(name).eta[: len(made.eta)], rtol=3e-7, err_msg=name)
        assert made.last >= part["step"].max()


def test_other_learning_rates_lie_on_lines_between_the_logs() -> None:
    made = read_schedule("x", np.array([10, 20, 30]), np.array([2e-4, 4e-4, 1e-4]), 10)
    np.testing.assert_allclose(made.eta[[0, 9, 10, 15, 25, 30]], [0, 2e-4, 2e-4, 3e-4, 2.5e-4, 1e-4])
    from_start = read_schedule("x", np.array([0, 10, 20]), np.array([0.0, 1e-3, 5e-4]), 0)
    np.testing.assert_allclose(from_start.eta[[0, 5, 10, 15]], [0, 5e-4, 1e-3, 7.5e-4])


SCHEDULES = [
    Schedule.cosine(3000, 3e-4, 3e-5, 270),
    Schedule.cosine(3000, 1e-2, 1e-6, 0),
    Schedule.wsd_exponential(2600, 3e-4, 3e-5, start=1500, warmup=200),
    Schedule.wsd_linear(2600, 3e-4, 1e-7, start=1500, warmup=200),
    Schedule.two_step(2000, 3e-4, 9e-5, start=1000, warmup=200),
    Schedule.constant(2000, 3e-4, 200),
    Schedule.table(np.array([100, 400, 900, 2000]), np.array([1e-3, 4e-4, 5e-4, 2e-5]), 100),
]
MPL_PLACES = [PUBLISHED["25M"], np.array([2.0, 0.4, 0.9, 20.0, 900.0, 0.1, 0.2]),
              np.array([2.0, 0.4, 0.3, 50.0, 1e-3, 4.0, 1.4])]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_merged_sums_are_those_of_every_step(schedule: Schedule) -> None:
    steps = np.array([1, 7, 271, 272, 400, 1000, 1001, 1033, 1900, 2000])
    trace = Trace.of(schedule, steps)
    for p in MPL_PLACES:
        expected = [plain_mpl(p, schedule.eta, t) for t in steps]
        np.testing.assert_allclose(MPL().value(p, trace), expected, rtol=3e-13)
    for rate in (0.9, 0.98, 0.9995):
        p = np.array([*ANNEAL[:4], rate])
        expected = [plain_anneal(p, schedule.eta, t) for t in steps]
        np.testing.assert_allclose(Anneal().value(p, trace), expected, rtol=1e-11)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.floats(1e-6, 1e-2)), min_size=2, max_size=12), st.integers(0, 2))
def test_merged_sums_hold_for_any_table(pieces: list[tuple[int, float]], place: int) -> None:
    steps = np.cumsum([n for n, _ in pieces])
    schedule = Schedule.table(steps, np.array([v for _, v in pieces]), int(steps[0]))
    p = MPL_PLACES[place]
    found = MPL().value(p, Trace.of(schedule, steps))
    summands = p[0] + np.abs(np.diff(schedule.eta)).sum() * p[3]
    np.testing.assert_allclose(found, [plain_mpl(p, schedule.eta, t) for t in steps], rtol=1e-10, atol=1e-12 * summands)


def test_many_far_changes_are_merged() -> None:
    trace = Trace.of(Schedule.cosine(72000, 3e-4, 3e-5, 2160), np.arange(2160, 72000, 1280))
    assert len(trace.weight) < 0.04 * len(trace.s1) * 36000
    flat = Trace.of(Schedule.constant(5000, 3e-4), np.arange(10, 5000, 100))
    assert len(flat.weight) == 0  # equal learning rates contribute nothing
    assert MPL().value(PUBLISHED["25M"], flat) == pytest.approx(3.04045406 + 0.52468604 * flat.s1**-0.50786857)


def test_value_agrees_with_mpmath() -> None:
    schedule = Schedule.cosine(120, 3e-4, 3e-5, 20)
    eta, t = [mpmath.mpf(float(e)) for e in schedule.eta], 110
    low, a, alpha, b, c, beta, gamma = (mpmath.mpf(float(v)) for v in PUBLISHED["100M"])
    with mpmath.workdps(40):
        s1 = mpmath.fsum(eta[: t + 1])
        fall = mpmath.fsum(
            (eta[k - 1] - eta[k]) * (1 - (1 + c * eta[k] ** -gamma * mpmath.fsum(eta[k : t + 1])) ** -beta)
            for k in range(1, t + 1)
        )
        expected = low + a * s1**-alpha - b * fall
    assert MPL().value(PUBLISHED["100M"], Trace.of(schedule, np.array([t])))[0] == pytest.approx(float(expected), 1e-14)


@pytest.mark.parametrize(("law", "natural"), [*((MPL(), p) for p in MPL_PLACES), (Anneal(), ANNEAL)])
def test_derivatives_agree_with_finite_differences(law: MPL | Anneal, natural: np.ndarray) -> None:
    trace = Trace.join([Trace.of(s, np.array([300, 1100, 1900])) for s in SCHEDULES[:5]])
    theta = law.encode(natural[None])
    np.testing.assert_allclose(law.decode(theta)[0], natural, rtol=1e-13)
    jet = law.jet(theta, trace)
    np.testing.assert_allclose(jet.value[0], law.value(natural, trace), rtol=1e-13)
    steps = np.eye(len(natural)) * 1e-4

    def slope(of, step: np.ndarray) -> np.ndarray:
        """Fourth order in the step."""
        return (8 * (of(theta + step) - of(theta - step)) - of(theta + 2 * step) + of(theta - 2 * step)) / 12e-4

    for i, a in enumerate(steps):
        np.testing.assert_allclose(
            np.broadcast_to(jet.gradient[i], jet.value.shape), slope(lambda t: law.jet(t, trace, 0).value, a),
            rtol=1e-8, atol=1e-10,
        )  # fmt: skip
        for j in range(i, len(natural)):
            bend = np.broadcast_to(jet.hessian.get((i, j), np.zeros(1)), jet.value.shape)
            expected = slope(lambda t, j=j: np.broadcast_to(law.jet(t, trace, 1).gradient[j], jet.value.shape), a)
            np.testing.assert_allclose(bend, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_batches_give_what_single_places_give(law: str) -> None:
    made, trace = LAWS[law], Trace.of(SCHEDULES[0], np.array([300, 1100]))
    places = np.array(MPL_PLACES) if law == "schedule_mpl" else np.array([ANNEAL, ANNEAL * [1, 1, 2, 1, 0.99]])
    theta = made.encode(places)
    whole = made.jet(theta, trace)
    for i in range(len(theta)):
        single = made.jet(theta[i : i + 1], trace)
        np.testing.assert_allclose(whole.value[i], single.value[0], rtol=1e-14)
        np.testing.assert_allclose(np.broadcast_to(whole.hessian[2, 2], whole.value.shape)[i], single.hessian[2, 2][0])


@pytest.mark.parametrize("model", PUBLISHED)
def test_own_fit_is_below_the_published_objective(model: str) -> None:
    fit = fitted(model, "schedule_mpl")
    assert fit.converged
    assert fit.gradient < 1e-8
    # the published parameters are not the best: about half the objective and less is possible
    assert fit.objective <= {"25M": 1.38433e-4, "100M": 2.13314e-5}[model]
    # and the best ones follow the three curves more closely than the other six: 0.00110 and 0.00142 are published
    assert fit.test["mean_relative"] == pytest.approx({"25M": 0.001371, "100M": 0.001647}[model], abs=2e-6)
    trained = [m for m in fit.metrics if m.trained]
    assert [m.curve for m in trained] == ["constant_24000", "cosine_24000", "wsdcon_9"]
    assert all(m.mean_relative < 0.001 for m in trained)


def test_a_planted_fit_is_recovered_from_rows_without_noise() -> None:
    frames = []
    for name in (*TRAIN, "wsdcon_3"):
        steps = np.arange(2304, named(name).last, 512)
        loss = MPL().value(PUBLISHED["25M"], Trace.of(named(name), steps))
        frames.append(pl.DataFrame({"schedule": name, "step": steps, "lr": named(name).eta[steps], "loss": loss}))
    fit = fit_schedules(pl.concat(frames), TRAIN, warmup=2160, schedules={n: named(n) for n in (*TRAIN, "wsdcon_3")})
    np.testing.assert_allclose(list(fit.parameters.values()), PUBLISHED["25M"], rtol=1e-5)
    assert fit.converged
    assert fit.test["worst_relative"] < 1e-8


def test_the_annealing_law_fits_too() -> None:
    fit = fitted("100M", "schedule_anneal")
    assert fit.converged
    assert 0.9 < fit.parameters["lambda"] < 1
    assert fit.test["mean_relative"] < METRICS["100M"][3]


def test_predict_and_why() -> None:
    fit = fitted("25M", "schedule_mpl")
    steps = [5000, 20000, 23904]
    by_name = fit.predict("wsd_20000_24000", steps)
    np.testing.assert_allclose(by_name, fit.predict(named("wsd_20000_24000"), steps), rtol=1e-9)
    p = np.array(list(fit.parameters.values()))
    assert by_name[2] == pytest.approx(plain_mpl(p, named("wsd_20000_24000").eta, 23904), rel=1e-8)
    assert any("3 training curves can't be resampled" in w for w in fit.why)
    assert any("Warmup: 2160 steps" in w for w in fit.why)
    assert any("too closely: mean error 0.062 % there, 0.137 % on the other curves" in w for w in fit.why)
    assert not any("at an end" in w for w in fit.why)
    with pytest.raises(AnalysisError, match="Did you mean 'wsdcon_18'"):
        fit.predict("wsdcon_17", [5000])
    with pytest.raises(AnalysisError, match="step 99999 is outside its steps 0 … "):
        fit.predict("wsdcon_18", [99999])


def test_bounds_hold() -> None:
    fit = fit_schedules(curves("100M"), TRAIN, bounds={"gamma": (0.1, 1.0)})
    assert fit.parameters["gamma"] == pytest.approx(1.0)
    assert any(w.startswith("gamma = 1 is at an end of its range 0.1 … 1:") for w in fit.why)
    assert fit.objective <= 3.19691e-5
    assert fit.test["mean_relative"] <= 1.05 * METRICS["100M"][3]


def bad(**change: pl.Expr) -> pl.DataFrame:
    return curves("25M").with_columns(**change)


FIRST = pl.int_range(pl.len()) == 3
FAULTS = [
    (curves("25M"), ["cosine_2400"], {}, "schedule 'cosine_2400' is not in the table. Did you mean 'cosine_24000'?"),
    (curves("25M"), TRAIN, {"law": "schedule_mlp"}, "law 'schedule_mlp' is not known. Did you mean 'schedule_mpl'?"),
    (curves("25M"), [], {}, "fit schedule_mpl: 0 logged steps in the training curves, 7 parameters: needs > 7 steps."),
    (curves("25M").drop("loss"), TRAIN, {}, "no column 'loss'."),
    (bad(loss=pl.when(FIRST).then(-1.0).otherwise("loss")), TRAIN, {},
     "schedule 'constant_24000', step 2560: loss = -1, must be > 0."),
    (bad(lr=pl.when(FIRST).then(-1e-3).otherwise("lr")), TRAIN, {},
     "schedule 'constant_24000', step 2560: lr = -0.001, must be >= 0."),
    (bad(step=pl.when(FIRST).then(10**11).otherwise("step")), TRAIN, {},
     "step 100000000000: step = 100000000000, must be a whole number in 0 … 10000000."),
    (bad(loss=pl.when(FIRST).then(None).otherwise("loss")), TRAIN, {}, "row 4: loss = None is not a number."),
    (bad(step=pl.when(FIRST).then(2432).otherwise("step")), TRAIN, {},
     "schedule 'constant_24000': step 2432 is in the table twice."),
    (bad(model=pl.when(FIRST).then(pl.lit("x")).otherwise("model")), TRAIN, {}, "column model: 2 models;"),
    (curves("25M"), TRAIN, {"bounds": {"gama": (0, 1)}}, "no parameter 'gama'. Did you mean 'gamma'?"),
    (curves("25M"), TRAIN, {"bounds": {"gamma": (2, 1)}}, "bounds: gamma from 2 to 1 must be a range inside"),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "train", "options", "text"), FAULTS)
def test_faults_are_told_in_a_sentence(frame: pl.DataFrame, train: list[str], options: dict, text: str) -> None:
    with pytest.raises(AnalysisError) as error:
        fit_schedules(frame, train, **options)
    assert text in str(error.value)


def test_faults_of_schedules() -> None:
    with pytest.raises(AnalysisError, match=r"schedule 'cosin' is not known. Did you mean 'cosine'"):
        Schedule.of("cosin", steps=10)
    assert Schedule.of("constant", steps=10, peak=1e-3, warmup=3).eta[:4].tolist() == [0, 5e-4, 1e-3, 1e-3]
    with pytest.raises(AnalysisError, match="step 4: learning rate = -1, must be >= 0"):
        Schedule("x", np.array([1, 1, 1, 1, -1.0]))
    with pytest.raises(AnalysisError, match="step 12 must lie in 0 … 9"):
        Schedule.wsd_linear(10, 1e-3, 1e-4, start=12)
    with pytest.raises(AnalysisError, match="step 10: learning rate = 0, must be > 0"):
        Trace.of(Schedule.wsd_linear(10, 1e-3, 0, start=5), np.array([10]))


def test_the_command_prints_parameters_and_errors() -> None:
    path = str(DATA / "lr_schedule_100M.csv")
    options = ["--train", ",".join(TRAIN), "--law", "schedule_anneal"]
    shown = CliRunner().invoke(app, [path, *options], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    assert "wsdld_20000_24000" in shown.output
    assert "lambda" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    found = json.loads(CliRunner().invoke(app, [path, *options, "--json"]).output)
    assert found["parameters"] == fitted("100M", "schedule_anneal").parameters
    assert len(found["curves"]) == 9
    failed = CliRunner().invoke(app, [path, "--train", "cosine"])
    assert failed.exit_code != 0
    assert "'cosine' is not in the table" in failed.output
