import copy
import json
import math
import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling import canvas, figures

DATA = Path(__file__).parent / "data"
RESULTS = pl.read_csv(DATA / "results.csv")
SAMPLE = json.loads((DATA / "analysis.json").read_text())
HOSTILE = "<img src=x onerror=alert(1)>"


def traces(figure, **want):
    """Traces whose properties (`a_b` for a.b) are as wanted."""
    return [t for t in figure.data if all(_property(t, name) == value for name, value in want.items())]


def _property(trace, name):
    if name not in trace and "_" in name:
        outer, inner = name.split("_", 1)
        return trace[outer][inner]
    return trace[name]


def test_the_sample_gets_its_four_figures_in_reading_order():
    keys = [drawing.key for drawing in figures.drawings(SAMPLE, RESULTS)]
    assert keys == ["curves-lr", "transfer", "optimum-lr-width", "metric-width"]


def test_curves_are_the_means_over_seeds_of_finished_runs():
    figure = figures.u_curves(SAMPLE, RESULTS, "lr")
    done = RESULTS.filter(pl.col("status") == "done").group_by("rule", "width", "lr").agg(pl.col("val_loss").mean())
    drawn = {
        (panel, trace.legendgroup): dict(zip(trace.x, trace.y, strict=True))
        for panel, axis in (("hyperp", "x"), ("standard", "x2"))
        for trace in traces(figure, mode="lines", line_width=1.8, xaxis=axis)
    }
    assert len(drawn) == 8
    for (rule, width), curve in drawn.items():
        rows = done.filter((pl.col("rule") == rule) & (pl.col("width") == int(width)))
        assert curve == pytest.approx(dict(rows.select("lr", "val_loss").iter_rows()))


def test_optima_stand_at_their_value_with_their_interval():
    figure = figures.u_curves(SAMPLE, RESULTS, "lr")
    markers = {t.x[0]: t for t in traces(figure, marker_symbol="circle")}
    assert len(markers) == 8
    for optimum in SAMPLE["optima"]:
        marker = markers[optimum["value"]]
        assert marker.y[0] == optimum["loss"]
        assert marker.x[0] + marker.error_x.array[0] == pytest.approx(optimum["hi"])
        assert marker.x[0] - marker.error_x.arrayminus[0] == pytest.approx(optimum["lo"])


def test_diverged_runs_are_crosses_at_their_place():
    figure = figures.u_curves(SAMPLE, RESULTS, "lr")
    crosses = traces(figure, marker_symbol="x-thin")
    lost = RESULTS.filter(pl.col("status") == "diverged").select("width", "lr").unique()
    assert sorted((int(t.legendgroup), x) for t in crosses for x in t.x) == sorted(lost.iter_rows())


def test_an_edge_is_an_open_triangle_and_a_refused_optimum_is_not_drawn():
    data = copy.deepcopy(SAMPLE)
    gone = ("value", "lo", "hi", "loss", "loss_stderr", "curve")
    for optimum, status in zip(data["optima"][:2], ("edge", "refused"), strict=True):
        optimum["status"] = status
        for key in gone:
            del optimum[key]
    figure = figures.u_curves(data, RESULTS, "lr")
    assert len(traces(figure, marker_symbol="circle")) == 6
    (triangle,) = [t for t in figure.data if "triangle" in str(t.marker.symbol)]
    cell = RESULTS.filter((pl.col("rule") == "hyperp") & (pl.col("width") == 16))
    means = cell.group_by("lr").agg(pl.col("val_loss").mean()).sort("val_loss")
    assert (triangle.x[0], triangle.y[0]) == pytest.approx(means.row(0))
    assert not triangle.error_x.array


def test_one_blown_up_run_does_not_flatten_the_curves():
    blown = RESULTS.with_columns(
        pl.when((pl.col("lr") == 0.125) & (pl.col("width") == 16))
        .then(1e6)
        .otherwise(pl.col("val_loss"))
        .alias("val_loss")
    )
    bottom, top = figures.u_curves(SAMPLE, blown, "lr").layout.yaxis.range
    assert bottom < RESULTS["val_loss"].min()
    assert top < 4


def test_the_law_drawn_is_the_law_fitted():
    figure = figures.optimum_by_axis(SAMPLE, RESULTS, "lr", "width")
    fits = [f for f in SAMPLE["fits"] if f["of"] == "lr.optimum"]
    lines = traces(figure, mode="lines", line_width=1.6)
    assert len(lines) == len(fits) == 2
    for fit, line in zip(fits, lines, strict=True):
        a, alpha = (fit["params"][name]["value"] for name in ("A", "alpha"))
        assert list(line.y) == pytest.approx([a * x**-alpha for x in line.x])
        assert (min(line.x), max(line.x)) == pytest.approx((16, 1024))


