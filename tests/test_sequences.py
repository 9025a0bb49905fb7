"""Padded batches with `lengths=`, sequences without a step, and sequences trained in segments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru import MuFuRU

STEPS, N, M, K = 7, 3, 5, 4
LENGTHS = [4, 0, 6, 1, 0, 3]
BATCH = len(LENGTHS)
# a batch and one sequence take different matrix products: some units in float64's last place, 2e-16 each
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-12}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stack": {"num_layers": 3},
    "both ways": {"bidirectional": True},
    "stack, both ways": {"num_layers": 2, "bidirectional": True},
    "controller": {"controller_size": K, "num_layers": 2, "bidirectional": True},
    "learned start": {"learn_initial_state": True, "bidirectional": True},
}
options = pytest.mark.parametrize("case", OPTIONS)


def make(case: str = "stack, both ways", **more: Any) -> Any:
    layer = MuFuRU(N, M, dtype=torch.float64, **(OPTIONS[case] | more))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    return layer


def inputs(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.randn(steps, batch, N, dtype=torch.float64)


def start(layer: MuFuRU, batch: int = BATCH) -> Any:
    units = layer.num_layers * layer.num_directions
    h0 = torch.randn(units, batch, M, dtype=torch.float64)
    return h0 if layer.controller_size is None else (h0, torch.rand(units, batch, K, dtype=torch.float64))


def parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def row(state: Any, i: int) -> Any:
    if state is None:
        return None
    rows = tuple(part[:, i : i + 1] for part in parts(state))
    return rows if isinstance(state, tuple) else rows[0]


@options
@pytest.mark.parametrize("given", [False, True], ids=["default", "hx"])
def test_lengths_equal_each_sequence_alone(case: str, given: bool) -> None:
    layer, x = make(case), inputs()
    hx = start(layer) if given else None
    output, h_n = layer(x, hx, lengths=LENGTHS)
    assert output.shape == (STEPS, BATCH, layer.num_directions * M)
    for i, length in enumerate(LENGTHS):
        alone, end = layer(x[:length, i : i + 1], row(hx, i))
        torch.testing.assert_close(output[:length, i], alone[:, 0], **CLOSE)
        assert not output[length:, i].any()
        for ours, its in zip(parts(h_n), parts(end), strict=True):
            torch.testing.assert_close(ours[:, i], its[:, 0], **CLOSE)


@options
def test_lengths_equal_packed(case: str) -> None:
    layer, lengths = make(case), [4, 7, 1, 5]
    x, hx = inputs(batch=4), start(layer, 4)
    output, h_n = layer(x, hx, lengths=lengths)
    packed, packed_h_n = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), hx)
    assert torch.equal(output, pad_packed_sequence(packed)[0])
    assert all(torch.equal(a, b) for a, b in zip(parts(h_n), parts(packed_h_n), strict=True))


@options
def test_full_lengths_equal_no_lengths(case: str) -> None:
    layer, x = make(case), inputs()
    torch.testing.assert_close(layer(x, lengths=[STEPS] * BATCH)[0], layer(x)[0], **CLOSE)


def test_the_reverse_direction_starts_at_the_true_end() -> None:
    layer, x = make("both ways"), inputs()
    one_way = make("plain")
    with torch.no_grad():
        for name, parameter in one_way.named_parameters():
            parameter.copy_(getattr(layer, name + "_reverse"))
    output, _ = layer(x, lengths=LENGTHS)
    for i, length in enumerate(LENGTHS):
        expected, _ = one_way(x[:length, i : i + 1].flip(0))
        torch.testing.assert_close(output[:length, i, M:], expected.flip(0)[:, 0], **CLOSE)


def test_padding_is_never_read() -> None:
    layer, x = make(), inputs()
    for i, length in enumerate(LENGTHS):
        x[length:, i] = torch.nan
    x.requires_grad_()
    output, h_n = layer(x, lengths=LENGTHS)
    (output.square().sum() + h_n.sum()).backward()
    assert output.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for i, length in enumerate(LENGTHS):
        assert not x.grad[length:, i].any()
        assert x.grad[:length, i].any(-1).all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_batch_first() -> None:
    layer, x = make(), inputs()
    other = make(batch_first=True)
    other.load_state_dict(layer.state_dict())
    output, h_n = other(x.transpose(0, 1), lengths=LENGTHS)
    expected, expected_h_n = layer(x, lengths=LENGTHS)
    assert torch.equal(output, expected.transpose(0, 1))
    assert torch.equal(h_n, expected_h_n)


HOLDERS: dict[str, Callable[[], Any]] = {
    "list": lambda: list(LENGTHS),
    "tuple": lambda: tuple(LENGTHS),
    "int64": lambda: torch.tensor(LENGTHS),
    "int32": lambda: torch.tensor(LENGTHS, dtype=torch.int32),
    "uint8": lambda: torch.tensor(LENGTHS, dtype=torch.uint8),
    "view": lambda: torch.tensor([LENGTHS, LENGTHS]).t()[:, 0],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_lengths_in_any_holder(holder: str) -> None:
    layer, x = make(), inputs()
    assert torch.equal(layer(x, lengths=HOLDERS[holder]())[0], layer(x, lengths=LENGTHS)[0])


@options
def test_all_lengths_zero(case: str) -> None:
    layer = make(case)
    hx = start(layer)
    output, h_n = layer(inputs(), hx, lengths=[0] * BATCH)
    assert output.shape == (STEPS, BATCH, layer.num_directions * M)
    assert not output.any()
    assert all(torch.equal(a, b) for a, b in zip(parts(h_n), parts(hx), strict=True))


@options
@pytest.mark.parametrize("lengths", [None, [0] * BATCH], ids=["none", "zeros"])
def test_no_steps(case: str, lengths: Any) -> None:
    layer = make(case)
    x, hx = inputs(steps=0).requires_grad_(), start(layer)
    for part in parts(hx):
        part.requires_grad_()
    output, h_n = layer(x, hx, lengths=lengths)
    assert output.shape == (0, BATCH, layer.num_directions * M)
    assert all(torch.equal(a, b) for a, b in zip(parts(h_n), parts(hx), strict=True))
    (output.sum() + sum(part.sum() for part in parts(h_n))).backward()
    assert all(part.grad is not None and bool((part.grad == 1).all()) for part in parts(hx))


def test_no_steps_unbatched_and_batch_first() -> None:
    layer = make(batch_first=True)
    output, h_n = layer(inputs(steps=0)[:, 0])
    assert output.shape == (0, 2 * M)
    assert h_n.shape == (4, M)
    assert layer(inputs(steps=0).transpose(0, 1))[0].shape == (BATCH, 0, 2 * M)


def test_empty_batch_with_lengths() -> None:
    output, h_n = make()(inputs(batch=0), lengths=[])
    assert output.shape == (STEPS, 0, 2 * M)
    assert h_n.shape == (4, 0, M)


def test_empty_sequences_end_where_they_learned_to_start() -> None:
    layer = make("learned start")
    _, h_n = layer(inputs(), lengths=LENGTHS)
    assert torch.equal(h_n[:, 1], layer.h_0)
    h_n[:, 1].sum().backward()
    assert torch.equal(layer.h_0.grad, torch.ones_like(layer.h_0))


def gradients(layer: MuFuRU, x: Tensor, lengths: Any) -> list[Tensor]:
    torch.manual_seed(5)
    x = x.clone().requires_grad_()
    output, h_n = layer(x, lengths=lengths)
    loss = output.square().sum() + sum(part.sin().sum() for part in parts(h_n))
    return [output, *parts(h_n), *torch.autograd.grad(loss, (x, *layer.parameters()))]


@options
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["equal", "lengths"])
@pytest.mark.parametrize("every", [1, 3, 100])
def test_segments_change_neither_values_nor_gradients(case: str, lengths: Any, every: int) -> None:
    noise = {"input_dropout": 0.2, "state_dropout": 0.2, "zoneout": 0.3, "op_dropout": 0.2, "weight_dropout": 0.2}
    layer, x = make(case, **noise), inputs()
    segmented = copy.deepcopy(layer)
    segmented.checkpoint_every = every
    for ours, theirs in zip(gradients(segmented, x, lengths), gradients(layer, x, lengths), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_segments_save_less_for_backward() -> None:
    def saved(every: int | None) -> int:
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        layer, x = make("plain", checkpoint_every=every), inputs(steps=40)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(x)
        return sum(sizes)

    assert saved(10) < 0.5 * saved(None)


@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_the_final_state_of_no_steps_is_a_tensor_of_its_own(kernel: Any) -> None:
    layer, h0 = MuFuRU(3, 5, kernel=kernel), torch.ones(1, 2, 5)
    with torch.no_grad():
        _, h_n = layer(torch.zeros(0, 2, 3), h0)
        assert torch.equal(h_n, h0)
        h_n.zero_()
    assert h0.min() == 1


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("sizes", [[3, 2, 0], [0], [0, 0]], ids=["at the end", "one", "two"])
def test_steps_of_a_packed_sequence_without_a_row(sizes: list[int], kernel: Any) -> None:
    layer, total = make(kernel=kernel), sum(sizes)
    x = inputs(total, 1)[:, 0].requires_grad_()
    packed = PackedSequence(x, torch.tensor(sizes))
    output, h_n = layer(packed)
    assert output.data.shape == (total, 2 * M)
    assert h_n.shape == (4, sizes[0], M)
    output.data.sum().backward()
    assert x.grad is not None
    assert x.grad.any() == bool(total)
    trace = layer.trace(packed)
    assert trace.states().shape == (len(sizes), sizes[0], M)
    assert trace.lengths.tolist() == [2, 2, 1][: sizes[0]]


def test_packed_without_memory() -> None:
    """Lengths and order are known, the numbers are not."""
    layer = MuFuRU(3, 4, device="meta")
    packed = pack_padded_sequence(torch.randn(5, 3, 3), [2, 5, 1], enforce_sorted=False)
    on_meta = PackedSequence(packed.data.to("meta"), *packed[1:])
    output, h_n = layer(on_meta, torch.zeros(1, 3, 4, device="meta", requires_grad=True))
    (output.data.sum() + h_n.sum()).backward()
    assert layer.weight_hh_l0.grad.shape == layer.weight_hh_l0.shape


@pytest.mark.parametrize("lengths", [[2, 5, 1], [0, 0, 0]])
def test_lengths_without_memory(lengths: list[int]) -> None:
    layer, x = MuFuRU(3, 4, device="meta"), torch.zeros(5, 3, 3, device="meta", requires_grad=True)
    output, h_n = layer(x, lengths=lengths)
    assert (output.shape, h_n.shape) == ((5, 3, 4), (1, 3, 4))
    (output.sum() + h_n.sum()).backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
