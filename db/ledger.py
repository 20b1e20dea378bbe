"""Predictions before their runs, and what became of them. Fits, predictions and scores are written once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import polars as pl
import sqlalchemy as sa
import yaml

from db import frames, schema
from db.bulk import Writer, chunks
from db.errors import StoreError
from db.events import integer, real, words
from db.queries import STATUS, _metric_value, sweep_id, with_status
from db.records import FACTS, object_of, to_json
from db.scoring import Prediction, judge, mean_and_error
from db.targets import ENDED, Book, Cell, Design, Run, Setting, Target, behind

Row = dict[str, Any]
Item = Mapping[str, Any]
Measured = tuple[float, float | None, int]  # a value, its standard error, the number of runs behind it

FIT_IDENTITY = ("name", "law", "formula", "of", "over", "group", "objective", "params", "frozen")
ROWS_IDENTITY = ("x", "y", "stderr")
PREDICTION_IDENTITY = ("of", "at", "group", "value", "lo", "hi", "level", "held_out", "observed")
DIGITS = 7  # machines agree on 8

fits, predictions, scores, sweeps = schema.fits, schema.predictions, schema.scores, schema.sweeps
runs, attempts, selections = schema.runs, schema.attempts, schema.selections


@dataclass(frozen=True)
class Recorded:
    """Ids of fits and predictions, in the order in which they were given."""

    fits: list[int]
    predictions: list[int]


@dataclass(frozen=True)
class Observation:
    """A value that an analysis made of several runs: a tuned optimum, or the loss there.

    `metric` is named as in a prediction (`val_loss`, `lr.optimum`).
    """

    metric: str
    value: float
    stderr: float | None
    n: int
    runs: Sequence[str]


# -- recording -------------------------------------------------------------------------------------


class Record:
    """Fits and predictions made ready to be stored."""

    def __init__(
        self, data_hash: str, found: Sequence[Item], predicted: Sequence[Item], design: Design, code: Item | None
    ) -> None:
        self.now = time.time()
        self.data_hash, self.design = data_hash, design
        self.code = None if code is None else to_json(dict(code))
        self.fits = [_fit_row(item) for item in found]
        owners = [_owner(item, found) for item in predicted]
        self.owners = [None if owner is None else self.fits[owner]["digest"] for owner in owners]
        self.predictions = [
            _prediction_row(item, None if owner is None else found[owner])
            for item, owner in zip(predicted, owners, strict=True)
        ]

    def apply(self, connection: sa.Connection, writer: Writer, sweep: str, version: int) -> Recorded:
        """Add what isn't there yet."""
        owner = lock_sweep(connection, sweep)
        check_version(connection, sweep, owner, version)
        library = Library(connection)
        of_fits = self._add_fits(connection, library, owner, version)
        of_predictions = self._add_predictions(connection, writer, library, owner, of_fits)
        return Recorded(
            [of_fits[row["digest"]] for row in self.fits], [of_predictions[row["digest"]] for row in self.predictions]
        )

    def _add_fits(self, connection: sa.Connection, library: Library, owner: int, version: int) -> dict[str, int]:
        there = _ids(connection, fits, owner, [row["digest"] for row in self.fits])
        new = {row["digest"]: row for row in self.fits if row["digest"] not in there}
        head = {"sweep_id": owner, "version_id": version, "data_hash": self.data_hash, "created": self.now}
        rows = [
            {**head, **row, "setting": library.setting(owner, row["groups"], self.design, self.now)}
            for row in new.values()
        ]
        return there | _insert(connection, fits, owner, rows)

    def _add_predictions(
        self, connection: sa.Connection, writer: Writer, library: Library, owner: int, of_fits: Mapping[str, int]
    ) -> dict[str, int]:
        there = _ids(connection, predictions, owner, [row["digest"] for row in self.predictions])
        new: dict[str, Row] = {}
        for row, fit in zip(self.predictions, self.owners, strict=True):
            if row["digest"] not in there:
                head = {"sweep_id": owner, "made": self.now, "code": self.code}
                new.setdefault(row["digest"], {**row, **head, "fit_id": None if fit is None else of_fits[fit]})
        for row in new.values():
            setting = library.setting(owner, row["groups"], self.design, self.now)
            row["known"] = not row["held_out"] and library.ended(owner, setting, row)
        added = _insert(connection, predictions, owner, list(new.values()))
        held = [_held_out({**new[digest], "id": key}, self.now) for digest, key in added.items()]
        _write_scores(connection, writer, [row for row in held if row is not None])
        return there | added


