"""A run as files for others, each checked against the original before it gets its name."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mufuru import export
from mufuru.disk import beside
from mufuru.experiments.engine import RunError, load_model
from mufuru.experiments.record import Record, read_run
from mufuru.experiments.ship import portable
from mufuru.experiments.ship.card import card
from mufuru.experiments.tasks.saved import TaskModel
from mufuru.int8 import pack, unpack
from mufuru.saving.files import PretrainedError

Target = Literal["safetensors", "int8", "onnx", "torch-export"]
Answers = Callable[[Sequence[Tensor]], Sequence[Tensor]]

SUFFIXES: dict[str, str] = {"safetensors": "-safetensors", "int8": "-int8", "onnx": ".onnx", "torch-export": ".pt2"}
"""What is added to the name of a run where no path is given; the first two are folders."""
EXAMPLE = (2, 5)
"""Batch and steps of what the graph is made with."""
UNSEEN = ((1, 1), (3, 4), (2, 9), (7, 33))
"""Batches and steps that it is checked with."""
TOLERANCE: dict[str, float] = {"safetensors": 0.0, "int8": 0.0, "onnx": 1e-4, "torch-export": 1e-5}
"""Largest difference from the original, as a part of its largest answer where that is above 1. Files of weights hold
the very same numbers; graphs add them up in another order, and onnxruntime has exponentials of its own."""


class Exported(NamedTuple):
    """What was written, and how far it is from the original."""

    path: Path
    error: float
    model: TaskModel
    """The original."""


class SelfCheckError(RunError):
    """What was written does not answer as the original does; it has been removed."""


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
        raise RunError(f"the run in {folder} is of the task {record.task}, whose models cannot be exported yet")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
        written = Path(place) / path.name
        answers = WRITERS[target](model, record, written, folder.resolve().name)
        error = compare(model, answers, UNSEEN, target)
        os.replace(written, path)
    return Exported(path, error, model)


def compare(model: nn.Module, answers: Answers, shapes: Sequence[tuple[int, int]], target: Target) -> float:
    """The largest difference from the original over these shapes; an error if it is too large."""
    largest = 0.0
    for number, (batch, steps) in enumerate(shapes):
        arguments = portable.example(model, batch, steps, seed=number)
        expected = _expected(model, target)(arguments)
        for want, got in zip(expected, answers(arguments), strict=True):
            difference = _difference(want, got)
            largest = max(largest, difference)
            # a comparison with NaN is never true
            if not difference <= TOLERANCE[target]:
                raise SelfCheckError(
                    f"what was written as {target} differs from the original by {difference:.3g}, more than "
                    f"{TOLERANCE[target]:g}, at a batch of {batch} and {steps} steps: nothing is kept"
                )
    return largest


def _difference(want: Tensor, got: Tensor) -> float:
    if want.shape != got.shape:
        return float("inf")
    size = max(1.0, float(want.abs().max()))
    return float((want - got).abs().max()) / size


def _expected(model: nn.Module, target: Target) -> Answers:
    """The original; for 8 bits the original with its weights rounded so."""
    if target == "int8":
        rounded = unpack(pack(model.state_dict()), torch.float32)
        return lambda arguments: _with_weights(model, rounded, arguments)
    return lambda arguments: portable.original(model, arguments)


def _with_weights(model: nn.Module, weights: dict[str, Tensor], arguments: Sequence[Tensor]) -> Sequence[Tensor]:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    try:
        return portable.original(model, arguments)
    finally:
        model.load_state_dict(before)


def _write_files(int8: bool) -> Callable[[TaskModel, Record, Path, str], Answers]:
    def write(model: TaskModel, record: Record, path: Path, name: str) -> Answers:
        try:
            model.save_pretrained(path, card=card(record, model, name), int8=int8)
            loaded = type(model).from_pretrained(path)
        except PretrainedError as error:
            raise RunError(str(error)) from None
        return lambda arguments: portable.original(loaded, arguments)

    return write


def _write_onnx(model: TaskModel, record: Record, path: Path, name: str) -> Answers:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise RunError("onnxruntime is not installed, which the check needs: pip install 'mufuru[onnx]'") from None
    graph = portable.portable(model)
    arguments = portable.example(model, *EXAMPLE, seed=-1)
    names: dict[str, Any] = {"input_names": graph.inputs, "output_names": graph.outputs}
    try:
        export.onnx(graph.module, path, arguments, dynamic_shapes=graph.open_sizes(), **names)
    except ImportError as error:
        raise RunError(str(error)) from None
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def answers(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        given = {name: tensor.numpy() for name, tensor in zip(graph.inputs, arguments, strict=True)}
        return [torch.from_numpy(array) for array in session.run(list(graph.outputs), given)]

    return answers


def _write_program(model: TaskModel, record: Record, path: Path, name: str) -> Answers:
    graph = portable.portable(model)
    arguments = portable.example(model, *EXAMPLE, seed=-1)
    program = export.program(graph.module, arguments, dynamic_shapes=graph.open_sizes())
    torch.export.save(program, path)
    module = torch.export.load(path).module()

    def answers(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        with torch.no_grad():
            found: Any = module(*arguments)
        return (found,) if isinstance(found, Tensor) else tuple(found)

    return answers


WRITERS: dict[str, Callable[[TaskModel, Record, Path, str], Answers]] = {
    "safetensors": _write_files(int8=False),
    "int8": _write_files(int8=True),
    "onnx": _write_onnx,
    "torch-export": _write_program,
}
"""Each writes to a path and returns what answers from there."""
