"""What tests run in processes of their own: python worker.py COMMAND …"""

from __future__ import annotations

import sys
from pathlib import Path

import sqlalchemy as sa

from db import connect, migrate
from db.store import RunRecord, Selection, Store


def register(url: str, runs_dir: str) -> None:
    ids = sorted(path.name for path in Path(runs_dir).iterdir())
    records = [RunRecord(run_id, 1, "t:train", {"id": run_id}, n_params=1.0) for run_id in ids]
    cells = [Selection(run_id, {"i": i}, {}) for i, run_id in enumerate(ids)]
    with Store.open(url) as store:
        print(store.register("s", "text", None, "t:train", records, cells, []))


def ingest(url: str, runs_dir: str) -> None:
    ids = sorted(path.name for path in Path(runs_dir).iterdir())
    with Store.open(url) as store:
        print("ready", flush=True)
        print(store.ingest(Path(runs_dir), ids).rows)


def both(url: str, runs_dir: str) -> None:
    register(url, runs_dir)
    ingest(url, runs_dir)


def open_store(url: str) -> None:
    with Store.open(url) as store:
        print(len(store.sweeps()))


def count(url: str, times: str) -> None:
    """Read a counter, then write it: what a deferred transaction loses or refuses."""
    address = connect.parse_url(url)
    engine = connect.make_engine(address)
    for _ in range(int(times)):
        with connect.writing(engine, address) as connection:
            value = connection.exec_driver_sql("SELECT v FROM counter").scalar_one()
            connection.execute(sa.text("UPDATE counter SET v = :v"), {"v": value + 1})


def upgrade(url: str, scripts: str, head: str) -> None:
    address = connect.parse_url(url)
    print(migrate.upgrade(connect.make_engine(address), address, scripts=scripts, head=head))


COMMANDS = {
    "register": register,
    "ingest": ingest,
    "both": both,
    "open": open_store,
    "count": count,
    "upgrade": upgrade,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
