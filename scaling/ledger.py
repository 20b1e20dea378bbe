"""How good predictions have been: `python -m scaling.ledger`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from db.errors import StoreError
from db.store import Design, Store
from scaling import wording
from scaling.arrays import Floats
from scaling.console import GAP, HEAD
from scaling.findings import Analysis, CellOptimum, LawPrediction
from scaling.fits import Fit
from scaling.rows import cost_of
from scaling.sources import AsJson, Database, failing, print_json

if TYPE_CHECKING:
    from db.ledger import Observation
    from sweeps.schema import Spec

SCHEMA = 1
ENOUGH = 5  # scores from which a share is given
RANGE = 0.95  # of the Wilson interval around a share
BINS = ("inside the data", "up to 1 decade", "1 to 2 decades", "beyond 2 decades", "unknown")
KINDS = ("scored", "held out", "made after", "diverged", "open")
TARGET = ("sweep", "of", "at", "group")


# -- keeping ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """Decades beyond the data of a fit, 0 inside them, of `cost` or of one of the law's inputs."""

    decades: float
    of: str


def distance(fit: Fit, place: Floats) -> Distance:
    """How far a place [d] lies beyond the rows of a fit.

    In decades of cost where cost is known: the rows' own, carried on as a power law of the inputs, or 6 N D. A place
    within the range of costs, and one without a known cost, is measured along the input that it leaves furthest.
    """
    rows, x = fit.rows, np.asarray(place, dtype=float)
    costs = _costs(fit, x)
    if costs is not None and (decades := _outside(*costs)) > 0:
        return Distance(decades, "cost")
    along = [_outside(known, value) for known, value in zip(rows.x, x, strict=True)]
    furthest = int(np.argmax(along))
    return Distance(along[furthest], fit.law.inputs[furthest])


def _outside(known: Floats, value: float) -> float:
    return max(0.0, math.log10(value / float(known.max())), math.log10(float(known.min()) / value))


def _costs(fit: Fit, x: Floats) -> tuple[Floats, float] | None:
    """What the rows [n] and a place cost; None where that is not known, or is the law's one input."""
    rows = fit.rows
    if rows.cost is not None:
        design = np.vstack([np.ones(len(rows)), np.log(rows.x)]).T
        powers = np.linalg.lstsq(design, np.log(rows.cost), rcond=None)[0]
        return rows.cost, float(np.exp(powers[0] + powers[1:] @ np.log(x)))
    known, new = cost_of(fit.law, rows.x), cost_of(fit.law, x[:, None])
    return None if len(x) == 1 or known is None or new is None else (known, float(new[0]))


def records(analysis: Analysis) -> list[dict[str, Any]]:
    """The predictions of an analysis as the store keeps them, with distance and assumptions."""
    plain = analysis.to_json()["predictions"]
    numbers = {id(fit): number for number, fit in enumerate(analysis.fits)}
    return [
        item | {"fit_number": numbers[id(p.fit)]} | _more(p)
        for item, p in zip(plain, analysis.predictions, strict=True)
    ]


def _more(p: LawPrediction) -> dict[str, Any]:
    fit = p.fit.fit
    far = distance(fit, np.array([float(p.at[name]) for name in p.fit.over]))
    holds = f"{fit.law.name} holds {far.decades:.2g} decades of {far.of} beyond its data" if far.decades else ""
    weak = f"the fit is {fit.status}: {' '.join(fit.why)}" if fit.status != "ok" else ""
    parts = [holds, f"interval: {p.basis}", weak, "every other setting is that of the fitted runs"]
    return {
        "decades": far.decades,
        "beyond": far.of,
        "run_noise": "run noise" in p.basis,
        "assumptions": "; ".join(part for part in parts if part) + ".",
    }


def design_of(spec: Spec) -> Design:
    """How the runs of a sweep become values."""
    select, goal = (spec.fit.select, spec.fit.goal) if spec.fit is not None else ("last", "min")
    return Design(select, goal, _places(spec.replicates), _places(spec.tune))


