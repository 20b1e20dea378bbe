"""Expansion: small ones written out by hand, then what must hold for all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import SpecError
from sweeps.expand import expand
from sweeps.identity import run_id
from sweeps.load import loads

from .conftest import Load

Config = dict[str, Any]


def facts(config: Config) -> dict[str, float | None]:
    """A model with 12 width² depth parameters, whose width must be a multiple of its heads."""
    width, heads, tokens = config.get("width", 16), config.get("n_heads", 1), config.get("tokens")
    if width % heads:
        raise ValueError(f"width {width} is not a multiple of n_heads {heads}")
    n_params = 12 * width**2 * config.get("depth", 1)
    return {"n_params": n_params, "tokens": tokens, "flops": 6.0 * n_params * tokens if tokens else None, "bytes": None}


# -- written by hand ------------------------------------------------------------------------------------


def test_a_product_in_order(spec: Load) -> None:
    found = expand(spec("base: {m: {a: 1, w: 0}}\naxes: {w: {path: m.w, values: [4, 8]}}\nreplicates: {seed: 2}"))
    assert [(c.coords, c.derived, c.config) for c in found.cells] == [
        ({"w": 4, "seed": 0}, {}, {"m": {"a": 1, "w": 4}, "seed": 0}),
        ({"w": 4, "seed": 1}, {}, {"m": {"a": 1, "w": 4}, "seed": 1}),
        ({"w": 8, "seed": 0}, {}, {"m": {"a": 1, "w": 8}, "seed": 0}),
        ({"w": 8, "seed": 1}, {}, {"m": {"a": 1, "w": 8}, "seed": 1}),
    ]
    assert found.infeasible == []


def test_zip_ties_axes_and_leaves_the_rest_a_product(spec: Load) -> None:
    found = expand(spec("axes: {w: [4, 8], d: [1, 2]}\ntune: {lr: [0.1, 0.2]}\nzip: [w, d]"))
    assert [tuple(c.coords.values()) for c in found.cells] == [(4, 1, 0.1), (4, 1, 0.2), (8, 2, 0.1), (8, 2, 0.2)]


def test_two_zips(spec: Load) -> None:
    found = expand(spec("axes: {a: [1, 2], b: [3, 4], c: [5, 6], d: [7, 8]}\nzip: [[a, c], [b, d]]"))
    rows = [(c.coords["a"], c.coords["b"], c.coords["c"], c.coords["d"]) for c in found.cells]
    assert rows == [(1, 3, 5, 7), (1, 4, 5, 8), (2, 3, 6, 7), (2, 4, 6, 8)]


def test_an_axis_by_expression_follows_the_others(spec: Load) -> None:
    found = expand(
        spec(
            "axes: {heads: {expr: width // per}, width: [16, 32], half: {path: null, expr: heads / 2}}\nbase: {per: 8}"
        )
    )
    assert [(c.coords, c.config) for c in found.cells] == [
        ({"heads": 2, "width": 16, "half": 1}, {"per": 8, "heads": 2, "width": 16}),
        ({"heads": 4, "width": 32, "half": 2}, {"per": 8, "heads": 4, "width": 32}),
    ]


def test_powers(spec: Load) -> None:
    cells = expand(spec("axes: {w: {log2: [4, 6]}, t: {log10: [3, 4]}}\ntune: {lr: {log2: [-2, 0]}}")).cells
    assert [cell.coords["w"] for cell in cells[::6]] == [16, 32, 64]
    assert {cell.coords["t"] for cell in cells} == {1000, 10000}
    assert [cell.coords["lr"] for cell in cells[:3]] == [0.25, 0.5, 1]
    assert all(type(cell.coords["w"]) is int for cell in cells)


@pytest.mark.parametrize("bounds", ["[-10, -9, 0.1]", "[-9.5, -8.5, 0.1]"])
def test_shared_powers_are_the_same_number_whatever_the_bounds(bounds: str, spec: Load) -> None:
    values = {cell.coords["lr"] for cell in expand(spec(f"tune: {{lr: {{log2: {bounds}}}}}")).cells}
    assert len(values) == 11
    assert {2**-9.5, 2**-9.3, 2**-9.0} <= values


def test_bundles_set_nested_and_dotted_keys(spec: Load) -> None:
    text = """
    base: {optim: {name: adam, beta: [0.9, 0.95]}}
    compare:
      opt:
        sgd: {optim: {name: sgd, momentum: 0.9}, extra.deep: [1]}
        off: {optim: null}
        same: {optim.name: adam}
    """
    found = expand(spec(text))
    beta = [0.9, 0.95]
    assert [(c.coords["opt"], c.config) for c in found.cells] == [
        ("sgd", {"optim": {"name": "sgd", "beta": beta, "momentum": 0.9}, "extra": {"deep": [1]}}),
        ("off", {"optim": None}),
        ("same", {"optim": {"name": "adam", "beta": beta}}),
    ]


def test_compared_values_of_several_kinds(spec: Load) -> None:
    found = expand(spec("compare: {clip: {path: optim.clip, values: [null, 1.5, auto, true]}}"))
    assert [c.config["optim"]["clip"] for c in found.cells] == [None, 1.5, "auto", True]


# -- derived values, facts, conditions ---------------------------------------------------------------------


def test_facts_are_read_again_after_a_value_is_written(spec: Load) -> None:
    text = """
    axes: {width: [16, 32]}
    derive:
      tokens: 20 * n_params
      budget: flops / 1e6
      lr: {path: optim.lr, expr: 1 / width}
    """
    cells = expand(spec(text), facts).cells
    for cell, width in zip(cells, (16, 32), strict=True):
        n_params = 12 * width**2
        assert cell.derived == {"tokens": 20 * n_params, "budget": 120 * n_params**2 / 1e6, "lr": 1 / width}
        assert cell.config == {"width": width, "tokens": 20 * n_params, "optim": {"lr": 1 / width}}


def test_derived_values_come_in_the_order_of_their_needs(spec: Load) -> None:
    cells = expand(spec("axes: {a: [2]}\nderive: {d: c + 1, c: b + 1, b: a + 1}")).cells
    assert cells[0].derived == {"b": 3, "c": 4, "d": 5}


def test_a_derived_value_reaches_those_that_read_its_place(spec: Load) -> None:
    text = "base: {m: {h: 0}, copy: '${m.h}'}\naxes: {w: [8]}\nderive: {x: copy + m.h, h: {path: m.h, expr: w / 4}}"
    cell = expand(spec(text)).cells[0]
    assert cell.derived == {"h": 2, "x": 4}
    assert cell.config == {"m": {"h": 2}, "copy": 2, "w": 8}


def test_what_the_task_refuses_is_infeasible_in_its_words(spec: Load) -> None:
    found = expand(spec("base: {n_heads: 3}\naxes: {width: [12, 16, 18]}\nderive: {p: n_params}"), facts)
    assert [c.coords["width"] for c in found.cells] == [12, 18]
    assert [(i.coords, i.reason) for i in found.infeasible] == [
        ({"width": 16}, "width 16 is not a multiple of n_heads 3")
    ]


def test_cut_cells_are_listed_with_the_condition(spec: Load) -> None:
    text = "axes: {w: [1, 2, 3]}\ncompare: {r: [a, b]}\nwhere:\n  - w > 1\n  - r == 'a' or w < 3"
    found = expand(spec(text))
    assert [tuple(c.coords.values()) for c in found.cells] == [(2, "a"), (2, "b"), (3, "a")]
    assert [(tuple(i.coords.values()), "w > 1" in i.reason) for i in found.infeasible] == [
        ((1, "a"), True), ((1, "b"), True), ((3, "b"), False)]  # fmt: skip
    assert "r == 'a' or w < 3" in found.infeasible[2].reason


def test_conditions_read_facts_and_places(spec: Load) -> None:
    found = expand(
        spec("base: {model: {depth: 2}}\naxes: {width: [16, 64]}\nwhere: n_params < 1e4 and model.depth == 2"), facts
    )
    assert [c.coords["width"] for c in found.cells] == [16]


def test_a_value_that_is_nowhere_is_a_reason(spec: Load) -> None:
    found = expand(spec("axes: {w: [1, 2]}\nderive: {d: 1 / (w - 1), e: log(w - 1)}"))
    assert [c.coords["w"] for c in found.cells] == [2]
    assert "division by zero" in found.infeasible[0].reason


def test_facts_that_nobody_tells_are_an_error(spec: Load) -> None:
    for text in ("derive: {t: 20 * n_params}", "where: flops < 3", "solve: {t: flops == 1e15}"):
        with pytest.raises(SpecError, match=r"s\.yaml:4:\d+: .*estimate"):
            expand(spec(f"axes: {{w: [1]}}\n{text}"))


def test_a_task_that_breaks_is_one_line(spec: Load) -> None:
    def broken(config: Config) -> dict[str, float | None]:
        raise KeyError(config["w"])

    with pytest.raises(SpecError, match="KeyError"):
        expand(spec("axes: {w: [1]}\nderive: {d: n_params}"), broken)


def test_senseless_expressions_are_errors_of_the_spec(spec: Load) -> None:
    for text, part in [
        ("where: w + 1", "true or false"),
        ("where: name > w", "can't compare"),
        ("derive: {d: w > 1}", "must give a number"),
        ("derive: {d: name}", "must give a number"),
    ]:
        with pytest.raises(SpecError, match=part) as error:
            expand(spec(f"axes: {{w: [1]}}\nbase: {{name: abc}}\n{text}"))
        assert error.value.line == 5


# -- interpolations ---------------------------------------------------------------------------------------


def test_interpolations_are_filled_in_every_cell(spec: Load) -> None:
    text = """
    base:
      model: {width: 0, ffn: "${.width}", note: "w${model.width}x${model.depth}", depth: 2}
      copies: ["${model.width}", "${copies[0]}"]
      whole: "${model}"
      plain: "\\\\${not}"
    axes: {w: {path: model.width, values: [4, 8]}}
    """
    cells = expand(spec(text)).cells
    for cell, w in zip(cells, (4, 8), strict=True):
        model = {"width": w, "ffn": w, "note": f"w{w}x2", "depth": 2}
        assert cell.config == {"model": model, "copies": [w, w], "whole": model, "plain": "${not}"}
        assert cell.config["whole"] is not cell.config["model"]


def test_a_value_set_at_an_interpolation_wins(spec: Load) -> None:
    text = "base: {a: '${b}', b: 1, c: '${a}'}\ncompare: {r: {p: {a: 9}, q: {b: 7}}}"
    assert [c.config for c in expand(spec(text)).cells] == [{"a": 9, "b": 1, "c": 9}, {"a": 7, "b": 7, "c": 7}]
    assert [c.config for c in expand(spec("base: {a: '${b}', b: 1}\naxes: {a: [5]}")).cells] == [{"a": 5, "b": 1}]


@pytest.mark.parametrize(
    ("base", "part"),
    [
        ("{a: '${b}', b: '${a}'}", "circle"), ("{a: '${a}'}", "circle"), ("{m: {a: '${m}'}}", "circle"),
        ("{a: '${b'}", "without a `}`"), ("{a: '${}'}", "not a path"), ("{a: '${...b}'}", "above base"),
        ("{a: '${${b}}', b: 1}", "nested"), ("{a: '${b c}'}", "not a path"),
    ],
)  # fmt: skip
def test_wrong_interpolations(base: str, part: str, spec: Load) -> None:
    with pytest.raises(SpecError, match=part) as error:
        spec(f"base: {base}")
    assert error.value.line == 3


def test_a_reference_that_only_one_alternative_gives_is_a_reason(spec: Load) -> None:
    found = expand(spec("base: {a: '${x.b}'}\ncompare: {r: {p: {x.b: 9}, q: {z: 7}}}"))
    assert [c.config for c in found.cells] == [{"x": {"b": 9}, "a": 9}]
    assert "base.a" in found.infeasible[0].reason


# -- what must hold for all ----------------------------------------------------------------------------------


def containers(value: Any) -> list[int]:
    found = [id(value)] if isinstance(value, dict | list) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [one for item in inner for one in containers(item)]


def test_cells_share_no_mutable_state(spec: Load) -> None:
    text = """
    base: {l: [1, [2]], m: {k: {}}, copy: "${m}", x: 1, again: "${l}"}
    axes: {w: [1, 2]}
    compare: {r: {a: {z: [1, {q: []}], e: {}}, b: {x: 2}}}
    """
    loaded = spec(text)
    before = copy.deepcopy(loaded.spec.model_dump())
    cells = expand(loaded).cells
    ids = [one for cell in cells for one in containers(cell.config)]
    ids += containers(loaded.spec.base) + containers(loaded.spec.compare["r"].values)
    assert len(ids) == len(set(ids))
    for cell in cells:
        cell.config["l"].append("spoiled")
        cell.config["m"]["k"]["spoiled"] = 1
        cell.config.get("z", []).append("spoiled")
    assert loaded.spec.model_dump() == before
    assert "spoiled" not in json.dumps([cell.config for cell in expand(loaded).cells])


NAMES = st.lists(st.sampled_from(["a", "b", "c", "m.d", "m.e"]), min_size=1, max_size=4, unique=True)


@given(NAMES, st.data())
def test_a_product_has_every_combination_once_and_identity_ignores_order(paths: list[str], data: st.DataObject) -> None:
    values = {p: data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=3, unique=True)) for p in paths}

    def text(order: list[str]) -> str:
        axes = {f"x_{p.replace('.', '_')}": {"path": p, "values": values[p]} for p in order}
        return json.dumps({"name": "s", "task": "m:f", "base": {"m": {"k": 1}}, "axes": axes})

    cells = expand(loads(text(paths))).cells
    size = 1
    for choices in values.values():
        size *= len(choices)
    ids = {run_id("m:f", cell.config) for cell in cells}
    assert len(cells) == len(ids) == size
    other = expand(loads(text(data.draw(st.permutations(paths))))).cells
    assert {run_id("m:f", cell.config) for cell in other} == ids


def test_a_value_more_keeps_the_identities_of_the_others(spec: Load) -> None:
    def ids(*overrides: str) -> set[str]:
        cells = expand(spec("axes: {w: {path: m.w, values: [1, 2]}}\ntune: {lr: {log2: [-3, -1]}}", *overrides)).cells
        return {run_id("m:f", cell.config) for cell in cells}

    assert ids() < ids("axes.w.values=[1, 2, 3]")
    assert ids() < ids("tune.lr.log2=[-4, 0]")
    assert ids() == ids("axes.w.values=[2.0, 1e0]", "name=other", "launcher.threads=3", "question=why")


# -- equations ----------------------------------------------------------------------------------------------


def test_fixed_flops_with_what_is_derived_from_the_solution(spec: Load) -> None:
    text = (
        "axes: {width: [16, 32]}\nsolve: {tokens: flops == 1e12}\nderive: {warmup: {path: warmup, expr: 0.1 * tokens}}"
    )
    for cell in expand(spec(text), facts).cells:
        n_params = 12 * int(str(cell.coords["width"])) ** 2
        assert cell.config["tokens"] == round(1e12 / (6 * n_params))
        assert type(cell.config["tokens"]) is int
        assert cell.config["warmup"] == pytest.approx(0.1 * cell.config["tokens"], rel=1e-15)


def test_a_derived_value_that_the_equation_needs_is_there_first(spec: Load) -> None:
    text = """
    axes: {depth: [1, 2]}
    solve: {width: {equation: n_params == 1e6, multiple: 8, tolerance: 0.1}}
    derive: {n_heads: {path: n_heads, expr: 4 * depth}}
    """
    cells = expand(spec(text), facts).cells
    assert [(c.config["n_heads"], c.config["width"]) for c in cells] == [(4, 288), (8, 208)]


def test_a_budget_shared_between_size_and_tokens(spec: Load) -> None:
    """Tokens follow parameters at every trial: 6 · N · 20 N == budget."""
    text = """
    axes: {budget: {path: null, values: [1e13, 1e15]}}
    solve: {width: {equation: flops == budget, integer: false}}
    derive: {tokens: 20 * n_params}
    """
    for cell in expand(spec(text), facts).cells:
        budget = float(str(cell.coords["budget"]))
        assert cell.config["width"] == pytest.approx(((budget / 120) ** 0.5 / 12) ** 0.5, rel=1e-9)
        assert "budget" not in cell.config


def test_a_plateau_has_a_solution_on_it(spec: Load) -> None:
    text = "axes: {w: [3]}\nsolve: {x: {equation: floor(x / 1000) * w == 30}}"
    x = expand(spec(text)).cells[0].config["x"]
    assert 10_000 <= x < 11_000


@pytest.mark.parametrize(
    ("solve", "value"),
    [
        ("{equation: x ** 2 == 1e6}", 1000),
        ("{equation: 1e6 == x ** 2}", 1000),
        ("{equation: 1 / x == 1e-4}", 10_000),
        ("{equation: x == 1000.4}", 1000),
        ("{equation: x == 1000, multiple: 64, tolerance: 0.05}", 1024),
        ("{equation: x == 50, multiple: 64, tolerance: 0.3}", 64),
        ("{equation: x == 991, multiple: 64, tolerance: 0.05}", 960),
        ("{equation: x == 3, low: 0.5, integer: false}", 3),
        ("{equation: exp(x) == exp(2.5), high: 600, integer: false}", 2.5),
        ("{equation: x - 5000 == 0}", 5000),
        ("{equation: log(x - 100) == 5, tolerance: 0.01}", 248),
        ("{equation: x == 1}", 1),
        ("{equation: x == 1e18}", 10**18),
    ],
)  # fmt: skip
def test_solutions(solve: str, value: float, spec: Load) -> None:
    found = expand(spec(f"solve: {{x: {solve}}}"))
    assert found.infeasible == []
    assert found.cells[0].config["x"] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("solve", "parts"),
    [
        ("{equation: x == 100.5, tolerance: 0.001}", ["misses by 0.5 %", "0.1 %"]),
        ("{equation: x == 50, multiple: 64}", ["no value from 64 to 1e+18", "50"]),
        ("{equation: x == 1e20}", ["1e+20", "1e+18"]),
        ("{equation: x == 5, low: 10}", ["10"]),
        ("{equation: x == 0 - 3}", ["-3"]),
        ("{equation: 2 == 3}", ["2", "3"]),
        ("{equation: log(0 - x) == 1}", ["log(0 - x)"]),
    ],
)  # fmt: skip
def test_no_solution_is_a_reason(solve: str, parts: list[str], spec: Load) -> None:
    found = expand(spec(f"solve: {{x: {solve}}}"))
    assert found.cells == []
    assert all(part in found.infeasible[0].reason for part in parts), found.infeasible[0].reason


def test_what_the_task_refuses_while_solving_is_told(spec: Load) -> None:
    text = "base: {n_heads: 7}\nsolve: {width: {equation: n_params == 1e6, multiple: 8, low: 8, high: 48}}"
    found = expand(spec(text), facts)
    assert "is not a multiple of n_heads 7" in found.infeasible[0].reason


@given(st.floats(1e3, 1e15), st.sampled_from([0.5, 1, 1.7, 2, 3]), st.integers(1, 128))
def test_power_laws_are_solved_to_the_nearest_multiple(target: float, power: float, multiple: int) -> None:
    entry = f"{{equation: 'x ** {power} == {target!r}', multiple: {multiple}, tolerance: 0.9}}"
    found = expand(loads(f"name: s\ntask: m:f\nsolve: {{x: {entry}}}"))
    exact = target ** (1 / power)
    if found.cells:
        x = found.cells[0].config["x"]
        assert x % multiple == 0
        assert abs(x - exact) <= multiple * (1 + 1e-9) + 1e-9 * exact
    else:
        assert exact < 2 * multiple or exact > 1e18


def test_solving_asks_the_task_seldom(spec: Load) -> None:
    asked = 0

    def counting(config: Config) -> dict[str, float | None]:
        nonlocal asked
        asked += 1
        return facts(config)

    expand(spec("axes: {width: [16, 32, 64, 128]}\nsolve: {tokens: flops == 1e15}"), counting)
    assert asked <= 4 * 15
