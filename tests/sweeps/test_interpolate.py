"""Interpolations against OmegaConf, which defines what they mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sweeps.errors import SpecError
from sweeps.expand import expand
from sweeps.interpolate import MAX_TEMPLATES
from sweeps.load import loads

Config = dict[str, Any]
HEAD = "name: s\ntask: m:f\n"


def by_omegaconf(base: Config, sets: dict[str, Any]) -> Any:
    config = OmegaConf.create(base)
    for place, value in sets.items():
        OmegaConf.update(config, place, value, force_add=True)
    return OmegaConf.to_container(config, resolve=True)


def by_us(base: Config, rest: str) -> list[Config]:
    import json

    return [cell.config for cell in expand(loads(f"{HEAD}base: {json.dumps(base)}\n{rest}")).cells]


@st.composite
def templates(draw: st.DrawFn) -> Config:
    """Keys k0 … k9, each a number or a text that refers to later keys only, so there is no circle."""
    base: Config = {"model": {"width": 8, "name": "net", "on": True, "none": None, "x": 0.5}}
    leaves = ["model.width", "model.name", "model.on", "model.none", "model.x", "k9"]
    base["k9"] = draw(st.integers(0, 99))
    for index in range(8, -1, -1):
        pieces = draw(st.lists(st.sampled_from([*leaves, "-", "a b", "$ ", "{", "}"]), min_size=1, max_size=4))
        base[f"k{index}"] = "".join(f"${{{piece}}}" if piece in leaves else piece for piece in pieces)
        leaves.append(f"k{index}")
    if draw(st.booleans()):
        base["whole"] = "${model}"
        base["inner"] = "${whole.width}"
    return base


@given(templates())
def test_the_same_as_omegaconf_in_every_cell(base: Config) -> None:
    found = by_us(base, "axes: {w: {path: model.width, values: [4, 16]}}\ntune: {k9: [1, 2]}")
    wanted = [by_omegaconf(base, {"model.width": w, "k9": k}) for w in (4, 16) for k in (1, 2)]
    assert found == wanted


@pytest.mark.parametrize(
    "base",
    [
        {"a": {"b": "${.c}", "c": 1, "d": {"e": "${..c}", "f": "${...g}"}}, "g": [1, 2]},
        {"l": [1, "${l[0]}", "${l.1}x"], "m": "${l}"},
        {"a": r"\${b}", "b": 1, "c": r"x\${b}${b}"},
        {"a": "${b}", "b": {"c": "${d}"}, "d": {"e": "${f}"}, "f": 3, "g": "${a.c.e}"},
        {"a": "${ b }", "b": "é"},
    ],
)
def test_forms(base: Config) -> None:
    assert by_us(base, "") == [by_omegaconf(base, {})]


def test_what_follows_a_derived_value_waits_for_it() -> None:
    base = {"a": "${tokens}", "b": "${a}/${steps}", "c": ["${b}"], "tokens": 1, "steps": 1}
    found = by_us(base, "axes: {w: [2, 3]}\nderive: {steps: a / 2, tokens: w * 10}")
    assert [(c["a"], c["b"], c["c"], c["steps"]) for c in found] == [
        (20, "20/10", ["20/10"], 10),
        (30, "30/15", ["30/15"], 15),
    ]


def test_settings_that_replace_a_section_leave_its_interpolations_out() -> None:
    base = {"o": {"a": "${x}", "l": ["${x}", 2]}, "x": 5}
    rest = "compare: {opt: {p: {o: null}, q: {o.l: [7]}, r: {x: 6}}}"
    assert [c["o"] for c in by_us(base, rest)] == [None, {"a": 5, "l": [7]}, {"a": 6, "l": [6, 2]}]


def test_there_may_not_be_too_many() -> None:
    with pytest.raises(SpecError, match=r"base\.l\.200: 201 interpolations; at most 200 are allowed"):
        by_us({"x": 1, "l": ["${x}"] * (MAX_TEMPLATES + 1)}, "")
