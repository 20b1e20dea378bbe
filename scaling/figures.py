"""The figures of an analysis, as Plotly figures of its JSON form: for the report and for a dashboard.

Every function takes the analysis and returns a complete figure. `theme` gives the colours, `narrow` lays
the figure out for a screen of about 360 pixels. Names from a spec are shown as text, never as markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from scaling import wording
from scaling.canvas import (
    LIGHT,
    Theme,
    faded,
    finish,
    label_text,
    log_ticks,
    look_of,
    make_frame,
    message,
    name_axes,
    name_y_axis,
    on_panel,
    padded,
    panel_height,
    ramp_colours,
)
from scaling.errors import AnalysisError
from scaling.laws import law_over
from scaling.misfits import misfit_figure, several
from scaling.profile_figure import profile_figure
from scaling.wording import Json, finite

WORST = 5  # means this many times further from the best than the median are left above the frame
MOST_ENDS = 5  # alternatives that are named beside their last values; more get a legend
SIDESTEP = 0.008  # between the predictions of neighbouring alternatives, of the axis
CURVE_POINTS = 80


@dataclass(frozen=True)
class Drawing:
    """A figure that applies to an analysis: what it is called, says, and how it is drawn."""

    key: str
    title: str
    caption: str
    draw: Callable[[Theme, bool], go.Figure]


def drawings(analysis: Json, results: pl.DataFrame, theory: Mapping[str, str] | None = None) -> list[Drawing]:
    """The figures that `analysis` has data for, in reading order.

    `theory` maps the label of an alternative (`wording.label` of its group) to what theory expects of it.
    """
    of = wording.clean(str(analysis.get("of", "")))
    made: list[Drawing] = []
    for tune in _unique(o["tune"] for o in analysis.get("optima", ())):
        if tune in results.columns and analysis["of"] in results.columns:
            made.append(_u_drawing(analysis, results, str(tune), of))
    if analysis.get("transfer"):
        made.append(Drawing(
            "transfer", "What transfer costs",
            "Left: how far the optimum moves between the two scales, 1 being not at all. Right: the price of not "
            f"moving with it. Bars: {wording.level(analysis)} intervals.",
            lambda theme, narrow: transfer(analysis, theme=theme, narrow=narrow)))  # fmt: skip
    for tune, over in _optimum_axes(analysis):
        made.append(_optimum_drawing(analysis, results, tune, over, theory))
    for over in _metric_axes(analysis):
        made.append(_metric_drawing(analysis, results, over, of))
    if analysis.get("isoflop"):
        made.append(Drawing(
            "isoflop", "Profiles at equal compute",
            "One line a budget, coloured in order. Stars: the best size; hollow ones are not bracketed "
            "by worse sizes on both sides.",
            lambda theme, narrow: profile_figure(analysis, theme=theme, narrow=narrow)))  # fmt: skip
    made += [_misfit_drawing(analysis, name) for name in _unique(f["of"] for f in several(analysis))]
    return made


def _misfit_drawing(analysis: Json, of: str) -> Drawing:
    return Drawing(
        f"misfit-{of}",
        f"How far {wording.clean(of)} lies from its laws",
        "Each point is a row: what was observed over what the law says, less one. Hollow: held out of the fit. "
        "A trend or a bend says that the law has another form.",
        lambda theme, narrow: misfit_figure(analysis, of, theme=theme, narrow=narrow),
    )


def _u_drawing(analysis: Json, results: pl.DataFrame, tune: str, of: str) -> Drawing:
    name = wording.clean(tune)
    optima = [o for o in analysis["optima"] if o["tune"] == tune]
    caption = (
        f"Lines: means over replicates; faint points: single runs. Filled circles: the best {name}, bars its "
        f"{wording.level(analysis)} interval; the dotted line follows it from scale to scale. Broad lines: the fits "
        "that the best values were read from."
    )
    if any(o.get("status") == "edge" for o in optima):
        caption += " Open triangles: the best value lies at the edge of the grid."
    if "status" in results.columns and "diverged" in results["status"]:
        caption += " Crosses at the top: runs that diverged."
    return Drawing(f"curves-{tune}", f"{of} against {name}", caption,
                   lambda theme, narrow: u_curves(analysis, results, tune, theme=theme, narrow=narrow))  # fmt: skip


def _marks(analysis: Json) -> str:
    bars = "Bars and bands" if any(fit.get("curve") for fit in analysis.get("fits", ())) else "Bars"
    return (
        "Filled: measured. Hollow: measured, held out of the fit. Dashes: predicted. "
        f"{bars}: {wording.level(analysis)} intervals."
    )


def _optimum_drawing(
    analysis: Json, results: pl.DataFrame, tune: str, over: str, theory: Mapping[str, str] | None
) -> Drawing:
    caption = _marks(analysis)
    if theory:
        expected = "; ".join(f"{wording.clean(k)}: {wording.clean(v)}" for k, v in theory.items())
        caption += f" Theory expects {expected}."
    return Drawing(
        f"optimum-{tune}-{over}",
        f"Best {wording.clean(tune)} against {wording.clean(over)}",
        caption,
        lambda theme, narrow: optimum_by_axis(analysis, results, tune, over, theme=theme, narrow=narrow),
    )


def _metric_drawing(analysis: Json, results: pl.DataFrame, over: str, of: str) -> Drawing:
    return Drawing(
        f"metric-{over}",
        f"{of} against {wording.clean(over)}",
        _marks(analysis),
        lambda theme, narrow: metric_by_axis(analysis, results, over, theme=theme, narrow=narrow),
    )


# -- loss against a tuned hyperparameter -------------------------------------------------------------


@dataclass(frozen=True)
class _Curve:
    """One U: the metric against the hyperparameter at one scale."""

    at: dict[str, Any]
    xs: list[float]
    means: list[float]
    runs: list[tuple[float, float]]
    lost: list[float]  # values of the hyperparameter at which a run diverged
    optimum: Json
    best: tuple[float, float]  # of the means


@dataclass
class _Panel:
    title: str
    curves: list[_Curve] = field(default_factory=list)


def u_curves(
    analysis: Json, results: pl.DataFrame, tune: str, *, theme: Theme = LIGHT, narrow: bool = False
) -> go.Figure:
    """The metric against `tune`: a panel per alternative, a line per scale, optima with intervals."""
    axis = _main_axis(analysis, tune)
    panels = _panels(analysis, results, tune, axis)
    if not any(curve.xs or curve.lost for panel in panels for curve in panel.curves):
        return message("No finished runs to draw.", theme)
    scales = _ordered(curve.at.get(axis) for panel in panels for curve in panel.curves)
    colours = dict(zip(map(wording.plain, scales), ramp_colours(theme, len(scales)), strict=True))
    highest = analysis.get("goal") == "max"
    bottom, top = _u_range(panels, highest)
    figure, columns = go.Figure(), 1 if narrow else min(len(panels), 3)
    most = 40 if columns < 3 else 32  # letters of a panel's title
    frame = make_frame(
        figure, [label_text(panel.title, most) for panel in panels], columns, theme, panel_height(narrow)
    )
    xs = [x for panel in panels for curve in panel.curves for x in (*curve.xs, *curve.lost)]
    logarithmic = min(xs) > 0
    for number, panel in enumerate(panels, 1):
        _draw_path(figure, panel, number, theme)
        for curve in panel.curves:
            scale = wording.plain(curve.at.get(axis))
            worst = bottom if highest else top
            _draw_u(figure, curve, number, colour=colours[scale], scale=(axis, scale), top=worst)
    ticks = log_ticks(xs, 5 if narrow else 7) if logarithmic else {}
    figure.update_xaxes(type="log" if logarithmic else "linear", range=padded(min(xs), max(xs), logarithmic, 0.05))
    figure.update_xaxes(**ticks)
    figure.update_yaxes(range=[bottom, top])
    name_axes(figure, frame, label_text(tune), label_text(analysis["of"]))
    _scale_legend(figure, axis, scales, colours)
    shown = [wording.plain(scale) for scale in scales] if len(scales) > 1 else []
    return finish(figure, theme, frame.height, legend=shown, narrow=narrow)


def _panels(analysis: Json, results: pl.DataFrame, tune: str, axis: str) -> list[_Panel]:
    panels: dict[str, _Panel] = {}
    rows = _rows_by_key(results, [o for o in analysis["optima"] if o["tune"] == tune])
    for optimum, found in rows:
        others = {name: value for name, value in (optimum.get("at") or {}).items() if name != axis}
        title = wording.label({**(optimum.get("group") or {}), **others}, "")
        curve = _curve(optimum, found, tune, analysis)
        panels.setdefault(title, _Panel(title)).curves.append(curve)
    return list(panels.values())


def _rows_by_key(results: pl.DataFrame, items: Sequence[Json]) -> list[tuple[Json, list[dict[str, Any]]]]:
    """Each item with the rows of `results` at its group and place."""
    names = [n for n in _unique(n for i in items for n in _where(i)) if n in results.columns]
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in results.iter_rows(named=True):
        rows.setdefault(tuple(wording.plain(row[n]) for n in names), []).append(row)
    return [(item, rows.get(tuple(wording.plain(_where(item).get(n)) for n in names), [])) for item in items]


def _where(item: Json) -> dict[str, Any]:
    return {**(item.get("group") or {}), **(item.get("at") or {})}


def _curve(optimum: Json, rows: Sequence[Json], tune: str, analysis: Json) -> _Curve:
    """Means over replicates; where something else is tuned too, the best of it at each value of `tune`."""
    better = max if analysis.get("goal") == "max" else min
    tunes = [t for t in _unique(o["tune"] for o in analysis["optima"]) if t != tune]
    cells: dict[float, dict[tuple[str, ...], list[float]]] = {}
    lost: set[float] = set()
    for row in rows:
        x, y = finite(row.get(tune)), finite(row.get(analysis["of"]))
        if x is None:
            continue
        if row.get("status") == "diverged":
            lost.add(x)
        if y is not None and row.get("status") != "diverged":
            cells.setdefault(x, {}).setdefault(tuple(wording.plain(row.get(t)) for t in tunes), []).append(y)
    best = {x: better(group.values(), key=_mean) for x, group in sorted(cells.items())}
    runs = [(x, y) for x, ys in best.items() if len(ys) > 1 for y in ys]
    means = {x: _mean(ys) for x, ys in best.items()}
    where = better(means, key=means.__getitem__) if means else math.nan
    return _Curve(dict(optimum.get("at") or {}), list(means), list(means.values()), runs, sorted(lost), optimum,
                  (where, means.get(where, math.nan)))  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _u_range(panels: Sequence[_Panel], highest_is_best: bool) -> tuple[float, float]:
    """A vertical range that shows every bottom well: a few blown-up runs must not flatten the curves."""
    means = [m for panel in panels for curve in panel.curves for m in curve.means]
    if not means:
        return 0.0, 1.0
    sign = -1 if highest_is_best else 1
    goods = sorted(sign * m for m in means)
    bottoms = [min(sign * m for m in curve.means) for p in panels for curve in p.curves if curve.means]
    lowest, typical = goods[0], goods[len(goods) // 2] - goods[0]
    shown = max(*bottoms, lowest + WORST * typical)
    top = max(g for g in goods if g <= shown)
    margin = 0.09 * (top - lowest) or 0.05 * abs(top) or 1.0
    low, high = lowest - margin, top + margin
    return (-high, -low) if highest_is_best else (low, high)


def _draw_path(figure: go.Figure, panel: _Panel, number: int, theme: Theme) -> None:
    found = [c.optimum for c in panel.curves if c.optimum.get("status") == "ok"]
    points = [(finite(o.get("value")), finite(o.get("loss"))) for o in found]
    path = [(x, y) for x, y in points if x is not None and y is not None]
    if len(path) > 1:
        figure.add_scatter(
            x=[x for x, _ in path], y=[y for _, y in path], mode="lines", hoverinfo="skip", showlegend=False,
            line={"color": theme.faint, "width": 1, "dash": "dot"}, **on_panel(number))  # fmt: skip


def _draw_u(figure: go.Figure, curve: _Curve, number: int, *, colour: str, scale: tuple[str, str], top: float) -> None:
    group = f"{label_text(scale[0])} {label_text(scale[1])}"
    common: dict[str, Any] = {"legendgroup": scale[1], "showlegend": False, **on_panel(number)}
    if curve.runs:
        figure.add_scatter(
            x=[x for x, _ in curve.runs], y=[y for _, y in curve.runs], mode="markers", hoverinfo="skip",
            marker={"color": colour, "size": 4, "opacity": 0.35}, **common)  # fmt: skip
    figure.add_scatter(
        x=curve.xs, y=curve.means, mode="lines+markers" if len(curve.xs) < 3 else "lines",
        line={"color": colour, "width": 1.8}, hoverinfo="text",
        hovertext=[f"{group}<br>{label_text(wording.plain(x))}: {wording.number(y)}"
                   for x, y in zip(curve.xs, curve.means, strict=True)], **common)  # fmt: skip
    floor = curve.optimum.get("curve") or {}
    if floor.get("x") and floor.get("y"):
        figure.add_scatter(
            x=floor["x"], y=floor["y"], mode="lines", hoverinfo="skip", opacity=0.35,
            line={"color": colour, "width": 4}, **common)  # fmt: skip
    if curve.lost:
        figure.add_scatter(
            x=curve.lost, y=[top] * len(curve.lost), mode="markers", cliponaxis=False, hoverinfo="text",
            hovertext=[f"{group}<br>{label_text(wording.plain(x))}: diverged" for x in curve.lost],
            marker={"color": colour, "size": 7, "symbol": "x-thin", "line": {"color": colour, "width": 1.6}},
            **common)  # fmt: skip
    _draw_optimum(figure, curve, colour, group, common)


def _draw_optimum(figure: go.Figure, curve: _Curve, colour: str, group: str, common: dict[str, Any]) -> None:
    optimum = curve.optimum
    x, y, status = finite(optimum.get("value")), finite(optimum.get("loss")), optimum.get("status")
    if status == "edge" and curve.xs:
        x, y = curve.best
    if x is None or y is None or status not in ("ok", "edge"):
        return
    lo, hi = (finite(optimum.get(key)) if status == "ok" else None for key in ("lo", "hi"))
    symbol = "circle"
    if status == "edge":
        nearer_low = not curve.xs or abs(x - curve.xs[0]) <= abs(x - curve.xs[-1])
        symbol = "triangle-left-open" if nearer_low else "triangle-right-open"
    said = wording.interval(x, lo, hi) if status == "ok" else f"{wording.plain(x)}, at the edge of the grid"
    figure.add_scatter(
        x=[x], y=[y], mode="markers", hoverinfo="text", hovertext=f"{group}<br>best: {said}",
        marker={"color": colour, "size": 9 if status == "ok" else 11, "symbol": symbol,
                "line": {"color": colour, "width": 0 if status == "ok" else 1.6}},
        error_x=_bar(x, lo, hi, colour=colour, width=0, thickness=3.5), **common)  # fmt: skip


def _bar(value: float, lo: float | None, hi: float | None, *, colour: str, width: int, thickness: float) -> Any:
    if lo is None or hi is None:
        return None
    return {"type": "data", "symmetric": False, "array": [max(hi - value, 0)], "arrayminus": [max(value - lo, 0)],
            "color": colour, "thickness": thickness, "width": width}  # fmt: skip


def _scale_legend(figure: go.Figure, axis: str, scales: Sequence[Any], colours: Mapping[str, str]) -> None:
    for scale in scales:
        key = wording.plain(scale)
        figure.add_scatter(
            x=[None], y=[None], mode="lines", name=label_text(key), line={"color": colours[key], "width": 3},
            legendgroup=key, showlegend=True)  # fmt: skip
    figure.update_layout(legend_title_text=label_text(axis))


# -- a quantity against a scale ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    x: float
    y: float
    lo: float | None
    hi: float | None
    kind: str  # measured, held_out, edge or predicted
    shift: float = 1.0  # factor on x where it is drawn


@dataclass(frozen=True)
class _Series:
    """One alternative in one panel: what was measured, its law, and what the law predicts."""

    panel: str
    label: str
    points: list[_Point]
    curve: list[tuple[float, float, float | None, float | None]]
    note: str = ""


@dataclass(frozen=True)
class _Value:
    """A measured value of one cell with the ends of its interval."""

    item: Json
    y: float | None
    lo: float | None
    hi: float | None


def optimum_by_axis(
    analysis: Json, results: pl.DataFrame, tune: str, over: str, *, theme: Theme = LIGHT, narrow: bool = False
) -> go.Figure:
    """The best value of `tune` against `over`, with its power law; both axes logarithmic."""
    items = [o for o in analysis.get("optima", ()) if o["tune"] == tune]
    values = []
    for item in items:
        y, lo, hi = (finite(item.get(key)) for key in ("value", "lo", "hi"))
        if item.get("status") == "edge" and y is None:
            y = _edge(analysis, results, item)
        values.append(_Value(item, y, lo, hi))
    series = _series(analysis, results, f"{tune}.optimum", over, values)
    return _scale_figure(series, over, f"best {wording.clean(tune)}", theme=theme, narrow=narrow, log_y=True)


def metric_by_axis(
    analysis: Json, results: pl.DataFrame, over: str, *, theme: Theme = LIGHT, narrow: bool = False
) -> go.Figure:
    """The metric (at the optimum, if something is tuned) against `over`, with its law and predictions."""
    of = str(analysis["of"])
    z = NormalDist().inv_cdf(0.5 + (finite(analysis.get("level")) or 0.95) / 2)
    values = []
    for item in _measured(analysis):
        y = finite(item.get("mean", item.get("loss")))
        error = finite(item.get("stderr", item.get("loss_stderr")))
        lo, hi = (y - z * error, y + z * error) if y is not None and error else (None, None)
        values.append(_Value(item, y, lo, hi))
    return _scale_figure(_series(analysis, results, of, over, values), over, of, theme=theme, narrow=narrow, log_y=None)


def _measured(analysis: Json) -> list[Json]:
    """The items that carry the metric: cells, or the optima of the first tuned hyperparameter."""
    if analysis.get("cells"):
        return list(analysis["cells"])
    optima = list(analysis.get("optima") or ())
    return [o for o in optima if o["tune"] == optima[0]["tune"]]


def _edge(analysis: Json, results: pl.DataFrame, item: Json) -> float | None:
    """The grid value at which the means are best, where that is an end of the grid."""
    tune = str(item["tune"])
    if tune not in results.columns or analysis["of"] not in results.columns:
        return None
    return finite(_curve(item, _rows_by_key(results, [item])[0][1], tune, analysis).best[0])


def _series(analysis: Json, results: pl.DataFrame, of: str, over: str, values: Sequence[_Value]) -> list[_Series]:
    fits = [f for f in analysis.get("fits", ()) if f.get("of") == of and f.get("over") == over]
    position = _positions(results, over)
    placed = [(v, position(_where(v.item))) for v in values]
    alternatives = wording.names([v.item for v in values], "group")
    panels = _panel_names(fits, placed, alternatives, over)
    found: dict[tuple[str, str], list[_Point]] = {}
    for value, x in placed:
        points = found.setdefault(_series_key(_where(value.item), alternatives, panels), [])
        if x is not None and value.y is not None and value.item.get("status") != "refused":
            kind = "edge" if value.item.get("status") == "edge" else "measured"
            points.append(_Point(x, value.y, value.lo, value.hi, kind))
    chosen: dict[tuple[str, str], Json] = {}
    for fit in sorted(fits, key=lambda f: _RANKS.get(str(f.get("status")), 1)):
        chosen.setdefault(_series_key(fit.get("group") or {}, alternatives, panels), fit)
    for key, points in found.items():
        _add_predictions(analysis, chosen.get(key), points, position)
    return [
        _Series(
            *key, sorted(points, key=lambda p: p.x), _law_curve(chosen.get(key), points), _law_note(chosen.get(key))
        )
        for key, points in found.items()
    ]


_RANKS = {"ok": 0, "weak": 1, "refused": 2}


def _panel_names(
    fits: Sequence[Json], placed: Sequence[tuple[_Value, float | None]], alternatives: Sequence[str], over: str
) -> list[str]:
    """The axes that a law does not run over: each of their values gets a panel."""
    if fits:
        return _unique(n for f in fits for n in f.get("group") or {} if n not in alternatives)
    others = [n for n in wording.names([v.item for v, _ in placed], "at") if n != over]
    seen: dict[str, set[float]] = {}
    for value, x in placed:
        if x is not None:
            where = _where(value.item)
            seen.setdefault(repr([where.get(n) for n in (*alternatives, *others)]), set()).add(x)
    return others if any(len(xs) > 1 for xs in seen.values()) else []  # else they are tied to `over`


def _series_key(where: Json, alternatives: Sequence[str], panels: Sequence[str]) -> tuple[str, str]:
    panel = wording.label({n: where[n] for n in panels if n in where}, "")
    return panel, wording.label({n: where[n] for n in alternatives if n in where}, "")


def _add_predictions(
    analysis: Json, fit: Json | None, points: list[_Point], position: Callable[[Json], float | None]
) -> None:
    """Adds what `fit` predicts to `points`, and marks the points that were held out of it."""
    if fit is None:
        return
    ours = [p for p in analysis.get("predictions", ())
            if p.get("fit") == fit.get("name") and (p.get("group") or {}) == (fit.get("group") or {})]  # fmt: skip
    for prediction in ours:
        x, y = position(_where(prediction)), finite(prediction.get("value"))
        if x is None or y is None:
            continue
        for index, point in enumerate(points):
            if prediction.get("held_out") and point.kind == "measured" and math.isclose(point.x, x, rel_tol=1e-9):
                points[index] = replace(point, kind="held_out")
        points.append(_Point(x, y, finite(prediction.get("lo")), finite(prediction.get("hi")), "predicted"))


def _positions(results: pl.DataFrame, over: str) -> Callable[[Json], float | None]:
    """Where a place lies on the axis `over`: its coordinate, or the mean of that column over its runs."""
    rows = list(results.iter_rows(named=True)) if over in results.columns else []
    indices: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = {}

    def index(names: tuple[str, ...]) -> dict[tuple[str, ...], list[float]]:
        if names not in indices:
            made = indices.setdefault(names, {})
            for row in rows:
                if (value := finite(row[over])) is not None:
                    made.setdefault(tuple(wording.plain(row[n]) for n in names), []).append(value)
        return indices[names]

    def position(where: Json) -> float | None:
        if over in where:
            return finite(where[over])
        names = tuple(name for name in where if name in results.columns)
        known = index(names).get(tuple(wording.plain(where[n]) for n in names), []) if names else []
        return _mean(known) if known else None

    return position


def _law_curve(fit: Json | None, points: Sequence[_Point]) -> list[tuple[float, float, float | None, float | None]]:
    """The law between the outermost points: the fit's own `curve` with its band, else the bare formula."""
    if fit is None or fit.get("status") == "refused":
        return []
    given = [(finite(c.get("x")), finite(c.get("value")), finite(c.get("lo")), finite(c.get("hi")))
             for c in fit.get("curve") or ()]  # fmt: skip
    if given:
        return [(x, y, lo, hi) for x, y, lo, hi in given if x is not None and y is not None]
    xs = [p.x for p in points]
    if not xs or min(xs) <= 0:
        return []
    try:
        law = law_over(str(fit["law"]), str(fit["over"]))
        parameters = np.array([float(fit["params"][name]["value"]) for name in law.names])
    except (AnalysisError, KeyError, TypeError):
        return []
    grid = np.geomspace(min(xs), max(xs), CURVE_POINTS)
    ys = law.value(parameters, grid)
    return [(float(x), float(y), None, None) for x, y in zip(grid, ys, strict=True) if np.isfinite(y)]


