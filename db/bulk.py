"""Bulk writes, one class per kind of database. Everything runs inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from db import schema

Row = dict[str, Any]
MetricRow = tuple[int, int, int, float | None, float | None, int, int]  # columns of schema.metrics, in order
METRIC_COLUMNS = tuple(column.name for column in schema.metrics.columns)
METRIC_KEY = METRIC_COLUMNS[:3]
IN_LIMIT = 5000  # values of one IN list: below every database's cap on parameters
T = TypeVar("T")


def chunks(items: Sequence[T], size: int = IN_LIMIT) -> Iterator[Sequence[T]]:
    """Consecutive slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Writer:
    """Plain SQL that any database understands: look, then delete and insert."""

    def insert_missing(self, connection: sa.Connection, table: sa.Table, key: str, rows: list[Row]) -> None:
        """Insert the rows whose unique column `key` isn't there yet."""
        there: set[Any] = set()
        for part in chunks([row[key] for row in rows]):
            there.update(connection.scalars(sa.select(table.c[key]).where(table.c[key].in_(part))))
        missing = {row[key]: row for row in rows if row[key] not in there}
        # In one order everywhere, so that two writers never wait for each other in a circle.
        if missing:
            self._insert_new(connection, table, key, [missing[name] for name in sorted(missing)])

    def _insert_new(self, connection: sa.Connection, table: sa.Table, key: str, rows: list[Row]) -> None:  # noqa: ARG002
        connection.execute(sa.insert(table), rows)

    def upsert(self, connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
        """Insert rows, all with the same columns; where the primary key is taken, replace.

        In a table with a column `attempt` the row of the later attempt stays.
        """
        key = [column.name for column in table.primary_key]
        match = sa.and_(*(table.c[name] == sa.bindparam(f"k_{name}") for name in key))
        kept = []
        for row in rows:
            bound = {f"k_{name}": row[name] for name in key}
            if "attempt" in table.c:
                there = connection.scalar(sa.select(table.c.attempt).where(match), bound)
                if there is not None and there > row["attempt"]:
                    continue
            connection.execute(sa.delete(table).where(match), bound)
            kept.append(row)
        if kept:
            connection.execute(sa.insert(table), kept)

    def insert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        """Insert metric rows, at most one per (run, name, step), none of which is there yet."""
        if rows:
            values = [dict(zip(METRIC_COLUMNS, row, strict=True)) for row in rows]
            connection.execute(sa.insert(schema.metrics), values)

    def upsert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        """Write metric rows, at most one per (run, name, step); a later attempt's row stays."""
        if not rows:
            return
        table = schema.metrics
        older = sa.and_(*(table.c[name] == sa.bindparam(f"k_{name}") for name in METRIC_KEY))
        older = sa.and_(older, table.c.attempt <= sa.bindparam("k_attempt"))
        names = [*(f"k_{name}" for name in METRIC_KEY), "k_attempt"]
        bound = [dict(zip(names, (*row[:3], row[6]), strict=True)) for row in rows]
        connection.execute(sa.delete(table).where(older), bound)
        left = self._later_rows(connection, rows)
        self.insert_metrics(connection, [row for row in rows if row[:3] not in left])

    def _later_rows(self, connection: sa.Connection, rows: list[MetricRow]) -> set[tuple[int, ...]]:
        table, first = schema.metrics, min(row[6] for row in rows)
        found: set[tuple[int, ...]] = set()
        for part in chunks(sorted({row[0] for row in rows})):
            query = sa.select(*(table.c[name] for name in METRIC_KEY))
            query = query.where(table.c.run_key.in_(part), table.c.attempt > first)
            found.update(tuple(key) for key in connection.execute(query))
        return found


class ConflictWriter(Writer):
    """ON CONFLICT, as SQLite and PostgreSQL spell it; `insert` is the dialect's construct."""

    def __init__(self, insert: Any) -> None:
        self._insert = insert

    def _insert_new(self, connection: sa.Connection, table: sa.Table, key: str, rows: list[Row]) -> None:
        connection.execute(self._insert(table).on_conflict_do_nothing(index_elements=[key]), rows)

    def upsert(self, connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
        if rows:
            connection.execute(self._upsert(table, self._insert(table)), rows)

    def _upsert(self, table: sa.Table, insert: Any) -> Any:
        key = [column.name for column in table.primary_key]
        rest = {column.name: insert.excluded[column.name] for column in table.c if column.name not in key}
        newer = insert.excluded.attempt >= table.c.attempt if "attempt" in table.c else None
        return insert.on_conflict_do_update(index_elements=key, set_=rest, where=newer)


class SqliteWriter(ConflictWriter):
    def __init__(self) -> None:
        super().__init__(sqlite.insert)
        marks = ", ".join("?" * len(METRIC_COLUMNS))
        self._metrics = f"INSERT INTO metrics ({', '.join(METRIC_COLUMNS)}) VALUES ({marks})"

    def insert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        if rows:
            connection.exec_driver_sql(self._metrics, rows)

    def upsert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        if rows:
            connection.exec_driver_sql(f"{self._metrics} {_on_conflict()}", rows)


class PostgresWriter(ConflictWriter):
    """COPY; where rows may be there, into a staging table of this transaction, then INSERT … SELECT."""

    def __init__(self) -> None:
        super().__init__(postgresql.insert)

    def insert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        copy_metrics(connection, "metrics", rows)

    def upsert_metrics(self, connection: sa.Connection, rows: list[MetricRow]) -> None:
        if not rows:
            return
        columns = ", ".join(METRIC_COLUMNS)
        connection.exec_driver_sql(
            "CREATE TEMPORARY TABLE IF NOT EXISTS metrics_stage (LIKE metrics) ON COMMIT DELETE ROWS"
        )
        copy_metrics(connection, "metrics_stage", rows)
        connection.exec_driver_sql(
            f"INSERT INTO metrics ({columns}) SELECT {columns} FROM metrics_stage {_on_conflict()}"
        )
        connection.exec_driver_sql("TRUNCATE metrics_stage")


def copy_metrics(connection: sa.Connection, table: str, rows: list[MetricRow]) -> None:
    """COPY rows into `table`, a table with the columns of schema.metrics."""
    if not rows:
        return
    driver: Any = connection.connection.driver_connection
    columns = ", ".join(METRIC_COLUMNS)
    with driver.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        for part in chunks(rows, 20_000):
            text = "\n".join(
                f"{run}\t{name}\t{step}\t{time!r}\t{value!r}\t{kind}\t{attempt}"
                for run, name, step, time, value, kind, attempt in part
            )
            copy.write(text.replace("None", "\\N") + "\n")


def _on_conflict() -> str:
    rest = ", ".join(f"{name}=excluded.{name}" for name in METRIC_COLUMNS[3:])
    key = ", ".join(METRIC_KEY)
    return f"ON CONFLICT ({key}) DO UPDATE SET {rest} WHERE excluded.attempt >= metrics.attempt"


def writer_for(engine: sa.Engine) -> Writer:
    """The fastest writer for the engine's database."""
    if engine.dialect.name == "sqlite":
        return SqliteWriter()
    if engine.dialect.name == "postgresql":
        return PostgresWriter() if engine.dialect.driver == "psycopg" else ConflictWriter(postgresql.insert)
    return Writer()