def _places(section: Any) -> dict[str, str]:
    """The names of a section with their dotted places; a table's columns have none."""
    entries = section if isinstance(section, Mapping) else dict.fromkeys(section)
    return {name: getattr(entry, "path", None) or name for name, entry in entries.items()}


def observations(analysis: Analysis, results: pl.DataFrame) -> list[Observation]:
    """The optima that an analysis found, and the metric there, with the runs of `results` behind each."""
    from db.ledger import Observation

    found = []
    for item in analysis.optima:
        optimum, runs = item.optimum, _runs_of(item, results)
        if optimum.status != "ok" or optimum.value is None:
            continue
        stderr = _stderr(optimum.value, optimum.lo, optimum.hi, analysis.level)
        found.append(Observation(f"{item.tune}.optimum", optimum.value, stderr, len(runs), runs))
        if optimum.loss is not None and item.tune == analysis.optima[0].tune:  # whose valley gives a cell its loss
            found.append(Observation(analysis.of, optimum.loss, optimum.loss_stderr, len(runs), runs))
    return found


def _runs_of(item: CellOptimum, results: pl.DataFrame) -> list[str]:
    """The finished runs of a cell."""
    here = [pl.col(name).eq_missing(pl.lit(value)) for name, value in (item.cell.at | item.cell.group).items()]
    return sorted(set(results.filter(pl.col("status") == "done", *here)["run"].to_list()))


def _stderr(value: float, lo: float | None, hi: float | None, level: float) -> float | None:
    """The standard error of a positive value from an interval that is even in its logarithm."""
    if lo is None or hi is None or not 0 < lo < hi:
        return None
    return value * math.log(hi / lo) / (2 * NormalDist().inv_cdf((1 + level) / 2))


def keep(
    store: Store,
    spec: Spec,
    version: int,
    analysis: Analysis,
    results: pl.DataFrame,
    *,
    data_hash: str,
    code: Mapping[str, Any] | None = None,
) -> int:
    """Store an analysis of a sweep, enter its predictions into the ledger, and score what has come in.

    Returns how many predictions, of this sweep or of others, were scored. `results` is what was analysed, `version`
    the sweep's in the store, `code` what made the predictions. What is there already is not stored again.
    """
    fits = analysis.to_json()["fits"]
    design = design_of(spec)
    store.save_analysis(spec.name, version, data_hash, fits, records(analysis), design=design, code=code)
    return store.score_predictions(observations(analysis, results))


# -- summing up ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """Scores that share a law, a distance or a kind, and the level of their intervals (None: none had one).

    `judged` of the `n` scores had an interval, which held `inside` times. `lo` and `hi` are the Wilson interval of
    that share, absent where there are too few. Errors are absolute and relative; `log_score` is the mean.
    """

    name: str
    level: float | None
    n: int
    targets: int
    judged: int
    inside: int
    coverage: float | None
    lo: float | None
    hi: float | None
    median_error: float | None
    mean_error: float | None
    log_score: float | None


@dataclass(frozen=True)
class Summary:
    """A ledger in numbers. Only predictions made before their runs enter `overall`, `by_law` and `by_distance`."""

    counts: dict[str, int]
    superseded: int
    overall: list[Tally]
    by_law: list[Tally]
    by_distance: list[Tally]
    by_kind: list[Tally]


def wilson(hits: int, n: int, level: float = RANGE) -> tuple[float, float]:
    """The score interval of a share, `hits` of `n` (Wilson 1927, J. Am. Stat. Assoc. 22, 209).

    >>> [round(end, 3) for end in wilson(10, 12)]
    [0.552, 0.953]
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = hits / n, z * z / n
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / n + weight / (4 * n))
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)


def summary(frame: pl.DataFrame) -> Summary:
    """What the rows of `Store.ledger` say."""
    frame = frame.with_columns(_bin().alias("bin"))
    true = frame.filter(pl.col("status") == "scored")
    counts = {kind: int((frame["status"] == kind).sum()) for kind in KINDS}
    observed = frame.filter(pl.col("observed").is_not_null())
    return Summary(
        counts, int(frame["superseded"].sum()), _tallies(true.with_columns(all=pl.lit("all")), "all"),
        _tallies(true, "law"), _tallies(true, "bin", BINS), _tallies(observed, "status", KINDS),
    )  # fmt: skip


