import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

# The first call of a kernel may take long; a time limit per example says nothing here.
settings.register_profile("models", deadline=None)
settings.load_profile("models")


class Stop(BaseException):
    """The job must end now."""


class FakeRun:
    """A run handle in memory: keeps what is logged, saves at `stop_at` and then stops the task."""

    threads = 1
    device = "cpu"

    def __init__(self, state: dict[str, Any] | None = None, stop_at: int | None = None) -> None:
        self.state, self.stop_at = state, stop_at
        self.logs: list[tuple[int, dict[str, float]]] = []
        self.facts: dict[str, Any] = {}
        self.reason: str | None = None

    def log(self, step: int, /, **values: float) -> None:
        self.logs.append((step, values))

    def summary(self, **values: Any) -> None:
        self.facts.update(values)

    def checkpoint(self, state: Callable[[], dict[str, Any]], *, step: int) -> None:
        if step == self.stop_at:
            self.state = copy.deepcopy(state())
            raise Stop

    def restore(self) -> dict[str, Any] | None:
        return self.state

    def diverged(self, reason: str) -> None:
        self.reason = reason

    @property
    def val_loss(self) -> float:
        return [values["val_loss"] for _, values in self.logs if "val_loss" in values][-1]


@pytest.fixture
def fake_run() -> type[FakeRun]:
    return FakeRun


@pytest.fixture
def stop() -> type[Stop]:
    return Stop


@pytest.fixture
def config() -> dict[str, Any]:
    """A run of about half a second."""
    return {
        "corpus": "topics",
        "context": 32,
        "batch": 4,
        "steps": 12,
        "parametrization": "hyperp",
        "base": {"width": 16},
        "model": {"width": 16, "depth": 2, "head_dim": 8},
        "optim": {"lr": 0.05},
        "eval": {"tokens": 512, "every": 4},
        "log_every": 3,
    }
