"""The run handle: all that a task sees of sweeplaw."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from launchers import checkpoint as checkpoints
from launchers.errors import Interrupted
from launchers.eventlog import EventLog, encode_values

CHECKPOINT_NAME = "checkpoint.safetensors"


class Run:
    """One attempt at one run. A task logs through it, saves its state, and takes it up again.

    Attributes:
        id: identity of the run, the hash of its frozen configuration.
        attempt: 1 for the first attempt.
        folder: the run's own folder; a task may write files into it.
        threads: how many CPU threads the task may use.
        device: where the task is asked to compute, e.g. "cpu".
        from_step: the step of the checkpoint that `restore` gives, None without one.
    """

    def __init__(
        self,
        run_id: str,
        folder: Path,
        log: EventLog,
        *,
        attempt: int = 1,
        threads: int = 1,
        device: str = "cpu",
        checkpoint_seconds: float = 30.0,
    ) -> None:
        self.id, self.folder, self.attempt = run_id, folder, attempt
        self.threads, self.device = threads, device
        self._log = log
        self._checkpoint_seconds = checkpoint_seconds
        self._saved = time.monotonic()
        self._checkpoints = False
        mark = checkpoints.mark_of(folder / CHECKPOINT_NAME)
        self._step = self.from_step = mark.step
        self._stop = False
        # A run that was killed between its last checkpoint and its end has nothing left to log.
        self.logged = mark.step is not None
        self.divergence = mark.divergence

    def log(self, step: int, **values: float) -> None:
        """Record numbers at a step. NaN and inf are kept, and mark the run as diverged.

        Raises TypeError for a value that isn't a number.
        """
        step = int(step)
        encoded, finite = encode_values(values)
        self._log.append("log", step=step, m=encoded)
        self.logged = self.logged or bool(values)
        self._step = step
        if not finite:
            names = ", ".join(f"{name} = {value}" for name, value in encoded.items() if isinstance(value, str))
            self.diverged(f"{names} at step {step}")
        if self._stop and not self._checkpoints:
            raise Interrupted

    def summary(self, **values: float | str | bool) -> None:
        """Record one value per run for each name; a later value replaces an earlier one."""
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        for name, value in plain.items():
            if not isinstance(value, bool | int | float | str):
                raise TypeError(f"run.summary: {name} = {value!r} is neither a number, a text nor a truth value")
        numbers = {k: v for k, v in plain.items() if isinstance(v, float)}
        self._log.append("summary", v={**plain, **encode_values(numbers)[0]})
        self.logged = self.logged or bool(values)

    def samples(self, name: str, array: Any) -> None:
        """Keep a one-dimensional sample of a distribution (any float array; stored as float64)."""
        from safetensors.numpy import save

        if not name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"run.samples: {name!r} is no name; use letters, digits, '_' and '-'")
        values = np.ascontiguousarray(np.asarray(array, dtype=np.float64).reshape(-1))
        data = save({name: values})
        path = self.folder / "artifacts" / f"{name}.safetensors"
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
        self._log.append(
            "samples",
            name=name,
            file=str(path.relative_to(self.folder)),
            n=len(values),
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        self.logged = True

    def checkpoint(self, state: Any | Callable[[], Any], *, step: int | None = None) -> None:
        """Save `state` if a save is due, or if the job has to stop; call it as often as you like.

        `state` nests dict, list, tuple, numbers, texts, NumPy arrays and torch tensors, or is a function without
        arguments that returns such a state, called only when it is needed. `step` defaults to the last logged one.

        Raises Interrupted after saving when the job has to stop: let it pass.
        """
        self._checkpoints = True
        if not self._stop and time.monotonic() - self._saved < self._checkpoint_seconds:
            return
        step = self._step if step is None else int(step)
        self._log.flush()  # rows up to `step` are in the log before a checkpoint says so
        mark = checkpoints.Mark(step, self.divergence)
        size = checkpoints.save(self.folder / CHECKPOINT_NAME, state() if callable(state) else state, mark)
        self._log.append("checkpoint", step=step, bytes=size)
        self._saved = time.monotonic()
        if self._stop:
            raise Interrupted

    def restore(self) -> Any | None:
        """The state of the last checkpoint; None when there is none."""
        path = self.folder / CHECKPOINT_NAME
        return checkpoints.load(path)[0] if path.exists() else None

    def diverged(self, reason: str) -> None:
        """Mark the run as diverged: a result, not a failure, left out of means and fits."""
        self.divergence = self.divergence or reason

    def request_stop(self) -> None:
        """Ask the task to save and stop at its next call. Safe inside a signal handler."""
        self._stop = True