def lock_sweep(connection: sa.Connection, sweep: str) -> int:
    """The sweep's id; its row stays locked, so that records of one sweep follow each other."""
    owner = sweep_id(connection, sweep)
    connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == owner).with_for_update())
    return owner


def check_version(connection: sa.Connection, sweep: str, owner: int, version: int) -> None:
    table = schema.sweep_versions
    known = sa.select(table.c.id).where(table.c.id == version, table.c.sweep_id == owner)
    if connection.scalar(known) is None:
        raise StoreError(f"sweep '{sweep}' has no version {version}")


def _ids(connection: sa.Connection, table: sa.Table, owner: int, digests: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in chunks(sorted(set(digests))):
        query = sa.select(table.c.digest, table.c.id).where(table.c.sweep_id == owner, table.c.digest.in_(part))
        found.update((digest, key) for digest, key in connection.execute(query))
    return found


def _insert(connection: sa.Connection, table: sa.Table, owner: int, rows: Sequence[Row]) -> dict[str, int]:
    if rows:
        connection.execute(sa.insert(table), rows)
    return _ids(connection, table, owner, [row["digest"] for row in rows])


def _owner(item: Item, found: Sequence[Item]) -> int | None:
    """Which fit a prediction is of: the one it numbers, else the first of its name and group."""
    number = integer(item.get("fit_number"))
    if number is not None and 0 <= number < len(found):
        return number
    for index, fit in enumerate(found):
        if fit.get("name") == item.get("fit") and (fit.get("group") or {}) == (item.get("group") or {}):
            return index
    return None


def _fit_row(fit: Item) -> Row:
    content = to_json(dict(fit))
    return {
        "digest": _hash(fit),
        "rows_hash": _rows_hash(fit),
        **{name: words(fit.get(name)) for name in ("name", "law", "formula", "status")},
        "metric": words(fit.get("of")),
        "over": over_text(fit.get("over")),
        "groups": _object(fit.get("group")),
        "n": integer(fit.get("n")),
        "objective": _object(fit.get("objective")),
        "content": content,
    }


def over_text(over: Any) -> str | None:
    """The inputs of a law as one text."""
    return ", ".join(map(str, over)) if isinstance(over, list | tuple) else words(over)


def _prediction_row(item: Item, fit: Item | None) -> Row:
    held_out, noise = item.get("held_out"), item.get("run_noise")
    return {
        "digest": identity(item, fit),
        **{name: words(item.get(name)) for name in ("fit", "law", "basis", "beyond", "assumptions")},
        "metric": words(item.get("of")),
        "place": _object(item.get("at")),
        "groups": _object(item.get("group")),
        **{name: real(item.get(name)) for name in ("value", "lo", "hi", "level", "observed", "decades")},
        "held_out": held_out if isinstance(held_out, bool) else None,
        "run_noise": noise if isinstance(noise, bool) else None,
        "content": to_json(dict(item)),
    }


def _object(value: Any) -> str | None:
    return None if value is None else to_json(value)


def identity(prediction: Item, fit: Item | None) -> str:
    """A digest of what makes a prediction: law, parameters, rows, place, value and interval, to DIGITS digits.

    Remarks, diagnostics and what a later version adds to a record are no part of it.
    """
    of_fit = None if fit is None else [_some(fit, FIT_IDENTITY), _some(fit.get("rows") or {}, ROWS_IDENTITY)]
    return _hash(_rounded([of_fit, _some(prediction, PREDICTION_IDENTITY)]))


def _some(item: Item, names: Sequence[str]) -> dict[str, Any]:
    return {name: item[name] for name in names if item.get(name) is not None}


def _rows_hash(fit: Item) -> str | None:
    rows = fit.get("rows")
    return None if rows is None else _hash(_some(rows, ROWS_IDENTITY))


def _hash(value: Any) -> str:
    return hashlib.sha256(to_json(value, sort_keys=True).encode()).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.{DIGITS}g}"
    return value


# -- runs ------------------------------------------------------------------------------------------


