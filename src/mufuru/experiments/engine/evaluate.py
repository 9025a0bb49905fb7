"""Construct the model of a run, fresh or trained, and measure it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments import tasks
from mufuru.experiments.data import DataError
from mufuru.experiments.engine import checkpoint, randomness
from mufuru.experiments.engine.errors import RunError, resume_command
from mufuru.experiments.record import RecordError, RunFolder, read_document
from mufuru.experiments.settings import SettingError, choose, from_json
from mufuru.experiments.tasks.task import Task, Totals

Which = Literal["selected", "best", "last"]
USE_BATCHES = 4
"""Validation batches over which the use of operations is measured, evenly spaced: enough to see a trend."""


def make(kind: str, config: Any) -> tuple[Task, nn.Module]:
    """Make a task and a fresh model. The seed is set before each, so that neither depends on earlier draws."""
    randomness.seed(config.seed)
    task = choose("task", kind, tasks.KINDS).make(config)
    randomness.seed(config.seed)
    return task, task.build()


def make_again(kind: str, config: Any, folder: Path) -> tuple[Task, nn.Module]:
    """Make task and model of a run that has begun; an error names its folder, since its user named no data."""
    try:
        return make(kind, config)
    except DataError as error:
        raise RunError(f"the data of the run in {folder} cannot be had: {error}. Relative paths in its settings count "
                       "from the folder in which it was begun") from None  # fmt: skip


def load_run(folder: Path, which: Which = "selected") -> tuple[Task, nn.Module]:
    """Return the task and the trained model of a run: its selected weights, the best, or the last."""
    kind, config = read_config(folder)
    weights = read_weights(folder, config.training.select if which == "selected" else which)
    with randomness.undisturbed():
        task, model = make_again(kind, config, folder)
    load_weights(model, weights, folder)
    return task, model.eval()


def load_model(folder: Path, which: Which = "selected") -> nn.Module:
    """Return the trained model of a run; where its task allows, without reading the training data."""
    kind, config = read_config(folder)
    return rebuild(kind, config, read_weights(folder, config.training.select if which == "selected" else which), folder)


def rebuild(kind: str, config: Any, weights: dict[str, Tensor], folder: Path) -> nn.Module:
    """Construct the model of these weights; where its task allows, without reading the training data."""
    restore = tasks.KINDS[kind].restore
    with randomness.undisturbed():
        model = restore(config, weights) if restore else make_again(kind, config, folder)[1]
    load_weights(model, weights, folder)
    return model.eval()


def read_config(folder: Path) -> tuple[str, Any]:
    """Return the task's name and the settings of a run."""
    try:
        document = read_document(RunFolder(folder).config)
        kind = choose("task", document["task"], tasks.KINDS)
        return document["task"], from_json(kind.config, document["config"])
    except (RecordError, SettingError) as error:
        raise RunError(f"{folder}: {error}") from None


def read_weights(folder: Path, which: Literal["best", "last"]) -> dict[str, Tensor]:
    """Return the best or the last weights of a run, averaged where the run averages."""
    files = RunFolder(folder)
    path = files.best if which == "best" else files.last
    if not path.exists():
        raise RunError(f"the run in {folder} has no {path.name} yet: let it train on with {resume_command(folder)}")
    content = checkpoint.load(path)
    if which == "best":
        return content.tensors
    return content.part("average") or content.part("model")


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Load weights into a model, or raise if they are those of another model."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        # torch's message has a title and several lines
        reason = " ".join(str(error).split()).partition(": ")[2].rstrip(".")
        raise RunError(f"the weights in {folder} are not those of the model that its config.json and data describe: "
                       f"{reason}. If the data has changed, give back what it was trained on") from None  # fmt: skip


def evaluate(task: Task, model: nn.Module, split: str) -> dict[str, float]:
    """Return the metrics over all batches of a split, with the state carried from one to the next."""
    totals, state = Totals(), None
    with examining(model):
        for batch in task.batches(split):
            step = task.step(model, batch, state)
            state = step.state
            totals.add(step)
    if not totals.count:
        raise RunError(f"the {split} data is empty: there is nothing to measure")
    return task.metrics(totals)


@contextmanager
def examining(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients; training continues afterwards as if nothing had happened."""
    training = model.training
    model.eval()
    try:
        with randomness.undisturbed(), torch.no_grad():
            yield
    finally:
        model.train(training)


def operation_use(task: Task, model: nn.Module) -> dict[str, float]:
    """Mean weight of each operation over units and some validation batches, in the first layer, read forwards; {} for
    a model without a MuFuRU."""
    if not any(isinstance(module, mufuru.MuFuRU) for module in model.modules()):
        return {}
    batches, recorder = task.batches("valid"), mufuru.Recorder()
    for place in spaced(len(batches)):
        with examining(model), mufuru.tracing(model) as traces:
            task.step(model, batches[place], None)
        for layers in traces.values():
            for trace in layers:
                recorder.add(trace)
    return recorder.use().mean()


def spaced(count: int) -> list[int]:
    """Return the evenly spaced places of `USE_BATCHES` among `count` batches."""
    return sorted({place * count // USE_BATCHES for place in range(USE_BATCHES)})
