"""What every figure is drawn on: colours, fonts, panels, axes, and labels that are text, never markup."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from scaling import wording

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
PANEL, NARROW_PANEL = 300, 230  # height of a panel, pixels
GAP = 84  # between rows of panels, pixels
GAP_SHARE = 0.05  # between columns of panels, of the width


@dataclass(frozen=True)
class Theme:
    """Colours of one scheme; `ramp` runs from the smallest scale to the largest."""

    name: str
    paper: str
    ink: str
    faint: str
    grid: str
    ramp: tuple[str, ...]
    alternatives: tuple[str, ...]


# Alternatives after Okabe and Ito (2008); the ramps keep their order in grey and for colour-blind eyes.
LIGHT = Theme(
    "light", "#ffffff", "#1c2026", "#68717d", "#e7e9ed",
    ("#4aa074", "#2b8a94", "#2a6494", "#2b3d78", "#20154a"),
    ("#0072b2", "#d55e00", "#009e73", "#b4548c", "#b07d00", "#4a4f57"),
)  # fmt: skip
DARK = Theme(
    "dark", "#14171c", "#e6e8eb", "#9aa3af", "#2a2f37",
    ("#3e6fb0", "#3d9cc0", "#55c3b0", "#a3de9a", "#f3f0a5"),
    ("#5fb0ea", "#f2925a", "#3fcaa2", "#e39ac6", "#e9bf55", "#b9bec6"),
)  # fmt: skip
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "hexagon")


def look_of(theme: Theme, index: int) -> tuple[str, str]:
    """Colour and symbol of an alternative; the pairs repeat only after 36."""
    colours = len(theme.alternatives)
    return theme.alternatives[index % colours], SYMBOLS[(index + index // colours) % len(SYMBOLS)]


@dataclass(frozen=True)
class Frame:
    """A grid of panels; sizes in pixels."""

    panels: int
    rows: int
    columns: int
    panel: int

    @property
    def height(self) -> int:
        return self.rows * self.panel + (self.rows - 1) * GAP


def make_frame(figure: go.Figure, titles: Sequence[str], columns: int, theme: Theme, panel: int) -> Frame:
    """Panels in a grid, each with its title (markup) at the upper left; outer axes carry the labels."""
    frame = Frame(len(titles), math.ceil(len(titles) / columns), columns, panel)
    wide = (1 - GAP_SHARE * (columns - 1)) / columns
    tall, gap = panel / frame.height, GAP / frame.height
    for number, title in enumerate(titles, 1):
        row, column = divmod(number - 1, columns)
        left, top = column * (wide + GAP_SHARE), 1 - row * (tall + gap)
        suffix = "" if number == 1 else str(number)
        figure.update_layout({
            f"xaxis{suffix}": {"domain": [left, left + wide], "anchor": f"y{suffix}"},
            f"yaxis{suffix}": {"domain": [max(top - tall, 0), top], "anchor": f"x{suffix}",
                               "showticklabels": column == 0},
        })  # fmt: skip
        if title:
            figure.add_annotation(
                xref="paper", yref="paper", x=left, y=top, yshift=8, xanchor="left", yanchor="bottom",
                text=f"<b>{title}</b>", showarrow=False, font={"size": 13, "color": theme.ink})  # fmt: skip
    return frame


def on_panel(number: int) -> dict[str, str]:
    suffix = "" if number == 1 else str(number)
    return {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}


def name_axes(figure: go.Figure, frame: Frame, x: str, y: str) -> None:
    for number in range(1, frame.panels + 1):
        suffix = "" if number == 1 else str(number)
        figure.update_layout({f"xaxis{suffix}_title_text": x})
        if (number - 1) % frame.columns == 0:
            figure.update_layout({f"yaxis{suffix}_title_text": y})


def name_y_axis(figure: go.Figure, text: str, theme: Theme) -> None:
    """The name of the vertical axis above it, to be read without turning the head."""
    figure.add_annotation(
        xref="paper", yref="paper", x=0, y=1, xshift=-6, yshift=8, xanchor="left", yanchor="bottom", showarrow=False,
        text=text, font={"size": 12.5, "color": theme.faint})  # fmt: skip


def panel_height(narrow: bool) -> int:
    return NARROW_PANEL if narrow else PANEL


def finish(
    figure: go.Figure, theme: Theme, height: int, *, legend: Sequence[str], narrow: bool, right: int = 16
) -> go.Figure:
    """Colours, fonts and margins; `height` is that of the panels, `legend` the texts of the legend."""
    axis = {
        "gridcolor": theme.grid, "linecolor": theme.grid, "tickcolor": theme.grid, "zeroline": False,
        "ticks": "outside", "ticklen": 4, "title_font": {"color": theme.faint, "size": 12.5}, "title_standoff": 10,
        "tickfont_color": theme.faint, "automargin": True, "fixedrange": narrow,
    }  # fmt: skip
    figure.update_xaxes(**axis, showgrid=False, showline=True)
    figure.update_yaxes(**axis)
    letters = sum(len(text[:28]) + 8 for text in legend)
    rows = math.ceil(letters / (44 if narrow else 140))
    top, bottom = 36 + 12 * bool(rows) + 22 * rows, 52
    figure.update_layout(
        template="none", paper_bgcolor=theme.paper, plot_bgcolor=theme.paper, hovermode="closest",
        height=height + top + bottom,
        font={"family": FONT, "size": 12.5, "color": theme.ink}, showlegend=bool(legend),
        margin={"l": 56 if not narrow else 44, "r": right if not narrow else 10, "t": top, "b": bottom},
        hoverlabel={"bgcolor": theme.paper, "bordercolor": theme.grid, "font": {"color": theme.ink, "family": FONT}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container",
                "font": {"color": theme.ink}, "title_font_size": 12.5, "bgcolor": "rgba(0,0,0,0)", "itemclick": False,
                "itemdoubleclick": False, "itemsizing": "constant", "tracegroupgap": 0},
    )  # fmt: skip
    return figure


def message(text: str, theme: Theme) -> go.Figure:
    """A figure that says in words why it shows nothing."""
    figure = go.Figure()
    figure.add_annotation(text=label_text(text), showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper",
                          font={"color": theme.faint, "size": 14})  # fmt: skip
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(template="none", paper_bgcolor=theme.paper, plot_bgcolor=theme.paper, height=140)
    return figure


def label_text(value: Any, most: int = 40) -> str:
    """Text for a Plotly label: cut to `most` characters, its markup neutralised."""
    text = wording.clean(str(value))
    return html.escape(text if len(text) <= most else text[: most - 1] + "…", quote=False)


def log_ticks(values: Sequence[float], most: int, exact: bool = False) -> dict[str, Any]:
    """Ticks of a logarithmic axis: the values themselves if few (`exact`), powers of two, or of ten."""
    unique = sorted(set(values))
    low, high = unique[0], unique[-1]
    if exact and len(unique) <= most:
        return {"tickvals": unique, "ticktext": [wording.plain(v) for v in unique]}
    if high / low > 4000:
        powers = _stepped(math.ceil(math.log10(low) - 0.05), math.floor(math.log10(high) + 0.05), most)
        return {"tickvals": [10.0**p for p in powers], "ticktext": [f"10{_superscript(p)}" for p in powers]}
    powers = _stepped(math.ceil(math.log2(low) - 0.1), math.floor(math.log2(high) + 0.1), most)
    whole = low >= 1
    texts = [wording.plain(2**p) if whole and p < 20 else f"2{_superscript(p)}" for p in powers]
    return {"tickvals": [2.0**p for p in powers], "ticktext": texts}


def _stepped(first: int, last: int, most: int) -> list[int]:
    step = max(1, math.ceil((last - first + 1) / most))
    return [p for p in range(first, last + 1) if p % step == 0]


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def padded(low: float, high: float, log: bool, share: float) -> list[float]:
    """The range of an axis with `share` of its length added on both sides (exponents if logarithmic)."""
    if log:
        low, high = math.log10(low), math.log10(high)
    pad = share * (high - low) or (0.15 if log else 0.1 * abs(high) or 1.0)
    return [low - pad, high + pad]


def ramp_colours(theme: Theme, count: int) -> list[str]:
    """`count` colours evenly along the ramp of `theme`."""
    last = len(theme.ramp) - 1
    return [_mixed(theme.ramp, i * last / (count - 1) if count > 1 else last / 2) for i in range(count)]


def _mixed(ramp: Sequence[str], position: float) -> str:
    left = min(int(position), len(ramp) - 2)
    share = position - left
    pairs = zip(_rgb(ramp[left]), _rgb(ramp[left + 1]), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def faded(colour: str, alpha: float) -> str:
    return f"rgba({','.join(map(str, _rgb(colour)))},{alpha})"