def _law_note(fit: Json | None) -> str:
    if fit is None:
        return ""
    if fit.get("status") == "refused":
        return "no law"
    exponent = (fit.get("params") or {}).get("alpha") or {}
    value = finite(exponent.get("value"))
    lo, hi = finite(exponent.get("lo")), finite(exponent.get("hi"))
    # An exponent without an interval is one that the data do not fix.
    return "" if value is None or lo is None or hi is None else f"α {wording.interval(value, lo, hi)}"


def _scale_figure(
    series: Sequence[_Series], over: str, y_title: str, *, theme: Theme, narrow: bool, log_y: bool | None
) -> go.Figure:
    points = [p for s in series for p in s.points]
    if not points:
        return message("Nothing measured to draw.", theme)
    xs, ys = [p.x for p in points], [p.y for p in points]
    log_x = min(xs) > 0
    if log_y is None:
        log_y = min(ys) > 0 and max(ys) / min(ys) > 3
    log_y = log_y and min(ys) > 0
    panels, labels = _unique(s.panel for s in series), _unique(s.label for s in series)
    figure = go.Figure()
    columns = 1 if narrow else min(len(panels), 3)
    titles = [label_text(panel, 40 if columns < 3 else 32) for panel in panels]
    frame = make_frame(figure, titles, columns, theme, panel_height(narrow))
    for one in _moved_apart(series, labels, math.log(max(xs) / min(xs)) if log_x else 0.0):
        _draw_series(figure, one, theme, labels.index(one.label), panels.index(one.panel) + 1)
    figure.update_xaxes(type="log" if log_x else "linear", range=padded(min(xs), max(xs), log_x, 0.06))
    if log_x:
        figure.update_xaxes(**log_ticks(xs, 5 if narrow or columns > 1 else 8, exact=True))
    low, high = _limits(points, log_y)
    figure.update_yaxes(type="log" if log_y else "linear", range=padded(low, high, log_y, 0.07))
    if log_y:
        figure.update_yaxes(**log_ticks([low, high], 7))
    ends = not narrow and len(panels) == 1 and len(labels) <= MOST_ENDS
    if ends:
        _end_labels(figure, series, theme, log_y)
    legend = not ends and len(labels) > 1
    if legend:
        _label_legend(figure, labels, theme)
    name_axes(figure, frame, label_text(over), "" if len(panels) == 1 else label_text(y_title))
    if len(panels) == 1:
        name_y_axis(figure, label_text(y_title), theme)
    right = 190 if ends and labels != [""] else 24
    return finish(figure, theme, frame.height, legend=labels if legend else (), narrow=narrow, right=right)


