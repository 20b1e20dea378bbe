"""Opening: new, old, newer and alien databases, and everything that can be wrong with an address."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import alembic.autogenerate
import alembic.runtime.migration
import pytest
import sqlalchemy as sa

import db.migrations
from db import connect, filesystem, migrate, schema
from db.errors import StoreError
from db.store import RunRecord, Selection, Store

DATA = Path(__file__).with_name("data")
SECRET = "s3cr3t/pa ss"


@contextmanager
def opened(url: str) -> Iterator[tuple[sa.Engine, connect.Address]]:
    address = connect.parse_url(url)
    engine = connect.make_engine(address)
    yield engine, address
    engine.dispose()


def scalars(url: str, query: str) -> list[object]:
    with opened(url) as place, connect.reading(*place) as connection:
        return list(connection.exec_driver_sql(query).scalars())


def execute(url: str, statement: str) -> None:
    with opened(url) as place, connect.writing(*place) as connection:
        connection.exec_driver_sql(statement)


def tables(url: str) -> list[str]:
    with opened(url) as place, connect.reading(*place) as connection:
        return sa.inspect(connection).get_table_names()


def version_of(url: str) -> str | None:
    with opened(url) as place, connect.reading(*place) as connection:
        return migrate.read_version(connection)


def test_migrations_make_the_tables_that_the_code_declares(url: str) -> None:
    Store.open(url).close()
    with opened(url) as place, connect.reading(*place) as connection:
        options = {"version_table": schema.VERSION_TABLE}
        context = alembic.runtime.migration.MigrationContext.configure(connection, opts=options)
        assert alembic.autogenerate.compare_metadata(context, schema.metadata) == []
    assert version_of(url) == schema.HEAD
    scripts = Path(db.migrations.__file__).parent / "versions"
    assert max(file.name for file in scripts.glob("v*.py")).startswith(f"v{schema.HEAD}_")


def test_opening_twice_keeps_everything(url: str) -> None:
    with Store.open(url) as store:
        store.register("s", "t", None, "t", [RunRecord("r", 1, "t", {})], [Selection("r", {"a": 1}, {})], [])
    with Store.open(url, create=False) as store:
        assert store.notes == ()
        assert store.results("s", "loss")["a"].to_list() == [1]


def test_a_memory_database_lives_as_long_as_its_store() -> None:
    with Store.open("sqlite://") as store:
        store.register("s", "t", None, "t", [RunRecord("r", 1, "t", {})], [Selection("r", {"a": 1}, {})], [])
        assert store.results("s", "loss")["a"].to_list() == [1]


def test_create_false_makes_nothing(tmp_path: Path, postgres_url: str) -> None:
    with pytest.raises(StoreError, match=r"there is no database file '.*/x/a\.db' yet"):
        Store.open(f"sqlite:///{tmp_path}/x/a.db", create=False)
    assert not (tmp_path / "x").exists()
    with pytest.raises(StoreError, match="holds no sweeplaw tables yet"):
        Store.open(postgres_url, create=False)
    assert version_of(postgres_url) is None


# a database of another version or of another program


def test_a_newer_database_is_refused(url: str) -> None:
    Store.open(url).close()
    for version in ("9999", "1a2b3c"):
        execute(url, f"UPDATE {schema.VERSION_TABLE} SET version_num = '{version}'")
        with pytest.raises(StoreError, match=f"schema version {version}, this sweeplaw knows none after 0"):
            Store.open(url)
        assert version_of(url) == version


def test_a_database_of_another_program_is_refused(url: str) -> None:
    file = connect.parse_url(url).file
    if file is not None:
        file.parent.mkdir()
    execute(url, "CREATE TABLE runs (x INTEGER)")
    with pytest.raises(StoreError, match=r"tables of another program \('runs'\)"):
        Store.open(url)
    assert tables(url) == ["runs"]


def test_a_server_database_may_hold_other_tables(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE something_else (x INTEGER)")
    Store.open(postgres_url).close()


@pytest.fixture
def version_1(tmp_path: Path) -> str:
    """The SQLite file that schema version 1 made, with a sweep of two runs in it."""
    file = tmp_path / "old.db"
    connection = sqlite3.connect(file)
    connection.executescript((DATA / "v0001.sql").read_text(encoding="utf-8"))
    connection.close()
    return f"sqlite:///{file}"


def test_the_first_version_is_read_for_ever(version_1: str) -> None:
    with Store.open(version_1) as store:
        frame = store.results("old", "loss").select("run", "status", "width", "tokens", "n_params", "loss", "seconds")
        assert frame.rows() == [
            ("aaaa", "done", 16, 6e21, 100.0, 1.5, 4.0),
            ("bbbb", "diverged", 32, 6e21, 200.0, None, 1.0),
        ]
        assert store.infeasible("old").rows() == [(64, "too wide")]
        assert len(store.metrics(["aaaa", "bbbb"])) == 4
        assert store.summaries(["aaaa"])["text"].to_list() == ["stdlib"]
        assert store.artifacts(["aaaa"])["file"].to_list() == ["artifacts/x.safetensors"]
        assert store.predictions("old")["value"].to_list() == [1.25]
        assert store.fits("old")["law"].to_list() == ["power"]


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0003", "0002"
def upgrade():
    op.add_column("runs", sa.Column("added", sa.Integer))
    op.execute("UPDATE runs SET added = 7")
    {then}
"""


