"""Whether intervals hold the truth as often as they say, over many small synthetic sweeps."""

from collections.abc import Callable

import numpy as np
import pytest

from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.rows import Rows

LEVEL = 0.9
SWEEPS = {"power": 160, "power_offset": 160, "chinchilla": 100}
NOISE = 0.005

Design = Callable[[np.random.Generator], Rows]


def noisy(rng: np.random.Generator, x: np.ndarray, clean: np.ndarray, seeds: int = 1) -> Rows:
    """One row for each place [d, n]: a run, or the mean of `seeds` runs with the standard error pooled over places."""
    runs = NOISE * rng.standard_normal((len(clean), seeds))
    y = clean * np.exp(runs.mean(axis=1))
    if seeds == 1:
        return Rows(x, y)
    return Rows(x, y, y * np.sqrt(runs.var(axis=1, ddof=1).mean() / seeds), len(clean) * (seeds - 1))


def widths(rng: np.random.Generator) -> Rows:
    x = 16 * 2.0 ** np.arange(7)
    return noisy(rng, x, 2.5 * x**-0.1)


def widths_with_seeds(rng: np.random.Generator) -> Rows:
    x = 16 * 2.0 ** np.arange(8)
    return noisy(rng, x, 1.6 + 2.5 * x**-0.5, seeds=3)


def budgets(rng: np.random.Generator) -> Rows:
    """Four budgets of compute, seven models each."""
    flops = np.repeat(np.geomspace(1e18, 1e21, 4), 7)
    n = 0.1 * flops**0.5 * np.tile(np.geomspace(0.15, 6, 7), 4)
    x = np.array([n, flops / (6 * n)])
    return noisy(rng, x, 1.8172 + 482.01 * x[0] ** -0.3478 + 2085.43 * x[1] ** -0.3658)


DESIGNS: list[tuple[str, tuple[str, ...], float, Design, tuple[float, ...], float]] = [
    ("power", ("width",), 0.1, widths, (4096,), 2.5 * 4096**-0.1),
    ("power_offset", ("width",), 0.5, widths_with_seeds, (8192,), 1.6 + 2.5 * 8192**-0.5),
    ("chinchilla", ("n_params", "tokens"), 0.3478, budgets, (1e10, 2e11),
     1.8172 + 482.01 * 1e10**-0.3478 + 2085.43 * 2e11**-0.3658),
]  # fmt: skip


@pytest.fixture(scope="module")
def held() -> dict[str, list[bool]]:
    """For each quantity and sweep whether its interval holds the truth; none given counts as a miss."""
    out: dict[str, list[bool]] = {"exponent": [], "prediction": []}
    for name, inputs, exponent, design, far, there in DESIGNS:
        law = law_over(name, inputs)
        for i in range(SWEEPS[name]):
            rows = design(np.random.default_rng([i, len(name)]))
            fit = fit_law(law, rows, draws=200, level=LEVEL, seed=i)
            if fit.status == "refused":
                out["exponent"].append(False)
                out["prediction"].append(False)
                continue
            alpha, told = fit.params["alpha"], fit.predict(np.array(far)[:, None])
            out["exponent"].append(alpha.lo is not None and alpha.hi is not None and alpha.lo <= exponent <= alpha.hi)
            out["prediction"].append(
                told.lo is not None and told.hi is not None and bool(told.lo[0] <= there <= told.hi[0])
            )
    return out


@pytest.mark.parametrize("quantity", ["exponent", "prediction"])
def test_nine_in_ten_intervals_hold_the_truth(held: dict[str, list[bool]], quantity: str) -> None:
    """420 sweeps: the standard error of the share is 1.5 %, so 5 % is 3.4 of them."""
    assert len(held[quantity]) == sum(SWEEPS.values())
    assert 0.85 <= np.mean(held[quantity]) <= 0.95
