from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from scaling.answers.allocate import allocate
from scaling.answers.asked import Limit
from scaling.answers.invert import invert
from scaling.errors import AnalysisError
from scaling.fits import Fit
from scaling.laws import law_over

Made = Callable[..., Fit]
OFFSET = {"E": 1.5, "A": 300.0, "alpha": 0.12}


@pytest.fixture(scope="module")
def line(made: Made) -> Fit:
    """A floor at 1.5 (s.d. 0.05) under a power of flops."""
    law = law_over("power_offset", "flops")
    rng = np.random.default_rng(8)
    spread = {"E": 0.05, "A": 10.0, "alpha": 0.001}
    draws = np.array([OFFSET[n] + spread[n] * rng.standard_normal(2000) for n in law.names]).T
    return made("power_offset", "flops", OFFSET, draws, x=np.geomspace(1e18, 1e21, 6))


def test_one_input_is_the_closed_inverse_of_each_draw(line: Fit) -> None:
    found = invert(line, 2.4, "flops")
    assert found.value is not None
    assert found.value.value == pytest.approx((300 / 0.9) ** (1 / 0.12), rel=1e-11)
    assert line.draws is not None
    e, a, alpha = (line.draws[:, line.law.names.index(n)] for n in ("E", "A", "alpha"))
    each = (a / (2.4 - e)) ** (1 / alpha)
    assert (found.value.lo, found.value.hi) == pytest.approx(tuple(np.quantile(each, [0.025, 0.975])), rel=1e-9)
    assert found.side == "smallest"
    assert found.unreachable == 0
    assert line.law.value(line.point, np.array([found.value.value]))[0] == pytest.approx(2.4, rel=1e-12)


def test_a_target_near_the_floor_has_a_probability_and_an_open_end(line: Fit) -> None:
    found = invert(line, 1.56, "flops")
    assert line.draws is not None
    below = float(np.mean(line.draws[:, line.law.names.index("E")] >= 1.56))
    assert 0.05 < below < 0.2
    assert found.unreachable == pytest.approx(below, abs=1e-12)
    assert found.value is not None
    assert found.value.lo is not None
    assert found.value.hi is None
    assert f"1.56 is not reachable under this law with probability {below:.0%}" in found.why[0]


def test_a_target_under_the_floor_has_no_value(line: Fit) -> None:
    found = invert(line, 1.46, "flops")
    assert found.value is None
    assert found.unreachable > 0.7
    assert "value" not in found.to_json()
    assert "not reachable" in found.why[0]
    one = invert(replace(line, draws=None), 1.46, "flops")
    assert one.value is None
    assert "not reachable under this law by the estimate" in " ".join(one.why)


def test_other_inputs_stay_where_they_are_given(drawn: Fit) -> None:
    found = invert(drawn, 2.1, "tokens", at={"n_params": 7e10})
    p = dict(zip(drawn.law.names, drawn.point, strict=True))
    rest = 2.1 - p["E"] - p["A"] * 7e10 ** -p["alpha"]
    assert found.value is not None
    assert found.value.value == pytest.approx((p["B"] / rest) ** (1 / p["beta"]), rel=1e-10)
    assert found.inputs["n_params"].value == 7e10
    with pytest.raises(AnalysisError, match="to invert along tokens, give a value of n_params"):
        invert(drawn, 2.1, "tokens")
    with pytest.raises(AnalysisError, match=r"'token': chinchilla has no such input. Did you mean 'tokens'"):
        invert(drawn, 2.1, "token", at={"n_params": 7e10})
    with pytest.raises(AnalysisError, match="both the axis and given"):
        invert(drawn, 2.1, "tokens", at={"n_params": 7e10, "tokens": 1e9})


def test_the_least_cost_is_the_frontier_s_inverse(drawn: Fit) -> None:
    best = allocate(drawn, 3e22)
    assert best.response is not None
    found = invert(drawn, best.response.value)
    assert found.value is not None
    assert found.value.value == pytest.approx(3e22, rel=1e-9)
    assert found.inputs["n_params"].value == pytest.approx(best["n_params"].value, rel=1e-9)
    law = best.frontier
    assert law is not None
    assert found.value.value == pytest.approx(((2.0 - 2.0 + best.response.value - law.E.value) / law.K.value)
                                              ** (-1 / law.gamma.value), rel=1e-9)  # fmt: skip
    limited = invert(drawn, 2.0, limits={"tokens": Limit(high=2e11)})
    assert limited.value is not None
    assert limited.inputs["tokens"].value == 2e11
    assert limited.value.value > invert(drawn, 2.0).value.value  # type: ignore[union-attr]
    assert drawn.law.value(drawn.point, np.array([[limited.inputs["n_params"].value], [2e11]]))[0] == pytest.approx(2.0)


