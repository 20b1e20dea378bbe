import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares, nnls

from scaling.laws import law_over
from scaling.objectives import Objective, parts
from scaling.solver import Problem, box, nonnegative, refine, scan

WIDTHS = np.array([16.0, 32, 64, 128, 256])


def problem(y: np.ndarray, delta: float = np.inf, law: str = "power_offset", log: bool = True) -> Problem:
    form = law_over(law, "width")
    y = np.atleast_2d(y)
    x = WIDTHS[None, :] / 64
    one = np.ones((1, len(WIDTHS)))
    objective = Objective("huber", "log" if log else "linear", None if np.isinf(delta) else delta)
    return Problem(form, np.log(x)[:, None, :], y, one, one, objective, *box(form, x, y))


def planted(rng: np.random.Generator, count: int, noise: float) -> np.ndarray:
    return (1.7 + 2.0 * WIDTHS**-0.5) * np.exp(noise * rng.standard_normal((count, len(WIDTHS))))


@pytest.mark.parametrize("delta", [np.inf, 2e-3])
def test_the_minimum_is_that_of_scipy(delta: float) -> None:
    y = planted(np.random.default_rng(1), 20, 0.004)
    p = problem(y, delta)
    found = refine(p, *scan(p, 5))
    best = found.objective.reshape(20, 5).min(axis=1)
    for row, ours in zip(y, best, strict=True):

        def residual(t: np.ndarray, row: np.ndarray = row) -> np.ndarray:
            return np.log(np.exp(t[0]) + np.exp(t[1]) * (WIDTHS / 64) ** -t[2]) - np.log(row)

        loss = {"loss": "linear"} if np.isinf(delta) else {"loss": "huber", "f_scale": delta}
        runs = [
            least_squares(
                residual,
                [0.3, -1, a],
                bounds=([-30, -30, 1e-3], [30, 30, 3]),
                xtol=1e-15,
                ftol=1e-15,
                gtol=1e-15,
                **loss,
            )
            for a in (0.1, 0.5, 1.0)
        ]
        theirs = min(r.cost for r in runs)
        assert ours <= theirs * (1 + 1e-9)
        assert ours >= theirs * (1 - 1e-3)


def test_starts_of_one_problem_agree() -> None:
    p = problem(planted(np.random.default_rng(2), 1, 0.003))
    found = refine(p, *scan(p, 24))
    assert found.converged.mean() > 0.9
    good = found.objective[found.converged]
    assert np.sum(good < good.min() * (1 + 1e-9)) >= 2


def test_a_batch_equals_its_members() -> None:
    y = planted(np.random.default_rng(3), 7, 0.003)
    p = problem(y)
    together = refine(p, *scan(p, 1))
    for i, row in enumerate(y):
        single = problem(row)
        alone = refine(Problem(**{**single.__dict__, "low": p.low, "high": p.high}), *scan(single, 1))
        np.testing.assert_allclose(together.theta[i], alone.theta[0], rtol=1e-6, atol=1e-7)


@given(shift=st.floats(0.01, 100), alpha=st.floats(0.1, 1.5), share=st.floats(0.1, 0.9))
@settings(max_examples=40, deadline=None)
def test_planted_parameters_are_found_exactly(shift: float, alpha: float, share: float) -> None:
    y = shift * (share + (1 - share) * (WIDTHS / 16) ** -alpha)
    p = problem(y)
    found = refine(p, *scan(p, 5))
    best = p.law.restore(p.law.decode(found.theta[np.argmin(found.objective)]), 64.0)
    np.testing.assert_allclose(best, [shift * share, shift * (1 - share) * 16**alpha, alpha], rtol=1e-4)


def test_a_floor_that_is_not_there_goes_to_its_bound() -> None:
    p = problem(3.0 * WIDTHS**-0.4)
    found = refine(p, *scan(p, 5))
    best = p.law.decode(found.theta[np.argmin(found.objective)])
    assert best[0] < 1e-3
    assert best[2] == pytest.approx(0.4, abs=1e-3)


def test_nonnegative_least_squares_is_that_of_scipy() -> None:
    rng = np.random.default_rng(4)
    design, target = rng.standard_normal((30, 8, 3)), rng.standard_normal((30, 8))
    gram, moment = np.swapaxes(design, 1, 2) @ design, (np.swapaxes(design, 1, 2) @ target[:, :, None])[:, :, 0]
    ours = nonnegative(gram, moment, (False, False, False))
    for a, b, c in zip(design, target, ours, strict=True):
        np.testing.assert_allclose(c, nnls(a, b)[0], atol=1e-9)


def test_a_singular_design_is_solved() -> None:
    design = np.ones((5, 2))
    found = nonnegative(design.T @ design, design.T @ np.full(5, 3.0), (False, False))
    assert found.sum() == pytest.approx(3.0)


def test_huber_is_quadratic_inside_and_linear_outside() -> None:
    r = np.array([-3.0, -1.0, 0.5, 2.0])
    np.testing.assert_allclose(parts(Objective(delta=1.0), r).rho, [2.5, 0.5, 0.125, 1.5])
    np.testing.assert_allclose(parts(Objective(), r).rho, 0.5 * r**2)
