"""The report of a sweep: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from scaling import wording
from scaling.wording import Table, clean

if TYPE_CHECKING:
    from scaling.figures import Drawing
    from sweeps.schema import Spec

TEMPLATE = "report.html.j2"
WIDTH_OF_PHONES = 560  # CSS pixels; below, figures stack their panels
WIDTH_OF_PAPER = 680  # CSS pixels of a figure on A4 or letter paper with the margins of the style sheet

# Draws every figure, again when the scheme or the width class changes, and light on paper.
SCRIPT = """
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: %dpx)");
  const options = {displayModeBar: false, responsive: true, showLink: false};
  const figures = [...document.querySelectorAll("script[data-figure]")].map((source) =>
    [document.getElementById(source.dataset.figure), JSON.parse(source.textContent)]);
  const draw = (paper) => figures.forEach(([place, variants]) => {
    const kind = (dark.matches && !paper ? "dark" : "light") + (narrow.matches && !paper ? "_narrow" : "");
    const {data, layout} = structuredClone(variants[kind]);
    if (paper) layout.width = %d;
    Plotly.react(place, data, layout, options);
  });
  for (const query of [dark, narrow]) query.addEventListener("change", () => draw(false));
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw(false));
  draw(matchMedia("print").matches);
})();
""" % (WIDTH_OF_PHONES, WIDTH_OF_PAPER)  # noqa: UP031 - the braces of JavaScript would need doubling


def write_report(analysis: Any, spec: Spec, results: pl.DataFrame, path: Path, facts: Mapping[str, Any]) -> Path:
    """Writes the report of a sweep to `path`, whole or not at all, and returns `path`.

    `analysis`: an `Analysis` or its `to_json()`. `results`: the rows it was made from (figures show single runs).
    `facts`: what else is known, each optional: `infeasible` (pairs of coordinates and reason), `spec_text`,
    `spec_path`, `command` (reproduces the sweep), `store` (URL), `code` ({commit, dirty}), `packages`
    ({name: version}), `date` (datetime or text; now by default), `theory` ({alternative: sentence}). Other entries
    are listed under their own names.

    Raises OSError where `path` can't be written and ValueError for an analysis of another schema.
    """
    text = render(analysis, spec, results, facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    return path


def render(analysis: Any, spec: Spec, results: pl.DataFrame, facts: Mapping[str, Any]) -> str:
    """The report as HTML text; see `write_report`."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from scaling import canvas, figures

    data = wording.as_json(analysis)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["kept"] = _kept
    template = environment.from_string(resources.files("scaling").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    plotly = get_plotlyjs()
    drawn = figures.drawings(data, results, facts.get("theory"))
    return template.render(
        name=clean(spec.name),
        question=clean(spec.question) if spec.question else "",
        answer=wording.answer(data),
        runs=wording.runs_sentence(data),
        level=wording.level(data),
        figures=[_figure(number, drawing) for number, drawing in enumerate(drawn, 1)],
        tables=wording.tables(data),
        notes=[clean(str(note)) for note in data.get("notes", ())],
        infeasible=_infeasible(facts.get("infeasible") or ()),
        provenance=_provenance(spec, facts),
        command=facts.get("command"),
        spec_text=facts.get("spec_text"),
        version=_version(),
        plotly=Markup(plotly),  # a file of the plotly package
        script=Markup(SCRIPT),  # ours, constant
        script_hashes=Markup(" ".join(map(_hash, (plotly, SCRIPT)))),  # base64 of a hash
        light=canvas.LIGHT,
        dark=canvas.DARK,
        font=Markup(canvas.FONT),  # ours, constant
    )


def _figure(number: int, drawing: Drawing) -> dict[str, Any]:
    from markupsafe import Markup

    from scaling.canvas import DARK, LIGHT

    variants = {
        theme.name + ("_narrow" if narrow else ""): json.loads(drawing.draw(theme, narrow).to_json())
        for theme in (LIGHT, DARK)
        for narrow in (False, True)
    }
    text = json.dumps(variants, separators=(",", ":"), allow_nan=False)
    return {
        "id": f"figure-{number}",
        "title": drawing.title,
        "caption": drawing.caption,
        "json": Markup(text.replace("<", "\\u003c")),  # JSON that can't close its element
    }


def _kept(text: str) -> str:
    """`text` whose intervals and errors are not broken over lines."""
    text = re.sub(r"\[[^][]*\]", lambda found: found[0].replace(" ", "\u00a0"), text)
    return text.replace(" ± ", "\u00a0±\u00a0")


def _hash(script: str) -> str:
    """The name of a script in the content policy: no other script of the file may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _infeasible(pairs: Sequence[tuple[Mapping[str, Any], str]]) -> Table | None:
    if not pairs:
        return None
    names = list(dict.fromkeys(name for coords, _ in pairs for name in coords))
    reasons: dict[str, list[Mapping[str, Any]]] = {}
    for coords, reason in pairs:
        reasons.setdefault(reason, []).append(coords)
    rows = [
        (str(len(cells)), clean(reason), *(_distinct(name, cells) for name in names))
        for reason, cells in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    caption = "Ruled out by a condition of the spec or by the task; nothing was trained for them."
    return Table("infeasible", f"{len(pairs)} infeasible {'cell' if len(pairs) == 1 else 'cells'}", caption,
                 ("cells", "reason", *map(clean, names)), tuple(rows), 2, frozenset({0}))  # fmt: skip


def _distinct(name: str, cells: Sequence[Mapping[str, Any]], limit: int = 6) -> str:
    """The values of a coordinate that occur in `cells`, the first few of them."""
    values = list(dict.fromkeys(wording.plain(coords[name]) for coords in cells if name in coords))
    return ", ".join(values[:limit]) + (f", … ({len(values)})" if len(values) > limit else "")


def _provenance(spec: Spec, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of the report's origin, as terms and texts."""
    date = facts.get("date") or datetime.now(UTC)
    rows = [
        ("Task", spec.task),
        ("Spec", facts.get("spec_path")),
        ("Code", _code(facts.get("code"))),
        ("Packages", ", ".join(f"{name} {version}" for name, version in (facts.get("packages") or {}).items())),
        ("Store", facts.get("store")),
        ("Date", f"{date:%Y-%m-%d %H:%M} {date.tzname() or ''}".strip() if isinstance(date, datetime) else date),
    ]
    known = {"infeasible", "spec_text", "spec_path", "command", "store", "code", "packages", "date", "theory"}
    rows += [(name.replace("_", " ").capitalize(), value) for name, value in facts.items() if name not in known]
    return [(clean(term), clean(str(text))) for term, text in rows if text not in (None, "")]


def _code(code: Mapping[str, Any] | None) -> str | None:
    if not code or not code.get("commit"):
        return "not under version control" if code else None
    changed = {True: " with uncommitted changes", False: "", None: ""}[code.get("dirty")]
    return f"commit {code['commit']}{changed}"


def _version() -> str:
    try:
        return metadata.version("sweeplaw")
    except metadata.PackageNotFoundError:
        return ""
