from __future__ import annotations

import random
import shutil
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from db import schema
from db.connect import Address
from db.errors import StoreError

SCRIPTS = "db:migrations"  # found through the package, so that an installed wheel migrates too
LOCK = 0x73776C6177  # key of the PostgreSQL advisory lock held while a schema changes


def read_version(connection: sa.Connection) -> str | None:
    """The schema version that the database says it has; None: none of our tables are there."""
    if not sa.inspect(connection).has_table(schema.VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar()


def upgrade(engine: sa.Engine, address: Address, *, scripts: str = SCRIPTS, head: str = schema.HEAD) -> Path | None:
    """Bring the database to version `head` in one transaction that excludes every other writer.

    Returns the copy that was made of an existing SQLite file, or None. Any number of processes may do this
    at once: the first one does the work. Raises StoreError for a newer or an alien database.
    """
    with engine.execution_options(writes=True).connect() as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        version = read_version(connection)  # again: another process may have been faster
        check(connection, address, version, head)
        if version == head:
            return None
        copy = _back_up(connection, address, version) if version is not None else None
        _run_migrations(connection, scripts, head)
    return copy


def check(connection: sa.Connection, address: Address, version: str | None, head: str = schema.HEAD) -> None:
    """Refuse a database that is newer than this code or that belongs to another program."""
    if version is None:
        _refuse_alien(connection, address)
    elif not version.isdecimal() or int(version) > int(head):
        raise StoreError(
            f"{address}: the database has schema version {version}, this sweeplaw knows none after {head}: "
            "update sweeplaw (pip install -U sweeplaw) or use another database"
        )


def _refuse_alien(connection: sa.Connection, address: Address) -> None:
    present = set(sa.inspect(connection).get_table_names())
    # A SQLite file serves one program; a server's database may hold other programs' tables beside ours.
    alien = present if address.is_sqlite else present & set(schema.metadata.tables)
    # Another process may have made our tables since the version was read.
    if alien and read_version(connection) is None:
        names = ", ".join(f"'{name}'" for name in sorted(alien)[:5])
        raise StoreError(
            f"{address}: this database holds tables of another program ({names}); use a database of its own"
        )


def _back_up(connection: sa.Connection, address: Address, version: str) -> Path | None:
    """Copy the SQLite file through a second connection: a reader, so it sees the state before this change."""
    file = _file_of(connection)
    if file is None:
        return None
    # Fails on a read-only database, which needs no copy.
    connection.execute(sa.text(f"UPDATE {schema.VERSION_TABLE} SET version_num = version_num"))
    stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{random.randrange(16**4):04x}"
    target = file.with_name(f"{file.name}.v{version}-{stamp}.bak")
    free = shutil.disk_usage(target.parent).free
    if free < 2 * file.stat().st_size:
        raise StoreError(f"{address}: no room in '{target.parent}' for the copy made before the schema changes")
    source, copy = sqlite3.connect(file), sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        source.close()
        copy.close()
    return target


def _file_of(connection: sa.Connection) -> Path | None:
    """The SQLite file, as SQLite itself calls it: the name in a URL may be a URI. None: a server, or in memory."""
    if connection.dialect.name != "sqlite":
        return None
    name = connection.exec_driver_sql("PRAGMA database_list").all()[0][2]
    return Path(name) if name else None


def _run_migrations(connection: sa.Connection, scripts: str, head: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", scripts.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, head)
