"""The local launcher: a pool of long-lived worker processes on this machine.

A worker that dies costs only the run it had; a new worker takes its place.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from launchers.eventlog import close_orphan
from launchers.worker import Job, Outcome

STOP_SECONDS = 20.0  # how long a task may take to save after it was asked to stop
BUSY_RETRY_SECONDS = 0.5
# One pool per process would start as many threads as there are cores in every worker.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
KILLED = "worker killed by "  # how the reason of a run begins whose worker died under it


def pool_size(workers: int | str, threads: int | str, n_runs: int) -> tuple[int, int]:
    """Workers and threads for each, with 'auto' resolved: all cores used, none used twice."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if workers == "auto":
        workers = max(1, min(n_runs, cores if threads == "auto" else cores // int(threads)))
    if threads == "auto":
        threads = max(1, cores // int(workers))
    return int(workers), int(threads)


class _Worker:
    """A worker process and the run it is busy with."""

    def __init__(self, home: Path, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launchers.worker", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))},
            start_new_session=True,  # Ctrl-C is for the launcher, which lets tasks save first
        )
        self.job: Job | None = None

    @property
    def pipe(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def give(self, job: Job) -> None:
        assert self.process.stdin is not None
        self.job = job
        with suppress(BrokenPipeError):  # it just died: its closed output says so next
            self.process.stdin.write(orjson.dumps(vars(job), option=orjson.OPT_APPEND_NEWLINE))
            self.process.stdin.flush()

    def answer(self) -> Outcome | None:
        """The outcome it sent; None when it is gone."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return Outcome(**orjson.loads(line)) if line.endswith(b"\n") else None

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.process.wait()


class LocalPool:
    """Runs jobs on `workers` processes and yields their outcomes as they come."""

    def __init__(self, home: Path, workers: int, threads: int) -> None:
        self._home, self._threads, self._size = home, threads, workers
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    @property
    def running(self) -> list[str]:
        """Identities of the runs being trained now."""
        return [worker.job.run for worker in self._workers if worker.job]

    def run(self, jobs: Iterable[Job], tick: Callable[[], None] = lambda: None) -> Iterator[Outcome]:
        """Outcomes of all jobs. `tick` is called about twice a second while waiting.

        A run that another process owns is asked for again until that process is through with it.
        """
        waiting, busy = deque(jobs), deque[tuple[float, Job]]()
        while waiting or busy or self.running:
            while busy and busy[0][0] <= time.monotonic():
                waiting.append(busy.popleft()[1])
            self._hand_out(waiting)
            tick()
            for job, outcome in self._collect(0.5):
                if outcome.status == "busy":
                    busy.append((time.monotonic() + BUSY_RETRY_SECONDS, job))
                else:
                    yield outcome

    def _hand_out(self, waiting: deque[Job]) -> None:
        while waiting:
            free = next((worker for worker in self._workers if worker.job is None), None)
            if free is None:
                if len(self._workers) >= self._size:
                    return
                free = _Worker(self._home, self._threads)
                self._workers.append(free)
                self._selector.register(free.pipe, selectors.EVENT_READ, free)
            free.give(waiting.popleft())

    def _collect(self, timeout: float) -> list[tuple[Job, Outcome]]:
        if not self._selector.get_map():
            time.sleep(timeout)
            return []
        collected = []
        for key, _ in self._selector.select(timeout):
            worker: _Worker = key.data
            job, outcome = worker.job, worker.answer()
            if outcome is None:
                self._discard(worker)
                outcome = self._died(worker, job) if job else None
            worker.job = None
            if job and outcome:
                collected.append((job, outcome))
        return collected

    def _discard(self, worker: _Worker) -> None:
        self._selector.unregister(worker.pipe)
        self._workers.remove(worker)
        worker.close()

    def _died(self, worker: _Worker, job: Job) -> Outcome:
        reason = _cause(worker.process.returncode)
        if not close_orphan(self._home / "runs" / job.run, "failed", reason):
            return Outcome(job.run, "ended")  # it wrote its end before it died; the log tells
        return Outcome(job.run, "failed", reason)

    def stop(self) -> None:
        """Ask all tasks to save and stop; kill those that don't within STOP_SECONDS."""
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM) if worker.job else worker.process.kill()
        deadline = time.monotonic() + STOP_SECONDS
        try:
            for worker in self._workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self.close()

    def close(self) -> None:
        """End all workers at once. What they were at is left to be continued."""
        while self._workers:
            worker = self._workers[-1]
            worker.process.kill()
            self._discard(worker)
            if worker.job:
                close_orphan(self._home / "runs" / worker.job.run, "interrupted", "stopped on request")
        self._selector.close()


def _cause(returncode: int) -> str:
    if returncode == -signal.SIGKILL:
        return f"{KILLED}SIGKILL: the machine ran out of memory, or somebody killed it"
    if returncode < 0:
        return f"{KILLED}{signal.Signals(-returncode).name}"
    return f"{KILLED}its own exit with code {returncode}"
