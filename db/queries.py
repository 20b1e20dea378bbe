"""Reading: each function runs inside the caller's read transaction and returns a polars frame."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from db import frames, schema
from db.bulk import chunks
from db.errors import StoreError
from db.records import FACTS, RESERVED, RunStatus, object_of
from db.register import run_keys

FETCH = 100_000  # rows of a large result held as Python objects at a time
STATUSES = ("queued", "running", "done", "diverged", "failed", "interrupted")

runs, positions, attempts = schema.runs, schema.positions, schema.attempts
selections, metrics, names = schema.selections, schema.metrics, schema.metric_names

STATUS = sa.func.coalesce(attempts.c.status, "queued").label("status")
LAST_ATTEMPT = (attempts.c.run_key == runs.c.key) & (attempts.c.number == positions.c.last_attempt)
SECONDS = (
    sa.select(sa.func.sum(attempts.c.seconds))
    .where(attempts.c.run_key == runs.c.key)
    .correlate(runs)
    .scalar_subquery()
    .label("seconds")
)


def sweep_id(connection: sa.Connection, name: str) -> int:
    """StoreError, with the nearest known name, if there is no such sweep."""
    found = connection.scalar(sa.select(schema.sweeps.c.id).where(schema.sweeps.c.name == name))
    if found is not None:
        return int(found)
    known = sorted(connection.scalars(sa.select(schema.sweeps.c.name)))
    near = difflib.get_close_matches(name, known, 1)
    if near:
        hint = f"did you mean '{near[0]}'?"
    elif known:
        hint = f"it holds {', '.join(repr(item) for item in known[:10])}"
    else:
        hint = "it holds none yet"
    raise StoreError(f"the database has no sweep '{name}': {hint}")


def with_status(columns: Sequence[Any]) -> sa.Select[Any]:
    """Select `columns` of runs, their positions and their last attempts."""
    all_attempts = sa.outerjoin(
        sa.outerjoin(runs, positions, positions.c.run_key == runs.c.key), attempts, LAST_ATTEMPT
    )
    return sa.select(*columns).select_from(all_attempts)


def statuses(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, RunStatus]:
    found: dict[str, RunStatus] = {}
    number = sa.func.coalesce(attempts.c.number, 0)
    query = with_status([runs.c.id, STATUS, number, attempts.c.reason])
    for part in chunks(run_ids):
        for run_id, status, attempt, reason in connection.execute(query.where(runs.c.id.in_(part))).all():
            found[run_id] = RunStatus(status, attempt, reason)
    return found


def results(connection: sa.Connection, sweep: str, metric: str, select: str, goal: str) -> pl.DataFrame:
    columns = [
        selections.c.coords,
        selections.c.derived,
        runs.c.id,
        STATUS,
        *(runs.c[fact] for fact in RESULT_FACTS),
        SECONDS,
        _metric_value(connection, metric, select, goal),
    ]
    table = _selected(connection, sweep, columns)
    cells = _cell_columns(table)
    if metric in RESERVED or any(column.name == metric for column in cells):
        raise StoreError(f"sweep '{sweep}': metric '{metric}' has the name of another column of the results")
    facts = {fact: pl.Series(fact, table[fact], pl.Float64) for fact in RESULT_FACTS}
    facts[metric] = pl.Series(metric, table["value"], pl.Float64)
    facts.setdefault("seconds", pl.Series("seconds", table["seconds"], pl.Float64))
    return _join([*_head(table), *cells], facts.values())


def runs_of(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    columns = [
        selections.c.coords,
        selections.c.derived,
        runs.c.id,
        STATUS,
        sa.func.coalesce(attempts.c.number, 0).label("attempt"),
        *(attempts.c[name] for name in ("reason", "last_step", "last_seen")),
        *(runs.c[name] for name in ("task", *FACTS)),
        SECONDS,
        *(runs.c[name] for name in ("registered", "config")),
        *(sa.func.coalesce(positions.c[name], 0).label(name) for name in ("bad_lines", "alien_lines")),
    ]
    table = _selected(connection, sweep, columns)
    facts = [pl.Series(name, table[name], dtype) for name, dtype in RUN_COLUMNS.items()]
    return _join([*_head(table), *_cell_columns(table)], facts)


RESULT_FACTS = ("n_params", "flops", "tokens")
RUN_COLUMNS: dict[str, Any] = {
    "attempt": pl.Int64,
    "reason": pl.String,
    "last_step": pl.Int64,
    "last_seen": pl.Float64,
    "task": pl.String,
    "n_params": pl.Float64,
    "flops": pl.Float64,
    "tokens": pl.Float64,
    "bytes": pl.Float64,
    "seconds": pl.Float64,
    "registered": pl.Float64,
    "bad_lines": pl.Int64,
    "alien_lines": pl.Int64,
    "config": pl.String,
}


def _selected(connection: sa.Connection, sweep: str, columns: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns, by name, of the cells that the sweep looks at, in their order."""
    query = with_status(columns).join(selections, selections.c.run_key == runs.c.key)
    query = query.where(selections.c.sweep_id == sweep_id(connection, sweep), selections.c.is_current)
    result = connection.execute(query.order_by(selections.c.position))
    labels = list(result.keys())
    rows = result.all()
    values = zip(*rows, strict=True) if rows else ((),) * len(labels)
    return {name: list(column) for name, column in zip(labels, values, strict=True)}


