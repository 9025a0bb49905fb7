"""The table of tensors: every tensor of a call has the shape and the dtype of its row, and operators are made of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_calls import UNEVEN, make_call, needs_native, outputs_of

from mufuru.kernels import Call, compute, native, reference
from mufuru.kernels.call import GIVEN, INPUTS, MASKS, N_DIFFERENTIABLE, OF_ROWS, OUTPUTS, Masks
from mufuru.kernels.problem import SAVED
from mufuru.tensors import Row, exists

CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masks": {"masks": Masks._fields, "batch_sizes": UNEVEN},
    "controller": {"controller": 7, "reset": "after"},
    "no bias": {"bias": False, "reset": None, "trace": False},
}


def sizes_of(call: Call) -> dict[str, int]:
    return {**call.unit.sizes, "total": len(call.x), "batch": len(call.s0), "steps": len(call.sizes())}


def assert_row(row: Row, tensor: Any, call: Call) -> None:
    assert tensor.shape == row.sized(sizes_of(call)), row.name
    assert tensor.dtype == (row.dtype or call.x.dtype), row.name


@pytest.mark.parametrize("name", CALLS)
def test_inputs(name: str) -> None:
    call = make_call(**CALLS[name])
    for row, tensor in zip(INPUTS, call.tensors(), strict=True):
        assert row.optional or tensor is not None, row.name
        if row.role == "weight" or row.when:
            assert (tensor is not None) == exists(row, call.unit.facts), row.name
        if tensor is not None:
            assert_row(row, tensor, call)
            assert tensor.requires_grad == row.differentiable, row.name


@pytest.mark.parametrize("kernel", [reference.sequence, pytest.param(native.sequence, marks=needs_native)])
@pytest.mark.parametrize("name", CALLS)
def test_outputs(name: str, kernel: Any) -> None:
    call = make_call(**CALLS[name])
    facts = call.unit.facts | ({"trace"} if call.trace else set())
    found = outputs_of(kernel(call))
    assert list(found) == [row.name for row in OUTPUTS if exists(row, facts)]
    for row in OUTPUTS:
        if row.name in found:
            assert_row(row, found[row.name], call)


@needs_native
@pytest.mark.parametrize("name", CALLS)
def test_saved(name: str) -> None:
    call = make_call(**CALLS[name])
    with torch.no_grad():
        saved = compute.forward(call)[len(OUTPUTS) :]
    assert [tensor is not None for tensor in saved] == [exists(row, call.unit.facts) for row in SAVED]
    for row, tensor in zip(SAVED, saved, strict=True):
        if tensor is not None:
            assert_row(row, tensor, call)


def test_those_with_gradients_come_first() -> None:
    assert all(row.differentiable for row in INPUTS[:N_DIFFERENTIABLE])
    assert not any(row.differentiable for row in INPUTS[N_DIFFERENTIABLE:])
    assert len(GIVEN) == N_DIFFERENTIABLE


@pytest.mark.parametrize("name", CALLS)
def test_a_call_from_its_parts(name: str) -> None:
    call = make_call(**CALLS[name])
    again = call.settings().call(call.tensors())
    assert again.settings() == call.settings()
    assert all(a is b for a, b in zip(again.tensors(), call.tensors(), strict=True))


def test_a_mask_belongs_to_rows_or_to_sequences() -> None:
    assert {row.shape[0] for row in MASKS} == {"total", "batch"}
    masks = make_call(masks=Masks._fields).masks.of(slice(3, 5), 4)
    for name, mask in masks._asdict().items():
        assert len(mask) == (2 if name in OF_ROWS else 4), name


def test_schemas() -> None:
    """Written out but for the masks, of which there may be more: an exported program calls the operators by these."""
    tensors = "Tensor x, Tensor s0, Tensor? k0, Tensor ih, Tensor hh, Tensor? bias_ih, Tensor? bias_hh, Tensor? kk, "
    tensors += (
        "Tensor? op, Tensor? bias_op, Tensor? batch_sizes, Tensor? state_mask, Tensor? zoneout, Tensor? allowed, "
    )
    tensors += "Tensor? resets, "
    options = "int[] codes, int reset, int activation, int controller_activation, bool reverse, bool trace, "
    options += "bool on_reference, bool bfloat16"
    grads = ", ".join(f"Tensor? grad_{name}" for name in ("output", "s_n", "k_n", "p", "v"))
    saved = ", ".join(f"Tensor saved_{name}" for name in ("output", "gates", "probs", "inner"))
    forward, backward = (str(getattr(torch.ops.mufuru, name).default._schema) for name in ("forward", "backward"))
    assert forward.startswith(f"mufuru::forward({tensors}")
    assert forward.endswith(f", {options}) -> ({', '.join(['Tensor'] * 8)})")
    assert backward.startswith(f"mufuru::backward({grads}, {tensors}")
    assert backward.endswith(f", {options}, {saved}, bool needs_x) -> ({', '.join(['Tensor'] * 10)})")
