"""First and second derivatives in float64 through the public layer, ties included, all sizes different."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from mufuru import MuFuRU, MuFuRUCell, ops

STEPS, BATCH, N, M, K = 3, 2, 4, 5, 6
SMOOTH = [name for name in ops.names() if name not in ("max", "min", "diff")]


def assert_gradients(module: Any, tensors: dict[str, Tensor], second: bool = True, **call: Any) -> None:
    """Check all outputs against all parameters and given tensors: `x`, and `h0` and `k0` where they are."""
    names = [name for name, _ in module.named_parameters()]
    leaves = [*tensors.values(), *(p.detach().clone() for p in module.parameters())]

    def run(*values: Tensor) -> tuple[Tensor, ...]:
        x, *state = values[: len(tensors)]
        hx = None if not state else state[0] if len(state) == 1 else tuple(state)
        parameters = dict(zip(names, values[len(tensors) :], strict=True))
        return flatten(functional_call(module, parameters, (x, hx), call))

    # random directions (fast mode): the whole Jacobian, in the time of one of its rows
    inputs = tuple(leaf.requires_grad_() for leaf in leaves)
    assert gradcheck(run, inputs, fast_mode=True)
    if second:
        assert gradgradcheck(run, inputs, fast_mode=True)


def flatten(result: Any) -> tuple[Tensor, ...]:
    if isinstance(result, Tensor):
        return (result,)
    return tuple(tensor for part in result for tensor in flatten(part))


def double(**options: Any) -> Any:
    layer = MuFuRU(N, M, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.9, 0.9)
    return layer


def start(layer: MuFuRU, batch: int = BATCH) -> dict[str, Tensor]:
    units = layer.num_layers * layer.num_directions
    tensors = {"x": torch.randn(STEPS, batch, N, dtype=torch.float64)}
    tensors["h0"] = torch.rand(units, batch, M, dtype=torch.float64) * 2 - 1
    if layer.controller_size is not None:
        tensors["k0"] = torch.rand(units, batch, layer.controller_size, dtype=torch.float64) + 0.1
    return tensors


@pytest.mark.parametrize("name", ops.names())
def test_each_operation_alone(name: str) -> None:
    layer = double(ops=(name,))
    assert_gradients(layer, start(layer))


OPTIONS: dict[str, dict[str, Any]] = {
    "all operations": {"ops": ops.names()},
    "paper": {},
    "after": {"reset": "after"},
    "no reset": {"reset": None},
    "no bias": {"bias": False},
    "sigmoid": {"activation": "sigmoid"},
    "controller": {"controller_size": K},
    "controller, relu": {"controller_size": K, "controller_activation": "relu"},
    "controller, no bias": {"controller_size": K, "bias": False, "reset": "after"},
    "bidirectional": {"bidirectional": True},
    "stack": {"num_layers": 2, "bidirectional": True, "ops": ("keep", "mul", "diff")},
    "zoneout": {"zoneout": 0.4},
    "segments": {"checkpoint_every": 2, "bidirectional": True},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options(case: str) -> None:
    layer = double(**OPTIONS[case]).eval()
    assert_gradients(layer, start(layer))


@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_lengths(bidirectional: bool, controller: int | None) -> None:
    layer = double(bidirectional=bidirectional, controller_size=controller)
    assert_gradients(layer, start(layer, 4), lengths=[2, 3, 0, 1])


def test_a_learned_initial_state() -> None:
    layer = double(learn_initial_state=True, controller_size=K)
    assert_gradients(layer, {"x": torch.randn(STEPS, BATCH, N, dtype=torch.float64)})


def test_the_entries_of_the_jacobian_one_by_one() -> None:
    """Slow mode, once: fast mode sees only random directions."""
    layer = MuFuRU(2, 3, ops=("keep", "replace", "max", "diff"), dtype=torch.float64)
    x = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(1, 1, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, h0: Tensor, *parameters: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, dict(zip(names, parameters, strict=True)), (x, h0))[0]
        return output

    leaves = tuple(p.detach().clone().requires_grad_() for p in values)
    assert gradcheck(run, (x, h0, *leaves))


@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
@pytest.mark.parametrize("reset", ["before", "after", None])
def test_cell(reset: Any, controller: int | None) -> None:
    cell = MuFuRUCell(N, M, reset=reset, controller_size=controller, dtype=torch.float64)
    tensors = {"x": torch.randn(BATCH, N, dtype=torch.float64), "h0": torch.randn(BATCH, M, dtype=torch.float64)}
    if controller is not None:
        tensors["k0"] = torch.rand(BATCH, controller, dtype=torch.float64) + 0.1
    assert_gradients(cell, tensors)


def tied(name: str) -> tuple[Any, Tensor, Tensor]:
    """A layer whose features equal its first state exactly, with an operation alone."""
    layer = double(ops=(name,), reset=None)
    h0 = torch.zeros(1, BATCH, M, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.zero_()
        layer.bias_ih_l0.zero_()
        layer.bias_hh_l0.zero_()
    return layer, torch.zeros(1, BATCH, N, dtype=torch.float64), h0


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_operations_at_an_exact_tie(name: str) -> None:
    layer, x, h0 = tied(name)
    assert_gradients(layer, {"x": x, "h0": h0})


@pytest.mark.parametrize("name", ["max", "min", "diff"])
def test_operations_with_a_kink_at_an_exact_tie(name: str) -> None:
    """Central differences of a kink are the mean of both slopes, which is torch's rule too.

    Each entry alone (slow mode): a random direction through several kinks has no single slope.
    """
    layer, x, h0 = tied(name)

    def by_state(h0: Tensor) -> Tensor:
        output: Tensor = layer(x, h0)[0]
        return output

    def by_features(bias: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, {"bias_ih_l0": bias}, (x, h0))[0]
        return output

    assert gradcheck(by_state, (h0.requires_grad_(),))
    assert gradcheck(by_features, (layer.bias_ih_l0.detach().clone().requires_grad_(),))


def test_all_together_at_an_exact_tie() -> None:
    layer = double(ops=ops.names(), reset=None)
    with torch.no_grad():
        for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
            bias[:M] = 0
    x, h0 = torch.zeros(1, BATCH, N, dtype=torch.float64), torch.zeros(1, BATCH, M, dtype=torch.float64)

    def run(h0: Tensor) -> Tensor:
        # the features' own dependence on the state would move v along with s: cut it, the tie is what is asked
        weight = layer.weight_hh_l0.detach().clone()
        weight[:M] = 0
        output: Tensor = functional_call(layer, {"weight_hh_l0": weight}, (x, h0))[0]
        return output

    assert gradcheck(run, (h0.requires_grad_(),))
