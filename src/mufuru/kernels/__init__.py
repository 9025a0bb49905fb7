"""Kernels take a unit through whole sequences. `execute` chooses one and runs it."""

from __future__ import annotations

import torch
from torch import Tensor

from mufuru.kernels.choice import Choice, check_choice, choose, use_kernel
from mufuru.kernels.run import Masks, Result, Run
from mufuru.kernels.segments import run_in_segments
from mufuru.unit import STEMS, Weights

__all__ = [
    "Choice",
    "Masks",
    "Result",
    "Run",
    "check_choice",
    "check_weights",
    "execute",
    "result_to",
    "run_to",
    "use_kernel",
]


def execute(run: Run, kernel: Choice = "auto", checkpoint_every: int | None = None) -> Result:
    """Run on the chosen kernel. Half-precision tensors are computed in float32 inside, but for products in bfloat16."""
    dtype = run.x.dtype
    for name, state in (("h_0", run.s0), ("k_0", run.k0)):
        if state is not None and state.dtype != dtype:
            raise RuntimeError(f"{name} should be {dtype} as the input, got {state.dtype}")
    check_weights(run, dtype)
    if dtype in (torch.float16, torch.bfloat16):
        whole = run_to(run, torch.float32)._replace(bfloat16=dtype == torch.bfloat16)
        return result_to(execute(whole, kernel, checkpoint_every), dtype)
    sequence = choose(run, kernel)
    if torch.compiler.is_compiling():
        return sequence(run)  # whole: the number of steps, and so of segments, is not known
    if checkpoint_every and _keeps_activations() and len(run.sizes()) > checkpoint_every:
        return run_in_segments(run, checkpoint_every, sequence)
    return sequence(run)


def _keeps_activations() -> bool:
    """Whether a backward pass may come, of a kind that can compute them again: function transforms cannot."""
    return torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


def check_weights(run: Run, dtype: torch.dtype) -> None:
    """Parameters can be replaced by anything; a kernel that reads memory must not read beside it."""
    device = run.x.device
    for name, weight, shape in zip(STEMS, run.weights, run.unit.weight_shapes, strict=True):
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


def run_to(run: Run, dtype: torch.dtype) -> Run:
    """The run in another precision."""
    weights = Weights(run.weights.ih.to(dtype), run.weights.hh.to(dtype), *(_to(w, dtype) for w in run.weights[2:]))
    return run._replace(
        weights=weights, x=run.x.to(dtype), s0=run.s0.to(dtype), k0=_to(run.k0, dtype), masks=run.masks.to(dtype)
    )


def result_to(result: Result, dtype: torch.dtype) -> Result:
    """The result in another precision."""
    tail = (_to(tensor, dtype) for tensor in (result.k_n, result.p, result.v))
    return Result(result.output.to(dtype), result.s_n.to(dtype), *tail)
