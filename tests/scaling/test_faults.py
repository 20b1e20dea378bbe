"""Ways in which published scaling-law fits went wrong, each provoked here: the engine refuses, warns, or can't."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scaling.fitting
from scaling.answers.invert import invert
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows
from scaling.solver import Solution
from scaling.sources import analysis_of

LAW = law_over("chinchilla", ("n_params", "tokens"))
GRID = np.array(np.meshgrid(10.0 ** np.arange(7, 10.5, 0.5), 10.0 ** np.arange(8.5, 11.5, 0.5))).reshape(2, -1)
CLEAN = 1.8 + 480 * GRID[0] ** -0.35 + 2000 * GRID[1] ** -0.37
SPECS = Path(__file__).parents[2] / "sweeps" / "published"


def noisy(noise: float = 0.004, seed: int = 0) -> np.ndarray:
    return CLEAN * np.exp(noise * np.random.default_rng(seed).standard_normal(len(CLEAN)))


def test_a_small_objective_does_not_stop_the_search() -> None:
    # a mean in place of a sum, or a tiny delta, made an absolute tolerance stop early (Besiroglu et al. 2024)
    y = noisy()
    coarse, fine = (fit_law(LAW, Rows(GRID, y), objective=Objective(delta=d), draws=0) for d in (1e-5, 1e-9))
    assert fine.value < 1e-6
    for name in LAW.names:
        assert fine.params[name].value == pytest.approx(coarse.params[name].value, rel=5e-3)
    shrunk = fit_law(LAW, Rows(GRID, y, stderr=1e4 * y / 1e4, dof=99), objective=Objective("l2"), draws=0)
    plain = fit_law(LAW, Rows(GRID, y), objective=Objective("l2"), draws=0)
    assert shrunk.params["B"].value == pytest.approx(plain.params["B"].value, rel=1e-6)


def test_the_record_has_full_precision() -> None:
    # parameters that were rounded for print multiply the objective (Hoffmann et al. 2022: by 3.3)
    analysis = analysis_of(SPECS / "synthetic_chinchilla_twin.yaml", ["fit.bootstrap=100"], only=["Huber 1e-3"])
    (record,) = analysis.to_json()["fits"]
    law = law_over(record["law"], record["over"])
    point = np.array([record["params"][n]["value"] for n in law.names])
    x = np.array([record["rows"]["x"][name] for name in record["over"]])
    r = np.abs(np.log(law.value(point, x)) - np.log(record["rows"]["y"]))
    delta = record["objective"]["delta"]
    recomputed = np.where(r <= delta, r**2 / 2, delta * (r - delta / 2)).sum()
    assert recomputed == pytest.approx(record["objective"]["value"], rel=1e-12)


def test_what_did_not_converge_is_never_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = scaling.fitting.refine

    def lame(*args: object, **more: object) -> Solution:
        found = real(*args, **more)  # type: ignore[arg-type]
        return replace(found, converged=np.zeros_like(found.converged))

    monkeypatch.setattr(scaling.fitting, "refine", lame)
    fit = fit_law(LAW, Rows(GRID, noisy()), draws=0)
    assert fit.status == "refused"
    assert fit.params == {}
    assert "did not converge" in fit.why[0]


def test_a_start_is_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    # nine of ten published rows of one study are points of the start grid
    start = {"E": 1.0, "A": 148.41, "alpha": 0.1, "B": 148.41, "beta": 0.1}
    fit = fit_law(LAW, Rows(GRID, noisy()), start=start, search="start", draws=0)
    assert fit.params["alpha"].value == pytest.approx(0.35, abs=0.05)
    real = scaling.fitting.refine
    monkeypatch.setattr(scaling.fitting, "refine", lambda *a: real(a[0], a[1], a[2], 0))
    stuck = fit_law(LAW, Rows(GRID, noisy()), start=start, search="start", draws=0)
    assert stuck.status == "refused"


def test_weights_passed_as_standard_errors_are_noticed() -> None:
    y = noisy()
    weights = 1 / (0.004 * y) ** 2
    with pytest.raises(AnalysisError, match=r"Standard errors of the response are wanted.*1/sd\^2"):
        fit_law(LAW, Rows(GRID, y, stderr=weights, dof=99))


def test_collinear_inputs_are_told_by_their_relation() -> None:
    n = 10.0 ** np.arange(7, 10, 0.2)
    x = np.array([n, 20 * n])
    fit = fit_law(LAW, Rows(x, 1.8 + 480 * x[0] ** -0.35 + 2000 * x[1] ** -0.37))
    assert fit.status == "refused"
    assert "log tokens = log n_params + 3.00 (r = 1.0000)" in fit.why[0]


def test_residuals_do_not_hide_an_unidentified_design() -> None:
    for design in analysis_of(SPECS / "synthetic_designs.yaml", ["fit.bootstrap=100"]).fits:
        assert design.fit.status != "ok", design.group


def test_rows_of_one_run_are_one_observation() -> None:
    rng = np.random.default_rng(3)
    run = np.repeat(np.arange(len(CLEAN)), 4)
    x = GRID[:, run]
    shared = 0.01 * rng.standard_normal(len(CLEAN))[run]  # what checkpoints of a run have in common
    y = CLEAN[run] * np.exp(shared + 1e-4 * rng.standard_normal(len(run)))
    naive, honest = (fit_law(LAW, Rows(x, y, cluster=c), objective=Objective("l2")) for c in (None, run))

    def width(f: Fit) -> float:
        at = f.params["alpha"]
        assert at.lo is not None
        assert at.hi is not None
        return at.hi - at.lo

    assert width(honest) > 1.5 * width(naive)


def test_a_target_below_the_floor_has_a_probability_and_no_number() -> None:
    fit = fit_law(LAW, Rows(GRID, noisy()), draws=400)
    answer = invert(fit, 1.5, "tokens", at={"n_params": 1e10})
    assert "value" not in answer.to_json() or answer.to_json().get("value") is None
    assert "not reachable" in " ".join(answer.why)
    assert "probability" in " ".join(answer.why)


def test_a_covariance_that_misleads_is_not_given() -> None:
    # with delta far below the residuals few rows carry the curvature
    table = analysis_of(SPECS / "synthetic_chinchilla_twin.yaml", ["fit.bootstrap=400"], only=["Huber 1e-3"]).fits[0]
    quick = table.fit.diagnostics.covariance
    drawn = np.std(table.fit.draws, axis=0)
    assert quick is None or np.allclose(np.sqrt(np.diag(quick)), drawn, rtol=0.2)
    x = 10.0 ** np.arange(7, 10, 0.2)
    flat = fit_law(law_over("power_offset", "x"), Rows(x, 3.0 * x**-0.01), draws=100)
    assert flat.diagnostics.covariance is None


def test_a_cancelling_bracket_makes_no_optimum() -> None:
    law = law_over("data_constrained", ("n_params", "tokens", "unique_tokens"))
    base = {"E": 1.87, "A": 521.0, "alpha": 0.353, "B": 1488.0, "beta": 0.353, "R_N": 5.0}
    place = np.array([[1e9], [4e10], [1e10]])
    at = [law.value(np.array([(base | {"R_D": r})[n] for n in law.names]), place)[0] for r in (1e6, 1e12, 1e17, 1e30)]
    assert np.ptp(at) < 1e-6


def test_bad_rows_are_named() -> None:
    y = noisy()
    for value, part in ((-2.66, "the response is -2.66"), (np.nan, "the response is nan"), (0.0, "must be > 0")):
        broken = y.copy()
        broken[11] = value
        names = tuple(f"run {i}" for i in range(len(y)))
        with pytest.raises(AnalysisError, match=part) as caught:
            fit_law(LAW, Rows(GRID, broken, ids=names))
        assert "run 11" in str(caught.value)