@pytest.fixture
def later_scripts(tmp_path: Path) -> Callable[[str], Path]:
    """The migrations with one more; the argument is its last statement."""

    def make(then: str) -> Path:
        source, target = Path(db.migrations.__file__).parent, tmp_path / "100% later"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        (target / "versions" / "v0003_next.py").write_text(NEXT.format(then=then))
        return target

    return make


def test_eight_processes_migrate_an_old_file_at_once(
    version_1: str, later_scripts: Callable[[str], Path], all_succeed: Callable[..., list[str]], tmp_path: Path
) -> None:
    outputs = all_succeed(8, "upgrade", version_1, later_scripts("pass"), "0003")
    copies = list(tmp_path.glob("old.db.v0001-*.bak"))
    assert sorted(outputs)[:1] == [f"{copies[0]}\n"]
    assert sorted(outputs)[1:] == ["None\n"] * 7
    assert len(copies) == 1
    assert version_of(version_1) == "0003"
    assert scalars(version_1, "SELECT added FROM runs") == [7, 7]
    with Store.open(f"sqlite:///{copies[0]}") as store:  # the copy is the old file, whole
        assert store.results("old", "loss")["loss"].to_list() == [1.5, None]


def test_a_migration_that_fails_changes_nothing(version_1: str, later_scripts: Callable[[str], Path]) -> None:
    with opened(version_1) as (engine, address), pytest.raises(ZeroDivisionError):
        migrate.upgrade(engine, address, scripts=str(later_scripts("1 / 0")), head="0003")
    with Store.open(version_1) as store:
        assert "added" not in {column["name"] for column in sa.inspect(store._engine).get_columns("runs")}
        assert store.results("old", "loss")["loss"].to_list() == [1.5, None]


# addresses


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("results/a.db", r"'results/a.db' isn't a database URL.*write 'sqlite:///results/a.db'"),
        ("", "'' isn't a database URL"),
        ("oracel://x/y", "unknown kind of database 'oracel'"),
        ("mysql+aiomysqlx://x/y", "unknown kind of database"),
        ("sqlite:////proc/none/a.db", "can't make folder '/proc/none'"),
        ("sqlite:////proc/a.db", "folder '/proc' must exist and be writable"),
        ("sqlite:////tmp", "'/tmp' is a folder, expected a file such as '/tmp/sweeplaw.db'"),
        (f"postgresql://me:{SECRET.replace('/', '%2F')}@127.0.0.1:1/x", "server can't be reached"),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/x", None),
        ("postgresql://me@127.0.0.1:1/x?password=s3cr3t&connect_timeout=2", "server can't be reached"),
        ("postgresql://me:s3cr3t@127.0.0.1:port/x", "isn't a database URL"),
        ("postgresql://me:s3cr3t@/x?host=/nowhere&nonsense=1", "nonsense"),
    ],
)
def test_an_address_that_cannot_work_says_why_without_its_password(url: str, message: str | None) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(url)
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_database_on_the_server(postgres_server: sa.URL) -> None:
    url = postgres_server.set(database="nowhere", password="s3cr3t").render_as_string(hide_password=False)
    with pytest.raises(StoreError, match='database "nowhere" does not exist') as caught:
        Store.open(url)
    assert "s3cr3t" not in str(caught.value)


