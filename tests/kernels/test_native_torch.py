"""The native kernel among torch's features: operators, derivatives of derivatives, checkpoints."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from kernel_calls import (
    UNEVEN,
    assert_close,
    everything,
    gradients,
    leaves_of,
    make_call,
    needs_native,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from mufuru import MuFuRU
from mufuru.kernels import native, reference
from mufuru.kernels.call import Call, Masks

pytestmark = needs_native


class Calls(TorchDispatchMode):
    """Records the calls of mufuru's operators, which run as they are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "mufuru":
            self.found.append((func, args))
        return func(*args, **(kwargs or {}))


RUNS: dict[str, dict[str, Any]] = {
    "paper": {},
    "controller": {"controller": 7, "reset": "after", "batch_sizes": UNEVEN,
                   "masks": Masks._fields},
    "controller, relu": {"controller": 7, "controller_activation": "relu"},
    "plain": {"ops": ("keep", "replace"), "reset": None, "bias": False, "trace": False, "reverse": True},
    "resets": {"ops": ("keep", "replace"), "reset": None, "bias": False, "trace": False, "masks": ("resets",)},
    "empty": {"batch": 0},
}  # fmt: skip


@pytest.mark.parametrize("options", RUNS)
def test_opcheck(options: str) -> None:
    call = make_call(**{"steps": 1, **RUNS[options]})
    with Calls() as calls:
        gradients(native.sequence(call), leaves_of(call))
    assert [func._opname for func, _ in calls.found] == ["forward", "backward"]
    for func, args in calls.found:
        opcheck(func, _detached(args), test_utils=CHECKS)
        # second derivatives walk through batch_sizes, which a trace with free shapes does not know, and take long
        if func._opname == "forward" or options == "plain":
            opcheck(func, _detached(args), test_utils="test_aot_dispatch_dynamic")


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def _detached(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args)


