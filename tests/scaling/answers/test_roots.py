from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from scaling.answers.roots import crossing


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.floats(0.05, 3))
def test_crossings_are_those_of_brent(offsets: list[float], power: float) -> None:
    c = np.array(offsets)

    def f(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sinh(power * x) - c)

    found = crossing(f, np.full(len(c), -80.0), np.full(len(c), 90.0))
    for x, offset in zip(found, offsets, strict=True):
        true = brentq(lambda x, offset=offset: np.sinh(power * x) - offset, -80, 90, xtol=1e-15, rtol=1e-15)
        assert x == pytest.approx(true, rel=1e-12, abs=1e-13)


def test_jumps_kinks_and_infinite_values_are_crossed() -> None:
    jump = crossing(lambda x: np.where(x < 0.3, -1.0, 2.0), np.array([-4.0]), np.array([5.0]))
    assert jump[0] == pytest.approx(0.3, abs=1e-14)
    kink = crossing(lambda x: np.where(x < 1, x - 1, 50 * (x - 1)), np.array([-3.0]), np.array([9.0]))
    assert kink[0] == pytest.approx(1.0, abs=1e-14)
    steep = crossing(lambda x: np.where(x < 2, -np.inf, x - 3), np.array([-9.0]), np.array([9.0]))
    assert steep[0] == pytest.approx(3.0, abs=1e-14)


def test_rows_do_not_disturb_each_other() -> None:
    c = np.array([0.1, 2.0, 7.0, 40.0])
    low, high = np.full(4, -3.0), np.full(4, 30.0)
    together = crossing(lambda x: x**3 - c, low, high)
    alone = [
        crossing(lambda x, k=k: x**3 - c[k], low[:1], high[:1])[0]  # type: ignore[misc]
        for k in range(4)
    ]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(together, np.cbrt(c), rtol=1e-14)


def test_it_takes_few_rounds() -> None:
    calls = []

    def f(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return np.asarray(np.exp(x) - 2)

    crossing(f, np.array([-50.0]), np.array([50.0]))
    assert len(calls) < 40