def _metric_value(connection: sa.Connection, metric: str, select: str, goal: str) -> sa.Label[float | None]:
    """The value that stands for a run: at its last step, or the best finite one. NULL if not finite."""
    if select not in ("last", "best") or goal not in ("min", "max"):
        raise StoreError(f"select is {select!r} and goal {goal!r}: expected 'last' or 'best', 'min' or 'max'")
    key = connection.scalar(sa.select(names.c.key).where(names.c.name == metric))
    logged = (metrics.c.run_key == runs.c.key) & (metrics.c.name_key == key)
    if key is None:
        return sa.cast(sa.null(), sa.Double).label("value")
    if select == "best":
        best = sa.func.min(metrics.c.value) if goal == "min" else sa.func.max(metrics.c.value)
        return sa.select(best).where(logged).correlate(runs).scalar_subquery().label("value")
    last = sa.select(metrics.c.value).where(logged).order_by(metrics.c.step.desc()).limit(1)
    return last.correlate(runs).scalar_subquery().label("value")


def _head(table: dict[str, list[Any]]) -> list[pl.Series]:
    return [pl.Series("run", table["id"], pl.String), pl.Series("status", table["status"], pl.String)]


def _cell_columns(table: dict[str, list[Any]]) -> list[pl.Series]:
    """Coordinates and derived values; of equal names the coordinate."""
    coords = frames.from_objects([object_of(text) for text in table["coords"]])
    taken = {column.name for column in coords}
    derived = frames.from_objects([object_of(text) for text in table["derived"]])
    return [*coords, *(column for column in derived if column.name not in taken)]


def _join(first: list[pl.Series], facts: Iterable[pl.Series]) -> pl.DataFrame:
    """A frame of all columns but the facts whose name an axis or a derived value has."""
    taken = {column.name for column in first}
    return pl.DataFrame([*first, *(column for column in facts if column.name not in taken)])


def metric_rows(connection: sa.Connection, run_ids: Sequence[str], wanted: Sequence[str] | None) -> pl.DataFrame:
    run_names = {key: run_id for run_id, key in run_keys(connection, run_ids).items()}
    known = sa.select(names.c.key, names.c.name)
    labels = dict(connection.execute(known if wanted is None else known.where(names.c.name.in_(wanted))).all())
    parts = [METRIC_FRAME.clear()]
    for part in chunks(sorted(run_names)):
        query = METRICS.where(metrics.c.run_key.in_(part))
        if wanted is not None:
            query = query.where(metrics.c.name_key.in_(list(labels)))
        cursor = connection.execute(query.order_by(*METRICS.selected_columns[:3])).cursor
        while rows := cursor.fetchmany(FETCH):  # the driver's own rows: no Python work per metric
            parts.append(pl.DataFrame(rows, schema=METRIC_FRAME.schema, orient="row"))
    return pl.concat(parts).select(
        _named("run", run_names), _named("name", labels), "step", "time", pl.col("value").fill_null(math.nan)
    )


