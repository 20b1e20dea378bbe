"""How fast the store is, as ratios measured side by side: python tests/bench/ingest.py [ROWS] [POSTGRES_URL]

Each figure is the best of three rounds in which the two ways alternate, so that a busy machine slows both.
Bars: ingest >= 0.5 of the rate of SQLAlchemy Core's executemany (SQLite) or of COPY (PostgreSQL); reading a million
rows <= 1.2 of a bare sqlite3 cursor with an explicit schema; opening < 0.3 s.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa

from db import connect, schema
from db.bulk import MetricRow, copy_metrics
from db.store import RunRecord, Selection, Store

NAMES = [f"metric{i}" for i in range(10)]
STEPS = 100
ROUNDS = 3


def rows_of(count: int) -> list[MetricRow]:
    """`count` metric rows in the order in which logs give them: ten values a step, a hundred steps a run."""
    return [
        (run, name, step, 1.7e9 + step, step * 1e-3 + name + 0.5, 0, 1)
        for run in range(1, count // 1000 + 1)
        for step in range(STEPS)
        for name in range(1, 11)
    ]


def write_logs(folder: Path, rows: list[MetricRow]) -> list[str]:
    """The same rows as event logs, one per run; returns the run ids."""
    runs = sorted({row[0] for row in rows})
    for number in runs:
        target = folder / f"{number:024x}"
        target.mkdir(parents=True)
        own = rows[(number - 1) * 1000 : number * 1000]
        lines = [{"e": "start", "t": 1.0, "attempt": 1, "from_step": None, "pid": 1}]
        for first in range(0, 1000, 10):
            values = {NAMES[row[1] - 1]: row[4] for row in own[first : first + 10]}
            lines.append({"e": "log", "t": own[first][3], "step": own[first][2], "m": values})
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (target / "events.jsonl").write_text(text, encoding="utf-8")
    return [f"{number:024x}" for number in runs]


def register(store: Store, runs: list[str]) -> None:
    records = [RunRecord(run, 1, "t:train", {}) for run in runs]
    store.register("bench", "t", None, "t:train", records, [Selection(run, {"cell": run}, {}) for run in runs], [])


def fresh(url: str) -> str:
    """A new empty database beside `url`: another file, or another schema of the server."""
    if url.startswith("sqlite"):
        return url.replace("NEW", uuid.uuid4().hex)
    name = f"bench_{uuid.uuid4().hex}"
    engine = sa.create_engine(connect.parse_url(url).url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
    engine.dispose()
    return (
        sa.make_url(url).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
    )


def drop(url: str) -> None:
    name = sa.make_url(url).query.get("options")
    if isinstance(name, str):
        engine = sa.create_engine(connect.parse_url(url).url)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {name.removeprefix('-csearch_path=')} CASCADE")
        engine.dispose()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """(wall, CPU of this process) seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def ours(url: str, folder: Path, runs: list[str], rows: list[MetricRow]) -> tuple[float, float]:
    url = fresh(url)
    with Store.open(url) as store:
        register(store, runs)
        seconds = timed(lambda: store.ingest(folder, runs))
        assert len(store.metrics(runs)) == len(rows)
    drop(url)
    return seconds


def core(url: str, rows: list[MetricRow]) -> tuple[float, float]:
    """SQLAlchemy Core's executemany of a thousand rows per transaction."""
    url = fresh(url)
    Store.open(url).close()
    engine = sa.create_engine(connect.parse_url(url).url)
    names = [column.name for column in schema.metrics.columns]
    values = [dict(zip(names, row, strict=True)) for row in rows]

    def work() -> None:
        for first in range(0, len(values), 1000):
            with engine.begin() as connection:
                connection.execute(sa.insert(schema.metrics), values[first : first + 1000])

    seconds = timed(work)
    engine.dispose()
    drop(url)
    return seconds


def copy(url: str, rows: list[MetricRow]) -> tuple[float, float]:
    """One COPY of everything into the table."""
    url = fresh(url)
    Store.open(url).close()
    engine = connect.make_engine(connect.parse_url(url))

    def work() -> None:
        with engine.begin() as connection:
            copy_metrics(connection, "metrics", rows)

    seconds = timed(work)
    engine.dispose()
    drop(url)
    return seconds