def _bin() -> pl.Expr:
    decades = pl.col("decades")
    inside, near, far, beyond, unknown = (pl.lit(name) for name in BINS)
    return (
        pl.when(decades.is_null()).then(unknown).when(decades <= 0).then(inside).when(decades < 1).then(near)
        .when(decades <= 2).then(far).otherwise(beyond)
    )  # fmt: skip


def _tallies(frame: pl.DataFrame, by: str, order: Sequence[str] = ()) -> list[Tally]:
    """One tally for each value of `by` and level, those of `order` in its order, the others by name."""
    made = []
    # A prediction without interval has no level that anything could be held to.
    level = pl.when(pl.col("inside").is_not_null()).then(pl.col("level")).alias("held to")
    for (name, held_to), rows in frame.with_columns(level).group_by([by, "held to"]):
        made.append(_tally(str(name), held_to, rows))
    rank = {name: number for number, name in enumerate(order)}
    return sorted(made, key=lambda t: (rank.get(t.name, len(rank)), t.name, -1.0 if t.level is None else t.level))


def _tally(name: str, level: Any, rows: pl.DataFrame) -> Tally:
    rows = rows.sort("prediction")
    held = rows["inside"].drop_nulls()
    judged, inside = len(held), int(held.sum())
    share, lo, hi = (inside / judged, *wilson(inside, judged)) if judged >= ENOUGH else (None, None, None)
    errors = sorted(abs(e) for e in rows["error"].drop_nulls())
    scores = rows["log_score"].drop_nulls().to_list()
    return Tally(
        name, level, len(rows), rows.select(TARGET).n_unique(), judged, inside, share, lo, hi,
        float(np.median(errors)) if errors else None, math.fsum(errors) / len(errors) if errors else None,
        math.fsum(scores) / len(scores) if scores else None,
    )  # fmt: skip


# -- words -----------------------------------------------------------------------------------------


def sentences(found: Summary) -> list[str]:
    """The state of a ledger, most important first."""
    counts = found.counts
    if not any(counts.values()):
        return ["No prediction has been recorded yet."]
    said = [_coverage(tally, f"{_count(tally.n)} scored") for tally in found.overall]
    said = said or ["No prediction has been scored yet."]
    said += [text for tally in found.overall if (text := _reading(tally))]
    said += [_errors(tally) for tally in found.overall if tally.median_error is not None]
    held = [tally for tally in found.by_kind if tally.name == "held out"]
    said += [_coverage(t, f"Apart from these, {t.n} held-out value{'' if t.n == 1 else 's'}") for t in held]
    for kind, text in (("made after", "made after the run was known: not counted"), ("diverged", "whose run diverged"),
                       ("open", "open")):  # fmt: skip
        if counts[kind]:
            said.append(f"{_count(counts[kind])} {text}.")
    return said


def _count(n: int) -> str:
    return f"{n} prediction{'' if n == 1 else 's'}"


def _coverage(tally: Tally, head: str) -> str:
    if not tally.judged or tally.level is None:
        return f"{head}; none had an interval."
    text = f"{head}; {100 * tally.level:.4g} % intervals held {tally.inside} of {tally.judged}"
    if tally.coverage is None or tally.lo is None or tally.hi is None:
        return f"{text}: too few to judge (needs >= {ENOUGH})."
    return f"{text} ({100 * tally.coverage:.0f} % [{100 * tally.lo:.0f}, {100 * tally.hi:.0f}])."


def _reading(tally: Tally) -> str:
    """What a share means for the intervals, and how far it can be trusted."""
    if tally.level is None or tally.lo is None or tally.hi is None:
        return ""
    said = []
    if tally.hi < tally.level:
        said.append("The intervals are too narrow.")
    elif tally.lo > tally.level:
        said.append("The intervals are wider than they need to be.")
    if tally.targets < tally.n:
        said.append(
            f"The {tally.n} predictions have {tally.targets} target{'' if tally.targets == 1 else 's'}: those of one "
            "target hit or miss together, so the range of this share is too narrow."
        )
    return " ".join(said)


