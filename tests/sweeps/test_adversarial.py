"""Specs that try to hang, blow up or run something: each is refused, or done, within seconds."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from sweeps.errors import SweeplawError
from sweeps.expand import expand
from sweeps.identity import run_id
from sweeps.load import loads

HEAD = "name: s\ntask: m:f\n"
SECONDS = 5.0
MEBIBYTES = 200


def doubling(levels: int) -> str:
    lines = ["  a0: xxxxxxxxxx"] + [f"  a{i}: ${{a{i - 1}}}${{a{i - 1}}}" for i in range(1, levels)]
    return "base:\n" + "\n".join(lines)


def doubling_mappings(levels: int) -> str:
    lines = ["  a0: {x: 1}"] + [f"  a{i}: {{x: '${{a{i - 1}}}', y: '${{a{i - 1}}}'}}" for i in range(1, levels)]
    return "base:\n" + "\n".join(lines)


ATTACKS: dict[str, Callable[[], str]] = {
    "power tower": lambda: "axes: {w: [9]}\nderive: {a: w**w**w**w}",
    "power tower in where": lambda: "axes: {w: [9]}\nwhere: 9**9**9 > w",
    "power tower on an axis": lambda: "axes: {w: [9], v: {expr: w**9**9}}",
    "power tower in solve": lambda: "solve: {x: {equation: x**x**x == 3}}",
    "a flat equation": lambda: "solve: {x: {equation: 0 * x == 1}}",
    "a jump": lambda: "solve: {x: {equation: '(1 if x < 12345678 else 2) == 1.5'}}",
    "not monotone": lambda: "solve: {x: {equation: (x % 7) + 1 == 3.3, integer: false}}",
    "huge product": lambda: "axes: {" + ", ".join(f"a{i}: {{log2: [0, 999]}}" for i in range(8)) + "}",
    "many axes": lambda: "axes: {" + ", ".join(f"a{i}: [1]" for i in range(1500)) + "}",
    "many values": lambda: "axes: {a: [" + ", ".join(map(str, range(15000))) + "]}",
    "many replicates": lambda: "replicates: {seed: 10000}",
    "too many replicates": lambda: "replicates: {seed: 1000000000}",
    "fine steps": lambda: "tune: {lr: {log2: [-900, 900, 1e-9]}}",
    "huge exponents": lambda: "tune: {lr: {log2: [-1e308, 1e308, 1e307]}}",
    "tiny step": lambda: "tune: {lr: {log2: [0, 1, 5e-324]}}",
    "many derived": lambda: "axes: {w: [1]}\nderive: {" + ", ".join(f"d{i}: d{i + 1}" for i in range(1500)) + "}",
    "many conditions": lambda: "axes: {w: [1]}\nwhere: [" + ", ".join(["w > 0"] * 3000) + "]",
    "long condition": lambda: "axes: {w: [1]}\nwhere: " + " or ".join(["w > 0"] * 5000),
    "deep condition": lambda: "axes: {w: [1]}\nwhere: " + "not " * 3000 + "(w > 0)",
    "big bundle": lambda: "compare: {r: {a: {" + ", ".join(f"k{i}: 1" for i in range(9000)) + "}}}",
    "many bundles": lambda: "compare: {r: {" + ", ".join(f"l{i}: {{k{i}: 1}}" for i in range(4000)) + "}}",
    "doubling texts": lambda: doubling(60),
    "doubling mappings": lambda: doubling_mappings(40),
    "chain of references": lambda: "base:\n  a0: 1\n" + "\n".join(f"  a{i}: ${{a{i - 1}}}" for i in range(1, 3000)),
    "open references": lambda: "base: {a: '" + "${" * 5000 + "'}",
    "references in a list": lambda: "base: {a: 1, l: [" + ", ".join(["'${a}'"] * 6000) + "]}",
    "backslashes": lambda: "base: {a: '" + "\\" * 50000 + "${b}', b: 1}",
    "long path": lambda: "axes: {w: {path: a" + ".a" * 50000 + ", values: [1]}}",
    "long path in a bundle": lambda: "compare: {r: {p: {a" + ".a" * 50000 + ": 1}}}",
    "long reference": lambda: "base: {b: '${a" + ".a" * 50000 + "}', a: 1}",
    "long name": lambda: "axes: {" + "w" * 100000 + ": [1]}",
    "long text": lambda: "question: " + "q" * 200000,
    "deep lists": lambda: "base: {a: " + "[" * 5000 + "]" * 5000 + "}",
    "many quotes": lambda: "base: {a: " + "'" * 100001,
    "many predictions": lambda: "axes: {a: [1], b: [1], c: [1]}\npredict: {a: &v [" + ", ".join(
        map(str, range(300))) + "], b: *v, c: *v}",
    "many digits": lambda: "axes: {w: [" + "9" * 100000 + "]}",
    "python tag": lambda: "base: {a: !!python/object/apply:time.sleep [60]}",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_costs_little(name: str) -> None:
    text = HEAD + ATTACKS[name]()
    began = time.process_time()
    said = ""
    try:
        for cell in expand(loads(text)).cells:
            run_id("m:f", cell.config)
    except SweeplawError as error:
        said = str(error)
    assert len(said) < 5000
    assert time.process_time() - began < SECONDS


def test_ten_thousand_cells_fit_in_memory() -> None:
    base = (
        "base: {model: {a: 1, b: 2, c: x, d: 4}, optim: {a: 1, b: 2, c: 3, d: 4}, data: {a: 1, b: 2, c: 3}, l: [1]}\n"
    )
    axes = "axes: {w: {path: model.w, log2: [0, 9]}, d: [1, 2, 3, 4, 5], e: {path: model.e, expr: w * d}}\n"
    rest = "tune: {lr: {path: optim.lr, log2: [-9, 0]}}\nreplicates: {seed: 20}\nderive: {t: 20 * w}\nwhere: w > 0"
    loaded = loads(HEAD + base + axes + rest)
    tracemalloc.start()
    try:
        cells = expand(loaded).cells
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cells) == 10_000
    assert peak < MEBIBYTES * 2**20
