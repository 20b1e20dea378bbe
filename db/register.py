from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from db import schema
from db.bulk import Writer, chunks
from db.errors import StoreError
from db.events import clean
from db.ingest import COUNTERS
from db.records import FACTS, RunRecord, Selection, check_records, run_row, to_json

Row = dict[str, Any]


class Registration:
    """Everything that registering a sweep writes, made ready before the transaction begins."""

    def __init__(  # noqa: PLR0917
        self,
        name: str,
        spec_text: str,
        question: str | None,
        task: str,
        runs: Sequence[RunRecord],
        selections: Sequence[Selection],
        infeasible: Sequence[tuple[dict[str, Any], str]],
    ) -> None:
        check_records(runs, selections)
        self.now = time.time()
        self.name = clean(name)
        self.version = _version_row(spec_text, question, task)
        self.runs = [run_row(record, self.now) for record in {run.id: run for run in runs}.values()]
        self.cells = _cells(selections)
        self.infeasible = [
            {"position": position, "coords": to_json(coords), "reason": clean(reason)}
            for position, (coords, reason) in enumerate(infeasible)
        ]

    def apply(self, connection: sa.Connection, writer: Writer) -> int:
        """Write it; returns the version's id."""
        sweep_id = self._sweep(connection, writer)
        version_id = self._version(connection, sweep_id)
        self._store_runs(connection, writer)
        self._select(connection, writer, sweep_id, version_id)
        self._list_infeasible(connection, sweep_id)
        return version_id

    def _sweep(self, connection: sa.Connection, writer: Writer) -> int:
        """The sweep's id; its row stays locked, so that registrations of one sweep follow each other."""
        table = schema.sweeps
        writer.insert_missing(connection, table, "name", [{"name": self.name, "created": self.now}])
        query = sa.select(table.c.id).where(table.c.name == self.name).with_for_update()
        return int(connection.execute(query).scalar_one())

    def _version(self, connection: sa.Connection, sweep_id: int) -> int:
        table, sweeps = schema.sweep_versions, schema.sweeps
        same = (table.c.sweep_id == sweep_id) & (table.c.digest == self.version["digest"])
        version_id = connection.scalar(sa.select(table.c.id).where(same))
        if version_id is None:
            row = {**self.version, "sweep_id": sweep_id, "created": self.now, "launched": self.now}
            connection.execute(sa.insert(table), row)
            version_id = connection.execute(sa.select(table.c.id).where(same)).scalar_one()
        connection.execute(sa.update(table).where(table.c.id == version_id).values(launched=self.now))
        connection.execute(sa.update(sweeps).where(sweeps.c.id == sweep_id).values(version_id=version_id))
        return int(version_id)

    def _store_runs(self, connection: sa.Connection, writer: Writer) -> None:
        writer.insert_missing(connection, schema.runs, "id", self.runs)
        self._learn_facts(connection)
        keys = run_keys(connection, [row["id"] for row in self.runs])
        start = {"byte_offset": 0, "tail": "", "rereads": 0, **dict.fromkeys(COUNTERS, 0)}
        rows = [{"run_key": key, **start} for key in keys.values()]
        writer.insert_missing(connection, schema.positions, "run_key", rows)

    def _learn_facts(self, connection: sa.Connection) -> None:
        """Fill in facts that were unknown when a run was first registered."""
        table = schema.runs
        told = {row["id"]: row for row in self.runs if any(row[fact] is not None for fact in FACTS)}
        unknown = sa.or_(*(table.c[fact].is_(None) for fact in FACTS))
        columns = [table.c[fact] for fact in FACTS]
        for part in chunks(sorted(told)):
            query = sa.select(table.c.id, *columns).where(table.c.id.in_(part), unknown).order_by(table.c.id)
            for run_id, *stored in connection.execute(query).all():
                news = {f: told[run_id][f] for f, old in zip(FACTS, stored, strict=True) if old is None}
                if any(value is not None for value in news.values()):
                    connection.execute(sa.update(table).where(table.c.id == run_id).values(news))

    def _select(self, connection: sa.Connection, writer: Writer, sweep_id: int, version_id: int) -> None:
        table = schema.selections
        keys = run_keys(connection, [run_id for run_id, _ in self.cells])
        for run_id, _ in self.cells:
            if run_id not in keys:
                raise StoreError(f"sweep '{self.name}' selects run {run_id}, which was never registered")
        old = sa.update(table).where(table.c.sweep_id == sweep_id, table.c.is_current)
        connection.execute(old.values(is_current=False))
        place = {"sweep_id": sweep_id, "version_id": version_id, "is_current": True}
        writer.upsert(connection, table, [{**cell, **place, "run_key": keys[run]} for run, cell in self.cells])

    def _list_infeasible(self, connection: sa.Connection, sweep_id: int) -> None:
        table = schema.infeasible
        connection.execute(sa.delete(table).where(table.c.sweep_id == sweep_id))
        if self.infeasible:
            connection.execute(sa.insert(table), [{**row, "sweep_id": sweep_id} for row in self.infeasible])


def run_keys(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Keys of those runs that are stored."""
    found: dict[str, int] = {}
    for part in chunks(run_ids):
        query = sa.select(schema.runs.c.id, schema.runs.c.key).where(schema.runs.c.id.in_(part))
        found.update((run_id, key) for run_id, key in connection.execute(query))
    return found


def _version_row(spec_text: str, question: str | None, task: str) -> Row:
    row: Row = {
        "spec_text": clean(spec_text),
        "question": None if question is None else clean(question),
        "task": clean(task),
    }
    return {**row, "digest": hashlib.sha256(to_json(row, sort_keys=True).encode()).hexdigest()}


def _cells(selections: Sequence[Selection]) -> list[tuple[str, Row]]:
    """(run id, columns of selections) of each different cell, in the order of their runs' ids."""
    cells: dict[tuple[str, str], Row] = {}
    for position, selection in enumerate(selections):
        digest = hashlib.sha256(to_json(selection.coords, sort_keys=True).encode()).hexdigest()[:32]
        cells[selection.run_id, digest] = {
            "cell": digest,
            "position": position,
            "coords": to_json(selection.coords),
            "derived": to_json(selection.derived),
        }
    return [(run_id, cells[run_id, digest]) for run_id, digest in sorted(cells)]
