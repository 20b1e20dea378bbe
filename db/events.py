"""Reading event logs: bytes in, changes to a run's rows out. Knows neither files nor SQL.

The meaning of a log does not depend on how it is cut into instalments:

- a line belongs to the attempt of the `start` line before it (0 before any);
- a metric value of attempt a at step s is in force if every later attempt b began at from_step >= s
  (a later attempt without from_step began anew: nothing earlier is in force);
- of the values in force for one name and step, the highest attempt wins, then the last line.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from db.schema import NAME_LIMIT, Kind, attempts

LARGEST = sys.float_info.max
INT64 = 2**63
ATTEMPT_COLUMNS = [column.name for column in attempts.columns if column.name not in ("run_key", "number")]
STATUSES = ("running", "interrupted", "failed", "diverged", "done")
NON_FINITE = {
    "nan": Kind.NAN,
    "inf": Kind.POSITIVE_INFINITY,
    "+inf": Kind.POSITIVE_INFINITY,
    "infinity": Kind.POSITIVE_INFINITY,
    "-inf": Kind.NEGATIVE_INFINITY,
    "-infinity": Kind.NEGATIVE_INFINITY,
}
EVENT = re.compile(rb'\{\s*"e"\s*:')
BAD_KEPT = 20  # bad lines of one run and one read that are handed back with their text
BAD_TEXT = 200  # characters of each

Row = dict[str, Any]  # one row of a table, by column
Point = tuple[float | None, float | None, int, int]  # time, value, kind, attempt


class BadLine(ValueError):
    """A line, or part of one, that is not what an event log holds."""


@dataclass
class LogState:
    """What the database knows of a log: the counters of `positions` and the rows of `attempts`."""

    lines: int = 0
    bad_lines: int = 0
    alien_lines: int = 0
    open_attempt: int = 0
    last_attempt: int = 0
    attempts: dict[int, Row] = field(default_factory=dict)


class LogReader:
    """Turns complete lines into changes. Feed it blocks in the log's order, then take the attributes.

    `metrics[name][step]` is a Point; `cuts` are (attempt, from_step) whose earlier rows in the database must
    go before `metrics` are written; `attempts`, `summaries`, `artifacts` are whole rows to upsert.
    """

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.metrics: dict[str, dict[int, Point]] = {}
        self.cuts: list[tuple[int, int | None]] = []
        self.attempts: dict[int, Row] = {}
        self.summaries: dict[str, Row] = {}
        self.artifacts: dict[str, Row] = {}
        self.bad: list[tuple[int, str]] = []
        self._before = state.bad_lines, state.alien_lines
        steps = [row["last_step"] for row in state.attempts.values() if row["last_step"] is not None]
        self._known_step = max(steps, default=-INT64)  # no metric in the database has a later one
        self._limit = self._step_limit(state.open_attempt)
        self._handlers: dict[Any, Callable[[Row], None]] = {
            "log": self._log,
            "start": self._start,
            "summary": self._summary,
            "samples": self._samples,
            "checkpoint": self._checkpoint,
            "end": self._end,
        }

    @property
    def rows(self) -> int:
        return sum(map(len, self.metrics.values()))

    @property
    def appends(self) -> bool:
        """Whether every metric row is new to the database, so that none can be in another's place."""
        return all(min(column, default=INT64) > self._known_step for column in self.metrics.values())

    @property
    def n_bad(self) -> int:
        return self.state.bad_lines - self._before[0]

    @property
    def n_alien(self) -> int:
        return self.state.alien_lines - self._before[1]

    def feed(self, block: bytes) -> None:
        """Read complete lines; `block` ends with a newline."""
        loads, log, state = orjson.loads, self._log, self.state
        for line in block.split(b"\n")[:-1]:
            state.lines += 1
            try:
                event = loads(line)
                if event["e"] == "log":
                    log(event)
                elif event["e"] == "summary":
                    self._event(parse(line))  # orjson turns integers beyond 64 bits into floats
                else:
                    self._event(event)
            except (ValueError, KeyError, TypeError, RecursionError):
                self._rescue(line)

    def skip_line(self, text: str) -> None:
        """Count one line that was too long to be read."""
        self.state.lines += 1
        self._mark_bad(text)

    def _rescue(self, line: bytes) -> None:
        """Keep what is good of a line that isn't one event: a torn line has the next one behind it."""
        if not line.strip():
            return
        bad = False
        for piece in split_events(line):
            try:
                self._event(parse(piece))
            except (ValueError, KeyError, TypeError, RecursionError):
                bad = True
        if bad:
            self._mark_bad(line[: 4 * BAD_TEXT].decode("utf-8", "replace"))

    def _mark_bad(self, text: str) -> None:
        self.state.bad_lines += 1
        if len(self.bad) < BAD_KEPT:
            self.bad.append((self.state.lines, clean(text[:BAD_TEXT])))

    def _event(self, event: Any) -> None:
        if not isinstance(event, dict) or not isinstance(event.get("e"), str):
            raise BadLine("not an event")
        handler = self._handlers.get(event["e"])
        if handler is None:
            self.state.alien_lines += 1
        else:
            handler(event)

    def _log(self, event: Row) -> None:
        step, values, time = event["step"], event["m"], event.get("t")
        if type(step) is not int:
            step = _whole(step)
        if type(time) is not float:
            time = real(time)
        if type(values) is not dict or not -INT64 < step < INT64:
            raise BadLine("log")
        attempt = self.state.open_attempt
        self._see(attempt, step, time)
        old = attempt != self.state.last_attempt
        if old and self._limit is not None and step > self._limit:
            return
        metrics, failed = self.metrics, False
        for name, value in values.items():
            if type(value) is float and -LARGEST <= value <= LARGEST:
                point: Point = (time, value, 0, attempt)
            else:
                number = measured(value)
                if number is None:
                    failed = True
                    continue
                point = (time, *number, attempt)
            column = metrics.get(name)
            if column is None:
                if not usable(name):
                    failed = True
                    continue
                column = metrics.setdefault(clean(name), {})
            if old and step in column and column[step][3] > attempt:
                continue
            column[step] = point
        if failed:
            raise BadLine("value")

    def _see(self, attempt: int, step: int | None, time: float | None) -> None:
        row = self.attempts.get(attempt)
        if row is None:
            row = self._attempt(attempt)
        if step is not None and (row["last_step"] is None or step > row["last_step"]):
            row["last_step"] = step
        if time is not None and (row["last_seen"] is None or time > row["last_seen"]):
            row["last_seen"] = time

    def _attempt(self, number: int) -> Row:
        row = self.attempts.get(number)
        if row is None:
            row = self.state.attempts.setdefault(number, dict.fromkeys(ATTEMPT_COLUMNS))
            row["status"] = row["status"] or "running"
            self.attempts[number] = row
        return row

    def _start(self, event: Row) -> None:
        number = event.get("attempt")
        if type(number) is not int or not 0 <= number < 2**31:
            raise BadLine("attempt")
        from_step = None if event.get("from_step") is None else _whole(event["from_step"])
        known = self.state.attempts.get(number)
        facts = _start_facts(event, from_step)
        if known is None or known["started"] != facts["started"] or known["pid"] != facts["pid"]:
            # Under a number that is taken (somebody lost count) it is a new beginning all the same.
            self._cut(number if known is None else number + 1, from_step)
            if known is not None:
                known.update(dict.fromkeys(ATTEMPT_COLUMNS), status="running", last_step=known["last_step"])
            self._attempt(number).update(facts)
        self._see(number, None, facts["started"])
        self.state.open_attempt = number
        self.state.last_attempt = max(self.state.last_attempt, number)
        self._limit = self._step_limit(number)

    def _cut(self, attempt: int, from_step: int | None) -> None:
        """Drop what attempts below `attempt` logged after `from_step`."""
        self.cuts.append((attempt, from_step))
        for name, column in self.metrics.items():
            self.metrics[name] = {
                step: point
                for step, point in column.items()
                if point[3] >= attempt or (from_step is not None and step <= from_step)
            }

    def _step_limit(self, attempt: int) -> int | None:
        """Last step at which attempt's values are in force; None: all of them."""
        later = [row["from_step"] for number, row in self.state.attempts.items() if number > attempt]
        return min((-INT64 - 1 if step is None else step for step in later), default=None)

    def _summary(self, event: Row) -> None:
        failed = False
        for name, value in event["v"].items():
            row = summarised(value)
            if row is None:
                failed = True
                continue
            self._keep(self.summaries, label(name), row)
        self._see(self.state.open_attempt, None, real(event.get("t")))
        if failed:
            raise BadLine("summary")

    def _samples(self, event: Row) -> None:
        file = event["file"]
        if not isinstance(file, str) or file.startswith("/") or ".." in file.split("/"):
            raise BadLine("file")
        row = {
            "file": clean(file),
            "n": integer(event.get("n")),
            "bytes": real(event.get("bytes")),
            "sha256": words(event.get("sha256"), 64),
            "time": real(event.get("t")),
        }
        self._keep(self.artifacts, label(event["name"]), row)

    def _keep(self, rows: dict[str, Row], name: str, row: Row) -> None:
        attempt = self.state.open_attempt
        if name not in rows or rows[name]["attempt"] <= attempt:
            rows[name] = {**row, "attempt": attempt}

    def _checkpoint(self, event: Row) -> None:
        step = _whole(event["step"])
        row = self._attempt(self.state.open_attempt)
        row["checkpoint_step"], row["checkpoint_bytes"] = step, real(event.get("bytes"))
        self._see(self.state.open_attempt, None, real(event.get("t")))

    def _end(self, event: Row) -> None:
        status = event.get("status")
        if status not in STATUSES[1:]:
            raise BadLine("status")
        row = self._attempt(self.state.open_attempt)
        time = real(event.get("t"))
        self._see(self.state.open_attempt, None, time)
        # Whoever judges a silent run dead may be wrong: the run's own word outranks "interrupted".
        if STATUSES.index(status) < STATUSES.index(row["status"]):
            return
        error = event.get("error")
        error = error if isinstance(error, dict) else {}
        row.update(
            status=status,
            reason=words(event.get("reason")),
            ended=time,
            seconds=real(event.get("seconds")),
            peak_bytes=real(event.get("peak_bytes")),
            error_type=words(error.get("type")),
            error_message=words(error.get("message")),
            traceback=words(error.get("traceback")),
        )


