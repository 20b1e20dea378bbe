"""From event logs into tables, exactly once.

A log is read and parsed without any lock. The write transaction then locks the run's position and compares:
if another process has moved it, what was parsed is thrown away and read again. Rows and position are
committed together, so a process may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import sqlalchemy as sa

from db import schema
from db.bulk import MetricRow, Writer, chunks
from db.connect import Address, reading, transact
from db.events import ATTEMPT_COLUMNS, LogReader, LogState, Row

LOG_NAME = "events.jsonl"
BLOCK_BYTES = 4 << 20  # most of one log held at a time; longer lines are skipped as bad
BATCH_BYTES = 8 << 20  # log bytes per transaction, about 300,000 metric rows
TAIL_BYTES = 64  # bytes before the position that must be as they were
COUNTERS = ("lines", "bad_lines", "alien_lines", "open_attempt", "last_attempt")


@dataclass
class IngestReport:
    """What one ingest did.

    rows: metric values read; bad_lines, alien_lines: how many lines were no events, or events of an unknown
    kind; bad: (run id, line number from 1, beginning of the text) of the first bad lines of each run;
    replaced: runs whose log had been truncated or replaced and was read anew from its start;
    unregistered: run ids the store doesn't know; unreadable: (run id, what the system said).
    """

    rows: int = 0
    bad_lines: int = 0
    bad: list[tuple[str, int, str]] = field(default_factory=list)
    alien_lines: int = 0
    replaced: list[str] = field(default_factory=list)
    unregistered: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Position:
    """How far a log is read, as the database says."""

    run_key: int
    byte_offset: int
    tail: str
    rereads: int


@dataclass(frozen=True)
class Block:
    """Complete lines of a log: `data` follows the position, or the start of the file if `anew`."""

    data: bytes
    end: int  # the position after them
    tail: str
    anew: bool
    too_long: str = ""  # beginning of one line of more than BLOCK_BYTES that was passed over; data is empty


@dataclass(frozen=True)
class Parsed:
    run_id: str
    position: Position  # before
    block: Block
    log: LogReader

    @property
    def first(self) -> bool:
        """Whether the database holds nothing of this log yet."""
        return self.position.byte_offset == 0 and not self.block.anew


class Ingester:
    """Keeps the keys of metric names between calls; otherwise without state."""

    def __init__(self, engine: sa.Engine, address: Address, writer: Writer) -> None:
        self._engine, self._address, self._writer = engine, address, writer
        self._names: dict[str, int] = {}

    def run(self, runs_dir: Path, run_ids: Iterable[str]) -> IngestReport:
        """Bring what the logs hold by now into the database; what comes later waits for the next call."""
        report = IngestReport()
        sizes = _sizes(runs_dir, run_ids, report)
        registered: set[str] = set()
        todo = list(sizes)
        while todo:
            later: list[str] = []
            for part in chunks(todo):
                positions, states = self._look({run_id: sizes[run_id] for run_id in part})
                registered.update(positions)
                parsed = self._parse(runs_dir, positions, states, report)
                for batch in _batches(parsed):
                    later.extend(
                        item.run_id
                        for item, written in self._write(batch, report)
                        if not written or item.block.end < sizes[item.run_id]
                    )
            todo = later
        report.unregistered.extend(run_id for run_id in sizes if run_id not in registered)
        return report

    def _look(self, sizes: dict[str, int]) -> tuple[dict[str, Position], dict[str, LogState]]:
        """Positions of registered runs, and the log states of those whose log has another size by now."""
        positions, states = {}, {}
        table, runs = schema.positions, schema.runs
        query = sa.select(runs.c.id, *(table.c[name] for name in POSITION_COLUMNS)).join_from(runs, table)
        with reading(self._engine, self._address) as connection:
            for run_id, key, offset, tail, rereads, *counters in connection.execute(
                query.where(runs.c.id.in_(list(sizes)))
            ):
                positions[run_id] = Position(key, offset, tail, rereads)
                if sizes[run_id] != offset:
                    states[run_id] = LogState(*counters)
            attempts = self._attempts(connection, [positions[run_id].run_key for run_id in states])
        for run_id, state in states.items():
            state.attempts = attempts.get(positions[run_id].run_key, {})
        return positions, states

    def _attempts(self, connection: sa.Connection, keys: list[int]) -> dict[int, dict[int, Row]]:
        table = schema.attempts
        columns = [table.c[name] for name in ATTEMPT_COLUMNS]
        found: dict[int, dict[int, Row]] = {}
        for part in chunks(keys):
            query = sa.select(table.c.run_key, table.c.number, *columns).where(table.c.run_key.in_(part))
            for key, number, *values in connection.execute(query):
                found.setdefault(key, {})[number] = dict(zip(ATTEMPT_COLUMNS, values, strict=True))
        return found

    def _parse(
        self,
        runs_dir: Path,
        positions: dict[str, Position],
        states: dict[str, LogState],
        report: IngestReport,
    ) -> Iterator[Parsed]:
        for run_id, state in states.items():
            position = positions[run_id]
            try:
                block = read_block(runs_dir / run_id / LOG_NAME, position.byte_offset, position.tail)
            except OSError as error:
                report.unreadable.append((run_id, str(error)))
                continue
            if block is None:
                continue
            log = LogReader(LogState() if block.anew else state)
            log.feed(block.data)
            if block.too_long:
                log.skip_line(block.too_long)
            yield Parsed(run_id, position, block, log)

    def _write(self, batch: list[Parsed], report: IngestReport) -> list[tuple[Parsed, bool]]:
        """Commit a batch. Says for each item whether it was written: not if another process was faster."""
        self._learn_names({name for item in batch for name in item.log.metrics})
        batch.sort(key=lambda item: item.position.run_key)
        tries = itertools.count()
        written = transact(
            self._engine, self._address, lambda connection: self._apply(connection, batch, careful=next(tries) > 0)
        )
        outcome = [(item, item.position.run_key in written) for item in batch]
        for item, was_written in outcome:
            if was_written:
                _report(report, item)
        return outcome

    def _learn_names(self, names: set[str]) -> None:
        """Get the keys of names, in a transaction of its own: no lock on names is held for long."""
        unknown = sorted(names - self._names.keys())
        if not unknown:
            return
        table = schema.metric_names

        def work(connection: sa.Connection) -> None:
            self._writer.insert_missing(connection, table, "name", [{"name": name} for name in unknown])

        transact(self._engine, self._address, work)
        with reading(self._engine, self._address) as connection:
            for part in chunks(unknown):
                query = sa.select(table.c.name, table.c.key).where(table.c.name.in_(part))
                self._names.update((name, key) for name, key in connection.execute(query))

    def _apply(self, connection: sa.Connection, batch: list[Parsed], *, careful: bool) -> set[int]:
        """Write what nobody else has written. Rows that look new are only inserted, unless `careful`."""
        unmoved = self._lock(connection, batch)
        mine = [item for item in batch if item.position.run_key in unmoved]
        if not mine:
            return unmoved
        self._forget(connection, [item.position.run_key for item in mine if item.block.anew])
        self._cut(connection, mine)
        new = [item for item in mine if not careful and (item.first or item.block.anew or item.log.appends)]
        taken = {item.position.run_key for item in new}
        self._writer.insert_metrics(connection, self._metric_rows(new))
        rest = [item for item in mine if item.position.run_key not in taken]
        self._writer.upsert_metrics(connection, self._metric_rows(rest))
        for table, attribute, name in TABLES:
            self._writer.upsert(connection, table, _rows(mine, attribute, name))
        connection.execute(MOVE, [_moved(item) for item in mine])
        return unmoved

    def _lock(self, connection: sa.Connection, batch: list[Parsed]) -> set[int]:
        """Lock the positions, in the order of their keys; returns the runs that nobody has moved on."""
        table = schema.positions
        now: dict[int, tuple[int, int]] = {}
        for part in chunks([item.position.run_key for item in batch]):
            query = sa.select(table.c.run_key, table.c.byte_offset, table.c.rereads)
            query = query.where(table.c.run_key.in_(part)).order_by(table.c.run_key).with_for_update()
            now.update((key, (offset, rereads)) for key, offset, rereads in connection.execute(query))
        return {
            item.position.run_key
            for item in batch
            if now.get(item.position.run_key) == (item.position.byte_offset, item.position.rereads)
        }

    def _forget(self, connection: sa.Connection, keys: list[int]) -> None:
        """Remove everything that came from logs which are read anew."""
        for part in chunks(keys):
            for table in (schema.metrics, schema.attempts, schema.summaries, schema.artifacts):
                connection.execute(sa.delete(table).where(table.c.run_key.in_(part)))

    def _cut(self, connection: sa.Connection, batch: list[Parsed]) -> None:
        """Delete what later attempts have superseded."""
        cuts = [
            {
                "cut_run": item.position.run_key,
                "cut_attempt": attempt,
                "cut_step": FIRST_STEP if step is None else step,
            }
            for item in batch
            if not item.first and not item.block.anew
            for attempt, step in item.log.cuts
        ]
        if cuts:
            connection.execute(CUT, cuts)

    def _metric_rows(self, batch: list[Parsed]) -> list[MetricRow]:
        rows: list[MetricRow] = []
        for item in batch:
            run = item.position.run_key
            for name, column in item.log.metrics.items():
                key = self._names[name]
                rows.extend((run, key, step, *point) for step, point in column.items())
        return rows


POSITION_COLUMNS = ("run_key", "byte_offset", "tail", "rereads", *COUNTERS)
FIRST_STEP = -(2**63)  # below every step but itself
TABLES = (
    (schema.attempts, "attempts", "number"),
    (schema.summaries, "summaries", "name"),
    (schema.artifacts, "artifacts", "name"),
)
CUT = sa.delete(schema.metrics).where(
    schema.metrics.c.run_key == sa.bindparam("cut_run"),
    schema.metrics.c.attempt < sa.bindparam("cut_attempt"),
    schema.metrics.c.step > sa.bindparam("cut_step"),
)
MOVE = (
    sa.update(schema.positions)
    .where(schema.positions.c.run_key == sa.bindparam("moved_run"))
    .values({name: sa.bindparam(f"new_{name}") for name in POSITION_COLUMNS[1:]})
)


def _rows(batch: list[Parsed], attribute: str, name: str) -> list[Row]:
    """Rows of one table; their dictionary key becomes the column `name`."""
    return [
        {"run_key": item.position.run_key, name: key, **row}
        for item in batch
        for key, row in getattr(item.log, attribute).items()
    ]


def _moved(item: Parsed) -> Row:
    return {
        "moved_run": item.position.run_key,
        "new_byte_offset": item.block.end,
        "new_tail": item.block.tail,
        "new_rereads": item.position.rereads + item.block.anew,
        **{f"new_{name}": getattr(item.log.state, name) for name in COUNTERS},
    }


def _report(report: IngestReport, item: Parsed) -> None:
    report.rows += item.log.rows
    report.bad_lines += item.log.n_bad
    report.alien_lines += item.log.n_alien
    report.bad.extend((item.run_id, number, text) for number, text in item.log.bad)
    if item.block.anew:
        report.replaced.append(item.run_id)


def _sizes(runs_dir: Path, run_ids: Iterable[str], report: IngestReport) -> dict[str, int]:
    """Bytes of each log that exists."""
    sizes: dict[str, int] = {}
    for run_id in dict.fromkeys(run_ids):
        try:
            sizes[run_id] = os.stat(f"{runs_dir}/{run_id}/{LOG_NAME}").st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            report.unreadable.append((run_id, str(error)))
    return sizes


def _batches(parsed: Iterable[Parsed]) -> Iterator[list[Parsed]]:
    """Group logs so that the bytes of a group stay near BATCH_BYTES."""
    batch: list[Parsed] = []
    size = 0
    for item in parsed:
        batch.append(item)
        size += len(item.block.data)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_block(path: Path, offset: int, tail: str) -> Block | None:
    """The next complete lines of a log after `offset`, at most BLOCK_BYTES; None: none yet.

    A log that is shorter than `offset`, or whose bytes before it are others than `tail` says, has been
    replaced: it is read from its start. Raises OSError.
    """
    with path.open("rb") as file:
        anew = offset > 0 and fingerprint(file, offset) != tail
        start = 0 if anew else offset
        file.seek(start)
        data = file.read(BLOCK_BYTES)
        length = data.rfind(b"\n") + 1
        if length:
            end = start + length
            return Block(data[:length], end, fingerprint(file, end), anew)
        if len(data) < BLOCK_BYTES:
            return None  # nothing new, or a line that is still being written
        after = _end_of_line(file)
        if after is None:
            return None
        text = data[:1000].decode("utf-8", "replace")
        return Block(b"", after, fingerprint(file, after), anew, text)


def fingerprint(file: BinaryIO, offset: int) -> str:
    """A digest of the bytes just before `offset`; 16 hex digits. "" if the file is shorter."""
    start = max(0, offset - TAIL_BYTES)
    file.seek(start)
    data = file.read(offset - start)
    return hashlib.blake2b(data, digest_size=8).hexdigest() if len(data) == offset - start else ""


def _end_of_line(file: BinaryIO) -> int | None:
    """Position after the next newline, read in blocks; None: there is none."""
    while data := file.read(BLOCK_BYTES):
        found = data.find(b"\n")
        if found >= 0:
            return file.tell() - len(data) + found + 1
    return None
