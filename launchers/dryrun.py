"""`--dry-run`: what a sweep would do and cost, with nothing started, created or changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from db.store import RunStatus
from launchers.cost import Speed
from launchers.plan import Plan, coordinates
from launchers.progress import duration

MAX_ROWS = 40
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def preview(plan: Plan, statuses: Mapping[str, RunStatus], speed: Speed | None, workers: int) -> dict[str, Any]:
    """Cells, costs and totals as plain data; `statuses` holds the runs that are already in the store."""
    cells = []
    for cell, run in plan.cells:
        facts = plan.runs[run].facts
        cells.append(
            {
                "run": run,
                "coords": cell.coords,
                "derived": cell.derived,
                "status": statuses[run].status if run in statuses else "new",
                **{name: facts.get(name) for name in ("n_params", "tokens", "flops", "bytes")},
                "seconds": speed.seconds(facts.get("flops")) if speed else None,
            }
        )
    todo = list({c["run"]: c for c in cells if c["status"] not in ("done", "diverged", "failed")}.values())
    seconds = _total(todo, "seconds")
    return {
        "schema": 1,
        "sweep": plan.name,
        "cells": cells,
        "infeasible": [{"coords": cell.coords, "reason": cell.reason} for cell in plan.infeasible],
        "total": {
            "cells": len(cells),
            "runs": len(plan.runs),
            "statuses": dict(Counter(c["status"] for c in {c["run"]: c for c in cells}.values())),
            "to_run": len(todo),
            "workers": workers,
            "flops": _total(todo, "flops"),
            "tokens": _total(todo, "tokens"),
            "bytes": _total(todo, "bytes"),
            "run_seconds": seconds,
            "wall_seconds": None if seconds is None else seconds / workers,
        },
        "speed_from_runs": speed.n_runs if speed else 0,
    }


def _total(cells: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [cell[name] for cell in cells]
    return None if any(value is None for value in values) else float(sum(values))


def render(console: Console, plan: Plan, data: Mapping[str, Any]) -> None:
    """Print a preview: a row for each scale and alternative, the totals, and what is infeasible."""
    total = data["total"]
    console.print(Text(plan.name, style="bold"), Text(plan.loaded.spec.question or ""))
    console.print(_table(plan, data["cells"]))
    console.print(f"{total['cells']} cells, {total['runs']} runs: {_counts(total['statuses'])}", highlight=False)
    console.print(Text("to run: " + _costs(data)))
    _render_infeasible(console, data["infeasible"])


def _table(plan: Plan, cells: list[dict[str, Any]]) -> Table:
    spec = plan.loaded.spec
    shown = [name for name in cells[0]["coords"] if name in spec.axes or name in spec.compare]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        groups[tuple(cell["coords"][name] for name in shown)].append(cell)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        table.add_column(name, overflow="fold")
    for name in ("cells", "n_params", "tokens", "FLOPs", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for key, members in list(groups.items())[:MAX_ROWS]:
        ranges = [_range([m[name] for m in members]) for name in ("n_params", "tokens", "flops")]
        times = _range([m["seconds"] for m in members], duration)
        table.add_row(
            *(Text(f"{value:.6g}" if isinstance(value, float) else str(value)) for value in key),
            str(len(members)),
            *ranges,
            times,
        )
    if len(groups) > MAX_ROWS:
        table.add_row(f"… {len(groups) - MAX_ROWS} more (--json lists all)")
    return table


def _range(values: list[float | None], form: Callable[[float], str] | None = None) -> str:
    form = form or quantity
    known = [value for value in values if value is not None]
    if not known:
        return "?"
    low, high = form(min(known)), form(max(known))
    return low if low == high else f"{low}–{high}"


def quantity(value: float) -> str:
    """Three digits and a prefix: `1.54 M`, `812`, `4.1 T`."""
    step = 0
    while abs(value) >= 999.5 and step < len(_PREFIXES) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.3g} {_PREFIXES[step]}".rstrip()


def _counts(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


def _costs(data: Mapping[str, Any]) -> str:
    total = data["total"]
    if not total["to_run"]:
        return "nothing, all runs have ended"
    parts = [f"{total['to_run']} runs"]
    for name, unit in (("flops", "FLOPs"), ("tokens", "tokens"), ("bytes", "B on disk")):
        if total[name] is not None:
            number = quantity(total[name])
            parts.append(f"{number}{unit}" if number[-1].isalpha() and unit.startswith("B") else f"{number} {unit}")
    if total["wall_seconds"] is None:
        parts.append("time unknown until 3 runs of this task have ended here")
    else:
        parts.append(
            f"about {duration(total['wall_seconds'])} on {total['workers']} workers "
            f"(from {data['speed_from_runs']} earlier runs)"
        )
    return ", ".join(parts)


def _render_infeasible(console: Console, infeasible: list[dict[str, Any]]) -> None:
    if not infeasible:
        return
    reasons: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in infeasible:
        reasons[cell["reason"]].append(cell["coords"])
    console.print(f"{len(infeasible)} cells are infeasible and will not run:", highlight=False)
    for reason, coords in list(reasons.items())[:10]:
        console.print(Text(f"  {len(coords)} × {reason}, e.g. {coordinates(coords[0])}"))
    if len(reasons) > 10:
        console.print(f"  … {len(reasons) - 10} more reasons (--json lists all)")
