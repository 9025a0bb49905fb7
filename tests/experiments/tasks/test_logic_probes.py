"""Formulae without resets, interventions gate by gate, and the automaton of one unit, each computed in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import mufuru
from mufuru.experiments.engine import evaluate
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic import probes
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS
from mufuru.experiments.tasks.logic.task import LogicTask

SMALL: dict[str, Any] = {
    "train_formulae": 20,
    "valid_formulae": 20,
    "test_formulae": 60,
    "test_max_gates": 13,
    "probes": True,
}


def trained(size: int = 3, layers: int = 1) -> tuple[LogicTask, Any]:
    """A model with large weights, which says true to half of the formulae, so that operations matter."""
    torch.manual_seed(0)
    cell = CellConfig(hidden_size=size, num_layers=layers, initialisation="uniform", initial_scale=2.0)
    task = LogicTask(LogicConfig(cell, **SMALL))
    model: Any = task.build().eval()
    logits = torch.cat([model(batch.tokens) for batch in task.batches("test")])
    # between the two in the middle: none is near 0
    model.output.bias -= logits.quantile(0.5)
    return task, model


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("layers", [1, 2])
def test_an_operation_is_forbidden_where_the_token_is_read(layers: int) -> None:
    """Formula by formula and step by step, with cells of the same weights."""
    task, model = trained(layers=layers)
    found = probes.interventions(model, task._encoded["test"])
    assert found["accuracy"] == pytest.approx(evaluate(task, model, "test")["accuracy"], abs=1e-6)
    for op, token in (("mul", 3), ("keep", 0), ("replace", 7)):
        right = 0
        for formula in task.formulae["test"]:
            state = torch.zeros(layers, 1, 3)
            for symbol in formula.tokens:
                x = torch.eye(len(TOKENS))[symbol].view(1, 1, -1)
                if symbol == token:
                    with mufuru.intervene(model, forbid=op):
                        state = model.reader(x, state)[1]
                else:
                    state = model.reader(x, state)[1]
            right += bool((model.output(state[-1]) > 0) == formula.value)
        assert found["without"][token][found["ops"].index(op)] == pytest.approx(right / 60, abs=1e-6)
    # somewhere it matters
    assert len({value for row in found["without"] for value in row}) > 2


def test_formulae_without_resets() -> None:
    """A model that knows the parity of ones and XNORs is right about all, at every length."""
    seen: list[list[str]] = []

    def knows(tokens: Any) -> torch.Tensor:
        data, _ = torch.nn.utils.rnn.pad_packed_sequence(tokens, padding_value=-1)
        names = [[TOKENS[symbol] for symbol in column if symbol >= 0] for column in data.T.tolist()]
        seen.extend(names)
        return torch.tensor([(row.count("1") + row.count("XNOR")) % 2 - 0.5 for row in names])

    found = probes.without_resets(knows, 0)
    assert found["right"] == found["sequences"]
    assert sum(found["sequences"]) == 1000
    assert found["longest"][-1] == 250
    assert {symbol for row in seen for symbol in row} == {"0", "1", "XOR", "XNOR"}


def test_the_automaton_of_one_unit() -> None:
    """Followed token by token it is the model; in between states it is nearly straight."""
    task, model = trained(size=1)
    found = probes.automaton(model)
    states, following = torch.tensor(found["states"]), torch.tensor(found["next"])
    for formula in task.formulae["test"][:10]:
        state = torch.zeros(1, 1, 1)
        for symbol in formula.tokens:
            place = (float(state) + 1) / 2 * (len(states) - 1)
            low = min(int(place), len(states) - 2)
            near = torch.lerp(following[symbol][low], following[symbol][low + 1], place - low)
            state = model.reader(torch.eye(len(TOKENS))[symbol].view(1, 1, -1), state)[1]
            # 80 straight pieces of a curve, rounded to four digits
            assert float(near) == pytest.approx(float(state), abs=2e-2)
        above = float(state) > found["boundary"]
        assert bool(model.output(state.flatten()) > 0) == (above if found["true"] == "above" else not above)


def test_a_run_keeps_its_probes() -> None:
    task, model = trained(size=1)
    assert task.inspect(model).keys() == {"operation_weights", "without_resets", "interventions", "automaton"}
    gru = LogicTask(replace(task.config, cell=CellConfig("gru", hidden_size=2)))
    assert gru.inspect(gru.build()).keys() == {"without_resets"}
    none = LogicTask(replace(task.config, probes=False))
    assert none.inspect(none.build()).keys() == {"operation_weights"}
    with pytest.raises(SettingError, match="probes are for layers that read forwards"):
        LogicConfig(CellConfig(bidirectional=True), probes=True)
