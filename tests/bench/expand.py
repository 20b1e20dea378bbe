"""Expands and hashes 10,000 cells; prints the CPU time against the plainest way to do it.

Run: python tests/bench/expand.py [--profile]. The plain way is itertools.product, a nested merge into the same
base, sorted JSON and SHA-256, without expressions. Bar: at most 10 times that.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from sweeps.expand import expand
from sweeps.identity import run_id
from sweeps.load import loads

AXES: dict[str, list[Any]] = {
    "model.width": list(range(64, 704, 64)),
    "model.depth": list(range(2, 22, 2)),
    "optim.lr": [2.0**-k for k in range(10)],
    "data.batch": [16, 32, 64, 128, 256],
    "seed": [0, 1],
}
BASE: dict[str, Any] = {
    "model": {"width": 64, "depth": 2, "vocab": 256, "heads": 4, "act": "gelu"},
    "optim": {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "wd": 0.1, "warmup": 100},
    "data": {"tokens": 1_000_000, "seq": 512, "batch": 64, "name": "synthetic"},
    "seed": 0,
    "name": "bench",
    "tags": ["a", "b"],
}
SPEC = f"""
name: bench
task: bench:train
base: {json.dumps(BASE)}
axes:
  width: {{path: model.width, values: {AXES["model.width"]}}}
  depth: {{path: model.depth, values: {AXES["model.depth"]}}}
  batch: {{path: data.batch, values: {AXES["data.batch"]}}}
  heads: {{path: model.heads, expr: width / 64}}
tune:
  lr: {{path: optim.lr, log2: [-9, 0]}}
replicates:
  seed: 2
derive:
  tokens: {{path: data.tokens, expr: 20 * n_params}}
where: data.tokens < 1e15 and width >= 64
"""
CELLS = 10_000
BAR = 10.0


def facts(config: dict[str, Any]) -> dict[str, float | None]:
    """Counts as a task would give them."""
    model = config["model"]
    n_params = 12 * model["depth"] * model["width"] ** 2
    return {"n_params": n_params, "flops": 6.0 * n_params * config["data"]["tokens"]}


def plain() -> None:
    """Product, nested merge, JSON, SHA-256."""
    ids = set()
    for values in itertools.product(*AXES.values()):
        config = {k: dict(v) if isinstance(v, dict) else v for k, v in BASE.items()}
        for dotted, value in zip(AXES, values, strict=True):
            node: Any = config
            *head, last = dotted.split(".")
            for part in head:
                node = node[part]
            node[last] = value
        text = json.dumps(config, sort_keys=True, separators=(",", ":"))
        ids.add(hashlib.sha256(text.encode()).hexdigest())
    assert len(ids) == CELLS


def ours() -> None:
    """The spec text to cells with their identities."""
    expansion = expand(loads(SPEC), facts)
    ids = {run_id("bench:train", cell.config) for cell in expansion.cells}
    assert len(ids) == CELLS
    assert not expansion.infeasible


def best(work: Callable[[], None], repeats: int = 3) -> float:
    """Least CPU seconds of a few runs: machines are shared, so not wall time."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where our time goes")
    if parser.parse_args().profile:
        cProfile.runctx("ours()", globals(), {}, sort="tottime")
        return
    base, own = best(plain), best(ours)
    print(f"plain   {base:.3f} s for {CELLS} cells")
    print(f"sweeps  {own:.3f} s, ratio {own / base:.1f} (bar {BAR:.0f})")
    if own > BAR * base:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
