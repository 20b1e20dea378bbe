"""Checkpoints: nested Python state with arrays, in one safetensors file, replaced atomically.

Nothing is pickled, so a checkpoint can't run code. The nesting travels as JSON in the file's metadata, each array as a
tensor of the file; a `torch.Tensor` comes back as torch, a `numpy.ndarray` as NumPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

METADATA_KEY = "sweeplaw"
Arrays = dict[str, np.ndarray[Any, Any]]


class CheckpointError(ValueError):
    """State that can't be saved, or a file that can't be read back."""


@dataclass(frozen=True)
class Mark:
    """What a checkpoint says of its run beside the task's state: how far it was, and whether it had diverged."""

    step: int | None = None
    divergence: str | None = None


def save(path: Path, state: Any, mark: Mark = Mark()) -> int:
    """Write `state` so that a reader sees the old file or the new one, never half of one. Returns its bytes.

    `state` may nest dict, list, tuple, None, bool, int, float, str, bytes, NumPy arrays and torch tensors.
    Raises CheckpointError naming the place of anything else.
    """
    from safetensors.numpy import save as serialize

    arrays: Arrays = {}
    skeleton = _pack(state, "state", arrays)
    header = orjson.dumps({"version": 1, **vars(mark), "state": skeleton}).decode()
    data = serialize(arrays, {METADATA_KEY: header})
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return len(data)


def load(path: Path) -> tuple[Any, Mark]:
    """The saved state and its mark. Raises CheckpointError when the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as deserialize

    try:
        data = path.read_bytes()
        header, arrays = _header(data), deserialize(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {path} can't be read: {error}") from None
    return _unpack(header["state"], arrays), Mark(header["step"], header["divergence"])


def mark_of(path: Path) -> Mark:
    """The mark of a checkpoint, without reading its arrays; an empty one without a readable checkpoint."""
    try:
        with path.open("rb") as file:
            length = file.read(8)
            header = _header(length + file.read(int.from_bytes(length, "little")))
            return Mark(header["step"], header["divergence"])
    except (OSError, ValueError, KeyError, OverflowError, MemoryError):
        return Mark()


def _header(data: bytes) -> dict[str, Any]:
    """Our own header in the metadata of a safetensors file: 8 bytes of length, then JSON."""
    size = int.from_bytes(data[:8], "little")
    header = orjson.loads(orjson.loads(data[8 : 8 + size])["__metadata__"][METADATA_KEY])
    if not isinstance(header, dict) or header.get("version") != 1:
        raise ValueError("written by another version of sweeplaw")
    return header


def _pack(value: Any, place: str, arrays: Arrays) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        small = isinstance(value, int) and abs(value) < 2**53
        return value if small else {"!": "number", "v": repr(value)}  # exact, and NaN and inf survive JSON
    if isinstance(value, dict):
        pairs = [[_pack(k, place, arrays), _pack(v, f"{place}[{k!r}]", arrays)] for k, v in value.items()]
        return {"!": "dict", "v": pairs}
    if isinstance(value, list | tuple):
        packed = [_pack(v, f"{place}[{i}]", arrays) for i, v in enumerate(value)]
        return packed if isinstance(value, list) else {"!": "tuple", "v": packed}
    return _pack_array(value, place, arrays)


def _pack_array(value: Any, place: str, arrays: Arrays) -> dict[str, str]:
    torch = sys.modules.get("torch")
    kind = "numpy"
    if isinstance(value, bytes):
        kind, value = "bytes", np.frombuffer(value, dtype=np.uint8)
    elif torch is not None and isinstance(value, torch.Tensor):
        kind, value = "torch", value.detach().cpu()
        if value.dtype == torch.bfloat16:  # NumPy has no such type
            kind, value = "bfloat16", value.view(torch.uint16)
        value = value.numpy()
    elif not isinstance(value, np.ndarray | np.generic):
        raise CheckpointError(
            f"checkpoint: {place} is a {type(value).__name__}; expected dict, list, tuple, number, text, None, "
            "numpy array or torch tensor"
        )
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise CheckpointError(f"checkpoint: {place} is an array of {array.dtype}, which has no stable form")
    key = str(len(arrays))
    arrays[key] = array.copy(order="C")
    return {"!": kind, "v": key}


def _unpack(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [_unpack(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    return _UNPACK[value["!"]](value["v"], arrays)


def _number(text: str, _: Arrays) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _dict(pairs: list[Any], arrays: Arrays) -> dict[Any, Any]:
    return {_unpack(k, arrays): _unpack(v, arrays) for k, v in pairs}


def _tensor(key: str, arrays: Arrays) -> Any:
    import torch

    return torch.from_numpy(arrays[key])


def _bfloat16(key: str, arrays: Arrays) -> Any:
    import torch

    return _tensor(key, arrays).view(torch.bfloat16)


_UNPACK: dict[str, Callable[[Any, Arrays], Any]] = {
    "number": _number,
    "dict": _dict,
    "tuple": lambda values, arrays: tuple(_unpack(v, arrays) for v in values),
    "bytes": lambda key, arrays: arrays[key].tobytes(),
    "numpy": lambda key, arrays: arrays[key],
    "torch": _tensor,
    "bfloat16": _bfloat16,
}
