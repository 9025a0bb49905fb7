"""Transforms and the rest of what torch offers: tried on `nn.GRU` and on `MuFuRU`, as the table in the docs says."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from mufuru import MuFuRU, MuFuRUCell, use_kernel

# torch's own, once, when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
features: Any = importlib.import_module("features")
RECORD = json.loads(features.RECORD.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("feature", features.FEATURES)
def test_works_with_mufuru(feature: str) -> None:
    """In this process, but for what starts processes of its own."""
    if feature in features.SPREAD:
        assert features.attempt(feature, "MuFuRU") == RECORD["features"][feature]["MuFuRU"] == ""
        return
    if RECORD["features"][feature]["MuFuRU"]:
        assert features.attempt_here(feature, "MuFuRU"), "the table denies what works: make its record anew"
        return
    features.FEATURES[feature](MuFuRU)


@pytest.mark.parametrize("feature", features.FEATURES)
def test_gru_as_the_table_says(feature: str) -> None:
    """A new torch may do what the table denies it: then the record is to be made anew."""
    assert bool(features.attempt(feature, "nn.GRU")) == bool(RECORD["features"][feature]["nn.GRU"])


def own(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sin(v)


QUICK = ["`vmap` over models", "per-sample gradients, `vmap(grad)`", "forward mode, `jvp`", "double backward"]


@pytest.mark.parametrize("feature", [*QUICK, "`torch.utils.checkpoint`", "`torch.nn.utils.prune`"])
def test_own_operations(feature: str) -> None:
    """A new operation each time: its trial by the native kernel then happens inside the transform."""
    new = ("keep", "replace", lambda s, v: own(s, v))
    features.FEATURES[feature](lambda *args, **options: MuFuRU(*args, ops=new, **options))


@pytest.mark.parametrize("feature", QUICK)
def test_with_a_controller_and_both_directions(feature: str) -> None:
    features.FEATURES[feature](
        lambda *args: MuFuRU(args[0], args[1], controller_size=3, bidirectional=True, reset="after")
    )


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_own_operation_first_met_without_gradients(context: Any) -> None:
    layer = MuFuRU(3, 4, ops=("replace", lambda s, v: own(s, v)), kernel="native")
    x = torch.randn(5, 2, 3)
    with context():
        found = layer(x)[0]
    assert_close(found.clone(), layer(x)[0].detach())


def test_checkpoint_around_a_model() -> None:
    model = nn.Sequential(nn.Linear(3, 3), MuFuRU(3, 4, 2, dropout=0.5))
    x = torch.randn(5, 2, 3)
    found = []
    for around in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        output, _ = checkpoint(model, x, use_reentrant=False) if around else model(x)
        output.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert_close(found[1], found[0])


def test_transforms_of_transforms() -> None:
    """Hessian-vector products for several vectors: `vmap` of forward mode over reverse mode."""
    layer = MuFuRU(2, 3, dtype=torch.float64)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    x, vectors = torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(4, 3, 2, 2, dtype=torch.float64)

    def slope(x: Tensor) -> Any:
        return grad(lambda x: functional_call(layer, weights, (x,))[0].square().sum())(x)

    found = vmap(lambda vector: jvp(slope, (x,), (vector,))[1])(vectors)
    for product, vector in zip(found, vectors, strict=True):
        # differences of gradients: their error is of the order of the step squared
        assert_close(product, (slope(x + 1e-4 * vector) - slope(x - 1e-4 * vector)) / 2e-4, rtol=0, atol=1e-5)


SECOND: dict[str, Any] = {
    "grad of grad": lambda slope, x: grad(lambda x: slope(x).square().sum())(x),
    "vmap": lambda slope, x: vmap(grad(lambda x: slope(x).square().sum()))(x.expand(2, *x.shape))[1],
    "autograd inside": lambda slope, x: grad(lambda x: slope(x, torch.autograd.grad).square().sum())(x),
    "autograd outside": lambda slope, x: torch.autograd.grad(slope(x.requires_grad_()).square().sum(), x)[0],
}


@pytest.mark.parametrize(
    "options",
    [{}, {"controller_size": 2, "reset": "after"}, {"ops": ("keep", own)}],
    ids=["plain", "controller", "own operation"],
)
@pytest.mark.parametrize("way", SECOND)
def test_second_derivatives_inside_transforms(way: str, options: Any) -> None:
    layer, x = MuFuRU(2, 3, 2, dtype=torch.float64, **options), torch.randn(3, 2, 2, dtype=torch.float64)

    def loss(x: Tensor) -> Any:
        return layer(x)[0].sin().sum()

    def slope(x: Tensor, by: Any = None) -> Any:
        return grad(loss)(x) if by is None else by(loss(x), x, create_graph=True)[0]

    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    assert_close(SECOND[way](slope, x), torch.autograd.grad(first.square().sum(), leaf)[0])


def test_learning_through_a_step_of_learning() -> None:
    """The gradient by the weights before a step of gradient descent, as in meta-learning: of tasks, by `vmap`."""
    layer, tasks = MuFuRU(2, 3, dtype=torch.float64), torch.randn(2, 4, 2, 2, dtype=torch.float64)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(layer, weights, (x,))[0].sin().sum()

    def after_a_step(weights: dict[str, Tensor], x: Tensor) -> Any:
        slopes = grad(loss)(weights, x)
        return loss({name: weight - 0.1 * slopes[name] for name, weight in weights.items()}, x)

    found = vmap(grad(after_a_step), (None, 0))(weights, tasks)
    with use_kernel("reference"):
        wanted = vmap(grad(after_a_step), (None, 0))(weights, tasks)
    assert_close(found, wanted)


BATCHED = (
    "is_grads_batched", "vmap over autograd.grad", "jacobian, vectorized", "jacrev in no_grad",
    "functionalized gradient",
)  # fmt: skip


def batched(name: str, module: Any, x: Tensor) -> Tensor:
    """The Jacobian of the output's sum over features by the input, in several ways to ask for batched gradients."""

    def summed(x: Tensor) -> Tensor:
        found = module(x)
        return (found if isinstance(found, Tensor) else found[0]).sum(-1)

    leaf = x.clone().requires_grad_()
    output = summed(leaf)
    directions = torch.eye(output.numel(), dtype=x.dtype).view(-1, *output.shape)
    if name == "is_grads_batched":
        (found,) = torch.autograd.grad(output, leaf, directions, is_grads_batched=True)
    elif name == "vmap over autograd.grad":
        found = vmap(lambda v: torch.autograd.grad(output, leaf, v, retain_graph=True)[0])(directions)
    elif name == "jacobian, vectorized":
        found = torch.autograd.functional.jacobian(summed, leaf, vectorize=True)
    elif name == "functionalized gradient":

        def along(x: Tensor, v: Tensor) -> Tensor:
            return (summed(x) * v).sum()

        found = torch.stack([torch.func.functionalize(grad(along))(x, v) for v in directions])
    else:
        with torch.no_grad():
            found = torch.func.jacrev(summed)(x)
    return found.reshape(-1, *x.shape)


