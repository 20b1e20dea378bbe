"""Profiles at equal compute as a figure: loss against size, one line a budget, the best size of each marked."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from scaling import wording
from scaling.canvas import (
    Theme,
    finish,
    label_text,
    log_ticks,
    make_frame,
    message,
    name_axes,
    name_y_axis,
    on_panel,
    padded,
    panel_height,
    ramp_colours,
)
from scaling.wording import Json, finite

MOST_PANELS = 9


def profile_figure(analysis: Json, *, theme: Theme, narrow: bool) -> go.Figure:
    """One panel for each alternative; hollow marks are best sizes that are not bracketed."""
    sets = [s for s in analysis.get("isoflop", ()) if s.get("profiles")][:MOST_PANELS]
    sizes = [x for s in sets for p in s["profiles"] for x in p.get("sizes", ())]
    losses = [y for s in sets for p in s["profiles"] for y in p.get("losses", ())]
    if not sizes:
        return message("No profiles at equal compute.", theme)
    budgets = sorted({p["budget"] for s in sets for p in s["profiles"]})
    colours = dict(zip(budgets, ramp_colours(theme, len(budgets)), strict=True))
    figure = go.Figure()
    columns = 1 if narrow else min(len(sets), 3)
    titles = [label_text(wording.label(s.get("group") or {}, "")) for s in sets]
    frame = make_frame(figure, titles, columns, theme, panel_height(narrow))
    for number, one in enumerate(sets, 1):
        for profile in one["profiles"]:
            _draw(figure, profile, colours[profile["budget"]], number)
    figure.update_xaxes(type="log", range=padded(min(sizes), max(sizes), True, 0.05), **log_ticks(sizes, 6))
    log = max(losses) / min(losses) > 3 if min(losses) > 0 else False
    figure.update_yaxes(type="log" if log else "linear", range=padded(min(losses), max(losses), log, 0.06))
    if log:
        figure.update_yaxes(**log_ticks([min(losses), max(losses)], 6))
    of = str(analysis.get("of", ""))
    name_axes(figure, frame, "n_params", "" if len(sets) == 1 else label_text(of))
    if len(sets) == 1:
        name_y_axis(figure, label_text(of), theme)
    return finish(figure, theme, frame.height, legend=[], narrow=narrow)


def _draw(figure: go.Figure, profile: Json, colour: str, number: int) -> None:
    budget = wording.number(profile["budget"])
    points = list(zip(profile["sizes"], profile["losses"], strict=True))
    place = on_panel(number)
    figure.add_trace(go.Scatter(
        x=[x for x, _ in points], y=[y for _, y in points], mode="markers", marker={"size": 5, "color": colour},
        opacity=0.6, hovertemplate=f"{budget} FLOP<br>n_params %{{x:.4g}}: %{{y:.5g}}<extra></extra>",
        showlegend=False, **place))  # fmt: skip
    curve = profile.get("curve")
    if curve:
        figure.add_trace(go.Scatter(
            x=curve["x"], y=curve["y"], mode="lines", line={"color": colour, "width": 1.6}, hoverinfo="skip",
            showlegend=False, **place))  # fmt: skip
    size, loss = (finite((profile.get(k) or {}).get("value")) for k in ("n_params", "loss"))
    if size is None or loss is None or not math.isfinite(size):
        return
    marker = {"size": 11, "symbol": "star" if profile.get("status") == "ok" else "star-open", "color": colour}
    figure.add_trace(go.Scatter(
        x=[size], y=[loss], mode="markers", marker=marker, showlegend=False,
        hovertemplate=f"best at {budget} FLOP<br>n_params %{{x:.4g}}: %{{y:.5g}}<extra></extra>", **place))  # fmt: skip
