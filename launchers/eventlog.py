"""The event log of a run folder: one JSON object a line, appended by the run's only owner.

Whoever holds the lock of a run folder owns the run. The lock dies with its process, so a run whose log has a `start`
and no `end`, and whose lock is free, was interrupted.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

LOG_NAME = "events.jsonl"
LOCK_NAME = "lock"
FINAL = ("done", "diverged")


class Busy(Exception):
    """Another living process owns the run."""


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Own the run in `folder` for the block. Raises Busy when another process does."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(str(folder)) from None
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class State:
    """What a log says of its run: how many attempts began, and how the last one ended (None: it didn't)."""

    attempts: int = 0
    status: str | None = None


def read_state(folder: Path) -> State:
    """Attempts and the last status from the log of `folder`; garbage lines are passed over."""
    attempts, status = 0, None
    with suppress(FileNotFoundError), (folder / LOG_NAME).open("rb") as file:
        for line in file:
            if not line.startswith((b'{"e":"start"', b'{"e":"end"')):
                continue
            with suppress(orjson.JSONDecodeError):
                event = orjson.loads(line)
                if event["e"] == "start":
                    attempts, status = attempts + 1, None
                else:
                    status = event.get("status")
    return State(attempts, status)


class EventLog:
    """Appends events. Lines are gathered and written every `flush_seconds`, and at once by `flush`.

    A line torn by an earlier crash is closed first, so that it spoils no line but itself.
    """

    def __init__(self, folder: Path, flush_seconds: float = 1.0) -> None:
        self._file = (folder / LOG_NAME).open("ab", buffering=0)
        self._lines: list[bytes] = []
        self._lock = threading.Lock()
        self._flush_seconds = flush_seconds
        self._flushed = time.monotonic()
        if self._torn(folder / LOG_NAME):
            self._file.write(b"\n")

    @staticmethod
    def _torn(path: Path) -> bool:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def append(self, kind: str, **fields: Any) -> None:
        line = orjson.dumps({"e": kind, "t": time.time(), **fields}, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            self._lines.append(line)
        if time.monotonic() - self._flushed > self._flush_seconds:
            self.flush()

    def flush(self, *, durable: bool = False) -> None:
        """Hand what was gathered to the operating system; `durable` also to the disk."""
        with self._lock:
            if self._lines:
                data = b"".join(self._lines)
                while data:
                    data = data[self._file.write(data) :]
                self._lines = []
            self._flushed = time.monotonic()
        if durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            self.flush(durable=True)
            self._file.close()


def encode_values(values: Mapping[str, Any]) -> tuple[dict[str, float | str], bool]:
    """Numbers as the log writes them (NaN and inf as text), and whether all are finite.

    Raises TypeError naming a value that isn't a number.
    """
    encoded: dict[str, float | str] = {}
    finite = True
    for name, value in values.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"run.log: {name} = {value!r} is not a number") from None
        if math.isfinite(number):
            encoded[name] = number
        else:
            finite = False
            encoded[name] = "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf")
    return encoded, finite


def close_orphan(folder: Path, status: str, reason: str) -> bool:
    """Write the end that a dead owner could not write. False when the run is owned, or has its end already."""
    try:
        with owned(folder):
            state = read_state(folder)
            if state.attempts == 0 or state.status is not None:
                return False
            log = EventLog(folder)
            log.append("end", status=status, reason=reason, error=None, seconds=None, peak_bytes=None)
            log.close()
            return True
    except (Busy, FileNotFoundError):
        return False