def _errors(tally: Tally) -> str:
    return f"Absolute error: median {_percent(tally.median_error)}, mean {_percent(tally.mean_error)}."


def _percent(share: float | None, sign: str = "") -> str:
    return "–" if share is None else f"{100 * share:{sign}.2g} %"


def target(row: Mapping[str, Any]) -> str:
    """What a row of the ledger is about: `val_loss at width 4096, hyperp`."""
    group = json.loads(row["group"] or "{}")
    where = wording.place(json.loads(row["at"] or "{}"))
    parts = [where, wording.label(group)] if group else [where]
    return f"{wording.clean(str(row['of']))} at {', '.join(part for part in parts if part)}"


def needs(row: Mapping[str, Any]) -> str:
    """What would score an open prediction."""
    if row.get("task") is None:
        return "nothing: its sweep has no runs"
    waits = json.loads(row["waits"])
    tune = ", ".join(json.loads(row["tune"]))
    at = wording.place(json.loads(row["at"] or "{}"))
    if not waits:
        every = f"runs over {wording.clean(tune)}" if tune else "a run"
        return f"{every} of {wording.clean(row['task'])} at {at}, otherwise as fitted"
    left = [f"{len(ids)} {status}" for status, ids in sorted(waits.items()) if status not in ("done", "diverged")]
    if left:
        return f"its runs to end: {', '.join(left)}"
    if tune:
        return f"its sweep to be analysed; its runs have ended ({wording.clean(tune)} not settled there yet)"
    return f"its run to have logged {wording.clean(str(row['of']))}"