def test_held_out_points_are_hollow_and_predictions_are_dashes_with_bars():
    figure = figures.metric_by_axis(SAMPLE, RESULTS, "width")
    hollow = [t for t in figure.data if t.marker.color == canvas.LIGHT.paper]
    assert [t.x for t in hollow] == [(128,), (128,)]
    dashes = traces(figure, marker_symbol="line-ew-open")
    predictions = [p for p in SAMPLE["predictions"] if p["of"] == "val_loss"]
    assert sorted(y for t in dashes for y in t.y) == pytest.approx(sorted(p["value"] for p in predictions))
    assert sorted(y + up for t in dashes for y, up in zip(t.y, t.error_y.array, strict=True)) == pytest.approx(
        sorted(p["hi"] for p in predictions)
    )


def test_a_refused_law_is_not_drawn():
    data = copy.deepcopy(SAMPLE)
    data["fits"] = [f for f in data["fits"] if f["status"] == "refused"]
    figure = figures.metric_by_axis(data, RESULTS, "width")
    assert not [t for t in figure.data if t.mode == "lines"]
    assert any("no law" in note.text for note in figure.layout.annotations)


def test_a_band_is_drawn_where_the_fit_has_one():
    data = copy.deepcopy(SAMPLE)
    fit = next(f for f in data["fits"] if f["of"] == "lr.optimum")
    fit["curve"] = [{"x": x, "value": 1 / x, "lo": 0.5 / x, "hi": 2 / x} for x in (16.0, 64.0, 256.0)]
    (band,) = traces(figures.optimum_by_axis(data, RESULTS, "lr", "width"), fill="toself")
    assert list(band.x) == [16, 64, 256, 256, 64, 16]
    assert list(band.y) == pytest.approx([2 / 16, 2 / 64, 2 / 256, 0.5 / 256, 0.5 / 64, 0.5 / 16])


def test_an_axis_may_be_a_fact_of_the_runs():
    data = copy.deepcopy(SAMPLE)
    for fit in data["fits"]:
        fit["over"] = "n_params"
    figure = figures.metric_by_axis(data, RESULTS, "n_params")
    known = set(RESULTS["n_params"].unique())
    measured = {x for t in traces(figure, marker_symbol="circle") for x in t.x}
    assert measured
    assert measured <= known


def test_transfer_shows_drift_and_cost():
    figure = figures.transfer(SAMPLE)
    assert [t.x[0] for t in figure.data if t.xaxis == "x"] == [t["drift"] for t in SAMPLE["transfer"]]
    assert [t.x[0] for t in figure.data if t.xaxis == "x2"] == [t["cost"] for t in SAMPLE["transfer"]]
    assert list(figure.layout.yaxis.ticktext) == ["hyperp", "standard"]


def untuned(values, over="width"):
    cells = [{"group": {}, "at": {over: x}, "mean": y, "stderr": 0.01, "n": 2} for x, y in values]
    return {"schema": 1, "sweep": "s", "of": "loss", "goal": "min", "level": 0.9, "cells": cells}


def test_without_tune_the_metric_is_drawn_against_the_axis():
    (drawing,) = figures.drawings(untuned([(1, 3.0), (10, 2.0)]), pl.DataFrame({"loss": [1.0]}))
    figure = drawing.draw(canvas.LIGHT, False)
    (points,) = traces(figure, marker_symbol="circle")
    assert list(zip(points.x, points.y, strict=True)) == [(1, 3.0), (10, 2.0)]
    assert points.error_y.array[0] == pytest.approx(0.01 * 1.6449, rel=1e-3)  # 90 % of a normal distribution


def test_axes_tied_to_each_other_make_one_series_and_free_ones_make_panels():
    cells = [{"group": {}, "at": {"width": w, "depth": d}, "mean": 1.0 / w} for w in (8, 16) for d in (2, 4)]
    data = untuned([]) | {"cells": cells}
    free = figures.metric_by_axis(data, pl.DataFrame(), "width")
    assert {a.text for a in free.layout.annotations} == {"<b>depth 2</b>", "<b>depth 4</b>"}
    data["cells"] = [c for c in cells if c["at"]["depth"] * 4 == c["at"]["width"]]
    (series,) = traces(figures.metric_by_axis(data, pl.DataFrame(), "width"), marker_symbol="circle")
    assert list(series.x) == [8, 16]


