"""Identity: one for each configuration, whatever its spelling; golden values hashed here by hand."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import IdentityError
from sweeps.identity import IDENTITY_VERSION, canonical, run_id

GOLDEN = [
    ({}, "{}"),
    ({"lr": 0.001, "width": 64}, '{"lr":0.001,"width":64}'),
    ({"width": 64.0, "lr": 1e-3}, '{"lr":0.001,"width":64}'),
    ({"a": {"c": [1, 2.5, None, True], "b": "x\u00e9\n"}}, '{"a":{"b":"x\u00e9\\n","c":[1,2.5,null,true]}}'),
    ({"t": 1e22, "u": -0.0, "s": "1"}, '{"s":"1","t":1e+22,"u":0}'),
]


@pytest.mark.parametrize(("config", "spelling"), GOLDEN)
def test_golden(config: dict[str, Any], spelling: str) -> None:
    assert IDENTITY_VERSION == 1
    text = f'sweeplaw run 1\n{{"config":{spelling},"task":"m:f"}}'
    assert run_id("m:f", config) == hashlib.sha256(text.encode()).hexdigest()[:24]


def test_an_identity_never_changes() -> None:
    # Computed once with `printf 'sweeplaw run 1\n{"config":{"width":64},"task":"m:f"}' | sha256sum`.
    assert run_id("m:f", {"width": 64}) == "9985498272efee8090836d63"


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4)
)


def respelled(value: Any, shuffle: random.Random) -> Any:
    """The same value, written differently."""
    if isinstance(value, dict):
        items = [(key, respelled(item, shuffle)) for key, item in value.items()]
        shuffle.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return tuple(respelled(item, shuffle) for item in value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return np.float64(value) if isinstance(value, float) else value


@given(TREES, st.randoms(use_true_random=False))
def test_spelling_does_not_matter(value: Any, shuffle: random.Random) -> None:
    assert canonical(value) == canonical(respelled(value, shuffle))


@given(TREES, TREES)
def test_different_values_differ(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    """Python's equality, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def test_near_misses_differ() -> None:
    spellings = [1, True, "1", None, 0, False, "", [], {}, [1], "true", 1.0000000000000002, 2**53, 2**53 + 1]
    assert len({canonical(s) for s in spellings}) == len(spellings)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (float("nan"), "nan"), (float("inf"), "inf"), ({1: 2}, "key"), ({"a": {"b": {1, 2}}}, "a.b"),
        ([print], "builtin"), (np.zeros(2), "write a list"), ("\ud800", "surrogate"), (10**400, "bits"),
    ],
)  # fmt: skip
def test_what_has_no_canonical_form_is_refused(value: Any, part: str) -> None:
    with pytest.raises(IdentityError, match=part):
        canonical(value)


def test_a_value_inside_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(IdentityError, match="nested too deeply"):
        canonical(value)
