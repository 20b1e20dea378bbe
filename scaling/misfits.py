"""How far the rows of a law over several inputs lie from it: what a curve is for a law over one."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from scaling import wording
from scaling.canvas import (
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
)
from scaling.wording import Json, finite

MOST_PANELS = 9
WIDE = 8.0  # a range from which a logarithmic axis reads better


@dataclass(frozen=True)
class Misfit:
    """One observation: what the law says, how far the observation lies above it in per cent, and what it is."""

    fitted: float
    above: float
    label: str
    held_out: bool


def several(analysis: Json) -> list[Json]:
    """The fits of laws over several inputs that have parameters."""
    return [f for f in analysis.get("fits", ()) if isinstance(f.get("over"), list) and f.get("params")]


def misfits(analysis: Json, fit: Json) -> list[Misfit]:
    """The rows of `fit`, and the held-out values that it predicted."""
    rows = fit.get("rows") or {}
    cells = rows.get("cells") or []
    names = [str(c) for c in cells] or [""] * len(rows.get("y", ()))
    found = [
        Misfit(float(f), 100 * (float(y) / float(f) - 1), name, False)
        for f, y, name in zip(rows.get("fitted", ()), rows.get("y", ()), names, strict=False)
        if f
    ]
    for p in analysis.get("predictions", ()):
        value, observed = finite(p.get("value")), finite(p.get("observed"))
        if p.get("fit") == fit.get("name") and p.get("group") == fit.get("group") and value and observed is not None:
            found.append(Misfit(value, 100 * (observed / value - 1), wording.label(p.get("at") or {}), True))
    return found


def misfit_figure(analysis: Json, of: str, *, theme: Theme, narrow: bool) -> go.Figure:
    """Observed over fitted, less one, against the fitted value: one panel for each fit of `of`."""
    fits = [f for f in several(analysis) if f.get("of") == of][:MOST_PANELS]
    points = [misfits(analysis, f) for f in fits]
    if not any(points):
        return message("Nothing was fitted over several inputs.", theme)
    figure = go.Figure()
    columns = 1 if narrow else min(len(fits), 3)
    titles = [label_text(_title(f), 40) for f in fits]
    frame = make_frame(figure, titles, columns, theme, panel_height(narrow))
    first = {held: next((i for i, g in enumerate(points, 1) if any(m.held_out is held for m in g)), 0)
             for held in (False, True)}  # fmt: skip
    for number, group in enumerate(points, 1):
        _draw(figure, group, theme, number, first)
    xs = [m.fitted for group in points for m in group]
    ys = [m.above for group in points for m in group]
    log = min(xs) > 0 and max(xs) / min(xs) > WIDE
    figure.update_xaxes(type="log" if log else "linear", range=padded(min(xs), max(xs), log, 0.06))
    if log:
        figure.update_xaxes(**log_ticks([min(xs), max(xs)], 6))
    figure.update_yaxes(range=padded(min([*ys, 0]), max([*ys, 0]), False, 0.08), ticksuffix=" %")
    name_axes(figure, frame, label_text(f"fitted {of}"), "")
    if len(fits) == 1:
        name_y_axis(figure, label_text(f"{of} above the law"), theme)
    held = any(m.held_out for group in points for m in group)
    return finish(figure, theme, frame.height, legend=["fitted", "held out"] if held else [], narrow=narrow)


def _title(fit: Json) -> str:
    group = wording.label(fit.get("group") or {}, "")
    name = str(fit.get("name", fit.get("law", "")))
    return f"{name} · {group}" if group else name


def _draw(figure: go.Figure, group: list[Misfit], theme: Theme, number: int, first: dict[bool, int]) -> None:
    """One panel; a kind of point enters the legend with the first panel that has it."""
    figure.add_trace(go.Scatter(
        x=[min(m.fitted for m in group), max(m.fitted for m in group)], y=[0, 0], mode="lines", hoverinfo="skip",
        line={"color": theme.faint, "width": 1, "dash": "dot"}, showlegend=False, **on_panel(number)))  # fmt: skip
    colour, _ = look_of(theme, 0)
    for held in (False, True):
        part = [m for m in group if m.held_out is held]
        if not part:
            continue
        marker = {
            "size": 9 if held else 6, "symbol": "circle-open" if held else "circle",
            "color": colour if held else faded(colour, 0.55), "line": {"width": 2 if held else 0, "color": colour},
        }  # fmt: skip
        figure.add_trace(go.Scatter(
            x=[m.fitted for m in part], y=[m.above for m in part], mode="markers", marker=marker,
            name="held out" if held else "fitted", legendgroup=str(held), showlegend=number == first[held],
            text=[label_text(m.label, 60) for m in part],
            hovertemplate="%{text}<br>fitted %{x:.5g}, off by %{y:.2f} %<extra></extra>",
            **on_panel(number)))  # fmt: skip