def test_a_goal_to_maximise_is_best_at_the_top():
    data = copy.deepcopy(SAMPLE) | {"goal": "max"}
    data["optima"] = [{"tune": "lr", "group": {"rule": "hyperp"}, "at": {"width": 16}, "status": "edge", "why": []}]
    (triangle,) = [t for t in figures.u_curves(data, RESULTS, "lr").data if "triangle" in str(t.marker.symbol)]
    assert (triangle.x[0], triangle.marker.symbol) == (0.00390625, "triangle-left-open")


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("theme", [canvas.LIGHT, canvas.DARK])
def test_themes_and_layouts_show_the_same_data(theme, narrow):
    for drawing in figures.drawings(SAMPLE, RESULTS):
        plain, other = drawing.draw(canvas.LIGHT, False), drawing.draw(theme, narrow)
        points = [(t.x, t.y) for t in plain.data if t.x != (None,)]
        assert points == [(t.x, t.y) for t in other.data if t.x != (None,)]
        assert other.layout.paper_bgcolor == theme.paper


def renamed(value, name):
    return json.loads(json.dumps(value).replace("hyperp", name))


def test_names_are_text_in_every_figure():
    data = renamed(SAMPLE, HOSTILE) | {"of": "<b>loss"}
    for part in ("fits", "predictions"):
        for item in data[part]:
            item["of"] = item["of"].replace("val_loss", "<b>loss")
    rows = RESULTS.with_columns(pl.col("rule").str.replace("hyperp", HOSTILE, literal=True)).rename(
        {"val_loss": "<b>loss"}
    )
    for drawing in figures.drawings(data, rows):
        text = drawing.draw(canvas.LIGHT, False).to_json().replace("\\u003c", "<")
        assert "<img" not in text
        assert "<b>loss" not in text
        assert "&lt;img" in text


OPTIONAL = ("value", "lo", "hi", "loss", "loss_stderr", "n_points", "curve", "why", "params", "observed", "drift",
            "cost", "cost_lo", "cost_hi", "exponent", "from", "to", "status", "rows", "mean", "stderr")  # fmt: skip


def damaged(value, chance, rng):
    """`value` with optional entries missing, not a number, or of another status."""
    if isinstance(value, list):
        return [damaged(v, chance, rng) for v in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, inner in value.items():
        hit = key in OPTIONAL and rng.random() < chance
        if not hit:
            out[key] = damaged(inner, chance, rng)
        elif key == "status":
            out[key] = rng.choice(["edge", "refused", "weak"])
        elif isinstance(inner, float) and rng.random() < 0.5:
            out[key] = rng.choice([math.nan, math.inf, 0.0, -1.0])
    return out


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), chance=st.sampled_from([0.02, 0.2, 0.7]), rows=st.sampled_from([0, 3, 40, 162]))
def test_whatever_is_missing_the_figures_are_drawn(seed, chance, rows):
    rng = random.Random(seed)
    data = damaged(SAMPLE, chance, rng)
    for drawing in figures.drawings(data, RESULTS.sample(rows, seed=seed)):
        assert drawing.draw(canvas.LIGHT, rng.random() < 0.5).layout.height > 0


def test_an_empty_analysis_has_no_figures():
    assert figures.drawings(untuned([]), pl.DataFrame()) == []


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [canvas.LIGHT, canvas.DARK])
def test_colours_can_be_seen_and_told_apart(theme):
    def contrast(colour):  # WCAG 2.2, success criteria 1.4.3 and 1.4.11
        a, b = sorted((luminance(colour), luminance(theme.paper)))
        return (b + 0.05) / (a + 0.05)

    assert all(contrast(c) >= 3 for c in (*theme.ramp, *theme.alternatives))
    assert contrast(theme.faint) >= 4.5
    assert contrast(theme.ink) >= 7
    levels = [luminance(c) for c in canvas.ramp_colours(theme, 9)]
    assert levels in (sorted(levels), sorted(levels, reverse=True))  # the order survives without hue
    assert len({canvas.look_of(theme, i) for i in range(36)}) == 36


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=6))
def test_labels_at_the_right_edge_never_overlap(heights):
    placed = figures.spread(heights, 0.13)
    upwards = [placed[i] for i in sorted(range(len(heights)), key=heights.__getitem__)]
    assert all(b - a >= 0.13 - 1e-9 for a, b in pairwise(upwards))
    assert max(placed) <= 0.97 + 1e-9


@pytest.mark.parametrize(
    ("values", "most", "exact", "texts"),
    [
        ([2.0**-9, 2.0**-4], 7, False, ["2⁻⁹", "2⁻⁸", "2⁻⁷", "2⁻⁶", "2⁻⁵", "2⁻⁴"]),
        ([2.0**-11, 2.0**-3], 5, False, ["2⁻¹⁰", "2⁻⁸", "2⁻⁶", "2⁻⁴"]),
        ([16, 32, 128], 8, True, ["16", "32", "128"]),
        ([1e-9, 1e-2], 8, False, ["10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²"]),
        ([8, 64], 7, False, ["8", "16", "32", "64"]),
    ],
)
def test_ticks_read_as_powers(values, most, exact, texts):
    assert canvas.log_ticks(values, most, exact)["ticktext"] == texts
