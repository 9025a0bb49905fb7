"""The average of the weights: what it is, and where it stands for the weights themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toy import ToyTask, toy

from mufuru.experiments.engine import checkpoint, evaluate, fit, load_run
from mufuru.experiments.engine.status import Average
from mufuru.experiments.record import RunFolder, read_run


def test_the_average_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    values = [1.0, 3.0, -2.0, 5.0]
    with torch.no_grad():
        model.weight.fill_(values[0])
    average, expected = Average(model, 0.2), values[0]
    for update, value in enumerate(values[1:]):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(update)
        decay = min(0.2, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    with average.in_place():
        # a few sums in single precision
        assert model.weight.item() == pytest.approx(expected, rel=1e-6)
    assert model.weight.item() == values[-1]
    with pytest.raises(KeyError), average.in_place():
        raise KeyError
    assert model.weight.item() == values[-1]


def test_a_weight_with_two_names_is_averaged_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    average = Average(model, 0.5)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    average.update(1000)
    state = average.state()
    assert torch.equal(state["0.weight"], state["1.weight"])
    # half of 1, in single precision
    torch.testing.assert_close(state["0.weight"], model[0].weight.detach() - 0.5)


def averages_along(config: Any, patch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The average after every update, gathered anew."""
    found: list[dict[str, torch.Tensor]] = []
    update = Average.update

    def observed(self: Average, updates: int) -> None:
        before = {name: value.clone() for name, value in self.values.items()}
        update(self, updates)
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for name, parameter in self.model.named_parameters():
            # the same average, computed in another way
            expected = decay * before[name] + (1 - decay) * parameter.detach()
            torch.testing.assert_close(self.values[name], expected)
        found.append({name: value.clone() for name, value in self.values.items()})

    patch.setattr(Average, "update", observed)
    return found


@pytest.mark.parametrize("select", ["best", "last"])
def test_averaged_weights_are_looked_at_kept_and_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: Any
) -> None:
    config = toy(average=0.8, select=select, evaluate_every=3)
    along = averages_along(config, monkeypatch)
    result = fit("toy", config, tmp_path / "run")
    assert len(along) == 15
    files, task = RunFolder(tmp_path / "run"), ToyTask(config)
    for line in read_run(tmp_path / "run").curve:
        model = task.build()
        model.load_state_dict(along[line["update"] - 1], strict=False)
        assert evaluate(task, model, "valid") == line["valid"]
    kept = checkpoint.load(files.best).tensors
    for name, value in along[result["best_update"] - 1].items():
        assert torch.equal(kept[name], value)
    _, loaded = load_run(tmp_path / "run")
    assert evaluate(task, loaded, "test") == result["test"]
    update = result["best_update"] if select == "best" else 15
    for name, value in along[update - 1].items():
        assert torch.equal(loaded.get_parameter(name), value)


def test_averaging_does_not_change_the_training(tmp_path: Path) -> None:
    weights = []
    for average in (None, 0.9):
        folder = tmp_path / str(average)
        fit("toy", toy(average=average), folder)
        weights.append(checkpoint.load(RunFolder(folder).last).part("model"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
