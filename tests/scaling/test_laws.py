import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.errors import AnalysisError
from scaling.laws import law_over

X = np.array([0.4, 1.0, 2.5, 7.0])

FORMULAS = [
    ("power", "width", [2.0, 0.4]),
    ("power_offset", "width", [1.5, 2.0, 0.4]),
    ("optimum_quadratic", "lr", [2.0, 0.3, 1.2]),
    ("E + A/width^a", "width", [1.5, 2.0, 0.4]),
    ("E + A*(width + s)^-a", "width", [1.5, 2.0, 0.7, 0.4]),
    ("c + d*log2(width + 1)", "width", [1.5, 0.2]),
]


@pytest.mark.parametrize(("text", "axis", "values"), FORMULAS)
def test_derivatives_agree_with_finite_differences(text: str, axis: str, values: list[float]) -> None:
    law = law_over(text, axis)
    theta = law.encode(np.array(values))[None, :]
    jet = law.jet(theta, np.log(X)[None, None, :])

    def value(t: np.ndarray) -> np.ndarray:
        return law.value(law.decode(t), X[None, :])[0]

    steps = np.eye(len(values)) * 1e-5
    np.testing.assert_allclose(jet.value[0], value(theta), rtol=1e-14)
    for i, a in enumerate(steps):
        slope = (value(theta + a) - value(theta - a)) / 2e-5
        np.testing.assert_allclose(np.broadcast_to(jet.gradient[i], (1, len(X)))[0], slope, rtol=1e-7, atol=1e-8)
        for j, b in enumerate(steps[i:], start=i):
            up = law.jet(theta + b, np.log(X)[None, None, :]).gradient[i]
            down = law.jet(theta - b, np.log(X)[None, None, :]).gradient[i]
            bend = np.broadcast_to(jet.hessian.get((i, j), 0.0), (1, len(X)))
            np.testing.assert_allclose(bend, np.broadcast_to((up - down) / 2e-5, bend.shape), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("text", "axis", "values"), FORMULAS)
def test_a_law_is_its_formula(text: str, axis: str, values: list[float]) -> None:
    expected = {
        "power": lambda x, A, a: A * x**-a,
        "power_offset": lambda x, E, A, a: E + A * x**-a,
        "optimum_quadratic": lambda x, L, h, x0: L * np.exp(h / 2 * np.log(x / x0) ** 2),
        "E + A/width^a": lambda x, E, A, a: E + A / x**a,
        "E + A*(width + s)^-a": lambda x, E, A, s, a: E + A * (x + s) ** -a,
        "c + d*log2(width + 1)": lambda x, c, d: c + d * np.log2(x + 1),
    }[text]
    np.testing.assert_allclose(law_over(text, axis).value(np.array(values), X), expected(X, *values), rtol=1e-13)


@given(scale=st.floats(1e-3, 1e3), alpha=st.floats(-2, 2), amplitude=st.floats(0.1, 10))
def test_parameters_fitted_over_a_scaled_axis_are_restored(scale: float, alpha: float, amplitude: float) -> None:
    law = law_over("power", "width")
    inner = np.array([amplitude, alpha])
    np.testing.assert_allclose(law.value(law.restore(inner, scale), X), law.value(inner, X / scale), rtol=1e-9)


def test_structure_of_a_law_is_found_in_its_formula() -> None:
    law = law_over("E + A/n_params^a", "n_params")
    assert law.names == ("E", "A", "a")
    assert [p.linear for p in law.parameters] == [True, True, False]
    assert law.scales == (0,)
    assert law_over("E + A*(width + s)^-a", "width").scales is None
    assert law_over("power", "n_params").formula == "A*n_params^-alpha"
    assert law_over("power_offset", "width").latex == r"A \mathrm{width}^{- \alpha} + E"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("powr", "Did you mean 'power'?"),
        ("E + A/widht^a", "does not use 'width'"),
        ("__import__('os').system('true')", "not allowed"),
        ("exec(width)", "no function 'exec'"),
        ("9**9**9*width", "'9 ** 9 ** 9' is not a finite number"),
        ("width.real + A", "'width.real' is not allowed"),
        ("A*width + 'x'", "not allowed"),
        ("[width for A in B]", "not allowed"),
        ("A*width if B else 1", "not allowed"),
        ("A*width +", "invalid syntax"),
        ("2*width", "no parameters"),
        ("A*width/0", "ot a finite number"),
        ("A*width" + " + B" * 300, "characters"),
        ("A*width" + "+B" * 250, "more than 400 terms"),
    ],
)
def test_a_bad_law_is_refused_with_a_sentence(text: str, part: str) -> None:
    with pytest.raises(AnalysisError, match=part.replace("*", r"\*").replace("?", r"\?").replace("+", r"\+")):
        law_over(text, "width")


@given(st.text(alphabet="AEawidth0123456789+-*/^().,'[]{}:_ \n\\#%&|<>=!lambda", max_size=40))
def test_no_text_does_anything_but_parse_or_refuse(text: str) -> None:
    with contextlib.suppress(AnalysisError):
        assert law_over(f"A*width + {text}", "width").parameters
