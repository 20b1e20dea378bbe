from __future__ import annotations

import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.pool import NullPool, StaticPool

from db.errors import StoreError

BUSY_SECONDS = 30.0  # SQLite's own wait for a lock
GIVE_UP_SECONDS = 120.0  # a writer that lost every race until now stops trying
SECRETS = ("password", "passwd", "pwd", "sslpassword")
T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """A parsed database URL. `str()` of it hides passwords."""

    url: sa.URL = field(repr=False)

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for servers and for databases in memory."""
        name = self.url.database
        if not self.is_sqlite or name in (None, "", ":memory:"):
            return None
        return Path(name)

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def __str__(self) -> str:
        shown = self.url.difference_update_query(SECRETS)
        return shown.render_as_string(hide_password=True)

    def scrub(self, text: str) -> str:
        """`text` with every form of this address' passwords replaced by ***."""
        found = [self.url.password] + [self.url.query.get(key) for key in SECRETS]
        for secret in found:
            if isinstance(secret, str) and secret:
                for form in {secret, quote(secret, safe=""), quote_plus(secret)}:
                    text = text.replace(form, "***")
        return text


def parse_url(text: str) -> Address:
    """Read a SQLAlchemy URL; `postgresql://` and `postgres://` mean the psycopg 3 driver."""
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        shown = re.sub(r"//.*@", "//***@", text, flags=re.S)
        hint = "" if "://" in text else f"; for a SQLite file write 'sqlite:///{shown}'"
        raise StoreError(
            f"{shown!r} isn't a database URL: expected for example 'sqlite:///results/sweeplaw.db' "
            f"or 'postgresql://user@host/name'{hint}"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    return Address(url)


def make_engine(address: Address) -> sa.Engine:
    """An engine with this project's transaction rules; connects to nothing yet."""
    try:
        if address.is_sqlite:
            return _sqlite_engine(address)
        options: dict[str, Any] = {"pool_pre_ping": True}
        if address.url.drivername == "postgresql+psycopg" and "connect_timeout" not in address.url.query:
            options["connect_args"] = {"connect_timeout": 10}
        return sa.create_engine(address.url, **options)
    except exc.NoSuchModuleError:
        raise StoreError(
            f"{address} names an unknown kind of database '{address.url.drivername}': "
            "expected sqlite, postgresql, or another one that SQLAlchemy knows"
        ) from None
    except ImportError as error:
        raise StoreError(f"{address} needs a driver that isn't installed: {_driver(address, error)}") from None
    except exc.ArgumentError as error:
        raise StoreError(f"{address}: {address.scrub(str(error))}") from None


def _driver(address: Address, error: ImportError) -> str:
    if address.url.get_backend_name() == "postgresql":
        return 'pip install "sweeplaw[postgres]"'
    return f"pip install the package that holds the Python module '{error.name}'"


def _sqlite_engine(address: Address) -> sa.Engine:
    # A file gets a fresh connection per transaction: nothing is inherited over a fork or shared by threads.
    pool: type[sa.Pool] = NullPool if address.file is not None else StaticPool
    arguments = {"timeout": BUSY_SECONDS, "check_same_thread": address.file is not None}
    engine = sa.create_engine(address.url, poolclass=pool, connect_args=arguments)
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # else the driver opens its transaction only at the first write
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL" if _journal(connection) == "wal" else "PRAGMA synchronous=FULL")


def _journal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _on_begin(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get("writes"):
        connection.exec_driver_sql("BEGIN")
        return
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            # A transaction that reads first and writes later must hold the write lock from its start: a
            # deferred one is refused at once when another writer came between, whatever the busy timeout.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        except exc.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.01, 0.2))


def is_busy(error: BaseException) -> bool:
    """Whether SQLite refused because another connection holds a lock."""
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def set_journal(engine: sa.Engine, mode: str) -> str:
    """Ask SQLite for journal `mode`; returns the mode in force afterwards."""
    deadline = time.monotonic() + 10
    while True:
        with closing(engine.raw_connection()) as pooled:
            connection = pooled.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            now = _journal(connection)
            try:
                return now if now == mode else str(connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0])
            except sqlite3.OperationalError as error:
                # Changing the mode needs the file for itself and does not always honour the busy timeout.
                if not is_busy(error) or time.monotonic() > deadline:
                    return now
        time.sleep(random.uniform(0.005, 0.05))


@contextmanager
def reading(engine: sa.Engine, address: Address) -> Iterator[sa.Connection]:
    """One consistent read transaction."""
    with translated(address), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: sa.Engine, address: Address) -> Iterator[sa.Connection]:
    """One write transaction; SQLite's write lock is held from its start."""
    with (
        translated(address),
        engine.execution_options(writes=True).connect() as connection,
        connection.begin(),
    ):
        yield connection


def transact(engine: sa.Engine, address: Address, work: Callable[[sa.Connection], T]) -> T:
    """Run `work` in a write transaction, anew when the database asks for it. `work` must be repeatable."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    pause = 0.05
    while True:
        try:
            with engine.execution_options(writes=True).connect() as connection, connection.begin():
                return work(connection)
        except exc.DBAPIError as error:
            if pause > 10 or time.monotonic() > deadline or not _worth_repeating(error):
                raise _as_store_error(address, error) from _cause(address, error)
        time.sleep(random.uniform(0, pause))
        pause *= 2


def _worth_repeating(error: exc.DBAPIError) -> bool:
    if isinstance(error, exc.IntegrityError):
        return True  # another writer inserted the same row between our look and our insert
    state = getattr(error.orig, "sqlstate", None)
    return state in ("40001", "40P01") or is_busy(error)  # serialization failure, deadlock


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn errors of the database into StoreError."""
    try:
        yield
    except (exc.DBAPIError, sqlite3.Error) as error:
        raise _as_store_error(address, error) from _cause(address, error)


def _cause(address: Address, error: Exception) -> Exception | None:
    """The error to show as the cause: none that holds a secret."""
    return error if address.scrub(str(error)) == str(error) else None


def _as_store_error(address: Address, error: Exception) -> StoreError:
    cause = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    said = address.scrub("; ".join(lines[:4]) or type(cause).__name__)
    return StoreError(f"{address}: {_explain(address, cause, said)}")


def _explain(address: Address, cause: BaseException, said: str) -> str:
    if is_busy(cause):
        return f"another process kept the database locked for more than {GIVE_UP_SECONDS:.0f} s; try again"
    for words, sentence in EXPLAINED.items():
        if words in said.lower():
            folder = address.file.resolve().parent if address.file is not None else "?"
            return sentence.format(folder=folder, said=said)
    unreached = type(cause).__name__ == "OperationalError" and getattr(cause, "sqlstate", None) is None
    if unreached and not address.is_sqlite:
        return f"the server can't be reached or refused the connection: {said}"
    return said


EXPLAINED = {
    "file is not a database": "this file isn't a SQLite database; choose another path or move the file away",
    "file is encrypted": "this file isn't a SQLite database; choose another path or move the file away",
    "malformed": "the database file is damaged ({said}); restore a copy, or delete it and ingest anew",
    "unable to open database": "can't open or create the file: folder '{folder}' must exist and be writable",
    "readonly database": "the file or its folder '{folder}' is read-only, so nothing can be written",
    "disk is full": "the disk is full; nothing is lost: free some space and run the command again",
    "no space left": "the disk is full; nothing is lost: free some space and run the command again",
}
