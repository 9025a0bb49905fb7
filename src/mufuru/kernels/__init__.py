"""Kernels take a unit through whole sequences. `execute` chooses one and runs it."""

from typing import Any

import torch
from torch import Tensor

from mufuru.kernels.call import Call, Masks, Result
from mufuru.kernels.choice import Choice, check_choice, choose, kernel_status, takes_half, use_kernel
from mufuru.kernels.segments import run_in_segments
from mufuru.unit import STEMS, Weights

__all__ = [
    "Call",
    "Choice",
    "Masks",
    "Result",
    "call_to",
    "check_choice",
    "check_weights",
    "execute",
    "kernel_status",
    "result_to",
    "use_kernel",
]


def execute(call: Call, kernel: Choice = "auto", checkpoint_every: int | None = None) -> Result:
    """Run on the chosen kernel. Half precision is computed in float32 inside, except for products."""
    dtype = call.x.dtype
    for name, state in (("h_0", call.s0), ("k_0", call.k0)):
        if state is not None and state.dtype != dtype:
            raise RuntimeError(f"{name} should be {dtype} as the input, got {state.dtype}")
    check_weights(call, dtype)
    if dtype in (torch.float16, torch.bfloat16) and not takes_half(call, kernel):
        whole = call_to(call, torch.float32)._replace(bfloat16=dtype == torch.bfloat16)
        return result_to(execute(whole, kernel, checkpoint_every), dtype)
    sequence = choose(call, kernel)
    if torch.compiler.is_compiling():
        return sequence(call)  # whole: the number of steps, and so of segments, is not known
    if checkpoint_every and _keeps_activations() and len(call.sizes()) > checkpoint_every:
        return run_in_segments(call, checkpoint_every, sequence)
    return sequence(call)


def _keeps_activations() -> bool:
    """Return whether a backward pass may follow that can recompute activations: function transforms cannot."""
    return torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


def check_weights(call: Call, dtype: torch.dtype) -> None:
    """Check the weights: a program can replace parameters, and a kernel must not read out of bounds."""
    device = call.x.device
    for name, weight, shape in zip(STEMS, call.weights, call.unit.weight_shapes, strict=True):
        if weight is None and shape is None:
            continue
        if weight is None or shape is None:
            raise RuntimeError(f"{name} should {'be there' if weight is None else 'not be there'}: layers have both "
                               "biases or none, as bias= says")  # fmt: skip
        if weight.shape != shape:
            raise RuntimeError(f"{name} should have the shape {list(shape)}, got {list(weight.shape)}")
        if weight.dtype != dtype or weight.device != device:
            raise RuntimeError(
                f"{name} should be {dtype} on {device} as the input, got {weight.dtype} on {weight.device}"
            )


def _to(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)


def call_to(call: Call, dtype: torch.dtype) -> Call:
    """Return the call in another precision."""
    weights: Any = (_to(weight, dtype) for weight in call.weights)
    x, s0, k0 = call.x.to(dtype), call.s0.to(dtype), _to(call.k0, dtype)
    return call._replace(weights=Weights(*weights), x=x, s0=s0, k0=k0, masks=call.masks.to(dtype))


def result_to(result: Result, dtype: torch.dtype) -> Result:
    """Return the result in another precision."""
    tensors: Any = (_to(tensor, dtype) for tensor in result)
    return Result(*tensors)