def test_a_law_that_gets_worse_gives_the_largest_value(made: Made) -> None:
    fit = made("E + A*x^p", "x", {"E": 1.0, "A": 0.01, "p": 0.5}, x=np.array([1.0, 100.0]))
    found = invert(fit, 1.3, "x")
    assert found.side == "largest"
    assert found.value is not None
    assert found.value.value == pytest.approx(900.0, rel=1e-11)


def test_a_valley_is_entered_from_the_left(made: Made) -> None:
    fit = made("optimum_quadratic", "lr", {"L0": 2.0, "h": 0.1, "x0": 0.01}, x=np.array([0.001, 0.1]))
    found = invert(fit, 2.1, "lr")
    assert found.value is not None
    assert found.value.value == pytest.approx(0.01 * np.exp(-np.sqrt(2 * np.log(1.05) / 0.1)), rel=1e-10)


def test_a_score_is_to_be_reached_from_below(made: Made) -> None:
    fit = made("top - A*x^-p", "x", {"top": 0.9, "A": 2.0, "p": 0.3}, x=np.array([10.0, 1000.0]))
    found = invert(fit, 0.7, "x", goal="max")
    assert found.value is not None
    assert found.value.value == pytest.approx(10 ** (1 / 0.3), rel=1e-10)
    assert "lies above what the law can give" in " ".join(invert(fit, 0.95, "x", goal="max").why)


def test_within_of_the_plateau_is_the_closed_buffer_rule(made: Made) -> None:
    """B* = (G / (eps P))^(1/gamma) with P = E + C T^-beta, for a loss E + C T^-beta + G B^-gamma."""
    values = {"E": 0.1, "C": 3.0, "beta": 0.3, "G": 5.0, "gamma": 0.6}
    fit = made(
        "E + C*tokens^-beta + G*buffer^-gamma", ("tokens", "buffer"), values, x=np.array([[1e5, 1e6], [1e4, 1e5]])
    )
    found = invert(fit, None, "buffer", at={"tokens": 2.0**21}, within=0.02)
    plateau = 0.1 + 3.0 * 2.0 ** (-21 * 0.3)
    assert found.value is not None
    assert found.value.value == pytest.approx((5.0 / (0.02 * plateau)) ** (1 / 0.6), rel=1e-9)
    assert found.target == pytest.approx(1.02 * plateau)
    fresh = invert(fit, None, "buffer", at={"tokens": 2.0**21}, within=0.02, limits={"buffer": Limit(high=2.0**21)})
    at_most = plateau + 5.0 * 2.0 ** (-21 * 0.6)
    assert fresh.value is not None
    assert fresh.value.value == pytest.approx((5.0 / (1.02 * at_most - plateau)) ** (1 / 0.6), rel=1e-9)


def test_what_is_far_off_is_said(line: Fit) -> None:
    assert any("times the largest one seen" in w for w in invert(line, 1.8, "flops").why)
    assert any("times below the smallest one seen" in w for w in invert(line, 6.0, "flops").why)
    inside = invert(line, float(np.mean(line.rows.y)), "flops")
    assert inside.reach == 1.0
    assert not inside.why


def test_what_can_t_be_asked(line: Fit) -> None:
    for words, call in {
        "one of them": lambda: invert(line, None, "flops"),
        "target nan": lambda: invert(line, float("nan"), "flops"),
        "asks for an axis": lambda: invert(line, None, within=0.02),
    }.items():
        with pytest.raises(AnalysisError, match=words):
            call()  # type: ignore[no-untyped-call]
    missed = invert(line, 2.0, "flops", limits={"flops": Limit(high=1e15)})
    assert missed.value is None
    assert "with flops up to 1e+15" in missed.why[0]