@pytest.mark.parametrize("ops", [("keep", "max", "mul"), ("keep", own)], ids=["built-in", "own"])
@pytest.mark.parametrize("kind", ["layer", "cell"])
@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients(name: str, kind: str, ops: Any) -> None:
    module: Any = MuFuRU(3, 4, 2, ops=ops, dtype=torch.float64)
    x = torch.randn(3, 2, 3, dtype=torch.float64)
    if kind == "cell":
        module, x = MuFuRUCell(3, 4, ops=ops, dtype=torch.float64), x[0]
    leaf = x.clone().requires_grad_()
    found = module(leaf)
    output = (found[0] if kind == "layer" else found).sum(-1).flatten()
    wanted = torch.stack([torch.autograd.grad(entry, leaf, retain_graph=True)[0] for entry in output])
    assert_close(batched(name, module, x), wanted)


def test_batched_gradients_of_nn_gru() -> None:
    """The contract: what is asked of MuFuRU, `nn.GRU` does too."""
    module, x = nn.GRU(3, 4, 2, dtype=torch.float64), torch.randn(3, 2, 3, dtype=torch.float64)
    names = ("is_grads_batched", "jacobian, vectorized", "functionalized gradient")
    found = [batched(name, module, x) for name in names]
    assert_close(found[1:], found[:1] * (len(names) - 1))


