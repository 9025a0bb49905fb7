"""Noise where sequences differ in length: a mask stays with its sequence when others have ended."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mufuru import MuFuRU

STEPS, SIZE = 9, 50
LENGTHS = [3, 9, 0, 6, 1, 8]
BATCH = len(LENGTHS)
KINDS = ("input_dropout", "state_dropout", "zoneout", "weight_dropout", "op_dropout")

each_kind = pytest.mark.parametrize("kind", KINDS)
directions = pytest.mark.parametrize("direction", [0, 1], ids=["forward", "reverse"])


def bare(**options: Any) -> Any:
    """Replace alone, both ways, without a reset gate and all parameters zero: a test sets what it wants to see."""
    layer = MuFuRU(SIZE, SIZE, ops=("replace",), reset=None, bidirectional=True, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer


def noisy(**options: Any) -> MuFuRU:
    return MuFuRU(3, 4, num_layers=2, bidirectional=True, controller_size=5, **options)


@directions
@torch.no_grad()
def test_input_masks_stay_with_their_sequences(direction: int) -> None:
    layer = bare(input_dropout=0.5)
    for weight in (layer.weight_ih_l0, layer.weight_ih_l0_reverse):
        weight[:SIZE] = torch.eye(SIZE)
    output, _ = layer(torch.ones(STEPS, BATCH, SIZE, dtype=torch.float64), lengths=LENGTHS)
    for i, length in enumerate(LENGTHS):
        kept = output[:length, i].chunk(2, -1)[direction] != 0
        assert torch.equal(kept, kept[:1].expand_as(kept))
    first = output[0, [0, 1, 3, 4, 5]].chunk(2, -1)[direction]
    assert len({tuple(row.tolist()) for row in first}) == 5


@directions
@torch.no_grad()
def test_state_masks_stay_with_their_sequences(direction: int) -> None:
    layer = bare(state_dropout=0.5)
    for suffix in ("", "_reverse"):
        getattr(layer, "weight_hh_l0" + suffix)[:SIZE] = torch.eye(SIZE)
        getattr(layer, "bias_ih_l0" + suffix)[:SIZE] = 0.3
    output, _ = layer(torch.ones(STEPS, BATCH, SIZE, dtype=torch.float64), lengths=LENGTHS)
    dropped = torch.full((), math.tanh(0.3), dtype=torch.float64)
    for i, length in enumerate(LENGTHS):
        states = output[:length, i].chunk(2, -1)[direction]
        states = states if direction == 0 else states.flip(0)
        gone, scaled = states[1:2] == states[:1], torch.zeros(SIZE, dtype=torch.float64)
        for state in states:
            scaled = torch.tanh(0.3 + 2 * scaled)
            if length > 1:
                torch.testing.assert_close(state, torch.where(gone[0], dropped, scaled))


@directions
@torch.no_grad()
def test_operations_are_dropped_for_a_whole_sequence(direction: int) -> None:
    layer = MuFuRU(3, 4, bidirectional=True, op_dropout=0.5)
    p = layer.trace(torch.randn(STEPS, BATCH, 3), lengths=LENGTHS).weights(0, direction)
    for i, length in enumerate(LENGTHS):
        used = p[:length, i] != 0
        assert torch.equal(used, used[:1, :, :1].expand_as(used))


@each_kind
def test_packed_lengths_and_segments_see_the_same_noise(kind: str) -> None:
    layer, x, lengths = noisy(**{kind: 0.4}), torch.randn(STEPS, 4, 3), [4, 9, 1, 6]
    torch.manual_seed(7)
    packed, _ = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    segmented = copy.deepcopy(layer)
    segmented.checkpoint_every = 2
    for module in (layer, segmented):
        torch.manual_seed(7)
        output, _ = module(x, lengths=lengths)
        # segments take the product with the inputs in smaller pieces: float32 rounding
        torch.testing.assert_close(output, pad_packed_sequence(packed)[0], rtol=0, atol=1e-6)


@each_kind
def test_noise_with_empty_sequences_and_batches(kind: str) -> None:
    layer = noisy(**{kind: 0.4})
    assert layer(torch.randn(STEPS, 3, 3), lengths=[0, 4, 0])[0].isfinite().all()
    assert layer(torch.randn(STEPS, 2, 3), lengths=[0, 0])[0].shape == (STEPS, 2, 8)
    assert layer(torch.randn(0, 2, 3))[0].shape == (0, 2, 8)
    assert layer(torch.randn(STEPS, 0, 3))[0].shape == (STEPS, 0, 8)
    assert layer(torch.randn(STEPS, 3))[0].shape == (STEPS, 8)
