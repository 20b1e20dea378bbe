"""Processes that race and processes that die: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from db import connect
from db.store import Store

AllSucceed = Callable[..., list[str]]
Start = Callable[..., subprocess.Popen[str]]


def append_log(file: Path, first: int, count: int, attempt: int, from_step: int | None) -> None:
    """One attempt with `count` steps of three values each, exactly representable."""
    rows = [{"e": "start", "t": float(attempt), "attempt": attempt, "from_step": from_step, "pid": 1}]
    rows += [
        {"e": "log", "t": float(step), "step": step, "m": {"a": step / 8, "b": attempt + 0.5, "c": "nan"}}
        for step in range(first, first + count)
    ]
    rows.append({"e": "end", "t": 9.0, "status": "done", "seconds": 1.0})
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as out:
        out.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def everything(store: Store, runs: list[str]) -> list[pl.DataFrame]:
    return [store.metrics(runs).sort("run", "name", "step"), store.attempts("s"), store.results("s", "a")]


def equal(store: Store, other: Store, runs: list[str]) -> bool:
    pairs = zip(everything(store, runs), everything(other, runs), strict=True)
    return all(one.equals(two) for one, two in pairs)


def test_ingesters_killed_at_random_moments_leave_equal_rows(
    url: str, start: Start, all_succeed: AllSucceed, tmp_path: Path
) -> None:
    folder, runs = tmp_path / "runs", [f"run{i}" for i in range(6)]
    dice = random.Random(7)
    for run in runs:
        append_log(folder / run / "events.jsonl", 0, 50, 1, None)
    all_succeed(1, "register", url, folder)
    killed, rounds = 0, 12 if url.startswith("sqlite") else 6
    for attempt in range(2, 2 + rounds):
        for run in runs:
            append_log(folder / run / "events.jsonl", 40 * attempt, 700, attempt, 40 * attempt)
        process = start("ingest", url, folder)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(dice.uniform(0, 0.25))
        process.kill()
        killed += process.wait() == -9
    assert killed >= rounds / 2  # else the moments were too late to test anything
    with Store.open(url) as store, Store.open(f"sqlite:///{tmp_path}/clean.db") as clean:
        store.ingest(folder, runs)
        all_succeed(1, "both", clean.url, folder)
        assert equal(store, clean, runs)
        assert len(store.metrics(runs)) == sum(len(clean.metrics([run])) for run in runs) > 6 * 3 * 500


def test_eight_processes_register_and_ingest_the_same_runs(url: str, all_succeed: AllSucceed, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    runs = [f"run{i:03}" for i in range(500)]
    for run in runs:
        append_log(folder / run / "events.jsonl", 0, 10, 1, None)
    outputs = [output.split() for output in all_succeed(8, "both", url, folder)]
    assert len({version for version, _, _ in outputs}) == 1
    assert sum(int(rows) for _, _, rows in outputs) == 500 * 30  # each row was counted by one of them
    with Store.open(url) as store:
        metrics = store.metrics(runs)
        assert len(metrics) == 500 * 30
        assert metrics.filter(pl.col("name") == "a").select(pl.col("value").sum()).item() == 500 * 45 / 8
        assert store.results("s", "a")["run"].to_list() == runs
        assert {status.status for status in store.statuses(runs).values()} == {"done"}
        assert len(store.versions("s")) == 1


def test_eight_processes_open_a_new_database_at_once(url: str, all_succeed: AllSucceed) -> None:
    assert all_succeed(8, "open", url) == ["0\n"] * 8


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_no_update_is_lost_or_refused(mode: str, all_succeed: AllSucceed, tmp_path: Path) -> None:
    file = tmp_path / "counter.db"
    setup = sqlite3.connect(file)
    setup.execute(f"PRAGMA journal_mode={mode}")
    setup.execute("CREATE TABLE counter (v INTEGER)")
    setup.execute("INSERT INTO counter VALUES (0)")
    setup.commit()
    setup.close()
    times = 100 if mode == "wal" else 25  # without WAL each transaction waits for the disk
    all_succeed(8, "count", f"sqlite:///{file}", times)
    address = connect.parse_url(f"sqlite:///{file}")
    with connect.reading(connect.make_engine(address), address) as connection:
        assert connection.exec_driver_sql("SELECT v FROM counter").scalar_one() == 8 * times


def test_a_reader_keeps_its_view_while_rows_come_in(sqlite_url: str, all_succeed: AllSucceed, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    append_log(folder / "run0" / "events.jsonl", 0, 10, 1, None)
    with Store.open(sqlite_url) as store:
        all_succeed(1, "register", sqlite_url, folder)
        address = connect.parse_url(sqlite_url)
        with connect.reading(connect.make_engine(address), address) as connection:
            count = "SELECT count(*) FROM metrics"
            assert connection.exec_driver_sql(count).scalar_one() == 0
            assert store.ingest(folder, ["run0"]).rows == 30
            assert connection.exec_driver_sql(count).scalar_one() == 0
        assert len(store.metrics(["run0"])) == 30


def test_a_lock_held_for_long_is_waited_for(
    sqlite_url: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs"
    append_log(folder / "run0" / "events.jsonl", 0, 10, 1, None)
    with Store.open(sqlite_url):
        pass
    file = sqlite_url.removeprefix("sqlite:///")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    process = start("register", sqlite_url, folder)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(connect, "GIVE_UP_SECONDS", 0.5)
    with (
        Store.open(sqlite_url) as store,
        pytest.raises(connect.StoreError, match="another process kept the database locked"),
    ):
        store.register("s", "t", None, "t", [], [], [])
    other.execute("ROLLBACK")
    other.close()
    assert process.wait(60) == 0
