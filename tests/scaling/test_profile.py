"""Profile likelihood against the closed form of a linear model, and where the data bound nothing."""

import numpy as np
import pytest
from scipy.special import chdtri

from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.profile import misfit_scale, profile
from scaling.rows import Rows
from scaling.solver import Problem, box, refine, scan

X = 2.0 ** np.arange(4, 14)


def problem(law_name: str, y: np.ndarray) -> tuple[Problem, np.ndarray]:
    law = law_over(law_name, "x")
    x = X[None, :] / np.exp(np.log(X).mean())
    one = np.ones((1, len(X)))
    made = Problem(law, np.log(x)[:, None, :], y[None, :], one, one, Objective("l2"), *box(law, x, y))
    found = refine(made, *scan(made, 5))
    return made, found.theta[np.argmin(found.objective)]


def test_a_linear_model_has_its_exact_interval() -> None:
    y = 3.0 * X**-0.3 * np.exp(0.05 * np.random.default_rng(0).standard_normal(len(X)))
    made, theta = problem("power", y)
    freedom = len(X) - 2
    scale = misfit_scale(made, theta, freedom)
    design = np.column_stack([np.ones(len(X)), -np.log(X)])
    solution, rss, *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    assert scale == pytest.approx(rss[0] / freedom, rel=1e-9)
    stderr = np.sqrt(rss[0] / freedom * np.linalg.inv(design.T @ design)[1, 1])
    quantile = float(chdtri(1, 0.05))
    lo, hi = profile(made, theta, 1, threshold=0.5 * quantile * scale, step=stderr)
    assert lo == pytest.approx(solution[1] - np.sqrt(quantile) * stderr, rel=1e-6)
    assert hi == pytest.approx(solution[1] + np.sqrt(quantile) * stderr, rel=1e-6)


def test_an_end_that_nothing_bounds_is_infinite() -> None:
    made, theta = problem("power_offset", 3.0 * X**-0.1)
    # a floor of zero fits as well as any smaller one
    lo, hi = profile(made, theta, 0, threshold=1e-4, step=1.0)
    assert lo == -np.inf
    assert hi < 5


def test_a_flat_direction_gets_an_open_interval_from_the_fit() -> None:
    law = law_over("U*(1 - R*expm1(-(x - 1)/R))", "x", bounds={"R": (0.05, 1e4)})
    x = np.linspace(1.0, 3.0, 24)
    y = 5.0 * x * np.exp(0.02 * np.random.default_rng(1).standard_normal(24))  # no decay: R is unbounded
    found = fit_law(law, Rows(x, y), draws=300)
    assert found.status == "weak"
    assert found.params["R"].lo is not None
    assert found.params["R"].hi is None
    assert found.params["U"].lo is not None
    assert found.params["U"].hi is not None
