"""The loss of a softmax over many words on the native kernel: `csrc/cross_entropy.h` on tensors."""

from array import array
from typing import NamedTuple

import torch
from torch import Tensor

from mufuru.kernels.choice import wanted_kernel
from mufuru.kernels.native import missing_library
from mufuru.kernels.problem import address, loaded, plain

SPACE = 8
"""Index of the field in `struct Predictions`; every field has 64 bits."""


class Losses(NamedTuple):
    """Losses of all predictions, and the gradients of their sum."""

    losses: Tensor
    d_hidden: Tensor
    d_weight: Tensor
    d_bias: Tensor


def runs(hidden: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Return whether the native kernel runs this: if the user chose it, else wherever it can."""
    wanted = wanted_kernel("auto")
    # a graph cannot call ctypes; a layer has an operator for that
    if wanted not in ("auto", "native") or torch.compiler.is_compiling():
        return False
    reason = _obstacle(hidden, weight, bias) or missing_library()
    if reason and wanted == "native":
        raise RuntimeError(f"kernel='native' cannot run this: {reason}. Use kernel='auto' or 'reference'")
    return not reason


def _obstacle(*tensors: Tensor) -> str:
    if places := {str(tensor.device) for tensor in tensors} - {"cpu"}:
        return f"it runs on the CPU, tensors are on {', '.join(sorted(places))}"
    if (types := {tensor.dtype for tensor in tensors}) not in ({torch.float32}, {torch.float64}):
        return f"it computes in float32 or in float64, got {', '.join(sorted(map(str, types)))}"
    return ""


def losses(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Losses:
    """Minus the logarithm of each target's probability, for `hidden` (n, features) and `targets` (n,)."""
    _check(hidden, weight, bias, targets)
    given = plain(tensor.detach() for tensor in (hidden, weight, bias, targets))
    # without rows the kernel writes nothing
    make = torch.empty_like if len(hidden) else torch.zeros_like
    result = Losses(hidden.new_empty(len(hidden)), *(make(tensor) for tensor in given[:3]))
    sizes = *hidden.shape, len(weight), hidden.dtype == torch.float64
    fields = array("q", [*sizes, *map(address, given), 0, *map(address, result)])
    problem, _ = fields.buffer_info()
    space = hidden.new_empty(loaded().mufuru_predictions_space(problem))
    fields[SPACE] = address(space)
    loaded().mufuru_predict(problem)
    return result


def _check(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> None:
    """Refuse tensors that do not fit: the kernel reads memory."""
    shapes = [list(tensor.shape) for tensor in (hidden, weight, bias, targets)]
    rows, features = hidden.shape if hidden.dim() == 2 else (-1, -1)
    words = len(weight)
    if shapes[1:] != [[words, features], [words], [rows]] or not words:
        raise ValueError(f"expected the shapes [n, features], [words, features], [words] and [n], got {shapes}")
    if reason := _obstacle(hidden, weight, bias):
        raise TypeError(reason)
    if (targets.dtype, targets.device.type) != (torch.int64, "cpu"):
        raise TypeError(f"expected targets in int64 on the CPU, got {targets.dtype} on {targets.device}")
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise IndexError(f"targets should be 0 to {words - 1}, got {int(targets.min())} to {int(targets.max())}")
