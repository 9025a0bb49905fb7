"""Construct the model of a run, fresh or trained, and measure it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments import tasks
from mufuru.experiments.data import DataError, TokenError
from mufuru.experiments.engine import checkpoint
from mufuru.experiments.engine.errors import RunError, resume_command
from mufuru.experiments.record import RecordError, RunFolder, read_document, read_json
from mufuru.experiments.settings import SettingError, choose, from_json
from mufuru.experiments.tasks.task import Step, Task, Totals

USE_BATCHES = 4
"""Validation batches over which the use of operations is measured, evenly spaced: enough to see a trend."""


def make(kind: str, config: Any, folder: Path | None = None) -> tuple[Task, nn.Module]:
    """Make a task and a fresh model. The seed is set before each, so that neither depends on earlier draws.

    Errors in the data of a run that exists name its folder, since its user named no data.
    """
    checkpoint.seed_everything(config.seed)
    try:
        task = choose("task", kind, tasks.KINDS).make(config)
    except DataError as error:
        if folder is None or isinstance(error, TokenError):
            raise
        raise RunError(f"the data of the run in {folder} cannot be loaded: {error}. Relative paths in its settings "
                       "count from the folder in which it was started; --find-data FOLDER looks for moved files"
                       ) from None  # fmt: skip
    checkpoint.seed_everything(config.seed)
    return task, task.build()


def load_run(folder: Path, data: Path | None = None) -> tuple[Task, nn.Module]:
    """Return the task and the trained model of a run, with its selected weights; `data` is the folder that has the
    files of its data now, if they were moved."""
    kind, config = read_config(folder)
    weights = read_weights(folder, config.training.select)
    with checkpoint.undisturbed():
        task, model = make(kind, config if data is None else moved(config, data), folder)
    load_weights(model, weights, folder)
    return task, model.eval()


def moved(config: Any, folder: Path) -> Any:
    """Return settings whose files are in another folder; weights of other data are refused when they are loaded."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected the one that has the files of the data now")
    changes: dict[str, Any] = {}
    for name in getattr(getattr(config, "data", None), "files", ()):
        if isinstance(value := getattr(config.data, name), tuple):
            changes[name] = tuple(str(folder / Path(path).name) for path in value)
        elif value:
            changes[name] = str(folder / Path(value).name)
    if not any(changes.values()):
        raise DataError("the run was not trained on files of your own: there is nothing to find")
    return replace(config, data=replace(config.data, **changes))


def load_model(folder: Path) -> nn.Module:
    """Return the trained model of a run; where its task allows, without reading the training data."""
    kind, config = read_config(folder)
    return rebuild(kind, config, read_weights(folder, config.training.select), folder)


def rebuild(kind: str, config: Any, weights: dict[str, Tensor], folder: Path) -> nn.Module:
    """Construct the model of these weights; where its task allows, without reading the training data."""
    own = tasks.KINDS[kind].model
    with checkpoint.undisturbed():
        model: nn.Module = own.restored(config, weights) if own else make(kind, config, folder)[1]
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


def read_layout(folder: Path) -> dict[str, Any]:
    """Return how the data of a run was read; nothing for a run that is older than this file."""
    path = RunFolder(folder).layout
    try:
        return read_json(path) if path.exists() else {}
    except RecordError as error:
        raise RunError(f"{error}. Delete it: then files are read by their names alone") from None


def read_weights(folder: Path, which: Literal["best", "last"]) -> dict[str, Tensor]:
    """Return the best or the last weights of a run, averaged where the run averages."""
    files = RunFolder(folder)
    path = files.best if which == "best" else files.last
    if not path.exists():
        raise RunError(f"the run in {folder} has no {path.name} yet: train on with {resume_command(folder)}")
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
                       f"{reason}. If the data has changed, restore the data it was trained on") from None  # fmt: skip


def evaluate(
    task: Task, model: nn.Module, split: str, step: Callable[[Any, Any], Step] | None = None
) -> dict[str, float]:
    """Return the metrics over all batches of a split, with the state carried from one to the next; `step` is the
    task's own unless another is given."""
    take, totals, state = step or partial(task.step, model), Totals(), None
    with examining(model):
        for batch in task.batches(split):
            taken = take(batch, state)
            state = taken.state
            totals.add(taken)
    if not totals.count:
        raise RunError(f"the {split} data is empty: there is nothing to measure")
    return task.metrics(totals)


@contextmanager
def examining(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients; training continues afterwards as if nothing had happened."""
    training = model.training
    model.eval()
    try:
        with checkpoint.undisturbed(), torch.no_grad():
            yield
    finally:
        model.train(training)


def operation_use(task: Task, model: nn.Module) -> dict[str, float]:
    """Mean weight of each operation over units and some validation batches, in the first layer, read forwards; {} for
    a model without a MuFuRU."""
    if not any(isinstance(module, mufuru.MuFuRU) for module in model.modules()):
        return {}
    batches, recorder = task.batches("valid"), mufuru.Recorder()
    # evenly spaced
    for place in sorted({place * len(batches) // USE_BATCHES for place in range(USE_BATCHES)}):
        with examining(model), mufuru.tracing(model) as traces:
            task.step(model, batches[place], None)
        for layers in traces.values():
            for trace in layers:
                recorder.add(trace)
    return recorder.use().mean()
