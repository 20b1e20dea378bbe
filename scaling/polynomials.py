"""Polynomials in batches: values and minima."""

from __future__ import annotations

import numpy as np

from scaling.arrays import Bools, Floats


def polynomial(coefficients: Floats, t: Floats) -> Floats:
    """Values [b] of polynomials [b, d], constant first, at t [b]."""
    value = np.zeros(len(t))
    for c in coefficients.T[::-1]:
        value = value * t + c
    return value


def minimum(coefficients: Floats) -> tuple[Floats, Bools]:
    """The minimum t [b] of polynomials of degree 2 or 3 [b, >= 4], constant first, and whether there is one."""
    _, b, c, d = coefficients.T[:4]
    root = np.sqrt(np.maximum(c * c - 3 * b * d, 0.0))
    with np.errstate(all="ignore"):
        # two forms of one root of the slope, each where it doesn't cancel; the bend there is 2 * root
        t = np.where(c > 0, -b / (c + root), (root - c) / (3 * d))
    valid = (root > 0) & np.isfinite(t)
    return np.where(valid, t, 0.0), valid
