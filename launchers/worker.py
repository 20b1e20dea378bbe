"""A worker process: takes run identities from its standard input, one JSON line each, and trains them in turn.

It touches nothing but the folder of the run it owns. It ends when its standard input closes, so it never outlives the
launcher that started it. `python -m launchers.worker HOME` is started by the launchers, not by people.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from launchers.errors import Interrupted, TaskError
from launchers.eventlog import FINAL, Busy, EventLog, owned, read_state
from launchers.provenance import packages
from launchers.run import Run
from launchers.task import load_task
from sweeps.identity import run_id as identity

CONFIG_NAME = "config.json"
OUTPUT_NAME = "output.log"


@dataclass(frozen=True)
class Job:
    """What a worker is told about a run; everything that shapes the result is frozen in the run's folder."""

    run: str
    spec_folder: str
    code: dict[str, Any]
    threads: int
    checkpoint_seconds: float


@dataclass(frozen=True)
class Outcome:
    run: str
    status: str  # done, diverged, failed, interrupted, or busy: another process owns the run
    reason: str | None = None


def freeze(folder: Path, task: str, config: dict[str, Any]) -> None:
    """Write the configuration a run is trained with, once; a later launch finds and keeps it."""
    path = folder / CONFIG_NAME
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(orjson.dumps({"task": task, "config": config}, option=orjson.OPT_INDENT_2))
    temporary.replace(path)


def execute(job: Job, home: Path, on_run: Callable[[Run | None], None]) -> Outcome:
    """One attempt at one run, from its frozen configuration to its `end` event.

    `on_run` is told of the run handle while the task may use it, and of None afterwards.
    """
    folder = home / "runs" / job.run
    try:
        with owned(folder):
            state = read_state(folder)
            if state.status in FINAL:
                return Outcome(job.run, str(state.status))
            return _attempt(job, folder, state.attempts + 1, on_run)
    except Busy:
        return Outcome(job.run, "busy")


def _attempt(job: Job, folder: Path, attempt: int, on_run: Callable[[Run | None], None]) -> Outcome:
    frozen = orjson.loads((folder / CONFIG_NAME).read_bytes())
    config = frozen["config"]
    log = EventLog(folder)
    device = _device(config.get("device"))
    run = Run(
        job.run,
        folder,
        log,
        attempt=attempt,
        threads=job.threads,
        device=device,
        checkpoint_seconds=job.checkpoint_seconds,
    )
    log.append(
        "start",
        attempt=attempt,
        from_step=run.from_step,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=device,
        threads=job.threads,
        seed=config.get("seed"),
        code=job.code,
        packages=packages(),
    )
    log.flush()
    _reset_peak()
    began = time.perf_counter()
    with _output_to(folder / OUTPUT_NAME):
        status, reason, error = _train(job, frozen["task"], config, run, on_run)
    log.append(
        "end",
        status=status,
        reason=reason,
        error=error,
        seconds=time.perf_counter() - began,
        peak_bytes=_peak_bytes(),
    )
    log.close()
    return Outcome(job.run, status, reason)


def _train(
    job: Job, task_name: str, config: dict[str, Any], run: Run, on_run: Callable[[Run | None], None]
) -> tuple[str, str | None, dict[str, str] | None]:
    try:
        if identity(task_name, config) != job.run:
            raise TaskError(f"{CONFIG_NAME} of run {job.run} was changed after the run was launched")
        task = load_task(task_name, Path(job.spec_folder))
        on_run(run)
        try:
            task.train(config, run)
        finally:
            on_run(None)
    except Interrupted:
        return "interrupted", "stopped on request; its state is saved", None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        traceback.print_exc()
        kind = type(error).__name__
        return (
            "failed",
            f"{kind}: {error}" if str(error) else kind,
            {
                "type": kind,
                "message": str(error),
                "traceback": traceback.format_exc(),
            },
        )
    if run.divergence:
        return "diverged", run.divergence, None
    if not run.logged:
        return "failed", f"{task_name} returned without logging; call run.log(step, val_loss=...)", None
    return "done", None, None


def _device(asked: object) -> str:
    """The device a configuration names; for none or `auto` the GPU, where there is one that torch was built for."""
    if isinstance(asked, str) and asked != "auto":
        return asked
    built = not packages().get("torch", "+cpu").endswith("+cpu")
    visible = Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return "cuda" if built and visible else "cpu"


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int | None:
    """Peak resident memory since `_reset_peak`; None where the system can't tell it per run."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Everything printed in the block, by Python or by native code, goes into `path`."""
    saved = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _redirect(file, file)
        yield
    finally:
        _redirect(*saved)
        for descriptor in (*saved, file):
            os.close(descriptor)


def _redirect(out: int, err: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(out, 1)
    os.dup2(err, 2)


def serve(home: Path) -> None:
    """Read jobs, answer outcomes, until standard input closes."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a stray print must not garble the answers
    current: list[Run | None] = [None]
    stopping = threading.Event()

    def watch(run: Run | None) -> None:
        current[0] = run
        if run is not None and stopping.is_set():
            run.request_stop()

    def stop(*_: object) -> None:
        stopping.set()
        if current[0] is not None:
            current[0].request_stop()

    signal.signal(signal.SIGTERM, stop)
    for job in _jobs():
        outcome = execute(job, home, watch)
        replies.write(orjson.dumps(vars(outcome), option=orjson.OPT_APPEND_NEWLINE))
        if stopping.is_set():
            return


def _jobs() -> Iterator[Job]:
    """Jobs from standard input. Its end means that the launcher is gone, and a running task must not go on."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        rest = b""
        while data := os.read(0, 65536):  # not sys.stdin: its lock can't be had at exit while a thread waits in it
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield Job(**orjson.loads(lines.get()))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
