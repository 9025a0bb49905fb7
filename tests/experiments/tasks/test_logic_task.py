"""The logic task: batches, steps, metrics and what it tells of a model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from mufuru.experiments.settings import SettingError, Training, from_json, to_json
from mufuru.experiments.tasks.cells import CellConfig, CellName
from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, Formula
from mufuru.experiments.tasks.logic.model import Batch
from mufuru.experiments.tasks.logic.task import LogicTask
from mufuru.experiments.tasks.task import Task, Totals

CELLS: tuple[CellName, ...] = ("mufuru", "gru", "lstm", "vanilla")
SMALL = LogicConfig(training=Training(batch_size=7), train_formulae=60, valid_formulae=20, test_formulae=30)


def of_cell(cell: CellName, **changes: Any) -> LogicTask:
    return LogicTask(replace(SMALL, cell=SMALL.cell.for_cell(cell), **changes))


def read(batch: Batch) -> list[tuple[Formula, bool]]:
    """A batch as formulae again."""
    padded, lengths = pad_packed_sequence(batch.tokens)
    columns = zip(padded.T.tolist(), lengths.tolist(), batch.values.tolist(), strict=True)
    return [(Formula(tuple(tokens[:length])), value == 1.0) for tokens, length, value in columns]


def in_order(batches: list[Batch]) -> list[int]:
    """The tokens of all batches one after the other."""
    return [token for batch in batches for token in batch.tokens.data.tolist()]


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("batch_size", [1, 7, 60, 100])
def test_batches_lose_and_repeat_nothing(split: str, batch_size: int) -> None:
    task = LogicTask(replace(SMALL, training=Training(batch_size=batch_size)))
    rows = [row for batch in task.batches(split, epoch=2) for row in read(batch)]
    expected = [(formula, formula.value) for formula in task.formulae[split]]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    if split == "train":
        assert [len(batch.values) for batch in task.batches(split)][:-1] == [batch_size] * ((60 - 1) // batch_size)


def test_the_order_of_training_follows_from_seed_and_epoch_alone() -> None:
    task, again, other = LogicTask(SMALL), LogicTask(SMALL), LogicTask(replace(SMALL, seed=1))
    fifth = in_order(task.batches("train", 5))
    again.batches("train", 0)
    torch.rand(3)
    assert in_order(again.batches("train", 5)) == fifth
    assert in_order(task.batches("train", 6)) != fifth
    assert in_order(other.batches("train", 5)) != fifth
    assert in_order(task.batches("valid", 5)) == in_order(task.batches("valid", 6))


@pytest.mark.parametrize("cell", CELLS)
def test_results_do_not_depend_on_the_company(cell: CellName) -> None:
    """A formula alone gets what it gets beside others, longer or shorter, packed or padded with anything."""
    task = of_cell(cell)
    model: Any = task.build()
    (batch,) = task.batches("test")
    together = model(batch.tokens)
    alone = torch.cat([model(PackedSequence(torch.tensor(f.tokens), torch.ones(len(f.tokens), dtype=torch.int64)))
                       for f, _ in read(batch)])  # fmt: skip
    # the same sums in another order, in single precision
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)
    padded, lengths = pad_packed_sequence(batch.tokens, padding_value=3, total_length=60)
    _, state = model.reader(model.one_hot[padded], lengths=lengths)
    torch.testing.assert_close(together, model.output(model.reader.last(state)).squeeze(-1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_learns_a_batch_by_heart(cell: CellName) -> None:
    task = of_cell(cell)
    model = task.build()
    batch = task.batches("train")[0]
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    first = task.step(model, batch, None)
    for _ in range(30):
        optimizer.zero_grad()
        step = task.step(model, batch, None)
        step.loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
    assert task.step(model, batch, None).loss.item() < 0.5 * first.loss.item()
    assert first.state is None


def test_loss_and_accuracy_are_exact_and_free_of_the_batch_size() -> None:
    metrics = []
    for batch_size in (7, 60):
        task = LogicTask(replace(SMALL, training=Training(batch_size=batch_size)))
        torch.manual_seed(1)
        model, totals = task.build(), Totals()
        for batch in task.batches("train"):
            totals.add(task.step(model, batch, None))
        assert totals.count == 60
        metrics.append(task.metrics(totals))
    assert metrics[0]["accuracy"] == metrics[1]["accuracy"]
    # sums of 60 numbers in single precision
    assert metrics[0]["loss"] == pytest.approx(metrics[1]["loss"], rel=1e-5)


def test_accuracy_counts_what_is_right() -> None:
    task = of_cell("gru")
    model: Any = task.build()
    (batch,) = task.batches("test")
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.fill_(100.0)
    totals = Totals()
    totals.add(task.step(model, batch, None))
    true = sum(formula.value for formula in task.formulae["test"])
    # surely "true" costs 100 for each false formula
    assert task.metrics(totals) == {"loss": pytest.approx((30 - true) * 100 / 30), "accuracy": true / 30}


def test_mean_operation_weights_by_token() -> None:
    task = of_cell("mufuru")
    model: Any = task.build()
    table = task.inspect(model)["operation_weights"]
    assert table["tokens"] == list(TOKENS)
    assert table["ops"] == list(model.reader.rnn.ops)
    sums, counts = torch.zeros(12, 7), torch.zeros(12)
    for formula in task.formulae["test"]:
        trace = model.reader.rnn.trace(model.one_hot[torch.tensor(formula.tokens)])
        for token, weights in zip(formula.tokens, trace.weights(), strict=True):
            sums[token] += weights.detach().mean(-1)
            counts[token] += 1
    # written with six digits
    torch.testing.assert_close(torch.tensor(table["weight"]), sums / counts.unsqueeze(1), atol=2e-6, rtol=0)
    assert 0 < table["entropy"] < torch.log(torch.tensor(7.0))
    assert json.loads(json.dumps(table, allow_nan=False)) == table


def test_a_token_never_seen_has_no_weights() -> None:
    task = of_cell("mufuru", test_formulae=1, test_min_gates=1, test_max_gates=1)
    rows = task.inspect(task.build())["operation_weights"]["weight"]
    seen = set(task.formulae["test"][0].tokens)
    assert [number for number, row in enumerate(rows) if row is not None] == sorted(seen)


@pytest.mark.parametrize("cell", ["gru", "lstm", "vanilla"])
def test_other_cells_have_no_operations(cell: CellName) -> None:
    task = of_cell(cell)
    assert task.inspect(task.build()) == {}


@pytest.mark.parametrize("changes", [{"num_layers": 2, "bidirectional": True}, {"controller_size": 3}], ids=str)
def test_deep_and_controlled_models_are_read_as_well(changes: dict[str, Any]) -> None:
    task = LogicTask(replace(SMALL, cell=CellConfig(**changes)))
    model = task.build()
    task.step(model, task.batches("train")[0], None).loss.backward()
    assert len(task.inspect(model)["operation_weights"]["weight"]) == 12


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    assert from_json(LogicConfig, json.loads(json.dumps(to_json(PRESETS[name])))) == PRESETS[name]


def test_the_papers_preset_is_the_papers() -> None:
    config = PRESETS["paper"]
    training = config.training
    assert (config.train_formulae, config.min_gates, config.max_gates) == (1000, 5, 10)
    assert (config.test_formulae, config.test_min_gates, config.test_max_gates) == (1000, 11, 20)
    assert (training.epochs, training.beta1, training.beta2, training.select) == (100, 0.0, 0.999, "last")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_gates": 11}, "min_gates should be at most max_gates, got 11 and 10"),
        ({"test_max_gates": 3}, "test_min_gates should be at most test_max_gates, got 11 and 3"),
        ({"train_formulae": 0}, "train_formulae should be a number above 0, got 0"),
        ({"min_gates": 0}, "min_gates should be a number above 0, got 0"),
    ],
)
def test_settings_that_cannot_be_meant(changes: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LogicConfig(**changes)


def test_it_is_a_task() -> None:
    task: Task = LogicTask(SMALL)
    assert task.metric in task.metrics(Totals(1.0, 1, {"right": 1.0}))
