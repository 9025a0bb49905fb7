"""Programs as users write them: run with `nn.GRU`, then with `MuFuRU` in its place, and compared.

A program is a function of the layer's class that trains or uses a model and returns what it found. The comparison is
here: the same program gives the same bits twice; with `MuFuRU` it leaves what it leaves with `nn.GRU`, in kind; and on
the native kernel it computes what it computes on the reference.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from mufuru import MuFuRU, MuFuRUCell

Found: TypeAlias = dict[str, Any]
"""What a program leaves: tensors by name, `None` for a gradient that did not come, numbers and strings."""
Program: TypeAlias = Callable[..., Found]
PEERS: dict[Any, Any] = {MuFuRU: nn.GRU, MuFuRUCell: nn.GRUCell}
TYPES: dict[str, Any] = {"layer_type": MuFuRU, "cell_type": MuFuRUCell}
OWN = ("parameter ", "gradient ")
"""Names of tensors whose shapes are the layer's own: MuFuRU's weights have other rows than a GRU's."""
TOLERANCE = 1e-4
"""Relative to a tensor's largest number, in float32: the kernels add in another order and so differ by some ten units
in the last place, 1e-6, over a forward and backward pass; a program takes a few, each from where the last one ended."""
ROUNDING = 1e-7
"""Largest value of a tensor that would be zero but for rounding."""


def trained(*models: nn.Module, **seen: Any) -> Found:
    """What was seen, and every parameter of the models with its gradient."""
    found = dict(seen)
    for place, model in enumerate(models):
        for name, parameter in model.named_parameters():
            # an optimiser moves them: as they are now
            found[f"parameter {name} of model {place}"] = parameter.detach().clone()
            found[f"gradient {name} of model {place}"] = parameter.grad
    return found


def program(body: Program) -> Callable[..., None]:
    """A test of the program with `MuFuRU` as its `layer_type` or `cell_type`; the other runs are made here."""

    @wraps(body)
    def test(**fixtures: Any) -> None:
        check(body, fixtures)

    return with_mufuru(test)


def with_mufuru(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of a program with `MuFuRU` only: `check` runs the program with `nn.GRU` too."""
    name, peer = next(item for item in TYPES.items() if item[0] in signature(test).parameters)
    marked: Callable[..., None] = pytest.mark.parametrize(name, [peer])(test)
    return marked


def check(body: Program, fixtures: dict[str, Any]) -> None:
    run = partial(_run, body)
    name = next(name for name in TYPES if name in fixtures)
    # first: what nn.GRU cannot do is a mistake of the program
    by_gru = run(fixtures | {name: PEERS[fixtures[name]]})
    found = run(fixtures)
    assert found, "the program returns what it found"
    assert_same_bits(run(fixtures), found)
    assert_same_kind(found, by_gru)
    with pytest.MonkeyPatch.context() as patch:
        # not `use_kernel`: a program's threads and processes would not know of it
        patch.setenv("MUFURU_KERNEL", "reference")
        assert_same_numbers(found, run(fixtures))


def _run(body: Program, fixtures: dict[str, Any]) -> Found:
    torch.manual_seed(20160610)
    random.seed(20160610)
    return body(**fixtures)


def assert_same_bits(again: Found, found: Found) -> None:
    assert again.keys() == found.keys()
    for name, value in found.items():
        if isinstance(value, Tensor):
            assert torch.equal(again[name], value), f"{name} differs when the program runs again"
        else:
            assert again[name] == value, name


def assert_same_kind(found: Found, by_gru: Found) -> None:
    """Types, shapes, strides; which gradients there are, and which of them are zero."""
    assert found.keys() == by_gru.keys()
    for name, value in found.items():
        assert kind(name, value) == kind(name, by_gru[name]), name


def kind(name: str, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return type(value)
    common = type(value), value.dtype, value.layout, value.requires_grad, value.is_inference()
    if not name.startswith(OWN):
        return *common, value.shape, value.stride()
    return *common, value.dim(), value.is_contiguous(), bool(value.any())


def assert_same_numbers(found: Found, by_reference: Found) -> None:
    missing = [name for name, value in by_reference.items() if (value is None) != (found[name] is None)]
    assert not missing, f"there on one kernel, None on the other: {missing}"
    for name, wanted in _numbers(by_reference).items():
        got = _number(found[name])
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), name
        limit = ROUNDING + TOLERANCE * max(wanted.abs().nan_to_num(posinf=0).flatten().tolist(), default=0.0)
        same = torch.isclose(got, wanted, rtol=0, atol=limit, equal_nan=True).all()
        assert same, f"{name}: native and reference are {(got - wanted).abs().max():.3g} apart, more than {limit:.3g}"


def _numbers(found: Found) -> dict[str, Tensor]:
    return {name: _number(value) for name, value in found.items() if isinstance(value, Tensor | float)}


def _number(value: Tensor | float) -> Tensor:
    return torch.as_tensor(value).detach()
