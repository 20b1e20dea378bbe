"""Numbers, sentences and tables of an analysis: said once, shown by the report and by the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Json = Mapping[str, Any]

DIGITS = 4  # significant digits of a number whose uncertainty is unknown
REMARKS = "\x1f"  # separates the remarks of a row; `clean` lets none through
MOST_TOLD = 3  # alternatives that one sentence can name
MOST_DIGITS = 7  # more are never shown, however narrow the interval
MOST_WHOLE = 10**8  # larger whole numbers are written with an exponent
MOST_LAWS = 5  # fits that have a sentence of their own
MOST_CELLS = 40  # measured places in a table


@dataclass(frozen=True)
class Table:
    """Rows of text under headings: the first `keys` columns say what a row is about, the others what is known.

    `numeric` holds the indices of columns that are aligned right. A number in the column `note` points to one of
    the `notes`, counted from 1.
    """

    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: int = 1
    numeric: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def as_json(analysis: Any) -> Json:
    """The JSON form of an `Analysis`; a mapping is taken as that form already."""
    data = analysis if isinstance(analysis, Mapping) else analysis.to_json()
    if data.get("schema") != 1:
        raise ValueError(f"this analysis has schema {data.get('schema')!r}, expected 1")
    return data


# -- numbers ---------------------------------------------------------------------------------------


def finite(value: Any) -> float | None:
    """`value` as a float, or None when it is absent, not a number or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def number(value: float | None, spread: float | None = None, power: int | None = None) -> str:
    """`value` with the digits that `spread` (half of its interval, or a standard error) supports.

    Rounded by the rule of the Particle Data Group (Review of Particle Physics, 5.3): the spread keeps two
    significant digits when they are 10 to 35 and one when larger, and the value as many decimals. Without a
    spread the value has four significant digits. Magnitudes outside [1e-4, 1e6) are written as `1.25e9`; `power` forces
    that decimal exponent. An absent or non-finite value is an en dash.

    >>> number(0.031249, 0.0022)
    '0.0312'
    """
    value, spread = finite(value), finite(spread)
    if value is None:
        return "–"
    if power is None:
        power = _power(value)
    shift = power if power < -4 or power >= 6 else 0
    scaled = value / 10.0**shift
    own = _power(scaled)
    decimals = DIGITS - 1 - own
    if spread is not None and spread > 0:
        decimals = min(_decimals(spread / 10.0**shift), MOST_DIGITS - 1 - own)
    scaled = round(scaled, decimals)
    text = f"{scaled:.{max(decimals, 0)}f}"
    text = text.lstrip("-") if scaled == 0 else text
    if spread is None and "." in text:  # zeros would claim digits that nobody measured
        text = text.rstrip("0").rstrip(".")
    return f"{text}e{shift}" if shift else text


def _decimals(spread: float) -> int:
    """Decimals that show two digits of `spread` if they are 10 to 35, else one."""
    power = _power(spread)
    leading = spread / 10.0**power
    return 1 - power if leading < 3.55 else -power


def interval(value: float | None, lo: float | None, hi: float | None) -> str:
    """`0.0312 [0.0290, 0.0335]`, or only the number when a bound is absent.

    The three share their decimals; where the interval spans a decade and reaches beyond three times the
    value, each number gets two significant digits instead, since no common number of decimals would serve.
    """
    value, lo, hi = finite(value), finite(lo), finite(hi)
    if value is None or lo is None or hi is None:
        return number(value)
    if lo > 0 and hi > 10 * lo and hi > 3 * value:
        return f"{_two_digits(value)} [{_two_digits(lo)}, {_two_digits(hi)}]"
    spread, power = (hi - lo) / 2, _power(max(abs(value), abs(lo), abs(hi)))
    middle, low, high = (number(v, spread, power) for v in (value, lo, hi))
    return f"{middle} [{low}, {high}]"


def plus_minus(value: float | None, stderr: float | None) -> str:
    """`2.2513 ± 0.0034` (one standard error), or only the number when the error is absent."""
    value, stderr = finite(value), finite(stderr)
    if value is None or not stderr:
        return number(value)
    power = _power(value)
    return f"{number(value, stderr, power)} ± {number(stderr, stderr, power)}"


