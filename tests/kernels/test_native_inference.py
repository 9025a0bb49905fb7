"""Inference on the native kernel: nothing is kept but packed weights, and every change of the weights is seen."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from kernel_calls import MANY, PACKED, assert_close, direct_steps, make_call, needs_native, outputs_of
from torch import Tensor, nn
from torch.func import functional_call

from mufuru import MuFuRU, MuFuRUCell, use_kernel
from mufuru.kernels import compute, native, reference

pytestmark = needs_native


@pytest.fixture(autouse=True)
def _packed() -> Iterator[None]:
    """Pack the weights however few steps there are: what is kept can be stale, weights as they lie cannot."""
    with direct_steps(PACKED):
        yield


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_without_gradients(mode: Any) -> None:
    layer = MuFuRU(3, 11, num_layers=2, bidirectional=True, kernel="native")
    x = torch.randn(4, 5, 3)
    wanted = layer(x)
    with mode():
        for _ in range(2):
            for found, expected in zip(layer(x), wanted, strict=True):
                assert torch.equal(found, expected)
                assert not found.requires_grad
    for found, expected in zip(layer(x), wanted, strict=True):
        assert torch.equal(found, expected)


def test_a_layer_made_in_inference_mode() -> None:
    with torch.inference_mode():
        layer = MuFuRU(3, 5, kernel="native")
        x = torch.randn(4, 2, 3)
        first = layer(x)[0]
        layer.weight_hh_l0.mul_(-3)
        assert not torch.equal(layer(x)[0], first)


def test_weights_are_packed_once_for_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, count = MuFuRU(3, 11, kernel="native"), 0
    pack = compute.pack

    def counted(*arguments: Any) -> Tensor:
        nonlocal count
        count += 1
        return pack(*arguments)

    monkeypatch.setattr(compute, "pack", counted)
    with torch.no_grad():
        for changes in (0, 1):
            for batch in (5, MANY, 1, 5):
                x = torch.randn(4, batch, 3)
                found, wanted = outcome(layer, "native", x), outcome(layer, "reference", x)
                # float32 over four steps
                torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
            assert count == changes + 1
            layer.weight_hh_l0.mul_(-1)


def test_a_long_inference() -> None:
    """More steps than any buffer of the kernel is likely to hold."""
    for reverse in (False, True):
        call = make_call(("keep", "max"), controller=7, reverse=reverse, trace=False, steps=3000, batch=3)
        with torch.no_grad():
            assert_close(outputs_of(native.sequence(call)), outputs_of(reference.sequence(call)))


def edit_in_place(layer: MuFuRU) -> None:
    with torch.no_grad():
        layer.weight_hh_l0[3, 2] += 1


def edit_input_weights(layer: MuFuRU) -> None:
    with torch.no_grad():
        layer.weight_ih_l0[-1, 0] += 1


def edit_bias(layer: MuFuRU) -> None:
    with torch.no_grad():
        layer.bias_hh_l0[-1] += 1


def step_of_an_optimiser(layer: MuFuRU) -> None:
    with torch.enable_grad():
        layer(torch.randn(4, 5, 3))[0].sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1).step()


def load_others(layer: MuFuRU) -> None:
    layer.load_state_dict(MuFuRU(3, 11, kernel="native").state_dict())


def assign_others(layer: MuFuRU) -> None:
    layer.load_state_dict(MuFuRU(3, 11, kernel="native").state_dict(), assign=True)


def edit_data(layer: MuFuRU) -> None:
    layer.weight_hh_l0.data.mul_(-1)


def swap_data(layer: MuFuRU) -> None:
    layer.weight_hh_l0.data = torch.randn_like(layer.weight_hh_l0)


def edit_one_number(layer: MuFuRU) -> None:
    layer.weight_hh_l0.data[3, 2] += 1


def edit_one_bias(layer: MuFuRU) -> None:
    layer.bias_ih_l0.data[1] += 1


def edit_through_numpy(layer: MuFuRU) -> None:
    layer.weight_ih_l0.detach().numpy()[2, 1] = 9.0


def flip_signs(layer: MuFuRU) -> None:
    """Flip an even number of weights: a careless checksum takes them for none."""
    layer.weight_hh_l0.data[:, 3] *= -1


def step_of_a_fused_optimiser(layer: MuFuRU) -> None:
    """It counts no change, and here it changes one number."""
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    layer.weight_hh_l0.grad[4, 5] = 1.0
    torch.optim.SGD(layer.parameters(), lr=0.5, fused=True).step()


def swap_parameters(layer: MuFuRU) -> None:
    torch.utils.swap_tensors(layer.weight_hh_l0, nn.Parameter(torch.randn_like(layer.weight_hh_l0)))


def replace_parameter(layer: MuFuRU) -> None:
    layer.weight_ih_l0 = nn.Parameter(torch.randn_like(layer.weight_ih_l0))


def replace_recurrent_parameter(layer: MuFuRU) -> None:
    layer.weight_hh_l0 = nn.Parameter(torch.randn_like(layer.weight_hh_l0))


def swap_two_parameters(layer: MuFuRU) -> None:
    layer.bias_ih_l0, layer.bias_hh_l0 = layer.bias_hh_l0, nn.Parameter(torch.randn_like(layer.bias_ih_l0))


def draw_anew(layer: MuFuRU) -> None:
    layer.reset_parameters()


EDITS: tuple[Callable[[MuFuRU], None], ...] = (
    edit_in_place, edit_input_weights, edit_bias, step_of_an_optimiser, load_others, assign_others, edit_data,
    swap_data, edit_one_number, edit_one_bias, edit_through_numpy, flip_signs, step_of_a_fused_optimiser,
    swap_parameters, replace_parameter, replace_recurrent_parameter, swap_two_parameters, draw_anew,
)  # fmt: skip


def outcome(layer: MuFuRU, kernel: Any, x: Tensor, hx: Tensor | None = None) -> Tensor:
    with use_kernel(kernel):
        return layer(x, hx)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_inference_sees_every_change_of_the_weights(edit: Any, reset: Any, mode: Any) -> None:
    layer = MuFuRU(3, 11, reset=reset, kernel="native")
    x = torch.randn(4, 5, 3)
    with mode():
        before = [outcome(layer, "native", x) for _ in range(2)][-1]
    edit(layer)
    with mode():
        for _ in range(2):
            after = outcome(layer, "native", x)
            # float32 over four steps
            torch.testing.assert_close(after, outcome(layer, "reference", x), atol=1e-5, rtol=0)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_single_steps_see_every_change_of_the_weights(edit: Any) -> None:
    """They read the weights as they lie."""
    layer, x, hx = MuFuRU(3, 11, kernel="native"), torch.randn(1, 5, 3), torch.randn(1, 5, 11)
    with direct_steps(1), torch.no_grad():
        before = [outcome(layer, "native", x, hx) for _ in range(3)]
        with torch.enable_grad():
            edit(layer)
        after = [outcome(layer, "native", x, hx) for _ in range(3)]
    with torch.no_grad():
        # float32, one step
        torch.testing.assert_close(after[0], outcome(layer, "reference", x, hx), atol=1e-6, rtol=0)
    assert not torch.equal(after[0], before[0])
    for found in (before, after):
        assert torch.equal(found[1], found[0])
        assert torch.equal(found[2], found[0])


def test_single_steps_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows they have: what is not kept cannot be stale, and takes no memory."""
    cell, layer = MuFuRUCell(3, 11, kernel="native"), MuFuRU(3, 11, kernel="native")
    monkeypatch.setattr(compute, "pack", None)
    with direct_steps(1), torch.no_grad():
        for rows in (1, 5, MANY):
            for _ in range(3):
                cell(torch.randn(rows, 3))
                layer(torch.randn(1, rows, 3))
    assert not any(cell._packed.values())
    assert not any(layer._packed.values())


