"""Access to the native library: `struct Problem` of `csrc/problem.h`, typed functions, and torch's threads."""

import ctypes
import os
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from mufuru.kernels import library
from mufuru.kernels.call import INPUTS, OUTPUTS
from mufuru.tensors import Row, Shape, rows
from mufuru.validate import check_all

SIZES = [
    "steps", "batch", "inputs", "hidden", "controller", "ops",
    "reset", "activation", "controller_activation", "reverse", "is_double", "bfloat16", "direct",
]  # fmt: skip


class Saved(NamedTuple):
    """Kept for the backward pass, beside the output."""

    gates: Annotated[Tensor, Shape("total width")]
    """Features, reset gate and operation weights, or the controller's state."""
    probs: Annotated[Tensor | None, Shape("total others", when="controller")] = None
    """Operation weights, with a recurrent controller."""
    inner: Annotated[Tensor | None, Shape("total hidden", when="after")] = None
    """The state's part of the features before the reset gate."""


SAVED = rows(Saved, "saved")


def _name_in_c(row: Row) -> str:
    if row.role == "weight":
        return row.name.replace("bias", "b") if row.name.startswith("bias") else f"w_{row.name}"
    return "offsets" if row.name == "batch_sizes" else row.name


POINTERS = [
    "codes", "space",
    *map(_name_in_c, (*INPUTS, *OUTPUTS, *SAVED)),
    *(f"grad_{row.name}" for row in OUTPUTS),
    *(f"d_{row.name}" for row in INPUTS if row.differentiable),
    "custom", "custom_ds", "custom_dv",
]  # fmt: skip
"""Fields of `struct Problem`, from the table of tensors. `offsets` are made of the batch sizes."""
MAX_OPS = 32
_POSITION = {name: position for position, name in enumerate([*SIZES, *POINTERS])}
WORDS = len(_POSITION)
"""Fields of `struct Problem`: sizes and pointers, all of 64 bits."""


def position(name: str) -> int:
    """Return the place of a field of `struct Problem` among its words."""
    return _POSITION[name]


_EMPTY = array("q", [0] * WORDS)


def plain(tensors: Iterable[Tensor | None]) -> list[Any]:
    """Return the tensors contiguous and checked, as C reads them."""
    return [None if tensor is None else tensor.contiguous() for tensor in check_all(repeat("a tensor"), tensors)]


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's numbers; 0 if it has none."""
    place = tensor.data_ptr()
    if not place and tensor.numel():
        raise RuntimeError(
            f"a {type(tensor).__name__} has no memory that the native kernel could read: use kernel='reference'"
        )
    return place


class Problem:
    """The arguments of one call: sizes, then tensors in the order of `POINTERS`, as many as are known.

    Tensors must be `plain`; they are kept alive as long as this is.
    """

    def __init__(self, sizes: tuple[int, ...], tensors: Sequence[Tensor | None]) -> None:
        self._kept = [tensors]
        self.direct = bool(sizes[-1])
        words = self._words = _EMPTY[:]
        words[: len(sizes)] = array("q", sizes)
        for place, tensor in enumerate(tensors, len(sizes)):
            if tensor is not None:
                words[place] = address(tensor)
        self.address, _ = words.buffer_info()

    def words(self) -> Any:
        """Return a copy of the struct's fields, whose places `position` knows."""
        return self._words[:]

    def point(self, first: str, *tensors: Tensor) -> None:
        """Add tensors, from the field named `first` on."""
        self._kept.append(tensors)
        for position, tensor in enumerate(tensors, _POSITION[first]):
            self._words[position] = address(tensor)

    def checksum(self) -> int:
        """Return the checksum of all weights and biases and of how they would be packed."""
        checksum: int = loaded().mufuru_checksum(self.address)
        return checksum

    def take_space(self, back: bool, dtype: torch.dtype) -> Tensor:
        """Allocate and return `space`."""
        space = torch.empty(loaded().mufuru_space(self.address, back), dtype=dtype, device="cpu")
        self.point("space", space)
        return space


@cache
def loaded() -> ctypes.CDLL:
    """Return the loaded library."""
    lib = library.load()
    if lib is None:
        raise RuntimeError(f"the native kernel is not available: {library.status().reason}")
    if lib.mufuru_problem_size() != 8 * WORDS:
        raise RuntimeError("the native library belongs to another version of mufuru: remove it, and it is built again")
    address, count = ctypes.c_void_p, ctypes.c_int64
    lib.mufuru_space.argtypes, lib.mufuru_space.restype = [address, ctypes.c_int], count
    lib.mufuru_checksum.argtypes, lib.mufuru_checksum.restype = [address], ctypes.c_uint64
    lib.mufuru_pack.argtypes = lib.mufuru_forward.argtypes = lib.mufuru_backward.argtypes = [address]
    lib.mufuru_activate.argtypes = lib.mufuru_compose.argtypes = [address, count]
    lib.mufuru_predictions_space.argtypes, lib.mufuru_predictions_space.restype = [address], count
    lib.mufuru_predict.argtypes = [address]
    lib.mufuru_function.argtypes = [ctypes.c_int, count, count, address, address]
    lib.mufuru_choose.argtypes, lib.mufuru_instruction_set.restype = [ctypes.c_char_p], ctypes.c_char_p
    _connect_threads(lib)
    return lib


def _connect_threads(lib: ctypes.CDLL) -> None:
    """Pass two functions of LibTorch's stable C ABI: the kernel then follows `torch.set_num_threads`."""
    name = {"darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}.get(sys.platform, "libtorch_cpu.so")
    libtorch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))
    lib.mufuru_set_threads.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    functions = (libtorch.torch_parallel_for, libtorch.torch_get_num_threads)
    lib.mufuru_set_threads(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
    # OpenMP's threads do not survive a fork: a child works alone rather than wait for them forever
    os.register_at_fork(after_in_child=lambda: lib.mufuru_set_threads(None, None))
