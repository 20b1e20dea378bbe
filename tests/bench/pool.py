"""100 trivial runs through the local pool against 100 fresh interpreters, two at a time: `python tests/bench/pool.py`.

Prints wall seconds and the ratio pool / interpreters (smaller is better), and the largest number of workers alive.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launchers.local import LocalPool
from launchers.worker import Job, freeze
from sweeps.identity import run_id

RUNS, SLOTS = 100, 2
TASK = "trivial_task:train"


def interpreters() -> float:
    def one(i: int) -> None:
        subprocess.run([sys.executable, "-c", f"print(float({i}))"], check=True, stdout=subprocess.DEVNULL)

    began = time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(one, range(RUNS)))
    return time.perf_counter() - began


def pool(home: Path) -> tuple[float, int]:
    (home / "trivial_task.py").write_text("def train(config, run):\n    run.log(1, val_loss=float(config['x']))\n")
    began = time.perf_counter()
    jobs = []
    for x in range(RUNS):
        run = run_id(TASK, {"x": x})
        freeze(home / "runs" / run, TASK, {"x": x})
        jobs.append(Job(run, str(home), {"commit": None, "dirty": None}, 1, 30.0))
    local = LocalPool(home, SLOTS, 1)
    most = 0

    def tick() -> None:
        nonlocal most
        most = max(most, len(local.running))

    statuses = [outcome.status for outcome in local.run(jobs, tick)]
    local.close()
    assert statuses == ["done"] * RUNS, statuses
    return time.perf_counter() - began, most


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ours, most = pool(Path(folder))
    theirs = interpreters()
    print(f"{RUNS} runs, {SLOTS} slots: pool {ours:.2f} s, fresh interpreters {theirs:.2f} s")
    print(f"ratio {ours / theirs:.2f} (bar 2), most workers at once {most}")
