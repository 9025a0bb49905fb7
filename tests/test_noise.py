"""Regularisation inside the recurrence, each kind seen through a layer built so that its mask shows in the output."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mufuru import PAPER, MuFuRU, intervene
from mufuru.noise import Noise

STEPS, BATCH, SIZE = 9, 40, 50
KINDS = ("input_dropout", "state_dropout", "zoneout", "weight_dropout", "op_dropout")
DRAWS = BATCH * SIZE
# four standard deviations of a mean of DRAWS fair coins
NOISY = 4 * 0.5 / math.sqrt(DRAWS)

each_kind = pytest.mark.parametrize("kind", KINDS)


def bare(ops: tuple[str, ...], **options: Any) -> Any:
    """No reset gate and all parameters zero: a test sets what it wants to see."""
    layer = MuFuRU(SIZE, SIZE, ops=ops, reset=None, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer


def ones() -> Tensor:
    return torch.ones(STEPS, BATCH, SIZE, dtype=torch.float64)


@torch.no_grad()
def test_input_dropout_has_one_mask_per_sequence() -> None:
    layer = bare(("replace",), input_dropout=0.5)
    layer.weight_ih_l0[:SIZE] = torch.eye(SIZE)
    output, _ = layer(ones())
    kept = output[0] != 0
    assert torch.equal(output, (2.0 * kept.double()).tanh().expand_as(output))
    assert abs(kept.double().mean().item() - 0.5) < NOISY
    assert not torch.equal(kept[0], kept[1])


@torch.no_grad()
def test_input_dropout_draws_anew_for_each_layer() -> None:
    layer = bare(("replace",), num_layers=2, input_dropout=0.5)
    for weight in (layer.weight_ih_l0, layer.weight_ih_l1):
        weight[:SIZE] = torch.eye(SIZE)
    kept = layer(ones())[0][0] != 0
    # both masks must let a unit through: a quarter
    assert abs(kept.double().mean().item() - 0.25) < NOISY


@torch.no_grad()
def test_state_dropout_has_one_mask_per_sequence() -> None:
    layer = bare(("replace",), state_dropout=0.25)
    layer.weight_hh_l0[:SIZE] = torch.eye(SIZE)
    layer.bias_ih_l0[:SIZE] = 0.3
    output, _ = layer(ones())
    dropped = torch.full((BATCH, SIZE), math.tanh(0.3), dtype=torch.float64)
    scaled = torch.zeros(BATCH, SIZE, dtype=torch.float64)
    gone = output[1] == output[0]
    for t in range(STEPS):
        scaled = torch.tanh(0.3 + scaled / 0.75)
        torch.testing.assert_close(output[t], torch.where(gone, dropped, scaled))
    assert abs(gone.double().mean().item() - 0.25) < NOISY


@torch.no_grad()
def test_state_dropout_acts_in_products_and_not_on_what_is_kept() -> None:
    layer = bare(("keep",), state_dropout=0.9)
    h0 = torch.randn(1, BATCH, SIZE, dtype=torch.float64)
    assert torch.equal(layer(ones(), h0)[1], h0)


@torch.no_grad()
def test_state_dropout_reaches_gate_and_operations_alike() -> None:
    """With every state dropped, nothing depends on the weights that read the state."""
    layer = MuFuRU(3, 4, state_dropout=1.0)
    cut: Any = MuFuRU(3, 4)
    cut.load_state_dict(layer.state_dict())
    cut.weight_hh_l0.zero_()
    x = torch.randn(STEPS, 2, 3)
    assert torch.equal(layer(x)[0], cut(x)[0])


@torch.no_grad()
def test_zoneout_keeps_old_or_takes_new() -> None:
    layer = bare(("add",), zoneout=0.3)
    layer.bias_ih_l0[:SIZE] = 0.5
    output, _ = layer(ones())
    added = output.diff(dim=0, prepend=torch.zeros(1, BATCH, SIZE, dtype=torch.float64)) / math.tanh(0.5)
    kept = added.abs() < 1e-9
    # sums of nine terms: float64 rounding
    assert bool((kept | ((added - 1).abs() < 1e-9)).all())
    assert abs(kept.double().mean().item() - 0.3) < NOISY
    assert not torch.equal(kept[0], kept[1])


@torch.no_grad()
def test_zoneout_is_its_expectation_at_evaluation() -> None:
    layer = bare(("add",), zoneout=0.3).eval()
    layer.bias_ih_l0[:SIZE] = 0.5
    expected = 0.7 * math.tanh(0.5) * torch.arange(1, STEPS + 1, dtype=torch.float64)
    torch.testing.assert_close(layer(ones())[0], expected[:, None, None].expand(STEPS, BATCH, SIZE))


def test_full_zoneout_never_changes_the_state() -> None:
    layer, h0 = MuFuRU(3, 4, zoneout=1.0), torch.randn(1, 2, 4)
    for module in (layer.train(), layer.eval()):
        assert torch.equal(module(torch.randn(STEPS, 2, 3), h0)[1], h0)


@torch.no_grad()
def test_operation_dropout_takes_whole_operations_and_renormalises() -> None:
    layer, x = MuFuRU(3, 4, op_dropout=0.5), torch.randn(STEPS, BATCH, 3)
    p, full = layer.trace(x).weights(), layer.eval().trace(x).weights()
    allowed = p[0].ne(0).any(-1)
    assert torch.equal(p.ne(0), allowed[None, :, :, None].expand_as(p))
    expected = full[0] * allowed[..., None]
    # float32 softmax over fewer terms
    torch.testing.assert_close(p[0], expected / expected.sum(1, keepdim=True), rtol=0, atol=1e-6)
    taken = 1 - allowed.double().mean().item()
    # seven coins that may not all fall: a little below one half, within four deviations
    assert abs(taken - 0.5) < 4 * 0.5 / math.sqrt(allowed.numel()) + 0.5**7


@pytest.mark.parametrize("ops", [PAPER, ("replace",)], ids=["seven", "one"])
def test_operation_dropout_always_leaves_one(ops: tuple[str, ...]) -> None:
    layer = MuFuRU(3, 4, ops=ops, op_dropout=1.0)
    p = layer.trace(torch.randn(STEPS, BATCH, 3)).weights()
    assert bool((p.eq(1).sum(2) == 1).all())
    assert bool((p.ne(0).sum(2) == 1).all())


def test_an_intervention_stands_above_operation_dropout() -> None:
    layer = MuFuRU(3, 4, op_dropout=0.9)
    with intervene(layer, force="mul"):
        assert bool((layer.trace(torch.randn(STEPS, BATCH, 3)).weight("mul") == 1).all())


def test_weight_dropout_takes_recurrent_weights_only() -> None:
    layer = MuFuRU(30, 40, controller_size=50)
    weights = layer._weights(0)
    dropped = Noise(weight_dropout=0.25).drop_weights(weights)
    for name in ("ih", "bias_ih", "bias_hh", "op", "bias_op"):
        assert getattr(dropped, name) is getattr(weights, name), name
    for name in ("hh", "kk"):
        old, new = getattr(weights, name), getattr(dropped, name)
        assert abs((new == 0).double().mean().item() - 0.25) < NOISY
        torch.testing.assert_close(new, torch.where(new == 0, 0.0, old / 0.75))


@torch.no_grad()
def test_weight_dropout_is_the_same_at_every_step() -> None:
    layer = bare(("replace",), weight_dropout=0.5)
    layer.weight_hh_l0[:SIZE] = torch.eye(SIZE)
    layer.bias_ih_l0[:SIZE] = 0.3
    output, _ = layer(ones())
    gone = output[1, 0] == output[0, 0]
    assert torch.equal(output[:, :, gone], torch.full_like(output[:, :, gone], math.tanh(0.3)))
    assert torch.equal(output, output[:, :1].expand_as(output))
    assert bool((output[2:, :, ~gone] > output[1:-1, :, ~gone]).all())
    assert gone.any()
    assert not gone.all()


def test_weight_dropout_lets_gradients_reach_the_parameters() -> None:
    layer = MuFuRU(3, 4, weight_dropout=0.5, bidirectional=True)
    layer(torch.randn(STEPS, 2, 3))[0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
    assert "weight_hh_l0" in layer.state_dict()


def noisy(**options: Any) -> MuFuRU:
    return MuFuRU(3, 4, num_layers=2, bidirectional=True, controller_size=5, **options)


def run(layer: MuFuRU, x: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)
    output: Tensor = layer(x)[0]
    return output


@each_kind
def test_a_seed_repeats_and_another_does_not(kind: str) -> None:
    layer, x = noisy(**{kind: 0.4}), torch.randn(STEPS, 5, 3)
    assert torch.equal(run(layer, x, 1), run(layer, x, 1))
    assert not torch.equal(run(layer, x, 1), run(layer, x, 2))


@each_kind
def test_nothing_is_random_at_evaluation(kind: str) -> None:
    layer, x = noisy(**{kind: 0.4}).eval(), torch.randn(STEPS, 5, 3)
    before = torch.get_rng_state()
    first, second = layer(x)[0], layer(x)[0]
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    plain = noisy()
    plain.load_state_dict(layer.state_dict())
    # zoneout alone has an expectation to keep
    assert torch.equal(first, plain(x)[0]) == (kind != "zoneout")


def test_no_noise_draws_nothing() -> None:
    layer, x = noisy(), torch.randn(STEPS, 5, 3)
    before = torch.get_rng_state()
    layer(x)
    assert torch.equal(torch.get_rng_state(), before)


@each_kind
@pytest.mark.parametrize("value", [-0.1, 1.5, True, "half", None, math.nan], ids=str)
def test_wrong_probabilities(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{kind} should be a number in range \\[0, 1\\]"):
        MuFuRU(3, 4, **{kind: value})


def test_repr_names_the_noise() -> None:
    assert repr(MuFuRU(3, 4, zoneout=0.1, op_dropout=0.2)) == "MuFuRU(3, 4, zoneout=0.1, op_dropout=0.2)"


def test_a_probability_changed_later_counts() -> None:
    layer, x = MuFuRU(3, 5, zoneout=0.5), torch.randn(6, 2, 3)
    layer.zoneout = 0.0
    assert torch.equal(layer(x)[0], layer.eval()(x)[0])
    layer.train().zoneout = 1.0
    assert layer(x)[0].count_nonzero() == 0


@pytest.mark.parametrize("kind", ["weight_dropout", "state_dropout"])
def test_masks_do_not_follow_strides(kind: str) -> None:
    layer, x, h = MuFuRU(3, 5, **{kind: 0.5}), torch.randn(4, 2, 3), torch.randn(1, 2, 5)
    found = []
    for turned in (False, True):
        if turned:
            layer.weight_hh_l0.data = layer.weight_hh_l0.data.t().contiguous().t()
            h = h.transpose(1, 2).contiguous().transpose(1, 2)
        torch.manual_seed(5)
        found.append(layer(x, h)[0])
    assert torch.equal(*found)
