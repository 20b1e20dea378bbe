"""Where functions of one number cross zero, for many functions at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaling.arrays import Floats

ROUNDS = 200
EPSILON = float(np.finfo(float).eps)


def crossing(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Points between `low` and `high` where `function` changes its sign; the ends' values differ in sign.

    Inverse quadratic interpolation that falls back on halving (Chandrupatla 1997, Adv. Eng. Software 28, 145). All
    arrays have one shape; an element whose ends have one sign ends at one of them.
    """
    x1, x2 = np.array(high, dtype=float), np.array(low, dtype=float)
    f1, f2 = function(x1), function(x2)
    x3, f3 = x1, f1
    t = np.full(x1.shape, 0.5)
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            x = x1 + t * (x2 - x1)
            f = function(x)
            same = np.sign(f) == np.sign(f1)
            x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
            x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
            x1, f1 = x, f
            nearer = np.abs(f2) < np.abs(f1)
            best = np.where(nearer, x2, x1)
            least = 2 * EPSILON * np.abs(best) + 1e-300
            limit = least / np.abs(x2 - x1)
            done = (limit > 0.5) | (np.where(nearer, f2, f1) == 0)
            if np.all(done | np.isnan(limit)):
                break
            t = np.clip(_step((x1, x2, x3), (f1, f2, f3)), np.minimum(limit, 0.5), np.maximum(1 - limit, 0.5))
            t = np.where(done, 0.0, t)
            x1, f1 = np.where(done, best, x1), np.where(done, np.where(nearer, f2, f1), f1)
    return np.asarray(np.where(np.abs(f2) < np.abs(f1), x2, x1))


def _step(places: tuple[Floats, Floats, Floats], values: tuple[Floats, Floats, Floats]) -> Floats:
    """The next place as a share of the way from the first of three places to the second."""
    (x1, x2, x3), (f1, f2, f3) = places, values
    xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
    trusted = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
    t = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    return np.asarray(np.where(trusted & np.isfinite(t), t, 0.5))
