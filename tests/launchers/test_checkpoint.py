from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launchers import checkpoint
from launchers.checkpoint import Mark

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=20))
states = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.integers(), st.text()), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@given(states)
def test_any_nesting_comes_back_with_its_types(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "state.safetensors"
    checkpoint.save(path, state, Mark(7, "val_loss = nan"))
    restored, mark = checkpoint.load(path)
    assert mark == checkpoint.mark_of(path) == Mark(7, "val_loss = nan")
    assert same(restored, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, 0, 3)])
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 100).to(dtype)
    checkpoint.save(tmp_path / "c", {"w": tensor, "view": tensor.T if tensor.ndim == 2 else tensor})
    state, mark = checkpoint.load(tmp_path / "c")
    assert mark == Mark()
    assert state["w"].dtype == dtype
    assert torch.equal(state["w"], tensor)
    assert torch.equal(state["view"], tensor.T if tensor.ndim == 2 else tensor)
    state["w"].zero_()  # writable, as an optimizer needs it


def test_an_optimizer_continues_from_its_saved_state(tmp_path: Path) -> None:
    def steps(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, n: int) -> None:
        for _ in range(n):
            optimizer.zero_grad()
            model(torch.ones(3)).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    steps(model, optimizer, 3)
    checkpoint.save(tmp_path / "c", {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    steps(model, optimizer, 4)

    state, _ = checkpoint.load(tmp_path / "c")
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(state["model"])
    resumed = torch.optim.AdamW(other.parameters())
    resumed.load_state_dict(state["optimizer"])
    steps(other, resumed, 4)
    assert torch.equal(model.weight, other.weight)


def test_numpy_arrays_keep_shape_and_type(tmp_path: Path) -> None:
    state = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": np.float32(1.5)}
    checkpoint.save(tmp_path / "c", state)
    restored, _ = checkpoint.load(tmp_path / "c")
    assert restored["a"].dtype == np.int16
    np.testing.assert_array_equal(restored["a"], state["a"])
    assert restored["b"] == 1.5


@pytest.mark.parametrize("bad", [object(), {1, 2}, np.array(["text"]), 1j])
def test_what_has_no_stable_form_is_named(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(checkpoint.CheckpointError, match=r"state\['model'\]\[1\]"):
        checkpoint.save(tmp_path / "c", {"model": [0, bad]})
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_said_and_a_failed_save_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoint.save(path, {"x": np.zeros(100)}, Mark(4))
    assert checkpoint.mark_of(path) == Mark(4)
    whole = path.read_bytes()
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.save(path, {"x": object()}, Mark(5))
    assert path.read_bytes() == whole
    for cut in (0, 5, 50, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(checkpoint.CheckpointError, match="can't be read"):
            checkpoint.load(path)
    path.write_bytes(b"\xff" * 64)
    assert checkpoint.mark_of(path) == Mark()
    assert checkpoint.mark_of(tmp_path / "none") == Mark()
