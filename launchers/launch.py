"""Running what a plan still misses, with every result brought into the store."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from db.store import RunRecord, RunStatus, Selection, Store
from launchers.cost import Speed, fit_speed, weights
from launchers.eventlog import FINAL, close_orphan
from launchers.local import KILLED, LocalPool, pool_size
from launchers.plan import Plan, coordinates
from launchers.progress import RunProgress
from launchers.provenance import code_version
from launchers.worker import Job, freeze
from sweeps.identity import IDENTITY_VERSION

INGEST_SECONDS = 2.0
MAX_KILLED = 3  # a run whose worker was killed this often waits for --retry-failed
ORPHANED = "its launcher and worker ended without a word"


@dataclass(frozen=True)
class Launched:
    """How a launch went: the version of the sweep in the store, what was trained, and how every run now stands."""

    version: int
    trained: int
    statuses: dict[str, RunStatus]
    interrupted: bool

    def count(self, *names: str) -> int:
        return sum(status.status in names for status in self.statuses.values())


def register(plan: Plan, store: Store) -> int:
    """Store the spec, its runs with their frozen configurations, and which cell each run answers."""
    return store.register(
        plan.name,
        plan.loaded.text,
        plan.loaded.spec.question,
        plan.task.name,
        [
            RunRecord(run.id, IDENTITY_VERSION, plan.task.name, run.config, *_facts(run.facts))
            for run in plan.runs.values()
        ],
        [Selection(run, cell.coords, cell.derived) for cell, run in plan.cells],
        [(cell.coords, cell.reason) for cell in plan.infeasible],
    )


def _facts(facts: Mapping[str, float | None]) -> tuple[float | None, ...]:
    return tuple(facts.get(name) for name in ("n_params", "flops", "tokens", "bytes"))


def settle(plan: Plan, store: Store, home: Path) -> dict[str, RunStatus]:
    """Bring what run folders say into the store, and give runs whose owner died their end. How every run stands."""
    runs_dir = home / "runs"
    store.ingest(runs_dir, plan.runs)
    statuses = store.statuses(plan.runs)
    running = [run for run, status in statuses.items() if status.status == "running"]
    dead = [run for run in running if close_orphan(runs_dir / run, "interrupted", ORPHANED)]
    if dead:
        store.ingest(runs_dir, dead)
        statuses.update(store.statuses(dead))
    return statuses


def missing(statuses: Mapping[str, RunStatus], retry_failed: bool) -> list[str]:
    """Runs to train. A run that its task failed waits for `retry_failed`; one that was killed is tried again."""

    def wanted(status: RunStatus) -> bool:
        if status.status == "failed":
            killed = (status.reason or "").startswith(KILLED) and status.attempt < MAX_KILLED
            return retry_failed or killed
        return status.status not in FINAL

    return [run for run, status in statuses.items() if wanted(status)]


def launch(plan: Plan, store: Store, home: Path, *, retry_failed: bool, console: Console) -> Launched:
    """Register the plan, train what is missing on a local pool, ingest everything. Ctrl-C leaves all resumable."""
    version = register(plan, store)
    statuses = settle(plan, store, home)
    todo = missing(statuses, retry_failed)
    interrupted = False
    if todo:
        interrupted = _train(plan, store, home, todo, console)
        statuses = settle(plan, store, home)
    return Launched(version, len(todo), statuses, interrupted)


def _train(plan: Plan, store: Store, home: Path, todo: list[str], console: Console) -> bool:
    """Train `todo`; True when it was interrupted."""
    settings = plan.loaded.spec.launcher
    workers, threads = pool_size(settings.workers, settings.threads, len(todo))
    cost = weights({run: plan.runs[run].facts.get("flops") for run in todo}, speed_of(plan, store, threads))
    todo = sorted(todo, key=lambda run: cost[run])  # a broken task shows in seconds, not after the largest run
    names = {run: coordinates(cell.coords) for cell, run in reversed(plan.cells)}
    ingester = _Ingester(store, home / "runs")
    pool = LocalPool(home, workers, threads)
    with _terminated_as_interrupt(), RunProgress(console, {run: cost[run] for run in todo}) as progress:
        try:
            for outcome in pool.run(_jobs(plan, home, todo, threads), lambda: _tick(pool, ingester, progress)):
                ingester.ended(outcome.run)
                progress.finished(outcome.run, outcome.status, names[outcome.run], outcome.reason)
            pool.close()
        except KeyboardInterrupt:
            console.print("interrupted: letting running tasks save (Ctrl-C again ends them at once)")
            _stop(pool)
            return True
        except BaseException:
            pool.close()
            raise
    return False


def speed_of(plan: Plan, store: Store, threads: int) -> Speed | None:
    return fit_speed(store.speed(plan.task.name), threads)


def _jobs(plan: Plan, home: Path, todo: Iterable[str], threads: int) -> Iterator[Job]:
    code = code_version(Path.cwd())
    seconds = plan.loaded.spec.launcher.checkpoint_seconds
    for run in todo:
        freeze(home / "runs" / run, plan.task.name, plan.runs[run].config)
        yield Job(run, str(plan.spec_folder.resolve()), code, threads, seconds)


def _stop(pool: LocalPool) -> None:
    try:
        pool.stop()
    except KeyboardInterrupt:
        pool.close()


def _tick(pool: LocalPool, ingester: _Ingester, progress: RunProgress) -> None:
    progress.tick()
    ingester.tick(pool.running)


class _Ingester:
    """Brings logs into the store every INGEST_SECONDS while runs are trained."""

    def __init__(self, store: Store, runs_dir: Path) -> None:
        self._store, self._runs_dir = store, runs_dir
        self._ended: set[str] = set()
        self._last = time.monotonic()

    def ended(self, run: str) -> None:
        self._ended.add(run)

    def tick(self, running: Iterable[str]) -> None:
        if time.monotonic() - self._last < INGEST_SECONDS:
            return
        self._store.ingest(self._runs_dir, [*self._ended, *running])
        self._ended.clear()
        self._last = time.monotonic()


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM to the launcher means what Ctrl-C means."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
