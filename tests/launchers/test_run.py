from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from launchers.errors import Interrupted
from launchers.eventlog import Busy, EventLog, close_orphan, owned, read_state
from launchers.run import Run

Make = Callable[..., tuple[Run, EventLog]]


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:

        def opened(folder: Path, **options: Any) -> tuple[Run, EventLog]:
            log = EventLog(folder)
            stack.callback(log.close)
            return Run("id", folder, log, **options), log

        yield opened


def events(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def test_numbers_are_logged_and_non_finite_ones_mark_divergence(tmp_path: Path, make: Make) -> None:
    run, log = make(tmp_path)
    run.log(1, val_loss=np.float32(2.5))
    assert run.divergence is None
    run.log(2, val_loss=math.nan, norm=-math.inf)
    run.log(3, val_loss=math.inf)
    log.close()
    assert [(e["step"], e["m"]) for e in events(tmp_path)] == [
        (1, {"val_loss": 2.5}),
        (2, {"val_loss": "nan", "norm": "-inf"}),
        (3, {"val_loss": "inf"}),
    ]
    assert run.divergence == "val_loss = nan, norm = -inf at step 2"


def test_what_is_no_number_is_refused_by_name(tmp_path: Path, make: Make) -> None:
    run, _ = make(tmp_path)
    with pytest.raises(TypeError, match=r"val_loss = 'low' is not a number"):
        run.log(1, val_loss="low")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sizes"):
        run.summary(sizes=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\.\./up"):
        run.samples("../up", [1.0])


def test_summary_keeps_types_and_non_finite_numbers(tmp_path: Path, make: Make) -> None:
    run, log = make(tmp_path)
    run.summary(n_params=np.int64(3), corpus="stdlib", tied=False, best=math.inf)
    log.close()
    assert events(tmp_path)[0]["v"] == {"n_params": 3, "corpus": "stdlib", "tied": False, "best": "inf"}


def test_samples_are_kept_whole(tmp_path: Path, make: Make) -> None:
    run, log = make(tmp_path)
    run.samples("reward", [[1.0, 2.0], [3.0, math.inf]])
    log.close()
    event = events(tmp_path)[0]
    assert event["n"] == 4
    np.testing.assert_array_equal(load_file(tmp_path / event["file"])["reward"], [1, 2, 3, math.inf])


def test_a_torn_line_spoils_only_itself(tmp_path: Path, make: Make) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"e":"log","t":1,"step":1,"m":{"a":1}}\n{"e":"log","t":1,"st')
    _, log = make(tmp_path)
    log.append("end", status="done")
    log.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    assert orjson.loads(lines[2])["status"] == "done"


def test_checkpoint_saves_when_due_and_not_before(tmp_path: Path, make: Make) -> None:
    run, _ = make(tmp_path, checkpoint_seconds=1e9)
    calls = []
    for step in range(1000):
        run.log(step, x=1.0)
        run.checkpoint(lambda: calls.append(1) or {"x": 1})
    assert calls == []
    assert run.restore() is None

    run, log = make(tmp_path, checkpoint_seconds=0.0)
    run.log(41, x=1.0)
    run.checkpoint({"x": 1})
    assert run.restore() == {"x": 1}
    log.close()
    assert events(tmp_path)[-1] | {"t": 0, "bytes": 0} == {"e": "checkpoint", "t": 0, "step": 41, "bytes": 0}


def test_a_stop_saves_first_and_then_unwinds(tmp_path: Path, make: Make) -> None:
    run, _ = make(tmp_path, checkpoint_seconds=1e9)
    run.checkpoint(lambda: {"step": 0})
    run.request_stop()
    run.log(5, x=1.0)  # a task that checkpoints stops where it can be continued
    with pytest.raises(Interrupted):
        run.checkpoint(lambda: {"step": 5})
    assert run.restore() == {"step": 5}


def test_a_task_without_checkpoints_stops_at_its_next_log(tmp_path: Path, make: Make) -> None:
    run, _ = make(tmp_path)
    run.request_stop()
    with pytest.raises(Interrupted):
        run.log(1, x=1.0)


def test_a_run_has_one_owner(tmp_path: Path) -> None:
    with owned(tmp_path):
        with pytest.raises(Busy), owned(tmp_path):
            pass
        assert not close_orphan(tmp_path, "failed", "why")
    with owned(tmp_path):
        pass


def test_an_orphan_gets_its_end_once(tmp_path: Path) -> None:
    assert not close_orphan(tmp_path, "interrupted", "nothing began here")
    log = EventLog(tmp_path)
    log.append("start", attempt=1)
    log.close()
    assert read_state(tmp_path).status is None
    assert close_orphan(tmp_path, "failed", "killed")
    assert not close_orphan(tmp_path, "failed", "killed")
    assert (read_state(tmp_path).attempts, read_state(tmp_path).status) == (1, "failed")


def test_what_an_earlier_attempt_logged_still_counts(tmp_path: Path, make: Make) -> None:
    """Killed between the last checkpoint and the end, a run has nothing left to log, and its NaN stays a NaN."""
    run, _ = make(tmp_path, checkpoint_seconds=0.0)
    assert (run.logged, run.from_step) == (False, None)
    run.log(3, val_loss=math.nan)
    run.checkpoint({"step": 3})
    again, _ = make(tmp_path)
    assert (again.logged, again.from_step) == (True, 3)
    assert again.divergence == "val_loss = nan at step 3"
