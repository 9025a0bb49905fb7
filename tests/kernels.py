"""Random runs, and the comparison of the native kernel with the reference: values and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from mufuru.kernels import library, native, operators, reference
from mufuru.kernels.run import Masks, Result, Run
from mufuru.ops import PAPER, OpLike, resolve
from mufuru.unit import STEMS, Unit, Weights

Kernel = Callable[[Run], Result]

needs_native = pytest.mark.skipif(library.status().state == "unavailable", reason="needs the native library")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-5}
"""Both kernels round in every sum, in another order. A few dozen terms over a few steps lose some ten units in the last
place; float64 is far below its bound, so that what exceeds it is a wrong formula, and float32 has 250 units."""
UNEVEN = (4, 4, 3, 1)
"""Sequences alive at each step: of lengths 4, 3, 3, 2 and, beyond, none at all."""
MANY = 29
"""Sequences in a large batch: more than the native kernel works on at once, and no multiple of that."""


def make_run(
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
) -> Run:
    """A random run; no size is a multiple of another or of a vector's. All that can have a gradient wants one."""
    unit = Unit(inputs, hidden, resolve(ops), reset, activation, controller, controller_activation, bias)
    shapes = unit.shapes()
    total = batch * steps if batch_sizes is None else sum(batch_sizes)
    return Run(
        unit,
        Weights(*(_leaf(*shapes[stem], dtype=dtype) if stem in shapes else None for stem in STEMS)),
        _leaf(total, inputs, dtype=dtype),
        _leaf(batch, hidden, dtype=dtype),
        None if controller is None else _leaf(batch, controller, dtype=dtype),
        None if batch_sizes is None else torch.tensor(batch_sizes, dtype=torch.int64),
        reverse,
        make_masks(masks, batch, total, hidden, len(unit.ops), dtype),
        trace,
    )


def _leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype).mul_(0.5).requires_grad_()


def make_masks(names: Iterable[str], batch: int, total: int, hidden: int, ops: int, dtype: torch.dtype) -> Masks:
    """The named masks: `state`, `zoneout`, `allowed` and `resets`."""
    state = torch.bernoulli(torch.full((batch, hidden), 0.7, dtype=dtype)) / 0.7
    allowed = torch.rand(batch, ops) < 0.6
    allowed[torch.arange(batch), torch.randint(ops, (batch,))] = True
    drawn = Masks(state, torch.rand(total, hidden, dtype=dtype).round(decimals=1), allowed, torch.rand(total) < 0.3)
    return Masks(**{name: getattr(drawn, name) for name in names})


def leaves_of(run: Run) -> dict[str, Tensor]:
    """By name, all tensors of a run that want a gradient."""
    named = {"x": run.x, "s0": run.s0, "k0": run.k0, **run.weights._asdict()}
    return {name: tensor for name, tensor in named.items() if tensor is not None and tensor.requires_grad}


def outputs_of(result: Result) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in result._asdict().items() if tensor is not None}


def gradients(result: Result, leaves: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
    """Gradients of all outputs at once, each weighted with fixed random numbers."""
    outputs = list(outputs_of(result).values())
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs]
    found = torch.autograd.grad(outputs, list(leaves.values()), weights, materialize_grads=True, **options)
    return {f"gradient of {name}": grad for name, grad in zip(leaves, found, strict=True)}


def everything(sequence: Kernel, run: Run, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    result = sequence(run)
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
        patch.setattr(native, "TRAINING_STEPS", steps)
        patch.setattr(native, "INFERENCE_STEPS", steps)
        yield


def assert_kernels_agree(run: Run, leaves: dict[str, Tensor] | None = None) -> None:
    """Natively as by the reference: all that comes out, with its gradients by `leaves`, and again without gradients.

    Packed weights and weights as they lie give the same bits.
    """
    leaves = leaves_of(run) if leaves is None else leaves
    with direct_steps(PACKED):
        packed = natively(run, leaves)
    with direct_steps(DIRECT):
        direct = natively(run, leaves)
    assert packed.keys() == direct.keys()
    for name in packed:
        torch.testing.assert_close(direct[name], packed[name], rtol=0, atol=0, equal_nan=True)
    expected = everything(reference.sequence, run, leaves)
    without = {f"{name} without gradients": expected[name] for name in outputs_of(reference.sequence(run))}
    assert_close(packed, {**expected, **without})


def natively(run: Run, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    found = everything(operators.sequence, run, leaves)
    with torch.no_grad():
        plain = outputs_of(operators.sequence(run))
    return {**found, **{f"{name} without gradients": tensor for name, tensor in plain.items()}}


def replace_weights(run: Run, change: Callable[[Tensor], Tensor]) -> Run:
    """The run with every weight changed."""
    return run._replace(weights=Weights(*(w if w is None else change(w) for w in run.weights)))
