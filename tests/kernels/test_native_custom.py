"""Operations written in Python, inside the native kernel: as by the reference, or refused with the reason."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import pytest
import torch
from fuzz_tensors import Wrapper
from kernel_calls import (
    MANY,
    UNEVEN,
    assert_close,
    assert_kernels_agree,
    everything,
    gradients,
    leaves_of,
    make_call,
    needs_native,
)
from torch import Tensor, nn
from torch.func import functional_call

from mufuru import MuFuRU, use_kernel
from mufuru.kernels import choice, native, reference

pytestmark = needs_native


def wave(s: Tensor, v: Tensor) -> Tensor:
    return torch.sin(3 * s) * torch.exp(v) + s


def soft_max(s: Tensor, v: Tensor) -> Tensor:
    return torch.logaddexp(s, 2 * v)


def of_state(s: Tensor, v: Tensor) -> Tensor:
    return s**3


def of_features(s: Tensor, v: Tensor) -> Tensor:
    return v**3


def nothing(s: Tensor, v: Tensor) -> Tensor:
    return torch.zeros_like(s)


def sign(s: Tensor, v: Tensor) -> Tensor:
    return torch.sign(s).detach()


def same_state(s: Tensor, v: Tensor) -> Tensor:
    return s


def clipped(s: Tensor, v: Tensor) -> Tensor:
    return (s + 4 * v).clamp(-0.5, 0.5)


def by_unit(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.linspace(0, 1, s.size(-1), dtype=s.dtype)


GOOD = (wave, soft_max, of_state, of_features, nothing, sign, same_state, clipped, by_unit)
SETS: dict[str, tuple[Any, ...]] = {
    "alone": (wave,),
    "first": (wave, "keep", "max"),
    "last": ("keep", "max", wave),
    "between": ("keep", wave, "diff"),
    "several": (of_state, "keep", wave, "replace", of_features),
    "all of them": GOOD,
}


@pytest.mark.parametrize("op", GOOD, ids=lambda op: op.__name__)
def test_each(op: Any) -> None:
    for batch in (5, MANY):
        assert_kernels_agree(make_call(("keep", op), batch=batch))
    assert_kernels_agree(make_call((op, "replace"), dtype=torch.float32))


@pytest.mark.parametrize("batch_sizes", [None, UNEVEN], ids=["even", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
@pytest.mark.parametrize("controller", [None, 7])
@pytest.mark.parametrize("ops", SETS)
def test_among_others(ops: str, controller: int | None, reverse: bool, batch_sizes: Any) -> None:
    for reset in ("before", "after", None):
        call = make_call(SETS[ops], reset=reset, controller=controller, reverse=reverse, batch_sizes=batch_sizes)
        assert_kernels_agree(call)


@pytest.mark.parametrize(
    "shape", [{"steps": 0}, {"batch": 0}, {"batch_sizes": ()}, {"hidden": 1}, {"batch": 1}, {"batch": MANY}]
)
def test_edges(shape: dict[str, Any]) -> None:
    assert_kernels_agree(make_call(SETS["between"], controller=7, **shape))


def test_with_masks_and_no_bias() -> None:
    masks = ("state", "zoneout", "allowed")
    assert_kernels_agree(make_call(SETS["several"], bias=False, masks=masks, batch_sizes=UNEVEN))


def second_derivatives(sequence: Any, call: Any, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    first = gradients(sequence(call), leaves, create_graph=True)
    length = sum(grad.square().sum() for grad in first.values())
    second = torch.autograd.grad(length, list(leaves.values()), materialize_grads=True)
    return {**first, **{f"second by {name}": grad for name, grad in zip(leaves, second, strict=True)}}


@pytest.mark.parametrize("controller", [None, 7])
def test_double_backward(controller: int | None) -> None:
    call = make_call(SETS["several"], controller=controller, steps=3)
    leaves = leaves_of(call)
    found, wanted = (second_derivatives(sequence, call, leaves) for sequence in (native.sequence, reference.sequence))
    assert_close(found, wanted)


def test_gradients_by_torch_func() -> None:
    module = MuFuRU(3, 5, ops=("keep", wave), dtype=torch.float64)
    weights = dict(module.named_parameters())
    x, h = torch.randn(4, 2, 3, dtype=torch.float64), torch.randn(1, 2, 5, dtype=torch.float64)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(module, weights, (x, h))[0].square().sum()  # type: ignore[no-any-return]

    found = torch.func.grad(loss)(weights)
    with use_kernel("reference"):
        loss(weights).backward()
    wanted: dict[str, Any] = {name: parameter.grad for name, parameter in weights.items()}
    assert_close(found, wanted)


class Scaled(nn.Module):
    """An operation with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, s: Tensor, v: Tensor) -> Tensor:
        return self.factor * s


