from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scaling.arrays import Floats
from scaling.fits import Diagnostics, Fit
from scaling.fitting import fit_law
from scaling.intervals import Interval
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows

DATA = Path(__file__).parent / "data"
HOFFMANN = {"E": 1.6934, "A": 406.4, "B": 410.7, "alpha": 0.33917084, "beta": 0.2849083}
PLACES = np.array([[1e8, 1e9, 1e10], [2e9, 2e10, 3e11]])

Made = Callable[..., Fit]


def build(
    text: str,
    inputs: str | Sequence[str],
    parameters: Mapping[str, float],
    draws: Floats | None = None,
    *,
    x: Floats | None = None,
    y: Floats | None = None,
    level: float = 0.95,
    method: str = "none",
) -> Fit:
    """A fit as the solver would hand it over: parameters by name, draws [b, p] in the law's own order."""
    law = law_over(text, inputs)
    x = law.shaped(PLACES[: len(law.inputs)] if x is None else x)
    point = np.array([parameters[n] for n in law.names])
    params = {n: Interval(float(v)) for n, v in zip(law.names, point, strict=True)}
    rows = Rows(x, law.value(point, x) if y is None else y)
    return Fit(law, "ok", (), rows, Objective(), 0.0, params, draws, Diagnostics(method=method), level)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def made() -> Made:
    return build


@pytest.fixture(scope="session")
def hoffmann() -> Fit:
    return build("chinchilla", ("n_params", "tokens"), HOFFMANN)


@pytest.fixture(scope="session")
def epoch() -> Fit:
    """The 240 rows of Besiroglu et al. 2024 under the sum of Huber losses, 4000 resamples."""
    table = pl.read_csv(DATA / "chinchilla_fig4.csv", comment_prefix="#")
    n, c, loss = (table[k].to_numpy() for k in ("n_params", "flops", "val_loss"))
    kept = loss < np.sort(loss)[-5]
    rows = Rows(np.array([n, c / (6 * n)])[:, kept], loss[kept])
    return fit_law(
        law_over("chinchilla", ("n_params", "tokens")), rows, objective=Objective("huber", "log", 1e-3), draws=4000
    )


@pytest.fixture(scope="session")
def drawn() -> Fit:
    """Hoffmann's parameters with 400 draws around them."""
    law = law_over("chinchilla", ("n_params", "tokens"))
    spread = {"E": 0.02, "A": 0.25, "B": 0.3, "alpha": 0.03, "beta": 0.03}
    rng = np.random.default_rng(3)
    draws = np.array([HOFFMANN[n] * np.exp(spread[n] * rng.standard_normal(400)) for n in law.names]).T
    return build("chinchilla", ("n_params", "tokens"), HOFFMANN, draws)