def span(seconds: float) -> str:
    """A length of time in one unit: `40 s`, `3.2 h`, `12 d`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= size:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if abs(amount) < 10 else f"{amount:.0f} {unit}"
    return f"{seconds:.0f} s"


# -- showing ---------------------------------------------------------------------------------------


def to_json(frame: pl.DataFrame, sweep: str | None) -> dict[str, Any]:
    """The ledger as plain data at full precision; what is not known is absent."""
    found = summary(frame)
    rows = [_plain(row) for row in frame.rows(named=True)]
    head = {"schema": SCHEMA} | ({"sweep": sweep} if sweep is not None else {})
    tallies = {
        name: [_present(asdict(tally)) for tally in getattr(found, name)]
        for name in ("overall", "by_law", "by_distance", "by_kind")
    }
    about = {"counts": found.counts, "superseded": found.superseded, "says": sentences(found)}
    return head | about | tallies | {"predictions": rows}


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


PARSED = ("at", "group", "objective", "code", "runs", "tune", "waits", "shared")


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    out = _present(row)
    out |= {name: json.loads(out[name]) for name in PARSED if name in out}
    return out | ({"needs": needs(row)} if row["status"] == "open" else {})


def render(frame: pl.DataFrame) -> RenderableType:
    """Sentences, then tables: coverage by kind, law and distance, scored predictions, open ones."""
    found = summary(frame)
    parts: list[RenderableType] = [Text(sentence) for sentence in sentences(found)]
    for title, tallies in (("Law", found.by_law), ("Distance", found.by_distance), ("Kind", found.by_kind)):
        if tallies and (len(tallies) > 1 or title != "Kind"):
            parts += [Text(), _tally_table(title, tallies)]
    several = frame["sweep"].n_unique() > 1
    for kinds, heading in ((("scored", "diverged"), "Scored"), (("held out",), "Held out"),
                           (("made after",), "Made after the run was known, not counted")):  # fmt: skip
        rows = frame.filter(pl.col("status").is_in(kinds)).rows(named=True)
        if rows:
            parts += [Text(f"\n{heading}", style="bold"), _score_table(rows, several)]
    rows = frame.filter(pl.col("status") == "open").rows(named=True)
    if rows:
        parts += [Text("\nOpen", style="bold"), _open_table(rows, several)]
    if found.superseded:
        parts += [Text(f"\n* a newer fit predicts the same ({found.superseded}).", style="dim")]
    return Group(*parts)


def _table(columns: Sequence[str], right: Sequence[str]) -> Table:
    """A table whose columns at the right keep their width; the others share what is left."""
    made = Table(box=HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), collapse_padding=True,
                 header_style="bold")  # fmt: skip
    for name in columns:
        numeric = name in right
        made.add_column(Text(name), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    return made


def _tally_table(title: str, tallies: Sequence[Tally]) -> Table:
    numbers = ("n", "held", "share", "median", "mean", "log score")
    made = _table([title, *numbers], numbers)
    for t in tallies:
        level = "" if t.level is None else f" of {100 * t.level:.4g} %"
        share = "too few"
        if t.coverage is not None and t.lo is not None and t.hi is not None:
            share = f"{100 * t.coverage:.0f} % [{100 * t.lo:.0f}, {100 * t.hi:.0f}]"
        held = f"{t.inside}/{t.judged}{level}" if t.judged else "–"
        errors = [_percent(t.median_error), _percent(t.mean_error)]
        cells = [t.name, str(t.n), held, share if t.judged else "–", *errors, wording.number(t.log_score)]
        made.add_row(*map(Text, map(wording.clean, cells)))
    return made


def _about(row: Mapping[str, Any], several: bool) -> str:
    sweep = f"{row['sweep']}: " if several else ""
    return f"{sweep}{target(row)}, by {row['law']}{' *' if row['superseded'] else ''}"


def _score_table(rows: Sequence[Mapping[str, Any]], several: bool) -> Table:
    numbers = ("predicted", "observed", "error", "before")
    made = _table(["target", *numbers], numbers)
    for row in rows:
        error = "" if row["error"] is None else _percent(row["error"], "+")
        mark = {True: "", False: " out", None: ""}[row["inside"]]
        seen = "diverged" if row["observed"] is None else wording.plus_minus(row["observed"], row["stderr"])
        before = "" if row["lead"] is None else span(row["lead"])
        cells = [_about(row, several), wording.forecast(row), seen, f"{error}{mark}", before]
        made.add_row(*map(Text, map(wording.clean, cells)))
    return made


def _open_table(rows: Sequence[Mapping[str, Any]], several: bool) -> Table:
    made = _table(["target", "predicted", "waits for"], ("predicted",))
    for row in rows:
        cells = [_about(row, several), wording.forecast(row), needs(row)]
        made.add_row(*map(Text, map(wording.clean, cells)))
    return made


# -- the command -----------------------------------------------------------------------------------

EPILOG = """Example:

python -m scaling.ledger --sweep hyperp_width

Exit codes: 0 done, 2 the store can't be read or has no such sweep."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(
    sweep: Annotated[
        str | None, typer.Option(help="Only the predictions of this sweep. [default: all]", show_default=False)
    ] = None,
    as_json: AsJson = False,
    home: Annotated[
        Path, typer.Option(envvar="SWEEPLAW_HOME", help="Folder of the runs and of the default store.")
    ] = Path("results"),
    db: Database = None,
) -> None:
    """Every prediction that was stored before its run, and how right it was; what has come in is scored first."""
    with failing(as_json), Store.open(db or f"sqlite:///{home / 'sweeplaw.db'}", create=False) as store:
        notes = [*store.notes, *_bring_up(store, home / "runs")]
        frame = store.ledger(sweep)
        if as_json:
            print_json(to_json(frame, sweep))
        else:
            Console().print(render(frame))
        for note in notes:
            Console(stderr=True).print(Text(f"note: {note}"), soft_wrap=True)


def _bring_up(store: Store, runs_dir: Path) -> list[str]:
    """Ingest the runs that predictions wait for, and score; a store that can't be written is shown as it is."""
    waits = store.ledger()["waits"].drop_nulls()
    awaited = {run for text in waits for ids in json.loads(text).values() for run in ids}
    try:
        store.ingest(runs_dir, sorted(awaited))
        store.score_predictions()
    except StoreError as error:
        return [f"nothing was scored: {error}"]
    return []


if __name__ == "__main__":
    app()
