from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import db.store
from db.bulk import Writer
from db.store import Store

WORKER = Path(__file__).with_name("worker.py")


def _postgres_programs() -> Path | None:
    """Folder of initdb and pg_ctl: on the path, or where Debian keeps them."""
    found = shutil.which("initdb") or max(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)
    return Path(found).parent if found else None


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: subprocess arguments that name another user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL can't run as root and there is no user 'postgres' or 'nobody'")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[sa.URL]:
    """A PostgreSQL server: the one of SWEEPLAW_TEST_POSTGRES, or a private one on a unix socket."""
    given = os.environ.get("SWEEPLAW_TEST_POSTGRES")
    if given:
        yield sa.make_url(given).set(drivername="postgresql+psycopg")
        return
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL here: initdb isn't found and SWEEPLAW_TEST_POSTGRES isn't set")
    as_user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="slpg", dir="/tmp"))  # short: a socket's path has 107 bytes
    if as_user:
        os.chown(folder, as_user["user"], as_user["group"])
    data, log = folder / "data", folder / "log"

    def run(*command: object) -> None:
        words = list(map(str, command))
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)

    try:
        run(programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "-E", "UTF8", "-N")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=60"
        control = [programs / "pg_ctl", "-D", data, "-w"]
        run(*control, "-l", log, "-o", options, "start")
        try:
            yield sa.URL.create("postgresql+psycopg", "tester", database="postgres", query={"host": str(folder)})
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(server: sa.URL) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield server.set(database=name, drivername="postgresql").render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres_server: sa.URL) -> Iterator[str]:
    """A fresh database on the server."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def lasting_postgres_url(postgres_server: sa.URL) -> Iterator[str]:
    """A fresh database for all tests of a module."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/sweeplaw.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgres", "plain"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store on each database; "plain" is what databases without a fast path of their own get."""
    kind = request.param
    if kind == "plain":
        monkeypatch.setattr(db.store, "writer_for", lambda _: Writer())
    with Store.open(request.getfixturevalue("postgres_url" if kind == "postgres" else "sqlite_url")) as opened:
        yield opened


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `worker.py` with arguments; whatever still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start_worker(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start_worker
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def all_succeed(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., list[str]]:
    """Run several workers with the same arguments at once; returns what each printed."""

    def run(count: int, *arguments: object) -> list[str]:
        processes = [start(*arguments) for _ in range(count)]
        outputs = [process.communicate(timeout=120) for process in processes]
        for process, (_, error) in zip(processes, outputs, strict=True):
            assert process.returncode == 0, error
        return [output for output, _ in outputs]

    return run