BAD: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "a parameter": (Scaled(), "parameters of its own"),
    "mean": (lambda s, v: s - s.mean(-1, keepdim=True), "not element-wise"),
    "mean of the batch": (lambda s, v: v - v.mean(), "not element-wise"),
    "cumsum": (lambda s, v: v.cumsum(0), "not element-wise"),
    "flip": (lambda s, v: s.flip(-1), "not element-wise"),
    "flip of the batch": (lambda s, v: s * v.flip(0), "not element-wise"),
    "softmax": (lambda s, v: s * v.softmax(-1), "not element-wise"),
    "place in the batch": (lambda s, v: s * torch.arange(len(s), dtype=s.dtype).unsqueeze(1), "not element-wise"),
    "comparison with others": (lambda s, v: torch.where(v > v.mean(), s, v), "not element-wise"),
    "sign of others": (lambda s, v: s * v.sign().flip(0), "not element-wise"),
    "others without gradient": (lambda s, v: (s > s.flip(0)).to(s.dtype), "not element-wise"),
    "seldom random": (lambda s, v: nn.functional.dropout(v, 1e-6), "same value twice"),
    "random": (lambda s, v: s * torch.rand_like(s), "same value twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_the_kernel_cannot_do_runs_on_the_reference(name: str) -> None:
    op, reason = BAD[name]
    call = make_call(("keep", op))
    assert choice.choose(call, "auto") is reference.sequence
    layer = MuFuRU(3, 5, ops=("keep", op), kernel="native")
    with pytest.raises(RuntimeError, match=reason):
        layer(torch.randn(4, 2, 3))
    with use_kernel("auto"):
        layer(torch.randn(4, 2, 3))[0].sum().backward()


@pytest.mark.parametrize("op", GOOD, ids=lambda op: op.__name__)
def test_what_the_kernel_can_do_runs_natively(op: Any) -> None:
    assert choice.choose(make_call(("keep", op)), "auto") is native.sequence


def test_an_operations_own_parameters_are_trained() -> None:
    op = Scaled()
    MuFuRU(3, 5, ops=("keep", op))(torch.randn(4, 2, 3), torch.randn(1, 2, 5))[0].sum().backward()
    assert op.factor.grad is not None
    assert op.factor.grad != 0


class Changing(nn.Module):
    """What an operation may become from one call to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.7), requires_grad=False)
        self.dropout = nn.Dropout(0.3)

    def forward(self, s: Tensor, v: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(v)
        return dropped * self.factor


@pytest.mark.parametrize("change", ["thaw", "train"])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_an_operation_that_changes_between_two_calls(kernel: Any, change: str) -> None:
    """Its parameters thaw after a first stage; a validation, in which dropout is still, comes before the training."""
    op, x = Changing().eval(), torch.randn(4, 2, 3)
    layer = MuFuRU(3, 5, ops=("keep", "replace", op))

    def slopes(kernel: Any) -> Any:
        torch.manual_seed(2)
        with use_kernel(kernel):
            output, _ = layer(x)
        wanted = [parameter for parameter in (op.factor, *layer.parameters()) if parameter.requires_grad]
        return output, *torch.autograd.grad(output.square().sum(), wanted)

    assert len(slopes(kernel)) == 5
    if change == "thaw":
        op.factor.requires_grad_()
    else:
        op.train()
    found = slopes(kernel)
    assert len(found) == (6 if change == "thaw" else 5)
    torch.testing.assert_close(found, slopes("reference"))


def test_an_operation_that_changes_before_the_backward_pass() -> None:
    op, x = Changing().eval(), torch.randn(4, 2, 3)
    layer = MuFuRU(3, 5, ops=("keep", "replace", op))
    for change in (lambda: op.factor.data.mul_(0.5), op.train):
        output, _ = layer(x)
        change()
        with pytest.raises(RuntimeError, match="'Changing' gives other values than in the forward pass"):
            output.sum().backward()


def test_a_limit_far_from_0_that_changes_before_the_backward_pass() -> None:
    limit = [2.9]
    output, _ = MuFuRU(3, 5, ops=("keep", lambda s, v: (3 * v).clamp(max=limit[0])))(20 * torch.randn(4, 2, 3))
    limit[0] = 2.5
    with pytest.raises(RuntimeError, match="gives other values than in the forward pass"):
        output.sum().backward()


def test_an_operation_that_writes_into_its_arguments_runs_on_the_reference() -> None:
    call = make_call(("keep", lambda s, v: v.mul_(2)))
    assert choice.choose(call, "auto") is reference.sequence
    with pytest.raises(RuntimeError, match="changes its arguments in place"):
        choice.choose(call, "native")


def test_trying_an_operation_leaves_the_generator_alone() -> None:
    call = make_call(("keep", lambda s, v: nn.functional.dropout(v)))
    before = torch.get_rng_state()
    assert choice.choose(call, "auto") is reference.sequence
    assert torch.equal(torch.get_rng_state(), before)


def test_a_graph_outlives_its_layer() -> None:
    """Neither is the operation forgotten, nor another taken for it."""
    found = []
    for kernel in ("native", "reference"):
        torch.manual_seed(3)
        x = torch.randn(4, 2, 3, requires_grad=True)

        def loss(x: Tensor, factor: float, kernel: Any = kernel) -> Tensor:
            layer = MuFuRU(3, 5, ops=(lambda s, v: factor * s + v,), kernel=kernel)
            return layer(x)[0].sum()  # type: ignore[no-any-return]

        first = loss(x, 0.5)
        gc.collect()
        other = loss(x, -2.0)
        found.append(torch.autograd.grad(first, x)[0])
        other.backward()
    # float32 over four steps
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0)


def times(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda s, v: factor * v


def test_layers_come_and_go() -> None:
    """A number that a forgotten operation had may serve another, but never two at once."""
    x = torch.randn(3, 2, 3)
    kept = MuFuRU(3, 5, ops=("keep", lambda s, v: v - 0.1), kernel="native")
    before = kept(x)[0]
    for factor in range(5):
        layer = MuFuRU(3, 5, ops=("keep", times(factor)), kernel="native")
        with use_kernel("reference"):
            expected = layer(x)[0]
        torch.testing.assert_close(layer(x)[0], expected, atol=1e-5, rtol=0)
        del layer
        gc.collect()
    assert torch.equal(kept(x)[0], before)


def test_copies_have_the_operation_too() -> None:
    layer = MuFuRU(3, 5, ops=("keep", wave), kernel="native")
    x = torch.randn(4, 2, 3)
    copied = copy.deepcopy(layer)
    # a graph would keep the operation of the original alive
    before = layer(x)[0].detach()
    del layer
    gc.collect()
    assert torch.equal(copied(x)[0], before)


def test_a_copy_has_a_number_of_its_own() -> None:
    """Operations are numbered as a process meets them: in another one, the number may be another operation's."""
    state = pickle.dumps(MuFuRU(3, 5, ops=("keep", wave), kernel="native"))
    gc.collect()
    others = MuFuRU(3, 5, ops=("keep", soft_max, of_state), kernel="native")
    found = pickle.loads(state)
    assert found.unit.codes == tuple(op.code for op in found.unit.ops)
    assert found.unit.codes[1] not in others.unit.codes
    x = torch.randn(4, 2, 3)
    with use_kernel("reference"):
        wanted = found(x)[0]
    torch.testing.assert_close(found(x)[0], wanted)


def test_a_thread_that_draws_does_not_count_as_the_operation() -> None:
    """Nor are its numbers drawn again."""
    layer, x, drawn, stop = MuFuRU(3, 4, ops=("keep", wave), kernel="native"), torch.randn(5, 2, 3), [], Event()

    def draw() -> None:
        while not stop.is_set():
            drawn.append(torch.rand((), dtype=torch.float64).item())

    interval, thread = sys.getswitchinterval(), Thread(target=draw)
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(40):
            layer(x)[0].sum().backward()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert len(drawn) > 100
    assert len(set(drawn)) == len(drawn)


def test_numbers_in_float32() -> None:
    call = make_call(SETS["all of them"], dtype=torch.float32, hidden=17, batch=3)
    leaves = leaves_of(call)
    assert_close(everything(native.sequence, call, leaves), everything(reference.sequence, call, leaves))


def test_operations_made_in_many_threads() -> None:
    """Two operations never share a number."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            layers = list(pool.map(lambda factor: MuFuRU(2, 3, ops=("keep", times(factor))), range(200)))
            codes = list(pool.map(lambda layer: layer.unit.codes[1], layers))
    finally:
        sys.setswitchinterval(interval)
    assert len(set(codes)) == len(layers)


def negated(s: Tensor, v: Tensor) -> Tensor:
    """A view whose numbers are the negatives of those in memory."""
    return torch._neg_view(s * v)


def without_memory(s: Tensor, v: Tensor) -> Tensor:
    """Zeros without memory."""
    return torch._efficientzerotensor(s.shape, dtype=s.dtype, device=s.device)


@pytest.mark.parametrize("own", [negated, without_memory])
def test_special_tensors_from_an_operation_while_a_subclass_dispatches(own: Any) -> None:
    layer, x = MuFuRU(3, 4, ops=("keep", "replace", own), kernel="native"), torch.randn(5, 2, 3)
    output, _ = layer(x)
    incoming = torch.randn(5, 2, 4)
    wanted = torch.autograd.grad(output, list(layer.parameters()), incoming, retain_graph=True)
    found: Any = torch.autograd.grad(output, list(layer.parameters()), Wrapper(incoming))
    torch.testing.assert_close([gradient.inside for gradient in found], list(wanted), rtol=0, atol=0)
