"""The door to the native library: `csrc/problem.h` mirrored, its functions typed, its threads connected to torch's."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from mufuru.kernels import library

SIZES = ["steps", "batch", "inputs", "hidden", "controller", "ops", "reset", "activation", "reverse", "is_double"]
POINTERS = [
    "offsets", "codes", "w_ih", "w_hh", "w_kk", "w_op", "packed", "packed_back", "x", "bias",
    "logit_bias", "inner_bias", "s0", "k0", "state_mask", "zoneout", "allowed", "custom", "custom_ds", "custom_dv",
    "gates", "probs", "inner", "output", "s_n", "k_n", "p",
    "grad_output", "grad_s_n", "grad_k_n", "grad_p", "grad_v", "d_gates", "d_probs", "d_inner", "d_s0", "d_k0", "d_x",
    "seen_rows", "reset_rows", "k_rows", "d_ih", "d_hh", "d_bias_ih", "d_bias_hh", "d_kk", "d_op", "d_bias_op",
]  # fmt: skip
MAX_OPS, CUSTOM = 32, 1000
_POSITION = {name: position for position, name in enumerate([*SIZES, *POINTERS])}
_Words = ctypes.c_int64 * len(_POSITION)
"""`struct Problem`: sizes and pointers, every field of 64 bits."""


class Problem:
    """The arguments of one call. Tensors must be contiguous; they are kept alive as long as this is."""

    def __init__(self, sizes: tuple[int, ...], tensors: Mapping[str, Tensor | None]) -> None:
        self._words = _Words(*sizes)
        self._kept: list[Tensor] = []
        self.address = ctypes.addressof(self._words)
        self.point(tensors)

    def point(self, tensors: Mapping[str, Tensor | None]) -> None:
        for name, tensor in tensors.items():
            if tensor is not None:
                self._kept.append(tensor)
                self._words[_POSITION[name]] = tensor.data_ptr()  # 0 without elements

    def packed(self, back: bool, dtype: torch.dtype) -> Tensor:
        """The recurrent weights as panels."""
        panels = torch.empty(native().mufuru_packed_size(self.address, back), dtype=dtype, device="cpu")
        native().mufuru_pack(self.address, back, panels.data_ptr())
        return panels


@cache
def native() -> ctypes.CDLL:
    """The loaded library."""
    lib = library.load()
    if lib is None:
        raise RuntimeError(f"the native kernel is not available: {library.status().reason}")
    if lib.mufuru_problem_size() != ctypes.sizeof(_Words):
        raise RuntimeError("the native library belongs to another version of mufuru: remove it, and it is built anew")
    address, count = ctypes.c_void_p, ctypes.c_int64
    lib.mufuru_packed_size.argtypes, lib.mufuru_packed_size.restype = [address, ctypes.c_int], count
    lib.mufuru_pack.argtypes = [address, ctypes.c_int, address]
    lib.mufuru_sample.argtypes, lib.mufuru_sample.restype = [address, count], ctypes.c_uint64
    lib.mufuru_forward.argtypes = lib.mufuru_backward.argtypes = [address]
    lib.mufuru_activate.argtypes = lib.mufuru_compose.argtypes = [address, count]
    lib.mufuru_function.argtypes = [ctypes.c_int, count, count, address, address]
    lib.mufuru_choose.argtypes, lib.mufuru_instruction_set.restype = [ctypes.c_char_p], ctypes.c_char_p
    _connect_threads(lib)
    return lib


def _connect_threads(lib: ctypes.CDLL) -> None:
    """Hand over two functions of LibTorch's stable C ABI: the kernel then keeps to `torch.set_num_threads`."""
    name = {"darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}.get(sys.platform, "libtorch_cpu.so")
    libtorch = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))
    lib.mufuru_set_threads.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    functions = (libtorch.torch_parallel_for, libtorch.torch_get_num_threads)
    lib.mufuru_set_threads(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
    # OpenMP's threads do not survive a fork: a child works alone rather than wait for them forever
    os.register_at_fork(after_in_child=lambda: lib.mufuru_set_threads(None, None))