def _moved_apart(series: Sequence[_Series], labels: Sequence[str], length: float) -> list[_Series]:
    """Predictions a few pixels beside their place, since the bars of alternatives would cover each other there."""

    def shifted(one: _Series) -> _Series:
        factor = math.exp(SIDESTEP * length * (labels.index(one.label) - (len(labels) - 1) / 2))
        return replace(one, points=[replace(p, shift=factor) if p.kind == "predicted" else p for p in one.points])

    return [shifted(one) for one in series]


def _limits(points: Sequence[_Point], log: bool) -> tuple[float, float]:
    """The range of the values, stretched for intervals by at most half its own size on either side."""
    forward, back = (math.log10, _power_of_ten) if log else (float, float)
    main = [forward(p.y) for p in points]
    ends = [forward(e) for p in points for e in (p.lo, p.hi) if e is not None and (e > 0 or not log)]
    low, high = min(main), max(main)
    room = 0.5 * (high - low) or 0.1 * abs(high) or 1.0
    return back(max(min([*ends, low]), low - room)), back(min(max([*ends, high]), high + room))


def _power_of_ten(power: float) -> float:
    return float(10.0**power)


def _draw_series(figure: go.Figure, series: _Series, theme: Theme, index: int, panel: int) -> None:
    colour, symbol = look_of(theme, index)
    common: dict[str, Any] = {"legendgroup": str(index), "name": label_text(series.label or "all runs", 28),
                              "showlegend": False, **on_panel(panel)}  # fmt: skip
    if series.curve:
        _draw_law(figure, series, colour, common)
    for kind in ("measured", "held_out", "edge", "predicted"):
        points = [p for p in series.points if p.kind == kind]
        if points:
            _draw_points(figure, points, look=(colour, symbol), theme=theme, common=common)


