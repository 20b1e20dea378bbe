"""Profiles at equal compute inside an analysis, and the figures of laws over several inputs."""

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from scaling import canvas
from scaling.figures import drawings
from scaling.findings import Analysis
from scaling.misfits import misfits, several
from scaling.sources import analysis_of
from scaling.wording import tables
from sweeps.errors import SweeplawError

SPECS = Path(__file__).parents[2] / "sweeps" / "published"


@cache
def analysis(name: str, *overrides: str) -> Analysis:
    return analysis_of(SPECS / f"{name}.yaml", ["fit.bootstrap=100", *overrides])


def profiled() -> Analysis:
    return analysis("synthetic_isoflop", "+fit.isoflop={}")


def test_profiles_of_a_known_surface_stand_beside_the_surface() -> None:
    exact = {"symmetric": 0.5, "chinchilla": 0.28 / 0.62, "asymmetric": 0.155 / 0.62}
    assert len(profiled().isoflop) == 12
    for one in profiled().isoflop:
        truth = exact[str(one.group["surface"])]
        assert one.found.n_params.exponent is not None
        assert one.found.n_params.exponent.value == pytest.approx(truth, abs=0.01)
        ((name, agreement),) = one.against
        assert name.startswith("chinchilla")
        assert agreement.surface == pytest.approx(truth, abs=1e-6)


def test_profiles_are_in_the_json_and_in_a_table() -> None:
    data = profiled().to_json()
    assert {len(p["profiles"]) for p in data["isoflop"]} == {5}
    (table,) = [t for t in tables(data) if t.key == "isoflop"]
    assert len(table.rows) == 24  # size and data for each of the groups
    assert "exponent in FLOP" in table.columns


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(SweeplawError, match=r"fit.isoflop.budget: no column `flop` in .*did you mean `flops`\?"):
        analysis("synthetic_isoflop", "+fit.isoflop={budget: flop}")


@pytest.mark.parametrize("narrow", [False, True])
def test_figures_of_profiles_and_misfits_are_drawn(narrow: bool) -> None:
    data = profiled().to_json()
    made = {d.key: d for d in drawings(data, pl.DataFrame())}
    assert {"isoflop", "misfit-val_loss"} <= made.keys()
    for theme in (canvas.LIGHT, canvas.DARK):
        figure = made["isoflop"].draw(theme, narrow)
        stars = [t for t in figure.data if str(t.marker.symbol).startswith("star")]
        shown = data["isoflop"][:9]
        assert len(stars) == sum("n_params" in p for one in shown for p in one["profiles"])
        first = next(p for p in shown[0]["profiles"] if "n_params" in p)
        assert stars[0].x[0] == pytest.approx(first["n_params"]["value"])
        assert made["misfit-val_loss"].draw(theme, narrow).layout.height > 0


def test_misfits_are_observed_over_fitted() -> None:
    data = analysis("olmo_ladder").to_json()
    (c4,) = [f for f in several(data) if f["name"] == "C4"]
    found = misfits(data, c4)
    assert sum(m.held_out for m in found) == 1
    (large,) = [m for m in found if m.held_out]
    assert large.above == pytest.approx(100 * (2.4829183 / 2.43373 - 1), abs=1e-3)
    assert len(found) == 17