def test_a_store_does_not_show_its_password(postgres_url: str) -> None:
    url = sa.make_url(postgres_url).set(password="s3cr3t").render_as_string(hide_password=False)
    with Store.open(url) as store:
        assert store.url == url
        assert "s3cr3t" not in repr(store)
        assert "***" in repr(store)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r'pip install "sweeplaw\[postgres\]"'):
        Store.open("postgresql://me:s3cr3t@host/x")
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(StoreError, match="Python module 'pymysql'"):
        Store.open("mysql+pymysql://me:s3cr3t@host/x")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello " * 500)
    with pytest.raises(StoreError, match="isn't a SQLite database"):
        Store.open(f"sqlite:///{file}")
    assert file.read_text() == "hello " * 500


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        assert len(store.sweeps()) == 0


def test_a_read_only_database_can_be_read(version_1: str) -> None:
    read_only = f"sqlite:///file:{version_1.removeprefix('sqlite:///')}?mode=ro&uri=true"
    with pytest.raises(StoreError, match="is read-only, so nothing can be written"):
        Store.open(read_only)  # an old one would have to change first
    assert version_of(version_1) == "0001"
    Store.open(version_1).close()
    with Store.open(read_only) as store:
        assert store.results("old", "loss")["loss"].to_list() == [1.5, None]
        with pytest.raises(StoreError, match="is read-only, so nothing can be written"):
            store.register("s", "t", None, "t", [], [], [])


def test_a_full_disk_is_said_and_loses_nothing(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:

        @sa.event.listens_for(store._engine, "begin")
        def limit(connection: sa.Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")

        records = [RunRecord(f"r{i}", 1, "t", {"x": "y" * 1000}) for i in range(200)]
        with pytest.raises(StoreError, match="the disk is full"):
            store.register("s", "t", None, "t", records, [], [])
        sa.event.remove(store._engine, "begin", limit)
        assert len(store.sweeps()) == 0
        store.register("s", "t", None, "t", records, [], [])
        assert len(store.statuses(f"r{i}" for i in range(200))) == 200


# journal and file system


def journal(url: str) -> str:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    connection.close()
    return mode


def test_wal_only_on_a_local_file_system(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(sqlite_url).close()
    assert journal(sqlite_url) == "wal"
    monkeypatch.setattr(filesystem, "file_system", lambda _: "nfs")
    with Store.open(sqlite_url) as store:
        (note,) = store.notes
    assert "nfs file system, so SQLite uses journal mode 'delete'" in note
    assert journal(sqlite_url) == "delete"


MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /home rw - autofs systemd-1 rw
31 30 0:31 / /home rw master:2 - nfs4 server:/export rw
32 22 0:32 / /mnt/my\040disk rw - fuse.sshfs me@host: rw
33 22 0:33 / /mnt/usb rw - fuseblk /dev/sdb rw
short line
"""


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        ("/tmp/a.db", "ext4", False),
        ("/home/me/a.db", "nfs4", True),
        ("/homes/a.db", "ext4", False),
        ("/mnt/my disk/a.db", "fuse.sshfs", True),
        ("/mnt/usb/a.db", "fuseblk", False),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str, shared: bool) -> None:
    assert filesystem.parse_mounts(MOUNTS, Path(path)) == kind
    assert filesystem.is_shared(kind) is shared


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="only Linux tells its mounts")
def test_the_kernel_is_asked_for_the_file_system(tmp_path: Path) -> None:
    known = subprocess.run(
        ["stat", "-f", "-c", "%T", "/proc"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert filesystem.file_system(Path("/proc/version")) == known == "proc"
    assert filesystem.file_system(tmp_path / "not there yet" / "a.db") != ""


def test_importing_is_light() -> None:
    heavy = ("torch", "scipy", "plotly", "optuna", "sympy", "alembic", "polars")
    code = f"import sys, db.store; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