def _label_legend(figure: go.Figure, labels: Sequence[str], theme: Theme) -> None:
    for index, label in enumerate(labels):
        colour, symbol = look_of(theme, index)
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=label_text(label or "all runs", 28), legendgroup=str(index),
            marker={"color": colour, "symbol": symbol, "size": 9}, showlegend=True)  # fmt: skip


def _draw_law(figure: go.Figure, series: _Series, colour: str, common: dict[str, Any]) -> None:
    band = [(x, lo, hi) for x, _, lo, hi in series.curve if lo is not None and hi is not None]
    if band:
        figure.add_scatter(
            x=[x for x, _, _ in band] + [x for x, _, _ in reversed(band)],
            y=[hi for _, _, hi in band] + [lo for _, lo, _ in reversed(band)],
            mode="lines", line={"width": 0}, fill="toself", fillcolor=faded(colour, 0.14), hoverinfo="skip",
            **common)  # fmt: skip
    figure.add_scatter(
        x=[c[0] for c in series.curve], y=[c[1] for c in series.curve], mode="lines", hoverinfo="skip",
        line={"color": colour, "width": 1.6}, **common)  # fmt: skip


def _draw_points(
    figure: go.Figure, points: Sequence[_Point], *, look: tuple[str, str], theme: Theme, common: Mapping[str, Any]
) -> None:
    kind, (colour, symbol) = points[0].kind, look
    shapes = {"measured": symbol, "held_out": symbol, "edge": f"{symbol}-open-dot", "predicted": "line-ew-open"}
    said = {"measured": "measured", "held_out": "measured, held out", "edge": "at the edge", "predicted": "predicted"}
    bars: dict[str, Any] = {}
    if kind != "edge" and any(p.lo is not None and p.hi is not None for p in points):
        bars["error_y"] = {
            "type": "data", "symmetric": False, "color": colour, "thickness": 1.4, "width": 4,
            "array": [max(p.hi - p.y, 0) if p.hi is not None else 0 for p in points],
            "arrayminus": [max(p.y - p.lo, 0) if p.lo is not None else 0 for p in points]}  # fmt: skip
    outlined = kind != "measured"
    figure.add_scatter(
        x=[p.x * p.shift for p in points], y=[p.y for p in points], mode="markers", hoverinfo="text",
        hovertext=[f"{common['name']}<br>{wording.number(p.x)}: {wording.interval(p.y, p.lo, p.hi)}, {said[kind]}"
                   for p in points],
        marker={"symbol": shapes[kind], "size": 9, "color": theme.paper if kind == "held_out" else colour,
                "line": {"color": colour if outlined else theme.paper, "width": 1.8 if outlined else 1}},
        **bars, **common)  # fmt: skip