def _start_facts(event: Row, from_step: int | None) -> Row:
    code, packages = event.get("code"), event.get("packages")
    code = code if isinstance(code, dict) else {}
    dirty = code.get("dirty")
    threads = integer(event.get("threads"))
    return {
        "started": real(event.get("t")),
        "from_step": from_step,
        "host": words(event.get("host")),
        "pid": integer(event.get("pid")),
        "device": words(event.get("device")),
        "threads": threads if threads is not None and abs(threads) < 2**31 else None,
        "seed": integer(event.get("seed")),
        "code_commit": words(code.get("commit")),
        "code_dirty": dirty if isinstance(dirty, bool) else None,
        "packages": json.dumps(packages, sort_keys=True) if isinstance(packages, dict) else None,
    }


def split_events(line: bytes) -> list[bytes]:
    """The pieces of a line that begin like an event; a quote inside a string is escaped."""
    starts = [0, *(match.start() for match in EVENT.finditer(line, 1))]
    return [line[start:end] for start, end in zip(starts, [*starts[1:], len(line)], strict=True)]


def parse(piece: bytes) -> Any:
    """JSON as Python's own writer spells it too: bare NaN, Infinity and 1e999."""
    return json.loads(piece.decode("utf-8"))


def measured(value: Any) -> tuple[float | None, int] | None:
    """(number, kind) of a logged value; None: not a number."""
    if isinstance(value, str):
        kind = NON_FINITE.get(value.lower())
        return None if kind is None else (None, int(kind))
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None, int(Kind.POSITIVE_INFINITY if value > 0 else Kind.NEGATIVE_INFINITY)
    if math.isfinite(number):
        return number, int(Kind.FINITE)
    if math.isnan(number):
        return None, int(Kind.NAN)
    return None, int(Kind.POSITIVE_INFINITY if number > 0 else Kind.NEGATIVE_INFINITY)


