"""What the commands of questions share: reading numbers and places, choosing a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from scaling.answers.asked import Goal, Limit
from scaling.errors import AnalysisError, nearest
from scaling.findings import LawFit, point_text
from sweeps.scalars import parse_number

Law = Annotated[
    str | None, typer.Option(help="Name of the fit, where the spec has several.", show_default=False)
]  # fmt: skip
Group = Annotated[
    list[str] | None,
    typer.Option(help="Which group of it, as key=value, such as rule=hyperp.", show_default=False),
]
Level = Annotated[
    float | None,
    typer.Option(min=0.5, max=0.999, help="Coverage of the intervals. (default: the spec's)", show_default=False),
]
Given = Annotated[list[str] | None, typer.Option("--at", help="A given input, as name=value.", show_default=False)]
CostText = Annotated[
    str | None,
    typer.Option("--cost", help="Cost over the inputs. (default: 6*n_params*tokens)", show_default=False),
]
Most = Annotated[list[str] | None, typer.Option("--limit", help="The largest value of an input, as name=value.",
                                                show_default=False)]  # fmt: skip
Least = Annotated[list[str] | None, typer.Option("--least", help="The smallest value of an input, as name=value.",
                                                 show_default=False)]  # fmt: skip
Multiple = Annotated[
    list[str] | None,
    typer.Option("--multiple", help="An input takes multiples of this, as name=value.", show_default=False),
]


@dataclass(frozen=True)
class Chosen:
    """A fit of a spec, and which end of its response is good."""

    found: LawFit
    goal: Goal


def number(text: str) -> float:
    """A number as people write it: 1e12, 70B, 2**20, 0.5.

    >>> number("70B")
    70000000000.0
    """
    value = parse_number(text)
    if value is None or not math.isfinite(value):
        raise AnalysisError(f"{text!r} is no number; write it as 1e12, 70B or 2**20.")
    return value


def named_numbers(option: str, texts: Sequence[str] | None) -> dict[str, float]:
    """`name=value` arguments as a mapping. Raises AnalysisError naming the option."""
    return {name: _one(option, name, value) for name, value in _pairs(option, texts)}


def places(texts: Sequence[str] | None) -> list[dict[str, float]]:
    """Places of `--at name=value` arguments; a list `name=1e9,2e9` gives one place for each value."""
    names = {name: [_one("--at", name, v) for v in value.split(",")] for name, value in _pairs("--at", texts)}
    return [dict(zip(names, combination, strict=True)) for combination in product(*names.values())]


def _pairs(option: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise AnalysisError(f"{option} {text!r}: expected name=value, such as tokens=1e12.")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _one(option: str, name: str, text: str) -> float:
    try:
        return number(text)
    except AnalysisError as error:
        raise AnalysisError(f"{option} {name}={text}: {error}") from None


def limits_of(
    most: Sequence[str] | None, least: Sequence[str] | None = None, multiple: Sequence[str] | None = None
) -> dict[str, Limit]:
    """Limits of the options --limit, --least and --multiple."""
    low, high, step = (
        named_numbers(option, texts)
        for option, texts in (("--least", least), ("--limit", most), ("--multiple", multiple))
    )
    return {n: Limit(low.get(n), high.get(n), step.get(n)) for n in {**high, **low, **step}}


def chosen(
    spec: Path,
    overrides: Sequence[str] | None,
    home: Path,
    db: str | None,
    wanted: Sequence[tuple[str | None, Sequence[str] | None]],
) -> list[Chosen]:
    """The fits of `spec` that are meant, one for each pair of a name and a group.

    Raises AnalysisError that lists the fits when there are several and too little is named.
    """
    from scaling.sources import analysis_of

    names = [law for law, _ in wanted if law is not None]
    analysis = analysis_of(spec, overrides or (), home, db, names if len(names) == len(wanted) else ())
    fits = [pick(analysis.fits, law, group) for law, group in wanted]
    return [Chosen(f, "max" if analysis.goal == "max" and f.of == analysis.of else "min") for f in fits]


def pick(fits: Sequence[LawFit], law: str | None, group: Sequence[str] | None) -> LawFit:
    """The one fit named `law` (or of that law) in `group`, given as key=value texts."""
    found = list(fits)
    if not found:
        raise AnalysisError("the spec's results have no fit.")
    if law is not None:
        found = [f for f in found if law in (f.name, f.fit.law.name)]
        if not found:
            names = {f.name for f in fits} | {f.fit.law.name for f in fits}
            raise AnalysisError(f"no fit is named {law!r}.{nearest(law, names)}")
    for key, value in _pairs("--group", group):
        keys = {k for f in found for k in f.group}
        if key not in keys:
            raise AnalysisError(f"--group {key}={value}: the fits have no group {key!r}.{nearest(key, keys)}")
        kept = [f for f in found if str(f.group.get(key)) == value]
        if not kept:
            values = {str(f.group.get(key)) for f in found}
            raise AnalysisError(f"--group {key}={value}: no fit has it.{nearest(value, values)}")
        found = kept
    if len(found) > 1:
        listed = "; ".join(title(f) for f in found)
        raise AnalysisError(f"{len(found)} fits are there: {listed}. Name one with --law, its group with --group.")
    return found[0]


def title(f: LawFit) -> str:
    """`chinchilla of val_loss over n_params, tokens (rule hyperp)`."""
    where = f" ({point_text(f.group)})" if f.group else ""
    return f"{f.name} of {f.of} over {f.fit.law.over}{where}"