def _end_labels(figure: go.Figure, series: Sequence[_Series], theme: Theme, log_y: bool) -> None:
    """Names at the right edge beside the last value of each series, moved apart where they would touch."""
    low, high = figure.layout.yaxis.range
    shown = [(i, s) for i, s in enumerate(series) if s.points and (s.label or s.note)]
    ends = [(s.curve[-1][1] if s.curve else s.points[-1].y) for _, s in shown]
    bottom = 10.0**low if log_y else low  # a law may fall below what a logarithmic axis shows
    heights = [((math.log10(max(e, bottom)) if log_y else e) - low) / (high - low) for e in ends]
    for (index, one), y in zip(shown, spread(heights, 0.13), strict=True):
        note = f"<span style='font-size:11px'>{label_text(one.note)}</span>" if one.note else ""
        name = f"<b>{label_text(one.label, 24)}</b>" if one.label else ""
        figure.add_annotation(
            xref="paper", yref="paper", x=1.015, y=y, xanchor="left", yanchor="middle", showarrow=False, align="left",
            text="<br>".join(filter(None, (name, note))),
            font={"color": look_of(theme, index)[0], "size": 13})  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """`heights` (fractions of the panel) moved so that neighbours differ by at least `gap`, order kept."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = [min(max(h, 0.03), 0.97) for h in heights]
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    over = placed[order[-1]] - 0.97 if order else 0
    if over > 0:
        placed[order[-1]] -= over
        for above, below in pairwise(reversed(order)):
            placed[below] = min(placed[below], placed[above] - gap)
    return placed


# -- transfer ----------------------------------------------------------------------------------------


def transfer(analysis: Json, *, theme: Theme = LIGHT, narrow: bool = False) -> go.Figure:
    """Drift of the optimum (a factor) and what keeping the old one costs, a line per transfer."""
    items = [t for t in analysis.get("transfer", ()) if finite(t.get("drift")) or finite(t.get("cost")) is not None]
    if not items:
        return message("No transfer could be measured.", theme)
    figure = go.Figure()
    several = len({(t["tune"], t["axis"], wording.route(t)) for t in items}) > 1
    names = [_transfer_name(t, several) for t in items]
    groups = _unique(wording.label(t.get("group") or {}) for t in items)
    titles = ["drift of the optimum", f"cost in {label_text(wording.unit(analysis))}"]
    frame = make_frame(figure, titles, 1 if narrow else 2, theme, 54 * len(items) + 14)
    _dot_ranges(figure, items)
    for row, (item, name) in enumerate(zip(items, names, strict=True)):
        colour, _ = look_of(theme, groups.index(wording.label(item.get("group") or {})))
        for panel, keys in ((1, ("drift", "lo", "hi")), (2, ("cost", "cost_lo", "cost_hi"))):
            values = [finite(item.get(key)) for key in keys]
            _draw_dot(figure, values, (row, name), colour=colour, panel=panel, theme=theme)
    for panel, nothing in ((1, 1.0), (2, 0.0)):
        figure.add_shape(
            type="line",
            x0=nothing,
            x1=nothing,
            y0=0,
            y1=1,
            line={"color": theme.faint, "width": 1, "dash": "dot"},
            **_axes_of(panel),
        )
    figure.update_yaxes(
        tickvals=[-r for r in range(len(items))], ticktext=names, range=[-len(items) + 0.4, 0.6], showgrid=False,
        automargin=True)  # fmt: skip
    if not narrow:
        figure.update_layout(yaxis2_showticklabels=False)
    return finish(figure, theme, frame.height, legend=(), narrow=narrow)


def _transfer_name(item: Json, several: bool) -> str:
    group = wording.label(item.get("group") or {}, str(item["tune"]))
    route = f"{item['tune']}, {item['axis']} {wording.route(item)}"
    return label_text(f"{group}: {route}", 48) if several else label_text(group)


def _axes_of(panel: int) -> dict[str, Any]:
    suffix = "" if panel == 1 else str(panel)
    return {"xref": f"x{suffix}", "yref": f"y{suffix} domain"}


def _draw_dot(
    figure: go.Figure, values: Sequence[float | None], row: tuple[int, str], *, colour: str, panel: int, theme: Theme
) -> None:
    (value, lo, hi), y, name = values, -row[0], row[1]
    axis = figure.layout.xaxis if panel == 1 else figure.layout.xaxis2
    if value is None or (axis.type == "log" and value <= 0):
        return
    said = wording.interval(value, lo, hi)
    figure.add_scatter(
        x=[value], y=[y], mode="markers", hoverinfo="text", hovertext=f"{name}<br>{said}",
        marker={"color": colour, "size": 9}, showlegend=False,
        error_x=_bar(value, lo, hi, colour=colour, width=5, thickness=2), **on_panel(panel))  # fmt: skip
    at = math.log10(value) if axis.type == "log" else value
    share = (at - axis.range[0]) / (axis.range[1] - axis.range[0])
    figure.add_annotation(
        x=at, y=y, yshift=17, text=said, showarrow=False, font={"size": 12, "color": theme.ink}, borderpad=1,
        bgcolor=theme.paper, xanchor="left" if share < 0.3 else "right" if share > 0.7 else "center",
        xref=on_panel(panel)["xaxis"], yref=on_panel(panel)["yaxis"])  # fmt: skip


def _dot_ranges(figure: go.Figure, items: Sequence[Json]) -> None:
    drifts = [v for t in items for k in ("drift", "lo", "hi") if (v := finite(t.get(k))) is not None and v > 0] + [1.0]
    costs = [v for t in items for k in ("cost", "cost_lo", "cost_hi") if (v := finite(t.get(k))) is not None] + [0.0]
    wide = max(max(drifts) / min(drifts), 1.5)
    figure.update_layout(
        xaxis={"type": "log", "range": padded(min(drifts), min(drifts) * wide, True, 0.22),
               **_factor_ticks(min(drifts), max(drifts))},
        xaxis2={"range": padded(min(costs), max(costs) or 1, False, 0.22), "nticks": 5})  # fmt: skip


def _factor_ticks(low: float, high: float) -> dict[str, Any]:
    steps = [a * 10**p for p in range(-6, 7) for a in (1, 2, 5)]
    inside = [s for s in steps if low / 1.4 <= s <= high * 1.4]
    if len(inside) > 6:
        inside = [10.0**p for p in range(-6, 7) if low / 1.4 <= 10.0**p <= high * 1.4]
    return {"tickvals": inside, "ticktext": [f"×{wording.plain(float(s))}" for s in inside]}


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Distinct values, numbers in ascending order first."""
    distinct = list({wording.plain(v): v for v in values}.values())
    return sorted(distinct, key=lambda v: (finite(v) is None, finite(v) or 0.0))


