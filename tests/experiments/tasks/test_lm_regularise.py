"""Dropouts and penalties: what they compute in training, and that evaluation knows nothing of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from lm_texts import CELLS, WORDS, config, stream, task
from torch.nn.functional import dropout

from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.lm.config import Regularisation
from mufuru.experiments.tasks.lm.model import drop_features, drop_words

EACH = [
    {"embedding_dropout": 0.5},
    {"input_dropout": 0.5},
    {"output_dropout": 0.5},
    {"weight_dropout": 0.5},
    {"state_dropout": 0.5},
    {"activation_penalty": 2.0, "temporal_penalty": 1.0},
]


def window() -> tuple[torch.Tensor, torch.Tensor]:
    return stream(40, 5).view(8, 5), stream(40, 6).view(8, 5)


@pytest.mark.parametrize(
    ("cell", "noise"),
    [(cell, noise) for cell in CELLS for noise in EACH if cell == "mufuru" or "state_dropout" not in noise],
)
def test_evaluation_is_that_of_a_model_without(cell: CellName, noise: dict[str, float]) -> None:
    noisy, plain = task(cell, noise).build().eval(), task(cell).build().eval()
    noisy.load_state_dict(plain.state_dict())
    with torch.no_grad():
        found, expected = noisy.predict(*window()), plain.predict(*window())
        drawn = noisy.train().predict(*window())
    assert torch.equal(found.loss, expected.loss)
    assert found.penalty is None
    # a penalty leaves the loss alone, which is a sum in single precision in training
    same = torch.isclose(drawn.loss.double(), expected.loss, rtol=1e-6, atol=0)
    assert bool(same) == ("activation_penalty" in noise)
    assert (drawn.penalty is None) == ("activation_penalty" not in noise)


def test_zoneout_in_evaluation_is_its_mean() -> None:
    """Not off, but without chance: old and new states are mixed."""
    model = task("mufuru", {"zoneout": 0.3}).build().eval()
    assert torch.equal(model.predict(*window()).loss, model.predict(*window()).loss)
    assert not torch.equal(model.train().predict(*window()).loss, model.predict(*window()).loss)


@pytest.mark.parametrize("cell", CELLS)
def test_weight_drop_is_a_layer_with_fewer_weights(cell: CellName) -> None:
    """Values and gradients are those of a layer whose recurrent weights were dropped by hand."""
    model = task(cell, {"weight_dropout": 0.4}).build()
    by_hand = task(cell).build()
    by_hand.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    mask = dropout(torch.ones_like(model.reader.rnn.weight_hh_l0), 0.4)
    with torch.no_grad():
        by_hand.reader.rnn.weight_hh_l0.mul_(mask)
    torch.manual_seed(3)
    found = model.predict(*window())
    expected = by_hand.predict(*window())
    assert torch.equal(found.loss, expected.loss)
    found.loss.backward()
    expected.loss.backward()
    for (name, one), (_, other) in zip(model.named_parameters(), by_hand.named_parameters(), strict=True):
        factor = mask if name.endswith("weight_hh_l0") else 1.0
        # the same sums; the mask's factor comes before or after them
        torch.testing.assert_close(one.grad, other.grad * factor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", ["gru", "lstm", "vanilla"])
def test_weight_drop_reaches_every_layer_and_leaves_none_behind(cell: CellName) -> None:
    model = task(cell, {"weight_dropout": 0.9}, num_layers=2).build()
    before = copy.deepcopy(model.state_dict())
    losses = {model.predict(*window()).loss.item() for _ in range(3)}
    assert len(losses) == 3
    model.predict(*window()).loss.backward()
    for name in ("weight_hh_l0", "weight_hh_l1"):
        assert int((getattr(model.reader.rnn, name).grad == 0).sum()) > 0
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert torch.equal(model.eval().predict(*window()).loss, model.predict(*window()).loss)


def test_words_are_dropped_wherever_they_stand() -> None:
    tokens = stream(60).view(12, 5)
    x = torch.rand(12, 5, 3) + 0.5
    dropped = drop_words(x, tokens, len(WORDS), 0.5)
    for word in range(len(WORDS)):
        rows = (dropped / x)[tokens == word]
        # kept words are doubled, so that the mean stays
        assert torch.equal(rows, torch.zeros_like(rows)) or torch.allclose(rows, torch.full_like(rows, 2.0))
    kept = {bool(dropped[tokens == word].any()) for word in range(len(WORDS))}
    assert kept == {True, False}


def test_features_are_dropped_for_a_whole_window_in_each_sequence() -> None:
    x = torch.rand(12, 5, 30) + 0.5
    mask = drop_features(x, 0.5) / x
    # a product and a quotient in single precision
    torch.testing.assert_close(mask, mask[:1].expand_as(mask), rtol=1e-6, atol=0)
    assert not torch.equal(mask[0, 0] > 0, mask[0, 1] > 0)
    assert drop_features(x, 0.0) is x


def test_penalties_by_hand() -> None:
    outputs, dropped = torch.tensor([[[1.0, 2.0]], [[4.0, 2.0]]]), torch.tensor([[[0.0, 4.0]], [[8.0, 0.0]]])
    found = Regularisation(activation_penalty=2.0, temporal_penalty=0.5).penalty(outputs, dropped)
    assert found is not None
    assert float(found) == 2.0 * (16 + 64) / 4 + 0.5 * 9 / 2
    alone = Regularisation(temporal_penalty=0.5).penalty(outputs[:1], dropped[:1])
    assert alone is not None
    assert float(alone) == 0.0


def test_a_seed_draws_the_same_masks() -> None:
    noise = {"embedding_dropout": 0.3, "input_dropout": 0.3, "output_dropout": 0.3, "weight_dropout": 0.3}
    model = task("lstm", noise).build()
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model.predict(*window()).loss.item())
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    ("cell", "noise", "message"),
    [
        ("gru", {"state_dropout": 0.1}, "state_dropout is an option of mufuru, not of gru: leave it out"),
        ("lstm", {"zoneout": 0.1}, "zoneout is an option of mufuru, not of lstm"),
        ("mufuru", {"input_dropout": 1.0}, "input_dropout should be at least 0 and below 1, got 1.0"),
        ("mufuru", {"weight_dropout": -0.1}, "weight_dropout should be"),
        ("mufuru", {"temporal_penalty": -1.0}, "temporal_penalty should be a number of at least 0, got -1.0"),
    ],
)
def test_refusals(cell: CellName, noise: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        config(cell, noise)
