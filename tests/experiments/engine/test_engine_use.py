"""A run says which operations it uses while it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mufuru
from mufuru.experiments.engine import fit
from mufuru.experiments.engine.evaluate import operation_use
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.task import LogicTask

SMALL = LogicConfig(
    CellConfig(hidden_size=3), Training(epochs=2, batch_size=5), train_formulae=20, valid_formulae=20, test_formulae=10
)


def lines(folder: Path, config: LogicConfig) -> list[dict[str, Any]]:
    fit("logic", config, folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_every_look_has_the_weights(tmp_path: Path) -> None:
    first, second = lines(tmp_path, SMALL)
    assert tuple(first["operations"]) == mufuru.PAPER
    # sums of float32 weights
    assert sum(first["operations"].values()) == pytest.approx(1, abs=1e-5)
    assert first["operations"] != second["operations"]


def test_other_cells_say_nothing(tmp_path: Path) -> None:
    assert all("operations" not in line for line in lines(tmp_path, replace(SMALL, cell=SMALL.cell.for_cell("gru"))))


def test_it_is_the_mean_over_all_steps_and_units() -> None:
    task = LogicTask(SMALL)
    torch.manual_seed(0)
    model = task.build()
    batches = task.batches("valid")
    weights = []
    for batch in batches:
        with mufuru.tracing(model) as traces, torch.no_grad():
            task.step(model, batch, None)
        (layer,) = traces.values()
        weights.append(layer[0].parts[0].p)
    expected = torch.cat(weights).double().mean((0, 2)).tolist()
    # the order of the sums
    assert list(operation_use(task, model).values()) == pytest.approx(expected, abs=1e-6)
    assert model.training
