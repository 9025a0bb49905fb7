"""A classifier or tagger step by step: after every step the answer of the whole model to what came so far."""

from __future__ import annotations

from typing import Any

import classify_data
import pytest
import torch

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.tag.model import TagConfig, Tagger
from mufuru.experiments.tasks.words import Meaning

CELLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "controller, two layers": {"controller_size": 3, "num_layers": 2},
    "gru": {"cell": "gru"},
}


@pytest.mark.parametrize("pooling", ["last", "max", "mean", "attention"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", ["text", "numeric"])
def test_every_step(pooling: str, cell: str, kind: str) -> None:
    torch.manual_seed(0)
    model: Any = classify_data.task(
        kind=kind, classes=3 if kind == "text" else 2, pooling=pooling, **CELLS[cell]
    ).build()
    if pooling == "attention":
        torch.nn.init.normal_(model.pooling.query, std=20.0)  # scores that overflow without care
    assert_every_step(model)


def test_every_step_of_a_tagger() -> None:
    torch.manual_seed(0)
    meaning = Meaning(("B", "I", "O"), Vocabulary((UNKNOWN, *"abcd")))
    assert_every_step(Tagger(TagConfig(CellConfig(hidden_size=5, num_layers=2)), meaning))
    assert Tagger(TagConfig(CellConfig(hidden_size=5, bidirectional=True)), meaning).step_graph() is None


def assert_every_step(model: Any) -> None:
    graph, inputs = model.eval().step_graph(), model.example(3, 8, seed=1)[0]
    states = [
        torch.full([3 if size is None else size for size in state.sizes], state.initial) for state in graph.states
    ]
    with torch.no_grad():
        for step, want in zip(inputs, model.by_steps(inputs), strict=True):
            logits, *states = graph.module(step, *states)
            # float32, and sums in another order
            torch.testing.assert_close(logits, want, rtol=1e-5, atol=1e-5)


def test_both_directions_have_no_step() -> None:
    assert classify_data.task(bidirectional=True).build().step_graph() is None
