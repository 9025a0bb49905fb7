"""Tensors that are more than a pointer: every kind gives the numbers of a plain copy, or is refused in a sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_calls import needs_native
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence

from mufuru import MuFuRU, MuFuRUCell
from mufuru.kernels import cross_entropy
from mufuru.validate import check_numbers

X = torch.arange(30.0).view(5, 2, 3).sin()


def spread(x: Tensor) -> Tensor:
    """Every second place of a larger tensor."""
    return torch.stack((x, torch.full_like(x, torch.nan)), -1)[..., 0]


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "negative": lambda x: torch._neg_view(-x),
    "imaginary part of a conjugate": lambda x: torch.complex(x, -x).conj().imag,
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
    "expanded": lambda x: x[..., :1].expand_as(x),
    "spread": spread,
    "transposed": lambda x: x.mT.contiguous().mT,
    "with an offset": lambda x: torch.cat((torch.full_like(x, torch.nan), x))[len(x) :],
    "negative and spread": lambda x: torch._neg_view(spread(-x)),
}


def copied(tensor: Tensor) -> Tensor:
    """The same numbers in a plain tensor, by torch's own operators."""
    return torch.zeros(tensor.shape) + tensor


def outcome(layer: Any, x: Tensor, h: Tensor | None, gradient: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    leaves = [layer.weight_ih_l0, layer.bias_hh_l0]
    output, state = functional_call(layer, weights, (x, h))
    return [output, state, *torch.autograd.grad((output, state), leaves, (gradient, torch.ones_like(state)))]


@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("place", ["input", "state", "gradient", "weight"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_a_plain_copy(kind: str, place: str, kernel: Any) -> None:
    if kernel == "native" and needs_native.args[0]:
        pytest.skip("needs the native library")
    layer = MuFuRU(3, 4, num_layers=2, kernel=kernel)
    given: dict[str, Tensor] = {
        "input": X, "state": torch.randn(2, 2, 4), "gradient": torch.randn(5, 2, 4),
        "weight": layer.weight_hh_l1.detach(),
    }  # fmt: skip
    special = KINDS[kind](given[place])
    found = []
    for tensor in (special, copied(special)):
        at = given | {place: tensor}
        found.append(outcome(layer, at["input"], at["state"], at["gradient"], {"weight_hh_l1": at["weight"]}))
    for got, wanted in zip(*found, strict=True):
        # only how the reference sums may differ with strides
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell(kind: str) -> None:
    cell = MuFuRUCell(3, 4)
    special = KINDS[kind](X)
    torch.testing.assert_close(cell(special[0]), cell(copied(special)[0]), rtol=0, atol=1e-6)


@needs_native
@pytest.mark.parametrize("kind", KINDS)
def test_the_softmax(kind: str) -> None:
    """It has a kernel of its own, and the same validation."""
    hidden, weight, targets = KINDS[kind](X[:, 0]), torch.randn(7, 3), torch.tensor([0, 6, 3, 2, 1])
    found = cross_entropy.losses(hidden, weight, torch.zeros(7), targets)
    wanted = nn.functional.cross_entropy(copied(hidden) @ weight.T, targets, reduction="none")
    torch.testing.assert_close(found.losses, wanted)


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def cut(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(8)
    return tensor


BROKEN: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "freed": (freed, "memory was freed or cut"),
    "cut": (cut, "memory was freed or cut"),
    "freed and spread": (lambda x: freed(spread(x)), "memory was freed or cut"),
    "sparse": (Tensor.to_sparse, "dense tensor, got one that is sparse_coo"),
    "mkldnn": (Tensor.to_mkldnn, "dense tensor, got one that is _mkldnn"),
}


@pytest.mark.parametrize("place", ["input", "hx", "weight_hh_l0", "bias_ih_l0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["reference", "native"])
@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_is_refused_in_a_sentence(kind: str, kernel: Any, dtype: torch.dtype, place: str) -> None:
    layer = MuFuRU(3, 4, kernel=kernel, dtype=dtype)
    given = {"input": X.to(dtype, copy=True), "hx": torch.randn(1, 2, 4, dtype=dtype)}
    given |= {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    make, sentence = BROKEN[kind]
    given[place] = make(given[place])
    x, h = given.pop("input"), given.pop("hx")
    with pytest.raises((RuntimeError, TypeError), match=f"{place}.*{sentence}"):
        functional_call(layer, given, (x, h))


@pytest.mark.parametrize("name", ["lengths", "batch_sizes", "sorted_indices", "resets"])
def test_freed_numbers_of_a_layout_are_refused(name: str) -> None:
    packed = pack_padded_sequence(X, torch.tensor([3, 5]), enforce_sorted=False)
    given = {"lengths": torch.tensor([3, 5]), "resets": torch.zeros(5, 2, dtype=torch.bool)}
    options: Any = {name: freed(given[name])} if name in given else {}
    if not options:
        freed(getattr(packed, name))
    with pytest.raises(RuntimeError, match=f"{name}.*memory was freed or cut"):
        MuFuRU(3, 4)(X if options else packed, torch.randn(1, 2, 4), **options)


@needs_native
@pytest.mark.parametrize("options", [{}, {"controller_size": 3}, {"reset": "after"}], ids=str)
@pytest.mark.parametrize(
    "exchange",
    [Tensor.bfloat16, Tensor.double, lambda t: t.flatten()[:2], lambda t: t.double() if t.dim() == 2 else t],
    ids=["bfloat16", "float64", "cut", "some in float64"],
)
def test_hooks_that_exchange_saved_tensors_are_refused(exchange: Any, options: Any) -> None:
    """Their memory would be read as that of the tensors which were saved."""
    layer, resets = MuFuRU(3, 40, kernel="native", zoneout=0.1, **options), torch.zeros(5, 2, dtype=torch.bool)
    with saved_tensors_hooks(exchange, lambda tensor: tensor):
        output, _ = layer(X, resets=resets)
    with pytest.raises(RuntimeError, match="hooks on saved tensors return what they were given"):
        output.sum().backward()


@pytest.mark.parametrize("name", ["h_0", "weight_hh_l0"])
def test_what_was_freed_is_refused_before_dropout_or_expansion_reads_it(name: str) -> None:
    layer = MuFuRU(3, 4, learn_initial_state=True, weight_dropout=0.5)
    freed(getattr(layer, name).data)
    with pytest.raises(RuntimeError, match=f"{name}.*memory was freed or cut"):
        layer(X)


@pytest.mark.parametrize("kernel", ["reference", "native"])
def test_zeros_without_memory_have_a_gradient(kernel: Any) -> None:
    layer = MuFuRU(3, 4, kernel=kernel)
    found = []
    for x in (torch._efficientzerotensor(X.shape), torch.zeros(X.shape)):
        x.requires_grad_()
        found.append(torch.autograd.grad(layer(x)[0].square().sum(), x)[0])
    torch.testing.assert_close(*found)


def test_an_operation_that_returns_zeros_without_memory() -> None:
    layer = MuFuRU(3, 4, ops=("keep", "replace", lambda s, v: torch._efficientzerotensor(s.shape)))
    plain = MuFuRU(3, 4, ops=("keep", "replace", "forget"))
    plain.load_state_dict(layer.state_dict())
    for module in (layer, plain):
        module(X)[0].square().sum().backward()
    for got, wanted in zip(layer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


def test_the_first_call_of_a_process_inside_a_transform() -> None:
    program = """
import torch
from mufuru import MuFuRU
layer, x = MuFuRU(2, 3), torch.randn(4, 1, 2)
torch.func.grad(lambda x: layer(x)[0].sum())(x)
torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_numbers_of_another_kind_under_autocast(dtype: torch.dtype) -> None:
    layer, cell = MuFuRU(3, 4), MuFuRUCell(3, 4)
    calls: list[tuple[Any, tuple[Tensor, ...]]] = [
        (layer, (X.to(dtype),)), (layer, (X, torch.zeros(1, 2, 4, dtype=dtype))),
        (cell, (X[0].to(dtype),)), (cell, (X[0], torch.zeros(2, 4, dtype=dtype))),
    ]  # fmt: skip
    with torch.autocast("cpu", torch.bfloat16):
        for module, arguments in calls:
            with pytest.raises((RuntimeError, ValueError), match="does not match weight dtype"):
                module(*arguments)


@needs_native
def test_a_parameter_that_was_freed_between_forward_and_backward() -> None:
    layer = MuFuRU(3, 4)
    output, _ = layer(X)
    freed(layer.weight_hh_l0.data)
    with pytest.raises(RuntimeError, match="memory was freed or cut"):
        output.sum().backward()


@pytest.mark.parametrize("kernel", ["reference", "native"])
def test_a_parameter_that_was_freed_before_it_is_computed_again(kernel: Any) -> None:
    layer = MuFuRU(3, 4, kernel=kernel, checkpoint_every=1)
    total = layer(X)[0].sum()
    freed(layer.weight_hh_l0.data)
    with pytest.raises(RuntimeError, match=r"weight_hh.*memory was freed or cut"):
        total.backward()


@pytest.mark.filterwarnings("ignore")  # both are prototypes, or about to leave torch
def test_nested_and_quantized_tensors() -> None:
    with pytest.raises(TypeError, match="dense tensor, got one that is nested"):
        check_numbers("input", torch.nested.nested_tensor([torch.zeros(2, 3)], layout=torch.jagged))
    with pytest.raises(TypeError, match="dense tensor, got one that is quantized"):
        check_numbers("input", torch.quantize_per_tensor(X, 0.1, 0, torch.quint8))


def test_a_learned_state_of_another_type_is_refused_under_autocast() -> None:
    layer = MuFuRU(3, 4, learn_initial_state=True)
    del layer.h_0
    layer.h_0 = torch.zeros(1, 4, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="hx dtype"):
        layer(torch.randn(5, 2, 3))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64])
def test_a_weight_of_another_type_is_refused_under_autocast(dtype: torch.dtype) -> None:
    layer = MuFuRU(3, 4)
    layer.weight_hh_l0 = nn.Parameter(layer.weight_hh_l0.detach().to(dtype), requires_grad=False)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="weight_hh should be torch"):
        layer(X)


@pytest.mark.parametrize("way", ["functionalize", "grad by it", "vmap of grad", "grad twice"])
def test_what_inference_made_can_be_transformed(way: str) -> None:
    layer, x = MuFuRU(3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    with torch.inference_mode():
        made = x.clone()

    def summed(weight: Tensor, x: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, {"weight_hh_l0": weight}, (x,))[0]
        return output.square().sum()

    def found(x: Tensor) -> Any:
        weight = layer.weight_hh_l0
        if way == "functionalize":
            return torch.func.functionalize(summed)(weight, x)
        if way == "grad by it":
            return torch.func.grad(summed, 1)(weight.detach(), x)
        if way == "vmap of grad":
            return torch.vmap(torch.func.grad(summed), (0, None))(torch.stack([weight.detach(), weight.detach()]), x)
        (first,) = torch.autograd.grad(layer(x)[0], weight, x[..., :1].expand(-1, -1, 4), create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), weight)
        return second

    torch.testing.assert_close(found(made), found(x))


def test_what_inference_made_can_be_trained_with() -> None:
    layer = MuFuRU(3, 4)
    with torch.inference_mode():
        x = X + 1
    layer.weight_ih_l0.requires_grad_(False)
    layer(x)[0].sum().backward()
    assert layer.weight_hh_l0.grad is not None
