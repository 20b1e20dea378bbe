"""Answers in sentences for a person, and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaling.answers.allocate import Allocation, Off
from scaling.answers.invert import Inversion
from scaling.answers.leverage import Leverage, Point
from scaling.fits import Predictions
from scaling.intervals import Interval
from scaling.wording import clean, interval, joined, number, plain

PARAMETERS_AND_TOKENS = {"n_params", "tokens"}


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def unit_of(cost: str) -> str:
    """What a cost is counted in: FLOP for one over n_params and tokens, else its own text."""
    if cost == "flops" or all(name in cost for name in PARAMETERS_AND_TOKENS):
        return "FLOP"
    return clean(cost)


def shown(x: Interval | None) -> str:
    """`7.3e10 [5.2e10, 1.1e11]`; an end that is missing alone is a dash."""
    if x is None:
        return "–"
    if (x.lo is None) == (x.hi is None):
        return interval(x.value, x.lo, x.hi)
    return f"{number(x.value)} [{number(x.lo)}, {number(x.hi)}]"


def percent(x: Interval) -> str:
    return shown(x.map(lambda v: 100 * v)) + " %"


# -- allocate --------------------------------------------------------------------------------------


def allocation_sentences(a: Allocation, of: str = "response") -> list[str]:
    """What to take, what it gives, what being off costs, and what to be careful about."""
    head = f"{clean(a.law)} at {number(a.budget)} {unit_of(a.cost)}"
    if a.status == "refused" or a.response is None:
        return [f"{head}: no allocation.", *map(clean, a.why)]
    values = joined([f"{clean(i.name)} {shown(i.value)}{_role(i.role)}" for i in a.inputs])
    ratios = "".join(f", {shown(r.value)} {clean(r.over)} per {clean(r.under)}" for r in a.ratios)
    sentences = [f"{head}: {values}{ratios}.", f"Predicted {clean(of)}: {shown(a.response)} ({a.basis})."]
    sentences += _off_sentences(a.off)
    if a.regret is not None and a.regret.hi is not None:
        sentences.append(
            f"Against the unknown optimum these values lose {number(a.regret.value)} on average, "
            f"at most {number(a.regret.hi)} ({a.level:.0%})."
        )
    return [*sentences, *map(clean, a.why)]


def _role(role: str) -> str:
    return {"given": " (given)", "upper limit": " (limit)", "lower limit": " (limit)"}.get(role, "")


def _off_sentences(off: Sequence[Off]) -> list[str]:
    if not off:
        return []
    parts = [
        clean(name)
        + " "
        + joined([f"{'half' if o.factor < 1 else 'twice'} {percent(o.share)}" for o in off if o.name == name])
        for name in dict.fromkeys(o.name for o in off)
    ]
    return [f"Being off by 2 at this budget costs, of the response: {'; '.join(parts)}."]


def allocation_sheets(a: Allocation) -> list[Sheet]:
    inputs = tuple(
        (clean(i.name), shown(i.value), i.role, "" if i.exponent is None else shown(i.exponent)) for i in a.inputs
    )
    ratios = tuple((f"{clean(r.over)} / {clean(r.under)}", shown(r.value), "", "") for r in a.ratios)
    sheets = [Sheet(f"At {number(a.budget)} {unit_of(a.cost)}", ("", "value", "", "exponent in cost"), inputs + ratios)]
    if a.off:
        rows = tuple((clean(o.name), f"×{o.factor:g}", number(o.value), percent(o.share)) for o in a.off)
        sheets.append(Sheet("What being off costs", ("input", "factor", "value", "of the response"), rows))
    return sheets


# -- invert ----------------------------------------------------------------------------------------


def inversion_sentences(x: Inversion, of: str = "response") -> list[str]:
    """What it takes to reach the target, or that it can't be reached."""
    axis = unit_of(x.axis)
    goal = f"{clean(of)} {number(x.target)}" + ("" if x.within is None else f" ({x.within:.3g} from the best)")
    if x.value is None:
        head = f"{goal}: no {axis} is given."
    else:
        rest = joined([f"{clean(n)} {shown(v)}" for n, v in x.inputs.items() if n != x.axis])
        verb = "takes at least" if x.side == "smallest" else "holds up to"
        head = f"{goal} {verb} {shown(x.value)} {axis}" + (f", with {rest}." if rest else ".")
    return [head, *map(clean, x.why)]


# -- leverage --------------------------------------------------------------------------------------


def direction(x: Leverage, ratio: Interval, of: str = "response") -> str:
    """`hyperp needs 1.58 [1.49, 1.66] times less FLOP than muon for the same val_loss`."""
    a, b, unit = clean(x.a), clean(x.b), unit_of(x.cost)
    if ratio.value >= 1:
        return f"{b} needs {shown(ratio)} times less {unit} than {a} for the same {clean(of)}"
    return f"{b} needs {shown(ratio.map(lambda v: 1 / v))} times more {unit} than {a} for the same {clean(of)}"


def leverage_sentences(x: Leverage, of: str = "response") -> list[str]:
    known = [p for p in x.curve if p.ratio is not None]
    made = []
    if x.constant is not None:
        made.append(f"With floor and exponents shared {direction(x, x.constant, of)}, at any {clean(of)}.")
    for p in dict.fromkeys((known[0], known[-1]) if known else ()):
        assert p.ratio is not None
        made.append(f"At {clean(of)} {number(p.response)} {direction(x, p.ratio, of)}{_outside(p)}.")
    if not known:
        made.append(f"No leverage of {clean(x.b)} over {clean(x.a)} is given.")
    return [*made, *map(clean, x.why)]


def _outside(p: Point) -> str:
    return f" (beyond the rows of {joined([clean(name) for name in p.outside])})" if p.outside else ""


def leverage_sheets(x: Leverage, of: str = "response", most: int = 9) -> list[Sheet]:
    heads = (clean(of), f"{unit_of(x.cost)} of {clean(x.a)}", f"of {clean(x.b)}", "ratio", "beyond the rows of")
    parts = (
        (f"{clean(x.a)} against {clean(x.b)}, by their laws", x.curve[:: max(1, (len(x.curve) - 1) // (most - 1))]),
        (f"measured {clean(x.a)} against the law of {clean(x.b)}", x.from_a),
        (f"the law of {clean(x.a)} against measured {clean(x.b)}", x.from_b),
    )
    return [
        Sheet(title, heads, tuple(
            (number(p.response), number(p.cost_a), number(p.cost_b), shown(p.ratio), ", ".join(map(clean, p.outside)))
            for p in points
        ))
        for title, points in parts if points
    ]  # fmt: skip


# -- predict ---------------------------------------------------------------------------------------


def prediction_sheet(places: Sequence[dict[str, float]], found: Predictions, of: str) -> Sheet:
    names = tuple(places[0])
    los, his = (found.value * float("nan") if v is None else v for v in (found.lo, found.hi))
    rows = tuple(
        (*(plain(at[n]) for n in names), interval(float(v), float(lo), float(hi)))
        for at, v, lo, hi in zip(places, found.value, los, his, strict=True)
    )
    return Sheet(f"Predicted {clean(of)}", (*map(clean, names), clean(of)), rows)
