import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.polynomials import minimum, polynomial

COEFFICIENT = st.floats(-10, 10).filter(lambda v: v == 0 or abs(v) > 1e-3)


@given(c=st.tuples(*[COEFFICIENT] * 4))
@settings(deadline=None, max_examples=100)
def test_the_minimum_is_where_the_roots_of_the_slope_say(c: tuple[float, float, float, float]) -> None:
    form = np.poly1d(c[::-1])
    roots = np.roots(form.deriv().coeffs)
    real = roots.real[np.abs(roots.imag) < 1e-6 * (1 + np.abs(roots))]
    lowest = [r for r in real if form.deriv(2)(r) > 1e-4]
    place, valid = minimum(np.array([c]))
    if lowest:
        assert valid[0]
        np.testing.assert_allclose(place[0], lowest[0], rtol=1e-5, atol=1e-6)


def test_what_has_no_minimum() -> None:
    """A cap, a straight line, a cubic without turning points."""
    assert not minimum(np.array([[1.0, 0.3, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]))[1].any()


def test_values() -> None:
    np.testing.assert_allclose(polynomial(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]), np.array([2.0, 3.0])), [17, 9])
