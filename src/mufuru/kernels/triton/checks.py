"""Validation of the operators' arguments: a program may pass any tensors, and a GPU checks no address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mufuru.kernels.call import INPUTS, OUTPUTS, Call, interpreted
from mufuru.kernels.operators import Options, call_of
from mufuru.tensors import Row, exists
from mufuru.validate import check_all


def checked_call(tensors: Sequence[Any], options: Options) -> Call:
    """Return the call with tensors that own their memory, each as specified by its row of the table."""
    given = check_all((row.name for row in INPUTS), tensors)
    for tensor, row in zip(given[:2], INPUTS, strict=False):
        if tensor is None or tensor.dim() != 2:
            raise RuntimeError(f"{row.name} should have two dimensions, got {_shape(tensor)}")
    call = call_of(given, options)
    if call.x.device.type != "cuda" and not (call.x.device.type == "cpu" and interpreted()):
        raise RuntimeError(f"the Triton kernel runs on a GPU, the tensors are on {call.x.device}")
    sizes = _sizes(call)
    for row, tensor in zip(INPUTS, given, strict=True):
        if row.role == "weight" and (tensor is None) == exists(row, call.unit.facts):
            raise RuntimeError(f"{row.name} should {'be there' if tensor is None else 'not be there'}")
        if tensor is not None:
            _check(row, tensor, sizes, call)
    _check_lengths(call)
    return call


def checked_gradients(grads: Sequence[Tensor | None], call: Call) -> list[Tensor | None]:
    """Return the gradients of outputs, with their own memory and the outputs' shapes."""
    checked, sizes = check_all((f"gradient of {row.name}" for row in OUTPUTS), grads), _sizes(call)
    facts = call.unit.facts | ({"trace"} if call.trace else set())
    for row, grad in zip(OUTPUTS, checked, strict=True):
        if grad is not None and exists(row, facts):
            _check(row, grad, sizes, call)
    return checked


def _sizes(call: Call) -> dict[str, int]:
    steps = 0 if call.batch_sizes is None else call.batch_sizes.numel()
    return {**call.unit.sizes, "total": call.x.size(0), "batch": call.s0.size(0), "steps": steps}


def _check(row: Row, tensor: Tensor, sizes: Mapping[str, int], call: Call) -> None:
    device = torch.device("cpu") if row.name == "batch_sizes" else call.x.device
    dtype, shape = row.dtype or call.x.dtype, row.sized(sizes)
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
        raise RuntimeError(
            f"{row.name} should be {dtype} of shape {list(shape)} on {device}, got {tensor.dtype} of shape "
            f"{_shape(tensor)} on {tensor.device}"
        )


def _check_lengths(call: Call) -> None:
    """The sequences alive at each step lead through the rows: no step may have more than the one before."""
    total, batch = call.x.size(0), call.s0.size(0)
    if call.batch_sizes is None:
        if total and (not batch or total % batch):
            raise RuntimeError(f"x should have a row for each of the {batch} sequences in every step, got {total} rows")
        return
    sizes = call.sizes()
    if sizes != sorted(sizes, reverse=True) or (sizes and not 0 <= sizes[-1] <= sizes[0] <= batch):
        raise RuntimeError(f"batch_sizes should fall from at most {batch} to no less than 0, got {sizes}")
    if sum(sizes) > total:
        raise RuntimeError(f"x should have {sum(sizes)} rows, as many as batch_sizes add up to, got {total}")


def _shape(tensor: Tensor | None) -> list[int]:
    return [] if tensor is None else list(tensor.shape)