class Library:
    """The stored runs of tasks and sweeps as one transaction sees them; each is read once."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._of_sweep = cache(self._read_sweep)
        self._book = cache(self._read_book)
        self._setting = cache(self._read_setting)
        self._parsed = cache(Setting.from_json)

    def setting(self, sweep: int, groups: str | None, design: Design | None, made: float) -> str | None:
        """The setting, as JSON, of the runs that a fit of a group saw. Without a design: what the sweep's text says."""
        known = None if design is None else to_json([design.select, design.goal, design.replicates, design.tune])
        return self._setting(sweep, groups, known, made)

    def _read_setting(self, sweep: int, groups: str | None, design: str | None, made: float) -> str | None:
        known = _design_of_text(self._spec_text(sweep, made)) if design is None else Design(*json.loads(design))
        setting = Setting.of(known, behind(self._of_sweep(sweep), sweep, _parse(groups), made))
        return None if setting is None else setting.text

    def _spec_text(self, sweep: int, made: float) -> str:
        """The text launched last before `made`."""
        table = schema.sweep_versions
        query = sa.select(table.c.spec_text).where(table.c.sweep_id == sweep, table.c.created <= made)
        return self._connection.scalar(query.order_by(table.c.created.desc(), table.c.id.desc()).limit(1)) or ""

    def target(self, row: Item, setting: str) -> Target:
        """What the prediction in a row of the table is about."""
        return Target(row["sweep_id"], self._parsed(setting), _parse(row["place"]), _parse(row["groups"]), row["made"])

    def answers(self, target: Target) -> list[Run]:
        return self._book(target.setting.task).answers(target)

    def ended(self, sweep: int, setting: str | None, row: Row) -> bool:
        """Whether a run that answers a prediction has ended already."""
        if setting is None:
            return False
        return any(run.status in ENDED for run in self.answers(self.target({**row, "sweep_id": sweep}, setting)))

    def _read_book(self, task: str) -> Book:
        return Book(self._read(runs.c.task == task))

    def _read_sweep(self, sweep: int) -> list[Run]:
        chosen = sa.select(selections.c.run_key).where(selections.c.sweep_id == sweep)
        return self._read(runs.c.key.in_(chosen))

    def _read(self, which: sa.ColumnElement[bool]) -> list[Run]:
        cells: dict[int, list[Cell]] = {}
        names = ("run_key", "sweep_id", "version_id", "is_current", "coords", "derived")
        query = sa.select(*(selections.c[name] for name in names)).join_from(selections, runs).where(which)
        for row in self._connection.execute(query).all():
            cells.setdefault(row.run_key, []).append(
                Cell(row.sweep_id, row.version_id, row.is_current, object_of(row.derived) | object_of(row.coords))
            )
        ended = sa.func.coalesce(attempts.c.ended, attempts.c.last_seen)
        columns: list[Any] = [runs.c[name] for name in ("key", "id", "task", "config", "registered")]
        columns += [STATUS, ended, *(runs.c[name] for name in FACTS)]
        found = self._connection.execute(with_status(columns).where(which)).all()
        return [_run(tuple(row), tuple(cells.get(row[0], ()))) for row in found]

    def values(self, answered: Sequence[Run], metric: str, design: Design) -> list[float]:
        """The metric of each run that has one, by run id."""
        value = _metric_value(self._connection, metric, design.select, design.goal)
        found: dict[str, float] = {}
        for part in chunks([run.key for run in answered]):
            query = sa.select(runs.c.id, value).where(runs.c.key.in_(part))
            found.update((run_id, number) for run_id, number in self._connection.execute(query) if number is not None)
        return [found[run_id] for run_id in sorted(found)]


def _run(row: tuple[Any, ...], cells: tuple[Cell, ...]) -> Run:
    key, run_id, task, config, registered, status, ended, *values = row
    facts = {name: value for name, value in zip(FACTS, values, strict=True) if value is not None}
    return Run(key, run_id, task, config, registered, status, ended, facts, cells)


def _parse(text: str | None) -> dict[str, Any]:
    return {} if text is None else object_of(text)


def _design_of_text(text: str) -> Design:
    """What a spec's text says of replicates, tuned names and the value that stands for a run."""
    try:
        spec = yaml.safe_load(text)
    except yaml.YAMLError:
        spec = None
    fit = _section(spec, "fit")
    select, goal = fit.get("select"), fit.get("goal")
    return Design(
        "best" if select == "best" else "last", "max" if goal == "max" else "min",
        _places(spec, "replicates"), _places(spec, "tune"),
    )  # fmt: skip


def _section(spec: Any, name: str) -> Item:
    section = spec.get(name) if isinstance(spec, dict) else None
    return section if isinstance(section, dict) else {}


def _places(spec: Any, section: str) -> dict[str, str]:
    """The names of a section with their dotted places; without one given, the name itself."""
    entries = _section(spec, section)
    return {str(k): str(v.get("path") or k) if isinstance(v, dict) else str(k) for k, v in entries.items()}


