from __future__ import annotations

import numpy as np
import pytest

from scaling.answers.cost import cost_over
from scaling.errors import AnalysisError
from scaling.laws import law_over

LAW = law_over("chinchilla", ("n_params", "tokens"))


def test_products_of_powers_are_known_as_such() -> None:
    powers = cost_over(LAW, "2*n_params*(3*tokens)").powers
    assert powers is not None
    assert np.exp(powers[0]) == pytest.approx(6.0)
    np.testing.assert_array_equal(powers[1], [1, 1])
    powers = cost_over(LAW, "tokens^2/4*n_params**0.5").powers
    assert powers is not None
    assert np.exp(powers[0]) == pytest.approx(0.25)
    np.testing.assert_array_equal(powers[1], [0.5, 2])
    for text in (
        "6*n_params*tokens + 2*n_params*1e12",
        "max(n_params, tokens)",
        "-n_params*tokens",
        "n_params + tokens",
    ):
        assert cost_over(LAW, text).powers is None


def test_defaults() -> None:
    assert cost_over(LAW, None).at(np.array([2.0, 5.0])) == 60.0
    assert cost_over(law_over("power_offset", "flops"), None).text == "flops"
    with pytest.raises(AnalysisError, match=r"give a cost over these inputs, such as 'width\*depth'"):
        cost_over(law_over("architecture", ("width", "depth")), None)


@pytest.mark.parametrize("text", ["6*n_params*tokens + 2*n_params*1e12", "n_params*sqrt(tokens) + log(tokens)^3"])
def test_slopes_by_differences(text: str) -> None:
    cost = cost_over(LAW, text)
    u, step = np.log(np.array([[3e8, 7e10], [4e9, 2e12]])), 1e-5
    for i in range(2):
        moved = step * np.eye(2)[i][:, None]
        by_difference = (cost.value(u + moved) - cost.value(u - moved)) / (2 * step)
        np.testing.assert_allclose(cost.slopes(u)[i], by_difference, rtol=1e-7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("6*n_params*token", "cost '6*n_params*token': 'token' is no input of the law. Did you mean 'tokens'?"),
        ("6*", "cost '6*': invalid syntax"),
        ("6", "uses none of the inputs n_params, tokens"),
        ("__import__('os')", "is not allowed"),
    ],
)
def test_what_is_no_cost(text: str, words: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        cost_over(LAW, text)
    assert words in str(caught.value)
    assert "law '6" not in str(caught.value)
