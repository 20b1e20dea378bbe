from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scaling.optimum import Optimum, Valley, ValleyNoise, find_optimum
from scaling.transfer import compare, cost_of_transfer, transfer

DATA = Path(__file__).parent / "data"
GRID = 2.0 ** np.arange(-10, -3)
NOISE = ValleyNoise(1e-3, 0.0, 40.0, "replicates")


def optimum(
    u: float, width: float, curvature: float = 0.03, x: np.ndarray = GRID, unstable: tuple[int, ...] = ()
) -> Optimum:
    loss = 2.0 * np.exp(0.5 * curvature * (np.log2(x) - u) ** 2)
    mask = np.zeros(len(x), dtype=bool)
    mask[list(unstable)] = True
    v = Valley("lr", f"width {width:g}", x, loss[:, None], mask)
    return find_optimum(v, NOISE, rng=np.random.default_rng(int(width)))


def family(exponent: float, widths: tuple[float, ...] = (16, 32, 64)) -> list[tuple[float, Optimum]]:
    return [(w, optimum(-6.3 + exponent * np.log2(w / 16), w)) for w in widths]


def test_drift_and_exponent_of_a_planted_family() -> None:
    found = transfer("lr", "width", {"rule": "standard"}, family(-0.8), level=0.95, seed=0)
    assert (found.start, found.end) == (16, 64)
    assert found.octaves.value == pytest.approx(-1.6, abs=0.02)
    assert found.drift.value == pytest.approx(2**-1.6, rel=0.02)
    assert found.drift.lo < 2**-1.6 < found.drift.hi
    assert found.exponent.value == pytest.approx(-0.8, abs=0.01)
    assert found.exponent.lo < -0.8 < found.exponent.hi


def test_cost_of_the_wrong_value_is_what_the_parabola_says() -> None:
    found = transfer("lr", "width", {}, family(-0.8), level=0.95, seed=0)
    true = 2.0 * (np.exp(0.5 * 0.03 * 1.6**2) - 1)
    assert found.cost.value == pytest.approx(true, rel=0.05)
    assert found.cost.lo < true < found.cost.hi


def test_no_drift_costs_nothing() -> None:
    found = transfer("lr", "width", {}, family(0.0), level=0.95, seed=0)
    assert found.octaves.lo < 0 < found.octaves.hi
    assert found.cost.value == pytest.approx(0.0, abs=1e-6)


def test_two_scales_give_an_untested_exponent() -> None:
    found = transfer("lr", "width", {}, family(-0.8, (16, 64)), level=0.95, seed=0)
    assert found.exponent.value == pytest.approx(-0.8, abs=0.02)
    assert "untested" in " ".join(found.why)


def test_scales_without_an_optimum_are_named() -> None:
    broken = (128.0, optimum(-12.0, 128))
    assert broken[1].status == "edge"
    found = transfer("lr", "width", {}, [*family(-0.8), broken], level=0.95, seed=0)
    assert found.end == 64
    assert "no optimum at width 128" in found.why
    alone = transfer("lr", "width", {}, [family(-0.8)[0], broken], level=0.95, seed=0)
    assert alone.drift is None
    assert alone.why == ("no optimum at width 128",)


def test_a_value_beyond_those_tried_costs_at_least_the_last() -> None:
    small = optimum(-5.0, 16)
    narrow = 2.0 ** np.arange(-12, -6)
    large = optimum(-9.0, 64, x=narrow)
    cost, why = cost_of_transfer(small, large, 0.95)
    at_end = 2.0 * (np.exp(0.5 * 0.03 * 2.0**2) - 1)
    assert cost.value == pytest.approx(at_end, rel=0.05)
    assert "at least this cost" in why[0]


def test_a_value_among_diverged_ones_has_no_cost() -> None:
    large = optimum(-8.0, 64, unstable=(4, 5, 6))
    assert large.status == "ok"
    cost, why = cost_of_transfer(optimum(-5.3, 16), large, 0.95)
    assert cost is None
    assert "diverged" in why[0]


def test_comparison_of_two_groups() -> None:
    a, b = dict(family(-0.1)), dict(family(-1.0))
    found = compare("lr", "width", ({"rule": "standard"}, b), ({"rule": "hyperp"}, a), 0.95)
    assert found.a == {"rule": "hyperp"}
    assert found.ratio.value == pytest.approx(0.1, abs=0.02)
    assert found.ratio.lo < 0.1 < found.ratio.hi
    assert found.half == 1.0
    assert "Less than half: yes" in found.verdict
    same = compare("lr", "width", ({"rule": "a"}, dict(family(-0.5))), ({"rule": "b"}, dict(family(-0.501))), 0.95)
    assert "Less than half: no" in same.verdict
    assert compare("lr", "width", ({}, {16.0: a[16]}), ({}, {64.0: b[64]}), 0.95) is None


def prototype(optimizer: str, **fixed: object) -> list[tuple[float, Optimum]]:
    """Single-seed sweeps of small character models, widths 16 to 64."""
    frame = pl.read_csv(
        DATA / "hyperp_prototype.csv", comment_prefix="#", schema_overrides={"head_std": pl.String}
    ).filter(
        (pl.col("optimizer") == optimizer) & (pl.col("depth") == 2) & (pl.col("steps") == 300) & (pl.col("width") <= 64)
    )
    for name, value in fixed.items():
        frame = frame.filter(pl.col(name) == value)
    out = []
    for (width,), part in frame.sort("width", "lr").group_by("width", maintain_order=True):
        v = Valley("lr", f"width {width}", part["lr"].to_numpy(), part["val_loss"].to_numpy()[:, None],
                   np.zeros(len(part), dtype=bool))  # fmt: skip
        out.append(
            (float(str(width)), find_optimum(v, ValleyNoise(0.005, 0, 8, "scatter"), rng=np.random.default_rng(0)))
        )
    return out


def test_real_sweeps_drift_as_they_did() -> None:
    """Read off the sweeps by hand: AdamW drifts 7.6x over 16 to 64 and loses 0.26 nats, HyperP 1.2x and 0.004."""
    adamw, hyperp = prototype("adamw"), prototype("hyperp", head_std="1/sqrt(w)", emb_std=0.3, adamw_lr_mult=1.0)
    plain = transfer("lr", "width", {}, adamw, level=0.95, seed=0)
    held = transfer("lr", "width", {}, hyperp, level=0.95, seed=0)
    assert 4 < 1 / plain.drift.value < 9
    assert 1 < 1 / held.drift.value < 2
    assert plain.cost.value == pytest.approx(0.26, abs=0.1)
    assert held.cost.value < 0.02
    found = compare("lr", "width", ({"rule": "standard"}, dict(adamw)), ({"rule": "hyperp"}, dict(hyperp)), 0.95)
    assert found.a == {"rule": "hyperp"}
    assert found.ratio.value < 0.5
