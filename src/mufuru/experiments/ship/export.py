"""A run as files for others, each checked against the original before it gets its name."""

import copy
import errno
import io
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mufuru import export
from mufuru.disk import beside, write_atomically
from mufuru.experiments.engine import Failure, RunError, evaluate, load_model
from mufuru.experiments.engine.evaluate import examining, read_layout
from mufuru.experiments.record import Record, RunFolder, read_run
from mufuru.experiments.ship import c, onnx
from mufuru.experiments.ship.card import card
from mufuru.experiments.ship.layout import Answers, lay_out
from mufuru.experiments.ship.onnx import BySteps
from mufuru.experiments.tasks.models import TaskModel
from mufuru.experiments.tasks.task import Task
from mufuru.int8 import dynamic, pack, unpack
from mufuru.saving.files import WEIGHTS, PretrainedError

Target = Literal["safetensors", "int8", "onnx", "torch-export", "c"]
Bits = Literal[32, 8]

SUFFIXES: dict[str, str] = {
    "safetensors": "-safetensors", "int8": "-int8", "onnx": "-onnx", "torch-export": ".pt2", "c": ".c",
}  # fmt: skip
"""Ending of the run's name where no path is given; the first three are folders."""
UNSEEN = ((1, 1), (3, 4), (2, 9), (7, 33))
"""Batches and steps that a graph is checked with; it was made with others."""
BATCHES = 20
"""Maximum batches of one measurement of time."""
ROUNDS = 7
TOLERANCE: dict[str, float] = {"safetensors": 0.0, "int8": 0.0, "onnx": 1e-4, "torch-export": 1e-5, "c": 1e-4}
"""Largest difference from the original, as a part of its largest answer where that is above 1. Files of weights hold
the very same numbers; graphs add them up in another order, and onnxruntime computes exponentials differently."""


class Exported(NamedTuple):
    """A written model, and its difference from the original."""

    path: Path
    error: float
    model: TaskModel
    """The original."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Bytes of parts, where a device has to hold them."""


def export_run(
    folder: Path, target: Target, output: Path | None = None, *, batch_first: bool = False, bits: Bits = 32
) -> Exported:
    """Write a run's model, compare, and only then give the file its name."""
    path = output or beside(folder, SUFFIXES[target])
    _check(path, target, batch_first, bits)
    record = read_run(folder, curve=False)
    model = load_model(folder)
    if not isinstance(model, TaskModel):
        raise RunError(f"the run in {folder} is of the task {record.task}, whose models cannot be exported")
    with on_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            written = Path(place) / path.name
            if target == "c":
                done = _write_c(model, written, bits)
            elif target == "onnx":
                done = _write_onnx(model, record, written, batch_first, read_layout(folder).get("length"))
            elif target == "torch-export":
                done = _write_program(model, written, batch_first)
            else:
                done = _write_files(model, record, written, folder.resolve().name, target)
            layout = RunFolder(folder).layout
            if written.is_dir() and layout.exists():
                # so that new files are read as the training file was
                write_atomically(written / layout.name, layout.read_bytes())
            os.replace(written, path)
    return done._replace(path=path)


def _check(path: Path, target: Target, batch_first: bool, bits: Bits) -> None:
    if target == "torch-export" and path.suffix != ".pt2":
        raise RunError(f"{path} should end in .pt2: torch.export.load takes no other name")
    if target == "c" and path.suffix != ".c":
        raise RunError(f"{path} should end in .c, as a file of C does")
    if path.exists():
        raise RunError(f"{path} exists already: choose another path with -o")
    if batch_first and target not in ("onnx", "torch-export"):
        raise RunError(f"--batch-first is for onnx and torch-export, got --to {target}: leave it out")
    if bits != 32 and target != "c":
        better = ", or use int8" if target != "int8" else ""
        raise RunError(f"--bits is for c, got --to {target}: leave it out{better}")


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn a full disk into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Failure(
            f"no space left on the disk for {path}: nothing was kept, and the run is untouched. Make room, or choose a "
            "path on another disk with -o"
        ) from None


def compare(model: TaskModel, answers: Answers, shapes: Sequence[tuple[int, int]], target: Target) -> float:
    """Return the largest difference from the original over these shapes; raise if it is too large."""
    largest, original = 0.0, model
    if target == "int8":
        original = copy.deepcopy(model)
        original.load_state_dict(unpack(pack(model.state_dict()), torch.float32))
    for number, (batch, steps) in enumerate(shapes):
        arguments = model.example(batch, steps, seed=number)
        for want, got in zip(original.answers(*arguments), answers(arguments), strict=True):
            largest = max(largest, difference(want, got, target, f"a batch of {batch} and {steps} steps"))
    return largest


def compare_steps(model: TaskModel, by_steps: BySteps, shapes: Sequence[tuple[int, int]], target: Target) -> float:
    """Return the largest difference of answers step by step from those of the whole model; raise if it is too large."""
    largest = 0.0
    for number, (batch, steps) in enumerate(shapes):
        inputs, *_ = model.example(batch, steps, seed=number)
        for step, (want, got) in enumerate(zip(model.by_steps(inputs), by_steps(inputs), strict=True), 1):
            place = f"step {step} of a batch of {batch} and {steps} steps"
            largest = max(largest, difference(want, got, target, place))
    return largest


def difference(want: Tensor, got: Tensor, target: Target, place: str) -> float:
    """Return the largest difference of two answers; raise if it is too large."""
    size = max(1.0, float(want.abs().max()))
    largest = float((want - got).abs().max()) / size if want.shape == got.shape else float("inf")
    # a comparison with NaN is never true
    if not largest <= TOLERANCE[target]:
        raise Failure(
            f"what was written as {target} differs from the original by {largest:.3g}, more than "
            f"{TOLERANCE[target]:g}, at {place}: nothing is kept"
        )
    return largest


def _write_files(model: TaskModel, record: Record, path: Path, name: str, target: Target) -> Exported:
    try:
        model.save_pretrained(path, card=card(record, model, name), int8=target == "int8")
        loaded = type(model).from_pretrained(path)
    except PretrainedError as error:
        raise RunError(str(error)) from None
    return Exported(path, compare(model, lambda arguments: loaded.answers(*arguments), UNSEEN, target), model)


def _write_onnx(model: TaskModel, record: Record, path: Path, batch_first: bool, length: int | None) -> Exported:
    answers, by_steps = onnx.write(model, record, path, batch_first, length)
    error = compare(model, answers, UNSEEN, "onnx")
    if by_steps is not None:
        error = max(error, compare_steps(model, by_steps, UNSEEN[:-1], "onnx"))
    return Exported(path, error, model)


def _write_c(model: TaskModel, path: Path, bits: Bits) -> Exported:
    written = c.write(model, path, bits)
    error = compare_steps(written.original, written.by_steps, UNSEEN, "c")
    sizes = ("file", path.stat().st_size), ("weights and tables", written.weights), ("state", written.state)
    return Exported(path, error, model, sizes)


def _write_program(model: TaskModel, path: Path, batch_first: bool) -> Exported:
    layout = lay_out(model, batch_first)
    program = export.program(layout.module, layout.example, dynamic_shapes=layout.open_sizes)
    data = io.BytesIO()
    torch.export.save(program, data)
    # torch itself would turn a full disk into an error of another kind
    write_atomically(path, data.getvalue())
    module = torch.export.load(path).module()

    def answers(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        with torch.no_grad():
            outputs: Any = module(*arguments)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)

    return Exported(path, compare(model, layout.wrap(answers), UNSEEN, "torch-export"), model)


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