def best(*ways: Callable[[], tuple[float, float]]) -> list[tuple[float, float]]:
    """Best wall and best CPU seconds of each way, the ways taking turns."""
    rounds = [[way() for way in ways] for _ in range(ROUNDS)]
    return [tuple(min(kind) for kind in zip(*(turn[i] for turn in rounds), strict=True)) for i in range(len(ways))]  # type: ignore[misc]


def show(what: str, bar: str, measured: tuple[float, float], base: tuple[float, float], *, rate: bool) -> None:
    wall, cpu = ((b / m if rate else m / b) for m, b in zip(measured, base, strict=True))
    seconds = f"{measured[0]:6.2f} s against {base[0]:6.2f} s (CPU {measured[1]:.2f} and {base[1]:.2f})"
    print(f"{what:42s} {wall:5.2f} by wall, {cpu:5.2f} by CPU   bar {bar:8s} {seconds}", flush=True)


def reading(url: str, folder: Path, runs: list[str]) -> None:
    url = fresh(url)
    with Store.open(url) as store:
        register(store, runs)
        store.ingest(folder, runs)
        file = url.removeprefix("sqlite:///")
        query = (
            "SELECT runs.id, metric_names.name, step, time, value FROM metrics "
            "JOIN runs ON runs.key = run_key JOIN metric_names ON metric_names.key = name_key"
        )
        types = {"run": pl.String, "name": pl.String, "step": pl.Int64, "time": pl.Float64, "value": pl.Float64}

        def bare(query: str, types: dict[str, Any]) -> pl.DataFrame:
            connection = sqlite3.connect(file)
            frame = pl.DataFrame(connection.execute(query).fetchall(), schema=types, orient="row")
            connection.close()
            return frame

        keys = types | {"run": pl.Int64, "name": pl.Int64}
        plain = "SELECT run_key, name_key, step, time, value FROM metrics"
        assert store.metrics(runs).equals(bare(query, types).sort("run", "name", "step").select(*types))
        own, text, number = best(
            lambda: timed(lambda: store.metrics(runs)),
            lambda: timed(lambda: bare(query, types)),
            lambda: timed(lambda: bare(plain, keys)),
        )
        show("reading into polars / cursor with names", "<= 1.2", own, text, rate=False)
        show("reading into polars / cursor, keys only", "", own, number, rate=False)
        lookups = {
            "statuses": lambda: store.statuses(runs),
            "results": lambda: store.results("bench", "metric3"),
            "results, best": lambda: store.results("bench", "metric3", "best"),
            "metric_names": lambda: store.metric_names("bench"),
            "ingest of nothing new": lambda: store.ingest(folder, runs),
            "register again": lambda: register(store, runs),
        }
        for name, work in lookups.items():
            print(f"{name:42s} {min(timed(work)[0] for _ in range(ROUNDS)):6.3f} s for {len(runs)} runs")


def opening(url: str) -> None:
    url = fresh(url)
    first = timed(lambda: Store.open(url).close())[0]
    again = min(timed(lambda: Store.open(url).close())[0] for _ in range(ROUNDS))
    print(f"{'opening':42s} {again:5.3f} s, creating {first:5.3f} s   bar < 0.3 s", flush=True)
    drop(url)


def main(count: int, postgres: str | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite = f"sqlite:///{folder}/NEW.db"
        rows = rows_of(count)
        runs = write_logs(folder / "runs", rows)
        print(f"{len(rows)} metric rows of {len(runs)} runs")
        opening(sqlite)
        logs = folder / "runs"
        own, base = best(lambda: ours(sqlite, logs, runs, rows), lambda: core(sqlite, rows))
        show("SQLite: ingest / Core executemany", ">= 0.5", own, base, rate=True)
        if postgres is not None:
            opening(postgres)
            own, base = best(lambda: ours(postgres, logs, runs, rows), lambda: copy(postgres, rows))
            show("PostgreSQL: ingest / COPY", ">= 0.5", own, base, rate=True)
        reading(sqlite, logs, runs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2] if len(sys.argv) > 2 else None)