def _power(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _two_digits(value: float) -> str:
    return number(value, 10.0 ** _power(value)) if value else "0"


def plain(value: Any) -> str:
    """A coordinate as a person would write it: `64`, `0.03125`, `true`, `hyperp`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= MOST_WHOLE):
        return f"{value:.6g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return clean(str(value))


# -- words -----------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text from outside without control characters (a terminal would obey them), on one line."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def label(group: Json, empty: str = "all runs") -> str:
    """A group in words: `hyperp`, `hyperp, depth 4`, `rule muon, optimizer muon`."""
    texts = [value for value in group.values() if isinstance(value, str)]
    named = len(texts) > 1
    parts = [
        plain(value) if isinstance(value, str) and not named else f"{clean(name)} {plain(value)}"
        for name, value in group.items()
    ]
    return ", ".join(parts) or empty


def place(at: Json) -> str:
    """Coordinates in words: `width 64, depth 2`."""
    return ", ".join(f"{clean(name)} {plain(value)}" for name, value in at.items())


def because(item: Json) -> str:
    """The reasons of an optimum, fit or transfer as one text, empty if there are none."""
    return "; ".join(clean(str(why)) for why in item.get("why") or ())


def unit(analysis: Json) -> str:
    """What a difference of the analysed metric is counted in."""
    of = str(analysis.get("of", ""))
    return "nats" if "loss" in of else clean(of)


def level(analysis: Json) -> str:
    """`95%`"""
    return f"{100 * (finite(analysis.get('level')) or 0.95):.4g}%"


def joined(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""


# -- the answer ------------------------------------------------------------------------------------


def answer(analysis: Json) -> list[str]:
    """The findings in sentences, most important first; one sentence says so when there are none."""
    sentences = [*_transfer_sentences(analysis), *_law_sentences(analysis), *_forecast_sentences(analysis)]
    if sentences:
        return sentences
    refused = [because(fit) for fit in analysis.get("fits", ()) if because(fit)]
    reason = f": {refused[0]}" if refused else ""
    return [f"These runs do not answer the question yet{reason}."]


def moved(item: Json) -> str:
    """The drift of an optimum in words: `falls 7.6-fold [6.9, 8.4]`, `stays (factor 0.97 [0.90, 1.06])`."""
    drift, lo, hi = (finite(item.get(key)) for key in ("drift", "lo", "hi"))
    if drift is None or drift <= 0:
        return f"has no measured drift ({because(item) or 'no optimum at both ends'})"
    if lo is None or hi is None or lo <= 0:
        reason = because(item) or "too few points"
        return f"{'falls' if drift < 1 else 'rises'} {_fold(drift)}-fold (no interval: {reason})"
    if lo <= 1 <= hi:
        return f"stays within its interval (factor {interval(drift, lo, hi)})"
    if drift < 1:
        drift, lo, hi = 1 / drift, 1 / hi, 1 / lo
    value, _, bounds = interval(drift, lo, hi).partition(" ")
    verb = "falls" if float(item["drift"]) < 1 else "rises"
    return f"{verb} {value}-fold {bounds}"


def _verb_once(moves: list[str]) -> list[str]:
    """Without a verb that the part before has too: `falls 2-fold under a and 8-fold under b`."""
    verbs = [move.split(" ", 1)[0] for move in moves]
    same = len(set(verbs)) == 1 and verbs[0] in ("falls", "rises")
    return [move.split(" ", 1)[1] if same and i else move for i, move in enumerate(moves)]


def _fold(drift: float) -> str:
    return number(max(drift, 1 / drift), max(drift, 1 / drift) / 10)


def _transfer_sentences(analysis: Json) -> list[str]:
    sentences = []
    for same in _alike(analysis.get("transfer", ()), "tune", "axis", "from", "to"):
        first = same[0]
        if first.get("from") is None or first.get("to") is None:
            continue
        tune, axis = clean(str(first["tune"])), clean(str(first["axis"]))
        start, end = plain(first["from"]), plain(first["to"])
        told, rest = _told(same, _drift)
        moves = joined(_verb_once([f"{moved(t)}{_under(t)}" for t in told]))
        sentences.append(f"From {axis} {start} to {end} the best {tune} {moves}{rest}.")
        sentences += _compared(same, analysis.get("comparisons", ()))
        told, rest = _told(same, _cost)
        costs = joined([f"{_bounded(t, 'cost', 'cost_lo', 'cost_hi')} {unit(analysis)}{_under(t)}"
                        for t in told if _cost(t) is not None])  # fmt: skip
        if costs:
            kept = f"Keeping the {tune} that is best at {axis} {start} costs"
            sentences.append(f"{kept} {costs} at {axis} {end}{rest}.")
    return sentences


def _drift(item: Json) -> float | None:
    """How far the optimum moves, whichever way, as a logarithm."""
    drift = finite(item.get("drift"))
    return None if drift is None or drift <= 0 else abs(math.log(drift))


def _cost(item: Json) -> float | None:
    return finite(item.get("cost"))


def _told(same: Sequence[Json], size: Callable[[Json], float | None]) -> tuple[Sequence[Json], str]:
    """All of a few alternatives; of many the least and the most, and a pointer to the others."""
    sized = [(value, item) for item in same if (value := size(item)) is not None]
    if len(same) <= MOST_TOLD or len(sized) < 2:
        return same[:MOST_TOLD], f" ({len(same)} alternatives: see the table)" if len(same) > MOST_TOLD else ""
    return [min(sized, key=_first)[1], max(sized, key=_first)[1]], f" (the least and the most of {len(same)})"


def _compared(same: Sequence[Json], comparisons: Sequence[Json]) -> list[str]:
    """The least drift as a share of the largest, with an interval where the analysis compared the two."""
    drifts = [(size, t) for t in same if (size := _drift(t)) is not None]
    if len(drifts) < 2:
        return []
    (least, steady), (most, mover) = min(drifts, key=_first), max(drifts, key=_first)
    if not most:
        return []
    share = _ratio(steady, mover, comparisons) or number(least / most, least / most / 10)
    return [f"On a logarithmic scale {label(steady['group'])} drifts {share} times as far as {label(mover['group'])}."]


def _ratio(steady: Json, mover: Json, comparisons: Sequence[Json]) -> str | None:
    for found in comparisons:
        if [found.get(key) for key in ("tune", "axis", "from", "to")] != [
            steady.get(key) for key in ("tune", "axis", "from", "to")
        ]:
            continue
        ratio = [finite((found.get("ratio") or {}).get(key)) for key in ("value", "lo", "hi")]
        pair = (found.get("a"), found.get("b"))
        if pair == (steady.get("group"), mover.get("group")):
            return interval(*ratio)
        if pair == (mover.get("group"), steady.get("group")):
            value, lo, hi = (1 / r if r else None for r in ratio)
            return interval(value, hi, lo)
    return None


def _first(pair: tuple[float, Json]) -> float:
    return pair[0]


def _under(item: Json) -> str:
    group = item.get("group") or {}
    return f" under {label(group)}" if group else ""


def _alike(items: Iterable[Json], *keys: str) -> list[list[Json]]:
    """`items` in lists of equal `keys`, in order of first appearance."""
    lists: dict[str, list[Json]] = {}
    for item in items:
        lists.setdefault(repr([item.get(key) for key in keys]), []).append(item)
    return list(lists.values())


def _law_sentences(analysis: Json) -> list[str]:
    """With nothing tuned, the exponents are the finding."""
    if analysis.get("transfer"):
        return []
    sentences = []
    for fit in analysis.get("fits", ()):
        if fit.get("status") == "refused" or not fit.get("params"):
            continue
        params = joined([f"{clean(name)} = {_param(p)}" for name, p in fit["params"].items()])
        of, over = clean(str(fit["of"])), over_text(fit)
        sentences.append(f"{of} follows {law_text(fit)} over {over}{_under(fit)}: {params}.")
    if len(sentences) > MOST_LAWS:
        rest = len(sentences) - MOST_LAWS
        return [*sentences[:MOST_LAWS], f"{rest} more fit{'s' if rest > 1 else ''}: see the fitted laws below."]
    return sentences


def _forecast_sentences(analysis: Json) -> list[str]:
    of = analysis.get("of")
    ours = [p for p in analysis.get("predictions", ()) if finite(p.get("value")) is not None]
    sentences = []
    scored = [p for p in ours if hit(p) is not None]
    if scored:
        hits = sum(hit(p) is True for p in scored)
        if len(scored) == 1:
            fate = f"The held-out value {'lies inside' if hits else 'lies outside'}"
        else:
            fate = f"{hits} of {len(scored)} held-out values {'lies' if hits == 1 else 'lie'} inside"
        sentences.append(f"{fate} the predicted {level(analysis)} interval.")
    for same in _alike([p for p in ours if p.get("of") == of and finite(p.get("observed")) is None], "at"):
        several = len({law_name(p) for p in same}) > 1
        values = joined([f"{forecast(p)}{_under(p)}{f' ({law_name(p)})' if several else ''}" for p in same])
        condition = ", if the law holds that far" if any(assumed(p) for p in same) else ""
        sentences.append(f"At {place(same[0]['at'])} {clean(str(of))} is predicted to be {values}{condition}.")
    return sentences


def assumed(prediction: Json) -> bool:
    """Whether the interval leaves out the law's own error, because too few scales were there to estimate it."""
    return "assumes the law holds" in str(prediction.get("basis", ""))


def forecast(prediction: Json) -> str:
    """A predicted value with its interval."""
    return interval(prediction.get("value"), prediction.get("lo"), prediction.get("hi"))


def hit(prediction: Json) -> bool | None:
    """Whether the observed value lies inside the interval; None when there is no one of the two."""
    lo, hi, observed = (finite(prediction.get(key)) for key in ("lo", "hi", "observed"))
    return None if lo is None or hi is None or observed is None else lo <= observed <= hi


def _param(param: Json) -> str:
    return interval(param.get("value"), param.get("lo"), param.get("hi"))


# -- tables ----------------------------------------------------------------------------------------


def tables(analysis: Json) -> list[Table]:
    """Every table of `analysis` that has rows: transfer, optima, cells, fits, predictions."""
    made = [_transfer_table(analysis), *_optima_tables(analysis), _cells_table(analysis)]
    made += [_fits_table(analysis), _isoflop_table(analysis), _predictions_table(analysis)]
    return [_without_empty_columns(_footnoted(table)) for table in made if table.rows]


def _by_group(items: Iterable[Json]) -> list[Json]:
    return [item for same in _alike(items, "group") for item in same]


def names(items: Iterable[Json], key: str) -> list[str]:
    """The names under `key` (`group` or `at`) of any of the items, in order of appearance."""
    return list(dict.fromkeys(name for item in items for name in item.get(key) or {}))


def _coordinates(item: Json, key: str, names: Sequence[str]) -> list[str]:
    values = item.get(key) or {}
    return [plain(values[name]) if name in values else "" for name in names]


def _transfer_table(analysis: Json) -> Table:
    items = analysis.get("transfer", ())
    groups = names(items, "group")
    rows = [
        (*_coordinates(t, "group", groups), f"{plain(t['tune'])} over {plain(t['axis'])}",
         route(t), _bounded(t, "drift", "lo", "hi"),
         _param(t["exponent"]) if t.get("exponent") else "–", _bounded(t, "cost", "cost_lo", "cost_hi"), _remarks(t))
        for t in items
    ]  # fmt: skip
    columns = (*map(clean, groups), "transfer", "scale", "drift", "exponent", f"cost ({unit(analysis)})", "note")
    caption = (
        "Drift: the optimum at the larger scale divided by the one at the smaller; 1 is perfect transfer. "
        "Exponent: the slope of the optimum against the axis, both in logarithms. "
        "Cost: what is lost at the larger scale by keeping the optimum of the smaller. " + _brackets(analysis)
    )
    return Table("transfer", "Transfer", caption, columns, tuple(rows), len(groups) + 2,
                 _right(columns, 1 + len(groups), 4))  # fmt: skip


def route(item: Json) -> str:
    """`16 → 128`, the scales of a transfer."""
    ends = [item.get(key) for key in ("from", "to")]
    return "–" if None in ends else " → ".join(map(plain, ends))


def _optima_tables(analysis: Json) -> list[Table]:
    return [_optima_table(analysis, same) for same in _alike(analysis.get("optima", ()), "tune")]


def _optima_table(analysis: Json, items: Sequence[Json]) -> Table:
    items = _by_group(items)
    tune, of = clean(str(items[0]["tune"])), clean(str(analysis.get("of")))
    groups, axes = names(items, "group"), names(items, "at")
    rows = [
        (*_coordinates(o, "group", groups), *_coordinates(o, "at", axes), _optimum(o),
         plus_minus(o.get("loss"), o.get("loss_stderr")), plain(o.get("n_points", "")), _remarks(o))
        for o in items
    ]  # fmt: skip
    columns = (*map(clean, groups), *map(clean, axes), f"best {tune}", f"{of} there", "points", "note")
    caption = (
        f"The best {tune} at every scale: the bottom of the valley fitted over log {tune}. {_brackets(analysis)} "
        "After ±: one standard error."
    )
    return Table(f"optima-{tune}", f"Best {tune}", caption, columns, tuple(rows), len(groups) + len(axes),
                 _right(columns, len(groups), len(axes) + 3))  # fmt: skip


def _cells_table(analysis: Json) -> Table:
    items = _by_group(analysis.get("cells", ()))
    groups, axes = names(items, "group"), names(items, "at")
    rows = [
        (*_coordinates(c, "group", groups), *_coordinates(c, "at", axes),
         plus_minus(c.get("mean"), c.get("stderr")), plain(c.get("n", "")), _remarks(c))
        for c in items
    ]  # fmt: skip
    of = clean(str(analysis.get("of")))
    columns = (*map(clean, groups), *map(clean, axes), of, "runs", "note")
    caption = f"Mean of {of} over replicates. After ±: one standard error of the mean."
    if len(rows) > MOST_CELLS:
        caption = f"{MOST_CELLS} of {len(rows)} places are shown; the JSON form has all. {caption}"
        rows = rows[:MOST_CELLS]
    return Table("cells", f"Measured {of}", caption, columns, tuple(rows), len(groups) + len(axes),
                 _right(columns, len(groups), len(axes) + 2))  # fmt: skip


def law_name(prediction: Json) -> str:
    """The name of the fit that a prediction comes from: its own where it was given one, else its law's."""
    law, name = clean(str(prediction["law"])), clean(str(prediction.get("fit", "")))
    return law if not name or name.startswith(f"{law}(") else name


def law_text(fit: Json) -> str:
    """A fit's own name where it was given one, with its law."""
    law, name = clean(str(fit["law"])), clean(str(fit.get("name", "")))
    return law if not name or name.startswith(f"{law}(") else f"{name}: {law}"


def objective_text(fit: Json) -> str:
    """The objective with its constants and its value: two values are comparable only under the same objective."""
    objective = fit.get("objective") or {}
    constants = [plain(objective[k]) for k in ("delta", "nu", "penalty") if k in objective]
    name = clean(str(objective.get("name", "")))
    text = f"{name}({', '.join(constants)}) on {clean(str(objective.get('residual', '')))}"
    value = finite(objective.get("value"))
    return text.replace("()", "") + (f"\n{value:.4g}" if value is not None else "")


def over_text(fit: Json) -> str:
    """The inputs of a fit's law."""
    over = fit.get("over")
    return ", ".join(clean(str(name)) for name in over) if isinstance(over, list) else clean(str(over))


def _fits_table(analysis: Json) -> Table:
    items = _by_group(analysis.get("fits", ()))
    groups = names(items, "group")
    rows = [
        (*_coordinates(f, "group", groups), clean(str(f["of"])), law_text(f), over_text(f), objective_text(f),
         "\n".join(f"{clean(name)} = {_param(p)}" for name, p in (f.get("params") or {}).items()) or "–",
         plain(f.get("n", "")), _remarks(f))
        for f in items
    ]  # fmt: skip
    columns = (*map(clean, groups), "of", "law", "over", "objective", "parameters", "points", "note")
    caption = f"Laws fitted to the means or optima that were not held out. {_brackets(analysis)}"
    return Table("fits", "Fitted laws", caption, columns, tuple(rows), len(groups) + 3,
                 frozenset({len(columns) - 2}))  # fmt: skip


def _isoflop_table(analysis: Json) -> Table:
    """Exponents of the best size and data over compute, and what was found on the way."""
    rows = []
    sets = list(analysis.get("isoflop", ()))
    groups = names(sets, "group")
    for one in sets:
        said = [*one.get("notes", ()), *(f["text"] for f in one.get("findings", ()))]
        said += [f"{a['fit']}: {a['text']}" for a in one.get("against", ())]
        for law in (one.get("n_params"), one.get("tokens")):
            if law is None:
                continue
            exponent = law.get("exponent")
            rows.append((
                *_coordinates(one, "group", groups), clean(str(law["of"])),
                _param(exponent) if exponent else "–", plain(len(law.get("budgets", ()))),
                REMARKS.join(clean(s) for s in [*law.get("why", ()), *said]),
            ))  # fmt: skip
            said = []
    columns = (*map(clean, groups), "best", "exponent in FLOP", "budgets", "note")
    caption = f"Best size and data at each budget, as a power of the budget. {_brackets(analysis)}"
    return Table("isoflop", "Profiles at equal compute", caption, columns, tuple(rows), len(groups) + 1,
                 frozenset({len(columns) - 2}))  # fmt: skip


def _predictions_table(analysis: Json) -> Table:
    items = _by_group(analysis.get("predictions", ()))
    groups, axes = names(items, "group"), names(items, "at")
    rows = [
        (*_coordinates(p, "group", groups), clean(str(p["of"])), law_name(p), *_coordinates(p, "at", axes),
         forecast(p), _observed(p), _score(p))
        for p in items
    ]  # fmt: skip
    columns = (*map(clean, groups), "of", "law", *map(clean, axes), "predicted", "observed", "score")
    caption = f"Predicted from the fits above. {_brackets(analysis)} A held-out value took no part in the fit."
    if any(assumed(p) for p in items):
        which = "The intervals" if all(assumed(p) for p in items) else "Some intervals"
        caption += f" {which} assume that the law holds: there are too few scales to estimate its own error."
    return Table("predictions", "Predictions", caption, columns, tuple(rows),
                 len(groups) + 2 + len(axes), _right(columns, len(groups) + 2, len(axes) + 2))  # fmt: skip


def _observed(prediction: Json) -> str:
    observed = finite(prediction.get("observed"))
    if observed is None:
        return "not measured" if prediction.get("held_out") else "not run"
    return number(observed)


def _score(prediction: Json) -> str:
    value, observed = finite(prediction.get("value")), finite(prediction.get("observed"))
    inside = hit(prediction)
    if value is None or finite(prediction.get("lo")) is None:
        return because(prediction) or "no interval"
    if observed is None or inside is None:
        return because(prediction)
    off = f", off by {100 * (observed / value - 1):+.2g}%" if value else ""
    return ("inside" if inside else "outside") + off


def _bounded(item: Json, value: str, lo: str, hi: str) -> str:
    return interval(item.get(value), item.get(lo), item.get(hi))


def _optimum(optimum: Json) -> str:
    value = finite(optimum.get("value"))
    if optimum.get("status") == "edge":
        return f"{number(value)} (edge)" if value is not None else "at the edge"
    return _bounded(optimum, "value", "lo", "hi")


def _remarks(item: Json) -> str:
    status = str(item.get("status", "ok"))
    said = [clean(str(why)) for why in item.get("why") or ()]
    if status != "ok":
        said = [f"{clean(status).capitalize()}: {said[0]}" if said else clean(status).capitalize(), *said[1:]]
    return REMARKS.join(said)


def _brackets(analysis: Json) -> str:
    return f"In brackets: {level(analysis)} intervals."


def _right(columns: Sequence[str], start: int, count: int) -> frozenset[int]:
    return frozenset(range(start, min(start + count, len(columns))))


def _footnoted(table: Table) -> Table:
    """Long remarks as numbers below the table, each remark once."""
    if "note" not in table.columns:
        return table
    column = table.columns.index("note")
    numbers: dict[str, int] = {}
    rows = []
    for row in table.rows:
        marks = [str(numbers.setdefault(text, len(numbers) + 1)) for text in row[column].split(REMARKS) if text]
        rows.append((*row[:column], ", ".join(marks), *row[column + 1 :]))
    return replace(table, rows=tuple(rows), notes=tuple(numbers))


def _without_empty_columns(table: Table) -> Table:
    keep = [i for i in range(len(table.columns)) if any(row[i] for row in table.rows)]
    numeric = frozenset(new for new, old in enumerate(keep) if old in table.numeric)
    rows = tuple(tuple(row[i] for i in keep) for row in table.rows)
    columns = tuple(table.columns[i] for i in keep)
    keys = sum(i < table.keys for i in keep)
    return replace(table, columns=columns, rows=rows, keys=keys, numeric=numeric)


def runs_sentence(analysis: Json) -> str:
    """`24 runs done, 1 diverged, 2 missing`"""
    counts = {name: n for name, n in (analysis.get("runs") or {}).items() if n}
    if not counts:
        return "No runs."
    return f"Runs: {', '.join(f'{n} {clean(name)}' for name, n in counts.items())}."