@pytest.mark.parametrize("layer_type", [nn.GRU, MuFuRU])
def test_functionalize(layer_type: Any) -> None:
    layer, x = layer_type(3, 4, 2, bidirectional=True), torch.randn(5, 2, 3, requires_grad=True)
    found, wanted = torch.func.functionalize(layer)(x), layer(x)
    assert_close(found, wanted)
    for output in (found, wanted):
        layer.zero_grad()
        output[0].square().sum().backward()
        assert layer.weight_hh_l1.grad is not None
        if output is found:
            first = [parameter.grad.clone() for parameter in layer.parameters()]
    assert_close(first, [parameter.grad for parameter in layer.parameters()])


@pytest.mark.parametrize("layer_type", [nn.GRU, MuFuRU])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_functionalize_around_packing(layer_type: Any, enforce_sorted: bool) -> None:
    """Not around a gradient too: there torch itself cannot pack."""
    layer, x = layer_type(3, 4, 2, bidirectional=True), torch.randn(5, 3, 3)

    def packed(x: Tensor) -> Tensor:
        output, h_n = layer(pack_padded_sequence(x, torch.tensor([5, 3, 1]), enforce_sorted=enforce_sorted))
        total: Tensor = pad_packed_sequence(output)[0].square().sum() + h_n.sum()
        return total

    assert_close(torch.func.functionalize(packed)(x), packed(x))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
@pytest.mark.parametrize("ops", [("keep", "max", "mul"), ("keep", own)], ids=["built-in", "own"])
def test_functionalize_around_lengths(ops: Any, kernel: Any, gradient: bool) -> None:
    layer, x = MuFuRU(3, 4, 2, bidirectional=True, ops=ops, kernel=kernel, input_dropout=0.2), torch.randn(5, 3, 3)

    def summed(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        output, h_n = layer(x, lengths=torch.tensor([0, 5, 3]))
        total: Tensor = output.square().sum() + h_n.sum()
        return total

    function = grad(summed) if gradient else summed
    assert_close(torch.func.functionalize(function)(x), function(x))


def test_checkpoint_every_inside_a_transform() -> None:
    """Transforms cannot compute activations again: they are kept, and the gradient is the same."""
    found = []
    for every in (None, 2):
        layer = MuFuRU(3, 4, checkpoint_every=every)
        torch.manual_seed(2)
        layer.reset_parameters()
        weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}
        x = torch.ones(7, 2, 3)
        slope = grad(lambda weights, layer=layer, x=x: functional_call(layer, weights, (x,))[0].square().sum())
        found.append(slope(weights))
    assert_close(found[1], found[0])


class Wrapper(Tensor):
    """A tensor without memory of its own: torch's operators are told what to do with the one inside."""

    held: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Tensor) -> None:
        self.held = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        inner = [arg.held if isinstance(arg, Wrapper) else arg for arg in args]
        return func(*inner, **(kwargs or {}))


def test_a_tensor_without_memory_inside_a_transform() -> None:
    layer, x = MuFuRU(3, 4), torch.randn(5, 2, 3)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def slope(x: Tensor) -> Any:
        return grad(lambda bias: functional_call(layer, weights | {"bias_hh_l0": bias}, (x,))[0].sum())(
            weights["bias_hh_l0"]
        )

    assert_close(slope(Wrapper(x)), slope(x))


def test_vmap_over_lengths_is_refused_in_words() -> None:
    layer = MuFuRU(3, 4)
    with pytest.raises(RuntimeError, match="vmap cannot map over lengths"):
        vmap(lambda x, lengths: layer(x, lengths=lengths)[0])(torch.randn(6, 5, 2, 3), torch.ones(6, 2).long())
    x, lengths = torch.randn(6, 5, 2, 3), torch.tensor([5, 0])
    found = vmap(lambda x: layer(x, lengths=lengths)[0])(x)
    assert_close(found, torch.stack([layer(one, lengths=lengths)[0] for one in x]))