@pytest.mark.parametrize("options", RUNS)
def test_operators_give_the_same_gradients(options: str) -> None:
    """The way through torch's dispatcher, which tracing takes, and the short way."""
    call = make_call(**RUNS[options])
    wanted = everything(native.sequence, call, leaves_of(call))
    with Calls() as calls:
        found = everything(native.sequence, call, leaves_of(call))
    assert len(calls.found) == 2
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize(("controller", "activation"), [(None, "tanh"), (2, "tanh"), (2, "relu")])
def test_gradcheck(reset: Any, controller: int | None, activation: Any) -> None:
    options: dict[str, Any] = {"controller_size": controller, "controller_activation": activation}
    layer = MuFuRU(2, 3, reset=reset, **options, kernel="native", dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(3, 2, 2, dtype=torch.float64)
    h = torch.randn(1, 2, 3, dtype=torch.float64)
    k = () if controller is None else (torch.rand(1, 2, controller, dtype=torch.float64) + 0.1,)

    def call(x: Tensor, h: Tensor, *rest: Tensor) -> Any:
        state, weights = (h, rest[: len(k)]), rest[len(k) :]
        hx = (state[0], *state[1]) if k else h
        output, final = functional_call(layer, dict(zip(names, weights, strict=True)), (x, hx))
        return (output, *(final if k else (final,)))

    inputs = tuple(t.detach().clone().requires_grad_() for t in (x, h, *k, *layer.parameters()))
    # random directions (fast mode): the whole Jacobian, in the time of one of its rows
    assert gradcheck(call, inputs, fast_mode=True)
    assert gradgradcheck(call, inputs, fast_mode=True)


def derivatives(sequence: Any, call: Call, order: int) -> dict[str, Tensor]:
    """Gradients, the gradients of their squared length, and so on."""
    leaves = leaves_of(call)
    found = gradients(sequence(call), leaves, create_graph=order > 1)
    for n in range(2, order + 1):
        length = sum(grad.square().sum() for grad in list(found.values())[-len(leaves) :])
        grads = torch.autograd.grad(length, list(leaves.values()), create_graph=n < order, materialize_grads=True)
        found |= {f"derivative {n} by {name}": grad for name, grad in zip(leaves, grads, strict=True)}
    return found


@pytest.mark.parametrize("wanted", [("x",), ("s0",), ("hh", "bias_hh"), None], ids=str)
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_higher_derivatives(activation: str, order: int, wanted: tuple[str, ...] | None) -> None:
    names, sizes = ("keep", "replace", "mul", "sqr_diff"), {"controller": 3, "hidden": 5, "batch": 2, "steps": 3}
    call = make_call(names, **sizes, controller_activation=activation)
    for name, leaf in leaves_of(call).items():
        leaf.requires_grad_(wanted is None or name in wanted)
    # third derivatives are sums of many products: float64 keeps 1e-10 of their size
    assert_close(derivatives(native.sequence, call, order), derivatives(reference.sequence, call, order))


@pytest.mark.parametrize("wanted", [("s0", "hh"), None], ids=str)
@pytest.mark.parametrize("trace", [False, True])
def test_second_derivatives_through_the_operators(trace: bool, wanted: tuple[str, ...] | None) -> None:
    call = make_call(("keep", "mul"), hidden=5, trace=trace)
    for name, leaf in leaves_of(call).items():
        leaf.requires_grad_(wanted is None or name in wanted)
    expected = derivatives(reference.sequence, call, 2)
    with Calls() as calls:
        found = derivatives(native.sequence, call, 2)
    assert {func._opname for func, _ in calls.found} == {"forward", "backward"}
    assert_close(found, expected)


def test_backward_of_a_graph_made_for_second_derivatives() -> None:
    call = make_call(batch_sizes=UNEVEN)
    leaves = leaves_of(call)
    simple = gradients(native.sequence(call), leaves)
    for name, grad in gradients(native.sequence(call), leaves, create_graph=True).items():
        assert torch.equal(grad, simple[name]), name
        assert grad.requires_grad


def test_checkpoints_change_nothing() -> None:
    x = torch.randn(11, 5, 3, dtype=torch.float64)
    layer = MuFuRU(3, 7, controller_size=4, kernel="native", dtype=torch.float64)
    found = []
    for every in (None, 4):
        layer.checkpoint_every = every
        layer.zero_grad()
        output, _ = layer(x, lengths=[11, 3, 0, 8, 11])
        output.square().sum().backward()
        found.append({"output": output, **{name: p.grad for name, p in layer.named_parameters()}})
    assert_close(found[1], found[0])


def test_python_operations_below_the_dispatcher() -> None:
    """Autograd is off there and the operator turns it on. A graph that is kept must not hold such an operation, since
    only this process knows its number: where one may be about, the reference runs, or the native kernel refuses."""
    layer, x = MuFuRU(3, 5, ops=("keep", lambda s, v: s * v)), torch.randn(4, 2, 3)
    layer(x)[0].sum().backward()
    expected, layer.weight_hh_l0.grad = layer.weight_hh_l0.grad, None
    with Calls() as calls:
        layer(x)[0].sum().backward()
    assert not calls.found
    torch.testing.assert_close(layer.weight_hh_l0.grad, expected)
    call = make_call(("keep", lambda s, v: s * v))
    leaves = leaves_of(call)
    with Calls() as calls:
        found = everything(native.sequence, call, leaves)
    assert len(calls.found) == 2
    assert_close(found, everything(reference.sequence, call, leaves))
    layer.kernel = "native"
    with Calls(), pytest.raises(RuntimeError, match="only in plain eager mode"):
        layer(x)


@pytest.mark.parametrize("stack", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "stacked"])
@pytest.mark.parametrize("grad", [True, False])
def test_a_traced_layer(grad: bool, stack: dict[str, Any]) -> None:
    """`torch.jit.trace` sees operators, not what is written to memory behind its back."""
    layer = MuFuRU(3, 5, kernel="native", **stack)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it takes sizes for constants
        traced = torch.jit.trace(layer, (torch.randn(4, 2, 3),))
        for steps in (4, 7):
            x = torch.randn(steps, 2, 3)
            for found, expected in zip(traced(x), layer(x), strict=True):
                torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
                assert found.requires_grad == grad
