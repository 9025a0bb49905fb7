"""One step of a unit without gradients, by the shortest way to the native kernel.

A step of a small cell takes the kernel less time than Python takes to get there. Here is no more than what must be
known before C reads memory: whatever is not as usual is left to the long way, which converts, refuses and explains.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mufuru.kernels import compute, library
from mufuru.kernels.choice import Choice, sequence_is_given, wanted_kernel
from mufuru.kernels.problem import Problem, loaded, position
from mufuru.unit import Unit
from mufuru.validate import ORDINARY, is_whole

_X, _S0, _WEIGHTS, _OUTPUT, _S_N = map(position, ("x", "s0", "w_ih", "output", "s_n"))


def new_state(unit: Unit, kernel: Choice, x: Any, s0: Any, weights: Sequence[Any]) -> Tensor | None:
    """Return the state after a step from (batch, hidden) `s0`, zero if that is `None`; `None` where the long way is
    needed. `weights` are in the order of `Weights`."""
    if type(x) is not Tensor or torch.is_grad_enabled() or not _plain_mode() or not _chosen(kernel):
        return None
    shape, dtype = x.shape, x.dtype
    usual = len(shape) == 2 and shape[0] and shape[1] == unit.input_size and dtype in (torch.float32, torch.float64)
    if not usual or unit.python_ops or unit.controller_size is not None or not unit.hidden_size or not is_whole(x):
        return None
    batch, size = shape[0], unit.hidden_size
    if s0 is None:
        s0 = x.new_zeros((batch, size))
    elif not _is_usual(s0, (batch, size), dtype):
        return None
    template, _kept = _arguments(unit.numbers, unit.codes, batch, dtype)
    words = template[:]
    for place, (weight, wanted) in enumerate(zip(weights, unit.weight_shapes, strict=True), _WEIGHTS):
        if weight is None and wanted is None:
            continue
        if wanted is None or not _is_usual(weight, wanted, dtype):
            return None
        words[place] = weight.data_ptr()
    new: Tensor = s0.new_empty((batch, size))
    words[_X], words[_S0] = x.data_ptr(), s0.data_ptr()
    words[_OUTPUT] = words[_S_N] = new.data_ptr()  # a step's output is the last state
    loaded().mufuru_forward(words.buffer_info()[0])
    return new


def _plain_mode() -> bool:
    """Return whether nothing watches, transforms or converts what is computed."""
    return not (
        torch._C._is_any_autocast_enabled()
        or torch._C._get_tracing_state()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _chosen(kernel: Choice) -> bool:
    """Return whether the native kernel is there, and wanted on the CPU."""
    return not sequence_is_given() and wanted_kernel(kernel) in ("auto", "native") and library.load() is not None


def _is_usual(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Return whether a tensor is an ordinary one in the memory of the CPU, as C reads it."""
    return type(tensor) in ORDINARY and tensor.shape == shape and tensor.dtype == dtype and is_whole(tensor)


@lru_cache(maxsize=64)
def _arguments(numbers: tuple[int, ...], codes: tuple[int, ...], batch: int, dtype: torch.dtype) -> tuple[Any, Problem]:
    """Return the arguments of a call but for its tensors, and what keeps alive what they point to."""
    problem = compute.problem_of_a_step(numbers, codes, batch, dtype)
    return problem.words(), problem
