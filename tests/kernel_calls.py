"""Random calls, and the comparison of the native kernel with the reference: values and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from mufuru.kernels import compute, library, native, reference
from mufuru.kernels.call import MASKS, Call, Masks, Result
from mufuru.ops import PAPER, OpLike, resolve
from mufuru.unit import STEMS, Unit, Weights

Kernel = Callable[[Call], Result]

needs_native = pytest.mark.skipif(library.status().state == "unavailable", reason="needs the native library")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-5}
"""Both kernels round in every sum, in another order. A few dozen terms over a few steps lose some ten units in the last
place; float64 is far below its bound, so that what exceeds it is a wrong formula, and float32 has 250 units."""
UNEVEN = (4, 4, 3, 1)
"""Sequences alive at each step: of lengths 4, 3, 3, 2 and, beyond, none at all."""
MANY = 29
"""Sequences in a large batch: more than the native kernel works on at once, and no multiple of that."""


def make_call(
    ops: Sequence[OpLike] = PAPER,
    *,
    reset: Any = "before",
    activation: Any = "tanh",
    controller: int | None = None,
    controller_activation: Any = "tanh",
    bias: bool = True,
    batch_sizes: Sequence[int] | None = None,
    reverse: bool = False,
    masks: Iterable[str] = (),
    trace: bool = True,
    inputs: int = 3,
    hidden: int = 11,
    batch: int = 5,
    steps: int = 4,
    dtype: torch.dtype = torch.float64,
) -> Call:
    """A random call; no size is a multiple of another or of a vector's. All that can have a gradient wants one."""
    unit = Unit(inputs, hidden, resolve(ops), reset, activation, controller, controller_activation, bias)
    shapes = unit.shapes()
    total = batch * steps if batch_sizes is None else sum(batch_sizes)
    return Call(
        unit,
        Weights(*(_leaf(*shapes[stem], dtype=dtype) if stem in shapes else None for stem in STEMS)),
        _leaf(total, inputs, dtype=dtype),
        _leaf(batch, hidden, dtype=dtype),
        None if controller is None else _leaf(batch, controller, dtype=dtype),
        None if batch_sizes is None else torch.tensor(batch_sizes, dtype=torch.int64),
        reverse,
        make_masks(masks, {**unit.sizes, "batch": batch, "total": total}, dtype),
        trace,
    )


def _leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype).mul_(0.5).requires_grad_()


def make_masks(names: Iterable[str], sizes: Mapping[str, int], dtype: torch.dtype) -> Masks:
    """The named masks, random. Each is drawn as its row says: a mask that the table gets is tested with the others."""
    rows, drawn = dict(zip(Masks._fields, MASKS, strict=True)), {}
    for name in names:
        shape = rows[name].sized(sizes)
        random = torch.rand(shape, dtype=dtype)
        drawn[name] = random < 0.4 if rows[name].dtype == torch.bool else random.round(decimals=1)
        if name == "allowed":  # at least one operation
            drawn[name][torch.arange(shape[0]), torch.randint(shape[1], shape[:1])] = True
    return Masks(**drawn)


def leaves_of(call: Call) -> dict[str, Tensor]:
    """By name, all tensors of a call that want a gradient."""
    named = {"x": call.x, "s0": call.s0, "k0": call.k0, **call.weights._asdict()}
    return {name: tensor for name, tensor in named.items() if tensor is not None and tensor.requires_grad}


def outputs_of(result: Result) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in result._asdict().items() if tensor is not None}


def gradients(result: Result, leaves: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
    """Gradients of all outputs at once, each weighted with fixed random numbers."""
    outputs = list(outputs_of(result).values())
    generator = torch.Generator().manual_seed(7)
    drawn = (torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs)
    weights = [weight.to(output.device) for weight, output in zip(drawn, outputs, strict=True)]
    found = torch.autograd.grad(outputs, list(leaves.values()), weights, materialize_grads=True, **options)
    return {f"gradient of {name}": grad for name, grad in zip(leaves, found, strict=True)}


def everything(sequence: Kernel, call: Call, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    result = sequence(call)
    return {**outputs_of(result), **(gradients(result, leaves) if leaves else {})}


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float | None = None) -> None:
    """Every tensor by name, within the tolerance of its dtype relative to its largest number; NaN where NaN is."""
    assert actual.keys() == expected.keys()
    for name, wanted in expected.items():
        got, limit = actual[name].detach(), tolerance or TOLERANCE[wanted.dtype]
        assert got.shape == wanted.shape, name
        assert got.dtype == wanted.dtype, name
        size = 1 + max(wanted.detach().nan_to_num(posinf=0, neginf=0).abs().flatten().tolist(), default=0.0)
        try:
            torch.testing.assert_close(got, wanted.detach(), rtol=0, atol=limit * size, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


PACKED, DIRECT = -1, 10**9
"""For `direct_steps`: the weights are packed beforehand for any number of steps, or for none."""


@contextmanager
def direct_steps(steps: int) -> Iterator[None]:
    """Let the native kernel read the weights as they lie up to this many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute, "TRAINING_STEPS", steps)
        patch.setattr(compute, "INFERENCE_STEPS", steps)
        yield


def assert_kernels_agree(call: Call, leaves: dict[str, Tensor] | None = None) -> None:
    """Natively as by the reference: all that comes out, with its gradients by `leaves`, and again without gradients.

    Packed weights and weights as they lie give the same bits.
    """
    leaves = leaves_of(call) if leaves is None else leaves
    with direct_steps(PACKED):
        packed = natively(call, leaves)
    with direct_steps(DIRECT):
        direct = natively(call, leaves)
    assert packed.keys() == direct.keys()
    for name in packed:
        torch.testing.assert_close(direct[name], packed[name], rtol=0, atol=0, equal_nan=True)
    expected = everything(reference.sequence, call, leaves)
    without = {f"{name} without gradients": expected[name] for name in outputs_of(reference.sequence(call))}
    assert_close(packed, {**expected, **without})


def natively(call: Call, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    found = everything(native.sequence, call, leaves)
    with torch.no_grad():
        plain = outputs_of(native.sequence(call))
    return {**found, **{f"{name} without gradients": tensor for name, tensor in plain.items()}}


def replace_weights(call: Call, change: Callable[[Tensor], Tensor]) -> Call:
    """The call with every weight changed."""
    return call._replace(weights=Weights(*(w if w is None else change(w) for w in call.weights)))
