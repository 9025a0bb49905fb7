"""Checkpoints: one safetensors file with all tensors, and in its metadata everything else as JSON, under one checksum.

Nothing in it is ever run. The metadata has a single entry, since safetensors writes several in no fixed order and the
same run should give the same bytes. And the random states of Python, NumPy and torch, which go into a checkpoint.
"""

import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mufuru.disk import write_atomically
from mufuru.experiments.engine.errors import RunError, deferred

ENTRY = "mufuru"
"""Key of the metadata."""


class CheckpointError(RunError):
    """A checkpoint that cannot be read."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and values that JSON can hold."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix/`, without it."""
        start = f"{prefix}/"
        return {name.removeprefix(start): tensor for name, tensor in self.tensors.items() if name.startswith(start)}


def save(path: Path, checkpoint: Checkpoint, keep: Path | None = None) -> None:
    """Write a checkpoint atomically; the old one is moved to `keep`."""
    # tensors that share memory, such as tied weights, become two of the same
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    content = {"sha256": digest(tensors, checkpoint.values), "values": checkpoint.values}
    write_atomically(path, safetensors.torch.save(tensors, {ENTRY: json.dumps(content, sort_keys=True)}), keep)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and check every byte of its tensors and values."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a file: expected a checkpoint of mufuru")
    try:
        with deferred(), safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})[ENTRY])
            # the file is mapped into memory: a copy does not change when the file does
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        checksum, values = content["sha256"], content["values"]
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut off or is no safetensors file ({error})") from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path} is no checkpoint of mufuru, or is damaged") from None
    if digest(tensors, values) != checksum:
        raise CheckpointError(f"{path} is damaged: its content does not have the checksum it was written with")
    return Checkpoint(tensors, values)


def digest(tensors: dict[str, Tensor], values: dict[str, Any]) -> str:
    """SHA-256 over names, types, shapes and bytes of the tensors, and the values."""
    total = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Put the tensors of a nested tuple, list or dict into `tensors`; return its shape, for `unpack`."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [pack(item, f"{name}/{index}", tensors) for index, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": [[key, pack(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"a state should be made of tensors, tuples, lists, dicts and numbers, got {type(value).__name__}")


def unpack(shape: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = shape.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unpack(item, tensors) for key, item in content}
    if kind in ("tuple", "list"):
        items = [unpack(item, tensors) for item in content]
        return tuple(items) if kind == "tuple" else items
    return content


def seed_everything(number: int) -> None:
    """Seed Python, NumPy and torch, which take numbers of different size."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number % 2**63)


def capture_randomness() -> Checkpoint:
    """Return the random states of Python, NumPy and torch, that of a GPU in use among them."""
    version, words, normal = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)
    tensors = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
    }
    if torch.cuda.is_initialized():
        tensors["cuda"] = torch.cuda.get_rng_state()
    rest = {"pos": int(numpy["state"]["pos"]), "has_gauss": int(numpy["has_gauss"]), "gauss": float(numpy["gauss"])}
    return Checkpoint(tensors, {"python": [version, normal], "numpy": rest})


def restore_randomness(states: Checkpoint) -> None:
    tensors, values = states.tensors, states.values
    version, normal = values["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), normal))
    numpy = values["numpy"]
    key = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, numpy["pos"], numpy["has_gauss"], numpy["gauss"]))
    torch.set_rng_state(tensors["torch"])
    if "cuda" in tensors and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(tensors["cuda"])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the random states after this context, whatever is drawn within."""
    before = capture_randomness()
    try:
        yield
    finally:
        restore_randomness(before)
