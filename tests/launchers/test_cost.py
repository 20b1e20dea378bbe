from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.cost import fit_speed, weights
from launchers.progress import duration


def history(flops: list[float | None], seconds: list[float], threads: int = 1) -> pl.DataFrame:
    return pl.DataFrame(
        {"flops": flops, "seconds": seconds, "threads": [threads] * len(seconds)},
        schema={"flops": pl.Float64, "seconds": pl.Float64, "threads": pl.Int64},
    )


@given(
    overhead=st.floats(0, 100),
    rate=st.floats(1e6, 1e15),
    flops=st.lists(st.floats(1e8, 1e18), min_size=3, max_size=8, unique=True),
)
def test_a_planted_overhead_and_rate_predict_other_runs(overhead: float, rate: float, flops: list[float]) -> None:
    speed = fit_speed(history(flops, [overhead + f / rate for f in flops]), 1)
    assert speed is not None
    for f in flops:
        assert speed.seconds(f) == pytest.approx(overhead + f / rate, rel=1e-3)


def test_predictions_are_never_negative() -> None:
    speed = fit_speed(history([1e9, 2e9, 3e9], [3.0, 2.0, 1.0]), 1)
    assert speed is not None
    assert (speed.seconds(1e12) or 0) > 0
    speed = fit_speed(history([1e9, 2e9, 3e9], [0.1, 2.0, 30.0]), 1)
    assert speed is not None
    assert (speed.seconds(1.0) or 0) >= 0


def test_too_little_history_predicts_nothing() -> None:
    assert fit_speed(history([1e9, 2e9], [1.0, 2.0]), 1) is None
    assert fit_speed(history([1e9, 2e9, 3e9], [1.0, 2.0, 3.0], threads=4), 1) is None


def test_without_flops_the_median_time_is_predicted() -> None:
    speed = fit_speed(history([None, None, None], [1.0, 2.0, 30.0]), 1)
    assert speed is not None
    assert speed.seconds(None) == 2.0


def test_weights_fall_back_from_seconds_to_flops_to_counts() -> None:
    speed = fit_speed(history([1e9, 2e9, 3e9], [1.0, 2.0, 3.0]), 1)
    assert weights({"a": 4e9}, speed)["a"] == pytest.approx(4.0)
    by_flops = weights({"a": 1e9, "b": 9e9}, None)
    assert 1 < by_flops["b"] / by_flops["a"] < 9
    assert weights({"a": None, "b": 1e9}, None) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.25, "0.2 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"),
     (3600, "1 h 00 min"), (7 * 3600 + 59, "7 h 00 min"), (5 * 86400 + 3 * 3600, "5 d 3 h")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