# -- scoring ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scoring:
    """Scores every open prediction whose runs have all come to an end."""

    observations: Sequence[Observation] = ()
    now: float = field(default_factory=time.time)

    def apply(self, connection: sa.Connection, writer: Writer) -> int:
        """Write the scores; returns how many predictions had none before."""
        library = Library(connection)
        _lock_open(connection)
        made = [self._score(library, row) for row in open_predictions(connection)]
        new = [row for row in made if row is not None]
        _write_scores(connection, writer, new)
        return len(new)

    def _score(self, library: Library, row: Row) -> Row | None:
        if row["held_out"]:
            return _held_out(row, self.now)
        setting = setting_of(library, row)
        if setting is None:
            return None
        target = library.target(row, setting)
        answered = library.answers(target)
        if any(run.awaited for run in answered):
            return None
        ended = [run for run in answered if run.status in ENDED]
        return self._outcome(library, row, target.setting.design, ended) if ended else None

    def _outcome(self, library: Library, row: Row, design: Design, ended: list[Run]) -> Row | None:
        done = [run for run in ended if run.status == "done"]
        found: Measured | None
        if design.tune:
            diverged = 0 if done else len(ended)  # beyond a valley's stable side runs diverge as they should
            found = self._optimum(row["metric"], {run.id for run in done})
        else:
            diverged = len(ended) - len(done)
            values = library.values(done, row["metric"], design)
            found = _mean(values) if values else None
        if found is None and not diverged:
            return None
        finished = min((run.ended for run in ended if run.ended is not None), default=None)
        late = row["known"] or (finished is not None and finished <= row["made"])
        status = "made after" if late else "diverged" if diverged else "scored"
        about = {
            "status": status,
            "diverged": diverged,
            "finished": finished,
            "lead": None if finished is None else finished - row["made"],
            "runs": to_json([run.id for run in ended]),
        }
        value, stderr, n = found if found is not None and not diverged else (None, None, len(done))
        return _score_row(row, value, stderr, n, self.now) | about

    def _optimum(self, metric: str, done: set[str]) -> Measured | None:
        """The observation of most of these runs."""
        own = [o for o in self.observations if o.metric == metric and o.runs and done.issuperset(o.runs)]
        best = max(own, key=lambda o: (len(o.runs), sorted(o.runs)), default=None)
        return None if best is None else (best.value, best.stderr, best.n)


def _mean(values: list[float]) -> Measured:
    mean, stderr = mean_and_error(values)
    return mean, stderr, len(values)


def any_open(connection: sa.Connection) -> bool:
    """Whether some prediction has no score yet."""
    return connection.scalar(_open(predictions.c.id).limit(1)) is not None


def _lock_open(connection: sa.Connection) -> None:
    """Lock the sweeps with open predictions, in the order of their ids: those who score follow each other."""
    owners = _open(predictions.c.sweep_id)
    query = sa.select(sweeps.c.id).where(sweeps.c.id.in_(owners)).order_by(sweeps.c.id).with_for_update()
    connection.execute(query).all()


def _open(*columns: Any) -> sa.Select[Any]:
    query = sa.select(*columns).select_from(predictions)
    query = query.outerjoin(scores, scores.c.prediction_id == predictions.c.id)
    return query.where(scores.c.prediction_id.is_(None), predictions.c.value.is_not(None))


def open_predictions(connection: sa.Connection, sweep: int | None = None) -> list[Row]:
    """Predictions without a score, oldest first, with the setting of their fit."""
    columns = [column for column in predictions.c if column.name not in ("content", "code", "assumptions")]
    query = _open(*columns, fits.c.setting).outerjoin(fits, fits.c.id == predictions.c.fit_id)
    query = query.order_by(predictions.c.id)
    if sweep is not None:
        query = query.where(predictions.c.sweep_id == sweep)
    return [dict(row) for row in connection.execute(query).mappings()]


def setting_of(library: Library, row: Row) -> str | None:
    """The setting of a prediction's fit; records of schema version 1 have none, so it is found anew."""
    found: str | None = row["setting"]
    return found or library.setting(row["sweep_id"], row["groups"], None, row["made"])


def _held_out(row: Row, now: float) -> Row | None:
    """The score of a value that was there when it was predicted; None for other rows."""
    if not row["held_out"] or row["observed"] is None or row["value"] is None:
        return None
    return _score_row(row, row["observed"], None, None, now) | {"status": "held out"}


def _score_row(row: Row, observed: float | None, stderr: float | None, n: int | None, now: float) -> Row:
    made = Prediction(row["value"], row["lo"], row["hi"], row["level"], bool(row["run_noise"]))
    verdict = None if observed is None else judge(made, observed, stderr)
    judged = {name: getattr(verdict, name, None) for name in ("error", "inside", "z", "log_score")}
    empty = dict.fromkeys(("diverged", "finished", "lead", "runs"))
    return {
        **empty,
        "prediction_id": row["id"],
        "observed": observed,
        "stderr": stderr,
        "n": n,
        **judged,
        "scored": now,
    }