def test_inference_with_other_weights_for_a_while() -> None:
    layer, other = (MuFuRU(3, 11, controller_size=4, kernel="native") for _ in range(2))
    x = torch.randn(4, 5, 3)
    with torch.no_grad():
        first, second = layer(x)[0], other(x)[0]
        for _ in range(2):
            assert torch.equal(functional_call(layer, dict(other.named_parameters()), (x,))[0], second)
            assert torch.equal(layer(x)[0], first)


def test_inference_with_weights_that_are_nearly_the_same() -> None:
    layer = MuFuRU(3, 11, kernel="native")
    x = torch.randn(4, 5, 3)
    for name, parameter in layer.named_parameters():
        places = torch.arange(parameter.numel())

        def call(place: int, name: str = name, weight: Tensor = parameter, places: Tensor = places) -> Tensor:
            changed = weight.detach() + (places == place).view_as(weight)
            return functional_call(layer, {name: changed}, (x,))[0]  # type: ignore[no-any-return]

        with torch.no_grad():
            before = call(-1)
            for place in range(1, parameter.numel(), 11):
                assert not torch.equal(call(place), before), f"{name}: a change at {place} is not seen"


def test_a_copy_has_weights_of_its_own() -> None:
    layer = MuFuRU(3, 11, kernel="native")
    x = torch.randn(4, 5, 3)
    with torch.no_grad():
        before = layer(x)[0]
        copied = copy.deepcopy(layer)
        assert torch.equal(copied(x)[0], before)
        copied.weight_hh_l0.mul_(-1)
        assert not torch.equal(copied(x)[0], before)
        assert torch.equal(layer(x)[0], before)