def summarised(value: Any) -> Row | None:
    """The stored form of a summary value: kind, number where it is finite, exact text."""
    if isinstance(value, bool):
        return {"kind": "bool", "number": float(value), "text": json.dumps(value)}
    if isinstance(value, int):
        return {"kind": "int", "number": real(value), "text": str(value)}
    if isinstance(value, float):
        return {"kind": "float", "number": real(value), "text": repr(value)}
    if isinstance(value, str):
        return {"kind": "str", "number": None, "text": clean(value)}
    return None if value is None else {"kind": "json", "number": None, "text": json.dumps(value)}


def real(value: Any) -> float | None:
    """`value` as a finite float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def integer(value: Any) -> int | None:
    """`value` as an integer that a database holds, else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and -INT64 < value < INT64 else None


def _whole(value: Any) -> int:
    number = integer(value)
    if number is None:
        raise BadLine("not a whole number")
    return number


def words(value: Any, limit: int | None = None) -> str | None:
    """`value` as text that every database stores; None stays None, other things are written as JSON."""
    if value is None:
        return None
    return clean(value if isinstance(value, str) else json.dumps(value))[:limit]


def label(name: Any) -> str:
    """A name that is indexed: text, not empty, not endless."""
    if not isinstance(name, str) or not usable(name):
        raise BadLine("name")
    return clean(name)


def usable(name: str) -> bool:
    return 0 < len(name) <= NAME_LIMIT


def clean(text: str) -> str:
    """`text` without what PostgreSQL refuses: NUL characters and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
