"""Measure a model over a data set, and get the model of a run back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mufuru.experiments import tasks
from mufuru.experiments.data import DataError
from mufuru.experiments.engine import checkpoint, randomness
from mufuru.experiments.engine.errors import RunError, resume_command
from mufuru.experiments.record import RecordError, RunFolder, read_document
from mufuru.experiments.settings import SettingError, choose, from_json
from mufuru.experiments.tasks.task import Task, Totals

Which = Literal["selected", "best", "last"]


def evaluate(task: Task, model: nn.Module, split: str) -> dict[str, float]:
    """The metrics over all batches of a split, each taken once and the state carried from one to the next."""
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
    """Evaluation mode and no gradients; training goes on afterwards as if nothing had happened."""
    training = model.training
    model.eval()
    try:
        with randomness.undisturbed(), torch.no_grad():
            yield
    finally:
        model.train(training)


def make(kind: str, config: Any) -> tuple[Task, nn.Module]:
    """A task and a fresh model. The seed is set before each, so that neither depends on what was drawn before it."""
    randomness.seed(config.seed)
    task = choose("task", kind, tasks.KINDS).make(config)
    randomness.seed(config.seed)
    return task, task.build()


def read_config(folder: Path) -> tuple[str, Any]:
    """The task's name and the settings of a run."""
    try:
        document = read_document(RunFolder(folder).config)
        kind = choose("task", document["task"], tasks.KINDS)
        return document["task"], from_json(kind.config, document["config"])
    except (RecordError, SettingError) as error:
        raise RunError(f"{folder}: {error}") from None


def load_run(folder: Path, which: Which = "selected") -> tuple[Task, nn.Module]:
    """The task and the trained model of a run: its selected weights, or those with the best metric, or the last."""
    kind, config = read_config(folder)
    weights = read_weights(folder, config.training.select if which == "selected" else which)
    with randomness.undisturbed():
        task, model = make_again(kind, config, folder)
    load_weights(model, weights, folder)
    return task, model.eval()


def make_again(kind: str, config: Any, folder: Path) -> tuple[Task, nn.Module]:
    """`make` for a run that has begun: who names a run does not know which files it reads."""
    try:
        return make(kind, config)
    except DataError as error:
        raise RunError(f"the data of the run in {folder} cannot be had: {error}. Relative paths in its settings count "
                       "from the folder in which it was begun") from None  # fmt: skip


def load_model(folder: Path, which: Which = "selected") -> nn.Module:
    """The trained model of a run alone; where its task can, without the data that it was trained on."""
    kind, config = read_config(folder)
    restore = tasks.KINDS[kind].restore
    if restore is None:
        return load_run(folder, which)[1]
    weights = read_weights(folder, config.training.select if which == "selected" else which)
    with randomness.undisturbed():
        model = restore(config, weights)
    load_weights(model, weights, folder)
    return model.eval()


def read_weights(folder: Path, which: Literal["best", "last"]) -> dict[str, Tensor]:
    """The weights that a run keeps; the last ones as they are tested, averaged where the run averages."""
    files = RunFolder(folder)
    place = files.best if which == "best" else files.last
    if not place.exists():
        raise RunError(f"the run in {folder} has no {place.name} yet: let it train on with {resume_command(folder)}")
    kept = checkpoint.load(place)
    if which == "best":
        return kept.tensors
    return kept.part("average") or kept.part("model")


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Fill a model, or say that it is another one."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        # torch's message has a title and several lines
        reason = " ".join(str(error).split()).partition(": ")[2].rstrip(".")
        raise RunError(f"the weights in {folder} are not those of the model that its config.json and data describe: "
                       f"{reason}. If the data has changed, give back what it was trained on") from None  # fmt: skip