# NULL is NaN here: SQLite would store a NaN as NULL, so ±inf must come back as themselves.
METRICS = sa.select(
    metrics.c.run_key,
    metrics.c.name_key,
    metrics.c.step,
    metrics.c.time,
    sa.case(
        (metrics.c.kind == int(schema.Kind.FINITE), metrics.c.value),
        (metrics.c.kind == int(schema.Kind.POSITIVE_INFINITY), math.inf),
        (metrics.c.kind == int(schema.Kind.NEGATIVE_INFINITY), -math.inf),
    ),
)
METRIC_FRAME = pl.DataFrame(
    schema={"run": pl.Int64, "name": pl.Int64, "step": pl.Int64, "time": pl.Float64, "value": pl.Float64}
)


def _named(column: str, by_key: dict[int, str]) -> pl.Expr:
    keys, values = pl.Series(list(by_key), dtype=pl.Int64), pl.Series(list(by_key.values()), dtype=pl.String)
    return pl.col(column).replace_strict(keys, values, return_dtype=pl.String)


def attempts_of(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    query = (
        sa.select(runs.c.id, *(attempts.c[name] for name in ATTEMPT_FRAME))
        .join_from(attempts, runs)
        .where(runs.c.key.in_(_current_runs(connection, sweep)))
        .order_by(runs.c.id, attempts.c.number)
    )
    labels = {name: label for name, (label, _) in ATTEMPT_FRAME.items()}
    types = {"run": pl.String, **{labels[name]: dtype for name, (_, dtype) in ATTEMPT_FRAME.items()}}
    return frames.from_rows(connection.execute(query), types)


ATTEMPT_FRAME: dict[str, tuple[str, Any]] = {
    "number": ("attempt", pl.Int64),
    "status": ("status", pl.String),
    "reason": ("reason", pl.String),
    "started": ("started", pl.Float64),
    "ended": ("ended", pl.Float64),
    "seconds": ("seconds", pl.Float64),
    "peak_bytes": ("peak_bytes", pl.Float64),
    "from_step": ("from_step", pl.Int64),
    "last_step": ("last_step", pl.Int64),
    "last_seen": ("last_seen", pl.Float64),
    "checkpoint_step": ("checkpoint_step", pl.Int64),
    "checkpoint_bytes": ("checkpoint_bytes", pl.Float64),
    "host": ("host", pl.String),
    "pid": ("pid", pl.Int64),
    "device": ("device", pl.String),
    "threads": ("threads", pl.Int64),
    "seed": ("seed", pl.Int64),
    "code_commit": ("commit", pl.String),
    "code_dirty": ("dirty", pl.Boolean),
    "packages": ("packages", pl.String),
    "error_type": ("error_type", pl.String),
    "error_message": ("error_message", pl.String),
    "traceback": ("traceback", pl.String),
}


def _current_runs(connection: sa.Connection, sweep: str) -> sa.Select[Any]:
    own = selections.c.sweep_id == sweep_id(connection, sweep)
    return sa.select(selections.c.run_key).where(own, selections.c.is_current)


def sweeps(connection: sa.Connection) -> pl.DataFrame:
    table, versions = schema.sweeps, schema.sweep_versions
    columns = [
        *(table.c.name, versions.c.id, versions.c.question, versions.c.task),
        *(table.c.created, versions.c.launched, table.c.id),
    ]
    query = sa.select(*columns).join_from(table, versions, versions.c.id == table.c.version_id)
    counts = _status_counts(connection)
    rows = []
    for *head, key in connection.execute(query.order_by(versions.c.launched.desc(), table.c.name)):
        of_sweep = counts.get(key, {})
        rows.append((*head, sum(of_sweep.values()), *(of_sweep.get(status, 0) for status in STATUSES)))
    types = {"sweep": pl.String, "version": pl.Int64, "question": pl.String, "task": pl.String}
    types |= {"created": pl.Float64, "launched": pl.Float64, "runs": pl.Int64}
    return frames.from_rows(rows, types | dict.fromkeys(STATUSES, pl.Int64))


def _status_counts(connection: sa.Connection) -> dict[int, dict[str, int]]:
    """Sweep -> status -> number of different runs."""
    number = sa.func.count(sa.distinct(runs.c.key))
    query = with_status([selections.c.sweep_id, STATUS, number])
    query = query.join(selections, selections.c.run_key == runs.c.key).where(selections.c.is_current)
    counts: dict[int, dict[str, int]] = {}
    for key, status, count in connection.execute(query.group_by(selections.c.sweep_id, STATUS)):
        counts.setdefault(key, {})[status] = count
    return counts


def versions(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    table = schema.sweep_versions
    columns = [table.c[name] for name in ("id", "question", "task", "created", "launched", "spec_text")]
    query = sa.select(*columns).where(table.c.sweep_id == sweep_id(connection, sweep)).order_by(table.c.id)
    types = {"version": pl.Int64, "question": pl.String, "task": pl.String}
    types |= {"created": pl.Float64, "launched": pl.Float64, "spec_text": pl.String}
    return frames.from_rows(connection.execute(query), types)


def infeasible(connection: sa.Connection, sweep: str) -> pl.DataFrame:
    table = schema.infeasible
    query = sa.select(table.c.coords, table.c.reason).where(table.c.sweep_id == sweep_id(connection, sweep))
    rows = connection.execute(query.order_by(table.c.position)).all()
    coords = frames.from_objects([object_of(text) for text, _ in rows])
    reasons = pl.Series("reason", [reason for _, reason in rows], pl.String)
    return pl.DataFrame([*(column for column in coords if column.name != "reason"), reasons])


def summaries(connection: sa.Connection, run_ids: Sequence[str]) -> pl.DataFrame:
    table = schema.summaries
    columns = [runs.c.id, *(table.c[name] for name in ("name", "kind", "number", "text"))]
    rows = _of_runs(connection, table, columns, run_ids)
    types = {"run": pl.String, "name": pl.String, "kind": pl.String, "value": pl.Float64, "text": pl.String}
    return frames.from_rows((_with_non_finite(*row) for row in rows), types)


def _with_non_finite(run: str, name: str, kind: str, number: float | None, text: str) -> tuple[Any, ...]:
    return run, name, kind, float(text) if kind == "float" and number is None else number, text


def artifacts(connection: sa.Connection, run_ids: Sequence[str]) -> pl.DataFrame:
    table = schema.artifacts
    columns = [runs.c.id, *(table.c[name] for name in ("name", "file", "n", "bytes", "sha256", "time"))]
    types = {"run": pl.String, "name": pl.String, "file": pl.String, "n": pl.Int64}
    types |= {"bytes": pl.Float64, "sha256": pl.String, "time": pl.Float64}
    return frames.from_rows(_of_runs(connection, table, columns, run_ids), types)


def _of_runs(connection: sa.Connection, table: sa.Table, columns: Sequence[Any], run_ids: Sequence[str]) -> list[Any]:
    rows: list[Any] = []
    for part in chunks(sorted(set(run_ids))):
        query = sa.select(*columns).join_from(table, runs).where(runs.c.id.in_(part))
        rows.extend(connection.execute(query.order_by(runs.c.id, table.c.name)))
    return rows


def metric_names(connection: sa.Connection, sweep: str) -> list[tuple[str, int]]:
    chosen = _current_runs(connection, sweep).distinct().subquery()
    logged = (metrics.c.run_key == chosen.c.run_key) & (metrics.c.name_key == names.c.key)
    # One look into the primary key per run and name, instead of counting through every metric row.
    there = sa.select(sa.literal(1)).where(logged).correlate(chosen, names).exists()
    query = sa.select(names.c.name, sa.func.count()).select_from(names.join(chosen, there))
    return [(name, count) for name, count in connection.execute(query.group_by(names.c.name).order_by(names.c.name))]


def speed(connection: sa.Connection, task: str) -> pl.DataFrame:
    columns = [*(runs.c[name] for name in ("flops", "tokens", "n_params"))]
    columns += [attempts.c[name] for name in ("seconds", "threads", "device", "host")]
    query = (
        sa.select(runs.c.id, *columns)
        .join_from(attempts, runs)
        .where(
            runs.c.task == task,
            attempts.c.status == "done",
            attempts.c.from_step.is_(None),
            attempts.c.seconds.is_not(None),
        )
        .order_by(attempts.c.started, runs.c.id)
    )
    types: dict[str, Any] = {"run": pl.String, **dict.fromkeys(("flops", "tokens", "n_params", "seconds"), pl.Float64)}
    types |= {"threads": pl.Int64, "device": pl.String, "host": pl.String}
    return frames.from_rows(connection.execute(query), types)