def test_directions_and_layers_share_nothing() -> None:
    layer = MuFuRU(5, 5, num_layers=2, bidirectional=True, kernel="native")
    x = torch.randn(4, 3, 5)
    for _ in range(2):
        with torch.no_grad():
            found, wanted = outcome(layer, "native", x), outcome(layer, "reference", x)
        # float32 over two layers of four steps
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_weights_that_live_for_one_call() -> None:
    """A new tensor may have the address and the id of one that is gone."""
    layer, x = MuFuRU(30, 20), torch.randn(5, 2, 30)
    weight = layer.weight_ih_l0.detach()

    def changed(place: int) -> Tensor:
        other = weight.clone()
        other.view(-1)[place] += 1
        return functional_call(layer, {"weight_ih_l0": other}, (x,))[0]  # type: ignore[no-any-return]

    with torch.no_grad():
        for place in range(0, 200, 7):
            found = changed(place)
            with use_kernel("reference"):
                torch.testing.assert_close(found, changed(place), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_number_counts(dtype: torch.dtype) -> None:
    """A change of any single number, and of any two signs, is a change of the packed weights."""
    layer, x = MuFuRU(3, 5, ops=("keep", "max"), controller_size=2, kernel="native", dtype=dtype), torch.randn(2, 1, 3)
    x = x.to(dtype)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, 0.5, 1.0)  # no zeros, which have two signs
    seen = set()

    def look() -> None:
        layer(x)
        ((key, _),) = layer._packed[0].values()
        assert key not in seen
        seen.add(key)

    with torch.no_grad():
        look()
        for parameter in layer.parameters():
            for place in range(parameter.numel()):
                parameter.data.view(-1)[place] *= -1
                look()
                parameter.data.view(-1)[(place + 1) % parameter.numel()] *= -1
                look()
                parameter.data.view(-1)[(place + 1) % parameter.numel()] *= -1.25
        assert len(seen) > 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_large_weights_count(dtype: torch.dtype) -> None:
    """Many at once go into the checksum: neighbours, and numbers as far apart as these, take different ways into it."""
    layer, x = MuFuRU(300, 30, kernel="native", dtype=dtype), torch.randn(2, 1, 300, dtype=dtype)
    weight = layer.weight_ih_l0.data.view(-1)
    assert weight.nbytes > 1 << 18, "the checksum takes it in more than one part"
    seen = set()

    def look() -> None:
        layer(x)
        ((key, _),) = layer._packed[0].values()
        assert key not in seen
        seen.add(key)

    with torch.no_grad():
        look()
        for place in (0, 1, 7, 8, 63, 64, 4097, 65535, 65536, len(weight) - 1):
            for apart in (1, 2, 8, 16, 32, 64, 128, 65536):
                weight[place] *= -1
                look()
                weight[(place + apart) % len(weight)] *= -1
                look()
                weight[place] *= 1.25


def test_packed_weights_are_freed_and_not_saved() -> None:
    layer, x = MuFuRU(3, 11, kernel="native"), torch.randn(4, 5, 3)
    with torch.no_grad():
        layer(x)
    assert layer._packed[0]
    assert not copy.deepcopy(layer)._packed
    assert not pickle.loads(pickle.dumps(layer))._packed
    layer.flatten_parameters()
    assert not layer._packed


@pytest.mark.parametrize("kind", ["layer", "cell"])
def test_a_conversion_that_swaps_parameters(kind: str) -> None:
    """`.to(dtype)` after inference, in the way that quantisers and sharded training use."""
    module: Any = MuFuRU(3, 5, kernel="native") if kind == "layer" else MuFuRUCell(3, 5, kernel="native")
    x = torch.randn(4, 2, 3)
    call: Callable[[], Tensor] = (lambda: module(x)[0]) if kind == "layer" else (lambda: module(x[0]))
    with torch.no_grad():
        before = call()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            module.to(torch.float64)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        x = x.double()
        torch.testing.assert_close(call().float(), before)
