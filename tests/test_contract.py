"""What a caller of `nn.GRU` relies on, asked of `nn.GRU` first and then of `MuFuRU`: inputs, states and outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

STEPS, BATCH, N, M = 7, 4, 3, 5
LENGTHS = [4, 7, 1, 6]
SHAPES = [(1, False), (2, False), (1, True), (3, True)]
# a batch and one sequence take different matrix products: a few float32 roundings (6e-8) apart
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-6}

stacks = pytest.mark.parametrize(("layers", "bidirectional"), SHAPES)


def make(layer_type: Any, layers: int = 1, bidirectional: bool = False, **options: Any) -> nn.Module:
    module: nn.Module = layer_type(N, M, layers, bidirectional=bidirectional, **options)
    return module


def h0_for(layers: int, bidirectional: bool, batch: int = BATCH) -> Tensor:
    return torch.randn(layers * (2 if bidirectional else 1), batch, M)


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, **CLOSE)


@stacks
def test_shapes(layer_type: Any, layers: int, bidirectional: bool) -> None:
    output, h_n = make(layer_type, layers, bidirectional)(torch.randn(STEPS, BATCH, N))
    width = 2 if bidirectional else 1
    assert output.shape == (STEPS, BATCH, width * M)
    assert h_n.shape == (layers * width, BATCH, M)
    assert output.is_contiguous()
    assert h_n.is_contiguous()


@stacks
def test_h_n_is_the_last_output(layer_type: Any, layers: int, bidirectional: bool) -> None:
    output, h_n = make(layer_type, layers, bidirectional)(torch.randn(STEPS, BATCH, N))
    assert torch.equal(output[-1, :, :M], h_n[-2 if bidirectional else -1])
    if bidirectional:
        assert torch.equal(output[0, :, M:], h_n[-1])


def test_no_state_means_zeros(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    assert torch.equal(module(x)[0], module(x, torch.zeros(1, BATCH, M))[0])


def test_state_is_carried(layer_type: Any) -> None:
    module, x = make(layer_type, 2), torch.randn(STEPS, BATCH, N)
    whole, end = module(x)
    first, state = module(x[:3])
    second, carried_end = module(x[3:], state)
    assert_close(whole, torch.cat([first, second]))
    assert_close(end, carried_end)


@stacks
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "h0"])
def test_unsorted_packed_equals_padded_prefixes(layer_type: Any, layers: int, bidirectional: bool, given: bool) -> None:
    module, x = make(layer_type, layers, bidirectional), torch.randn(STEPS, BATCH, N)
    h0 = h0_for(layers, bidirectional) if given else None
    packed, h_n = module(pack_padded_sequence(x, LENGTHS, enforce_sorted=False), h0)
    padded, lengths = pad_packed_sequence(packed)
    assert lengths.tolist() == LENGTHS
    for i, length in enumerate(LENGTHS):
        output, end = module(x[:length, i : i + 1], None if h0 is None else h0[:, i : i + 1])
        assert_close(padded[:length, i], output[:, 0])
        assert_close(h_n[:, i], end[:, 0])


def test_sorted_packed_equals_unsorted(layer_type: Any) -> None:
    module, x = make(layer_type, 2, True), torch.randn(STEPS, BATCH, N)
    lengths = sorted(LENGTHS, reverse=True)
    in_order, h_n = module(pack_padded_sequence(x, lengths))
    other, other_h_n = module(pack_padded_sequence(x.flip(1), lengths[::-1], enforce_sorted=False))
    assert_close(pad_packed_sequence(in_order)[0], pad_packed_sequence(other)[0].flip(1))
    assert_close(h_n, other_h_n.flip(1))


def test_packed_comes_back_packed_alike(layer_type: Any) -> None:
    packed = pack_padded_sequence(torch.randn(STEPS, BATCH, N), LENGTHS, enforce_sorted=False)
    output, _ = make(layer_type)(packed)
    assert isinstance(output, PackedSequence)
    for ours, given in zip(output[1:], packed[1:], strict=True):
        assert isinstance(ours, Tensor)
        assert isinstance(given, Tensor)
        assert torch.equal(ours, given)


def test_steps_without_a_sequence_change_nothing(layer_type: Any) -> None:
    module, rows = make(layer_type, 2, True), torch.randn(5, N)
    expected, end = module(PackedSequence(rows, torch.tensor([3, 2])))
    packed, h_n = module(PackedSequence(rows, torch.tensor([3, 2, 0, 0])))
    assert torch.equal(packed.data, expected.data)
    assert packed.batch_sizes.tolist() == [3, 2, 0, 0]
    assert torch.equal(h_n, end)


def test_packed_does_not_care_for_batch_first(layer_type: Any) -> None:
    time_first, batch_first = make(layer_type), make(layer_type, batch_first=True)
    batch_first.load_state_dict(time_first.state_dict())
    x = torch.randn(STEPS, BATCH, N)
    a, _ = time_first(pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
    b, _ = batch_first(pack_padded_sequence(x.transpose(0, 1), LENGTHS, batch_first=True, enforce_sorted=False))
    assert torch.equal(a.data, b.data)


@stacks
def test_unbatched_equals_a_batch_of_one(layer_type: Any, layers: int, bidirectional: bool) -> None:
    for batch_first in (False, True):
        module, x = make(layer_type, layers, bidirectional, batch_first=batch_first), torch.randn(STEPS, N)
        h0 = h0_for(layers, bidirectional, 1)
        output, h_n = module(x, h0[:, 0])
        axis = 0 if batch_first else 1
        batched, batched_h_n = module(x.unsqueeze(axis), h0)
        assert_close(output, batched.squeeze(axis))
        assert_close(h_n, batched_h_n[:, 0])
        assert module(x)[0].shape == output.shape


@stacks
def test_batch_first_only_swaps_the_first_dimensions(layer_type: Any, layers: int, bidirectional: bool) -> None:
    time_first = make(layer_type, layers, bidirectional)
    batch_first = make(layer_type, layers, bidirectional, batch_first=True)
    batch_first.load_state_dict(time_first.state_dict())
    x, h0 = torch.randn(STEPS, BATCH, N), h0_for(layers, bidirectional)
    output, h_n = time_first(x, h0)
    other, other_h_n = batch_first(x.transpose(0, 1), h0)
    assert_close(output, other.transpose(0, 1))
    assert_close(h_n, other_h_n)


VIEWS = {
    "transposed": lambda: torch.randn(BATCH, STEPS, N).transpose(0, 1),
    "strided": lambda: torch.randn(2 * STEPS, BATCH, 2 * N)[::2, :, ::2],
    "reversed features": lambda: torch.randn(N, BATCH, STEPS).permute(2, 1, 0),
    "expanded batch": lambda: torch.randn(STEPS, 1, N).expand(-1, BATCH, -1),
    "expanded steps": lambda: torch.randn(1, BATCH, N).expand(STEPS, -1, -1),
    "expanded features": lambda: torch.randn(STEPS, BATCH, 1).expand(-1, -1, N),
    "offset": lambda: torch.randn(STEPS * BATCH * N + 1)[1:].view(STEPS, BATCH, N),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_as_input(layer_type: Any, view: str) -> None:
    module, x = make(layer_type, 2, True), VIEWS[view]()
    assert torch.equal(module(x)[0], module(x.clone(memory_format=torch.contiguous_format))[0])


def test_views_as_state(layer_type: Any) -> None:
    module, x = make(layer_type, 2), torch.randn(STEPS, BATCH, N)
    for h0 in (torch.randn(BATCH, 2, M).transpose(0, 1), torch.randn(2, 1, M).expand(-1, BATCH, -1)):
        assert torch.equal(module(x, h0)[0], module(x, h0.contiguous())[0])


def test_gradients_reach_input_and_state_and_all_parameters(layer_type: Any) -> None:
    module = make(layer_type, 2, True)
    x = torch.randn(STEPS, BATCH, N, requires_grad=True)
    h0 = h0_for(2, True).requires_grad_()
    output, h_n = module(x, h0)
    (output.square().sum() + h_n.sum()).backward()
    for name, tensor in {"x": x, "h0": h0, **dict(module.named_parameters())}.items():
        assert tensor.grad is not None, name
        assert tensor.grad.isfinite().all(), name
        assert tensor.grad.any(), name


def test_gradient_of_packed_is_none_past_the_end(layer_type: Any) -> None:
    x = torch.randn(STEPS, BATCH, N, requires_grad=True)
    output, h_n = make(layer_type, 1, True)(pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
    (output.data.sum() + h_n.sum()).backward()
    assert x.grad is not None
    for i, length in enumerate(LENGTHS):
        assert x.grad[:length, i].any(-1).all()
        assert not x.grad[length:, i].any()


def test_arguments_by_name(layer_type: Any) -> None:
    module, x, h0 = make(layer_type), torch.randn(STEPS, BATCH, N), h0_for(1, False)
    assert torch.equal(module(input=x, hx=h0)[0], module(x, h0)[0])


def test_empty_batch(layer_type: Any) -> None:
    module = make(layer_type, 2, True)
    x = torch.randn(STEPS, 0, N, requires_grad=True)
    output, h_n = module(x)
    assert output.shape == (STEPS, 0, 2 * M)
    assert h_n.shape == (4, 0, M)
    output.sum().backward()
    assert not any(p.grad is not None and p.grad.any() for p in module.parameters())


def test_inputs_are_left_alone(layer_type: Any) -> None:
    module, x, h0 = make(layer_type, 2), torch.randn(STEPS, BATCH, N), h0_for(2, False)
    before = x.clone(), h0.clone()
    output, h_n = module(x, h0)
    output.add_(1), h_n.add_(1)
    assert torch.equal(x, before[0])
    assert torch.equal(h0, before[1])


def test_one_step_and_one_unit(layer_type: Any) -> None:
    output, h_n = layer_type(1, 1)(torch.randn(1, 1, 1))
    assert torch.equal(output, h_n)


def test_nan_stays_in_its_row(layer_type: Any) -> None:
    module, x = make(layer_type, 2, True), torch.randn(STEPS, BATCH, N)
    x[2, 1, 0] = torch.nan
    output, _ = module(x)
    assert output[:, 1].isnan().any()
    assert not output[:, [0, 2, 3]].isnan().any()