def _write_scores(connection: sa.Connection, writer: Writer, rows: list[Row]) -> None:
    """Insert scores of predictions that have none; a score that is there stays."""
    if rows:
        writer.insert_missing(connection, scores, "prediction_id", rows)


# -- reading ---------------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[Any, Any]] = {
    "prediction": (predictions.c.id, pl.Int64),
    "sweep": (sweeps.c.name, pl.String),
    "version": (fits.c.version_id, pl.Int64),
    "fit_id": (predictions.c.fit_id, pl.Int64),
    "fit": (predictions.c.fit, pl.String),
    "law": (predictions.c.law, pl.String),
    "formula": (fits.c.formula, pl.String),
    "over": (fits.c.over, pl.String),
    "objective": (fits.c.objective, pl.String),
    "rows_hash": (fits.c.rows_hash, pl.String),
    "data_hash": (fits.c.data_hash, pl.String),
    "of": (predictions.c.metric, pl.String),
    "at": (predictions.c.place, pl.String),
    "group": (predictions.c.groups, pl.String),
    "made": (predictions.c.made, pl.Float64),
    **{name: (predictions.c[name], pl.Float64) for name in ("value", "lo", "hi", "level")},
    "basis": (predictions.c.basis, pl.String),
    "decades": (predictions.c.decades, pl.Float64),
    "beyond": (predictions.c.beyond, pl.String),
    "assumptions": (predictions.c.assumptions, pl.String),
    "code": (predictions.c.code, pl.String),
    "held_out": (predictions.c.held_out, pl.Boolean),
    "status": (
        sa.func.coalesce(
            scores.c.status,
            sa.case((predictions.c.held_out, "held out"), (predictions.c.known, "made after"), else_="open"),
        ),
        pl.String,
    ),
    **{name: (scores.c[name], pl.Float64) for name in ("observed", "stderr")},
    **{name: (scores.c[name], pl.Int64) for name in ("n", "diverged")},
    "error": (scores.c.error, pl.Float64),
    "inside": (scores.c.inside, pl.Boolean),
    **{name: (scores.c[name], pl.Float64) for name in ("z", "log_score", "finished", "lead", "scored")},
    "runs": (scores.c.runs, pl.String),
}
SAME_TARGET = ["sweep", "of", "at", "group"]


def read(connection: sa.Connection, sweep: str | None) -> pl.DataFrame:
    """One row per prediction, in the order in which they were made."""
    owner = None if sweep is None else sweep_id(connection, sweep)
    query = (
        sa.select(*(column.label(name) for name, (column, _) in COLUMNS.items()))
        .select_from(predictions)
        .join(sweeps, sweeps.c.id == predictions.c.sweep_id)
        .outerjoin(fits, fits.c.id == predictions.c.fit_id)
        .outerjoin(scores, scores.c.prediction_id == predictions.c.id)
        .order_by(predictions.c.made, predictions.c.id)
    )
    if owner is not None:
        query = query.where(predictions.c.sweep_id == owner)
    types = {name: dtype for name, (_, dtype) in COLUMNS.items()}
    frame = frames.from_rows(connection.execute(query), types)
    newest = pl.int_range(pl.len()).over([*SAME_TARGET, "fit"]) == pl.len().over([*SAME_TARGET, "fit"]) - 1
    frame = frame.with_columns((~newest).alias("superseded"))
    return frame.join(_awaited(connection, owner), on="prediction", how="left", coalesce=True, maintain_order="left")


AWAITED = {"prediction": pl.Int64, "task": pl.String, "tune": pl.String, "waits": pl.String, "shared": pl.String}


def _awaited(connection: sa.Connection, owner: int | None) -> pl.DataFrame:
    """What open predictions wait for: task, tuned names and shared configuration of their runs, and the runs that
    are known by status."""
    library = Library(connection)
    rows = []
    for row in open_predictions(connection, owner):
        setting = None if row["held_out"] else setting_of(library, row)
        if setting is not None:
            target = library.target(row, setting)
            waits: dict[str, list[str]] = {}
            for run in library.answers(target):
                waits.setdefault(run.status, []).append(run.id)
            about = target.setting
            rows.append(
                (row["id"], about.task, to_json(list(about.design.tune)), to_json(waits), to_json(dict(about.shared)))
            )
    return frames.from_rows(rows, AWAITED)