def _main_axis(analysis: Json, tune: str) -> str:
    """The axis whose scales are told apart by colour: one that transfer is asked over, else the longest."""
    optima = [o for o in analysis.get("optima", ()) if o["tune"] == tune]
    values: dict[str, set[str]] = {}
    for optimum in optima:
        for name, value in (optimum.get("at") or {}).items():
            values.setdefault(name, set()).add(wording.plain(value))
    if not values:
        return ""
    asked = [t["axis"] for t in analysis.get("transfer", ()) if t["tune"] == tune and t["axis"] in values]
    return str(asked[0]) if asked else max(values, key=lambda name: len(values[name]))


def _optimum_axes(analysis: Json) -> list[tuple[str, str]]:
    """(tune, axis) pairs with something to show: more than one scale."""
    pairs = []
    for tune in _unique(str(o["tune"]) for o in analysis.get("optima", ())):
        fitted = [f["over"] for f in _over_one(analysis) if f.get("of") == f"{tune}.optimum"]
        axis = _main_axis(analysis, tune)
        pairs += [(tune, over) for over in _unique([*fitted, *([axis] if axis else [])])]
    return pairs


def _metric_axes(analysis: Json) -> list[str]:
    of = analysis.get("of")
    fitted = [f["over"] for f in _over_one(analysis) if f.get("of") == of]
    if fitted or several(analysis):
        return _unique(fitted)
    return _unique(
        name for item in _measured(analysis) for name, value in (item.get("at") or {}).items() if finite(value)
    )[:1]


def _over_one(analysis: Json) -> list[Json]:
    """The fits whose law is over one input: those that a curve shows."""
    return [f for f in analysis.get("fits", ()) if isinstance(f.get("over"), str)]
