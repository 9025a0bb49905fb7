"""A run as files for others, each checked against the original before it gets its name."""

import copy
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mufuru import export
from mufuru.disk import beside
from mufuru.experiments.engine import RunError, evaluate, load_model
from mufuru.experiments.engine.evaluate import examining
from mufuru.experiments.record import Record, read_run
from mufuru.experiments.ship.card import card
from mufuru.experiments.tasks.models import TaskModel
from mufuru.experiments.tasks.task import Task
from mufuru.int8 import dynamic, pack, unpack
from mufuru.saving.files import WEIGHTS, PretrainedError

Target = Literal["safetensors", "int8", "onnx", "torch-export"]
Answers = Callable[[Sequence[Tensor]], Sequence[Tensor]]

SUFFIXES: dict[str, str] = {"safetensors": "-safetensors", "int8": "-int8", "onnx": ".onnx", "torch-export": ".pt2"}
"""Ending of the run's name where no path is given; the first two are folders."""
EXAMPLE = (2, 5)
"""Batch and steps that the graph is made with."""
UNSEEN = ((1, 1), (3, 4), (2, 9), (7, 33))
"""Batches and steps that it is checked with."""
BATCHES = 20
"""Maximum batches of one measurement of time."""
ROUNDS = 7
TOLERANCE: dict[str, float] = {"safetensors": 0.0, "int8": 0.0, "onnx": 1e-4, "torch-export": 1e-5}
"""Largest difference from the original, as a part of its largest answer where that is above 1. Files of weights hold
the very same numbers; graphs add them up in another order, and onnxruntime has exponentials of its own."""


class Exported(NamedTuple):
    """A written model, and its difference from the original."""

    path: Path
    error: float
    model: TaskModel
    """The original."""


def export_run(folder: Path, target: Target, output: Path | None = None) -> Exported:
    """Write a run's model, compare, and only then give the file its name."""
    path = output or beside(folder, SUFFIXES[target])
    if target == "torch-export" and path.suffix != ".pt2":
        raise RunError(f"{path} should end in .pt2: torch.export.load takes no other name")
    if path.exists():
        raise RunError(f"{path} exists already: choose another path with -o")
    record = read_run(folder, curve=False)
    model = load_model(folder)
    if not isinstance(model, TaskModel):
        raise RunError(f"the run in {folder} is of the task {record.task}, whose models cannot be exported")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
        written = Path(place) / path.name
        answers = WRITERS[target](model, record, written, folder.resolve().name)
        error = compare(model, answers, UNSEEN, target)
        os.replace(written, path)
    return Exported(path, error, model)


def compare(model: TaskModel, answers: Answers, shapes: Sequence[tuple[int, int]], target: Target) -> float:
    """Return the largest difference from the original over these shapes; raise if it is too large."""
    largest, original = 0.0, model
    if target == "int8":
        original = copy.deepcopy(model)
        original.load_state_dict(unpack(pack(model.state_dict()), torch.float32))
    for number, (batch, steps) in enumerate(shapes):
        arguments = model.example(batch, steps, seed=number)
        for want, got in zip(original.answers(*arguments), answers(arguments), strict=True):
            difference = _difference(want, got)
            largest = max(largest, difference)
            # a comparison with NaN is never true
            if not difference <= TOLERANCE[target]:
                raise RunError(
                    f"what was written as {target} differs from the original by {difference:.3g}, more than "
                    f"{TOLERANCE[target]:g}, at a batch of {batch} and {steps} steps: nothing is kept"
                )
    return largest


def _difference(want: Tensor, got: Tensor) -> float:
    if want.shape != got.shape:
        return float("inf")
    size = max(1.0, float(want.abs().max()))
    return float((want - got).abs().max()) / size


def _write_files(model: TaskModel, record: Record, path: Path, name: str, *, int8: bool = False) -> Answers:
    try:
        model.save_pretrained(path, card=card(record, model, name), int8=int8)
        loaded = type(model).from_pretrained(path)
    except PretrainedError as error:
        raise RunError(str(error)) from None
    return lambda arguments: loaded.answers(*arguments)


def _write_onnx(model: TaskModel, record: Record, path: Path, name: str) -> Answers:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise RunError(
            "onnxruntime is not installed, which the check needs: `pip install '.[onnx]'` in the folder of mufuru"
        ) from None
    graph = model.graph()
    more: dict[str, Any] = {"dynamic_shapes": graph.open_sizes, "input_names": graph.inputs}
    try:
        export.onnx(graph.module, path, model.example(*EXAMPLE, seed=-1), output_names=graph.outputs, **more)
    except ImportError as error:
        raise RunError(str(error)) from None
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def answers(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        given = {name: tensor.numpy() for name, tensor in zip(graph.inputs, arguments, strict=True)}
        return [torch.from_numpy(array) for array in session.run(list(graph.outputs), given)]

    return answers


def _write_program(model: TaskModel, record: Record, path: Path, name: str) -> Answers:
    graph = model.graph()
    program = export.program(graph.module, model.example(*EXAMPLE, seed=-1), dynamic_shapes=graph.open_sizes)
    torch.export.save(program, path)
    module = torch.export.load(path).module()

    def answers(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        with torch.no_grad():
            outputs: Any = module(*arguments)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)

    return answers


WRITERS: dict[str, Callable[[TaskModel, Record, Path, str], Answers]] = {
    "safetensors": _write_files,
    "int8": partial(_write_files, int8=True),
    "onnx": _write_onnx,
    "torch-export": _write_program,
}
"""Each writes to a path and returns a function that answers from there."""


def compare_int8(task: Task, done: Exported, split: str) -> dict[str, dict[str, float]]:
    """Return the metrics over a data set, the size of the weights in megabytes and the relative time of both models."""
    models = done.model, dynamic(type(done.model).from_pretrained(done.path))
    with tempfile.TemporaryDirectory() as original:
        done.model.save_pretrained(original)
        sizes = [(Path(folder) / WEIGHTS).stat().st_size / 1e6 for folder in (original, done.path)]
    times = (1.0, time_ratio(task, *models, split))
    return {
        name: {**evaluate(task, model, split), "megabytes": size, "time": time}
        for name, model, size, time in zip(("original", "int8"), models, sizes, times, strict=True)
    }


def time_ratio(task: Task, one: nn.Module, other: nn.Module, split: str) -> float:
    """Return the median time of `other` over that of `one`, of several rounds with a pass of each, so
    that other load on the machine affects both alike."""
    rounds = [[_seconds(task, model, split) for model in (one, other)] for _ in range(ROUNDS + 1)]
    # the first round packs weights and fills caches
    return median(second / first for first, second in rounds[1:])


def _seconds(task: Task, model: nn.Module, split: str) -> float:
    batches, state = list(islice(task.batches(split), BATCHES)), None
    with examining(model):
        start = time.perf_counter()
        for batch in batches:
            state = task.step(model, batch, state).state
        return time.perf_counter() - start
