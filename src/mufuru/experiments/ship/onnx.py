"""A run's model as ONNX: one file, or a folder that takes raw data.

The folder has `model.onnx`; `step.onnx`, a single step with its state as input and output; `model.json`, which says how
raw data becomes inputs and outputs become answers; and `predict.py`, which does so with onnxruntime and numpy alone.
`model.onnx` holds the content of `model.json` as metadata too.
"""

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

import mufuru
from mufuru import export
from mufuru.disk import write_atomically
from mufuru.experiments.data.bpe import BytePairs
from mufuru.experiments.engine import RunError
from mufuru.experiments.record import Record
from mufuru.experiments.ship.layout import EXAMPLE, Answers, Layout, lay_out
from mufuru.experiments.tasks.models import StepGraph, StepState, TaskModel, without_paths

FORMAT = 1
"""Version of model.json; others are refused."""
MODEL, STEP, FACTS, PROGRAM, TOKENIZER = "model.onnx", "step.onnx", "model.json", "predict.py", "tokenizer.json"
PROGRAMS = Path(__file__).with_name("programs")
VARIANT = re.compile(r"_of_([a-z]+)\b")
"""Ending of the name of a function of which a program has one: by the data that it reads, or the kind of its model."""
BATCH_FIRST, STEPS_FIRST = "batch first", "steps first"
"""Layouts, as model.json calls them."""

BySteps = Callable[[Tensor], Sequence[Tensor]]
"""From inputs, (steps, batch) or (steps, batch, channels), to the answers after every step."""


def write(
    model: TaskModel, record: Record, path: Path, batch_first: bool, length: int | None
) -> tuple[Answers, BySteps | None]:
    """Write one file where the path ends in .onnx, else a folder; return functions that answer from there, the second
    step by step. `length` is that of all series of training, if they have the same."""
    runtime = onnxruntime()
    layout, step = lay_out(model, batch_first), model.step_graph()
    content = facts(model, record, layout, step, batch_first) | {"length": length}
    alone = path.suffix == ".onnx"
    if not alone:
        path.mkdir()
    file = path if alone else path / MODEL
    axes = [tuple(size if isinstance(size, str) else None for size in sizes) for sizes in layout.inputs.values()]
    write_graph(
        layout.module, file, layout.example, dynamic_shapes=layout.open_sizes, axes=axes,
        input_names=tuple(layout.inputs), output_names=tuple(layout.outputs),
        metadata={key: written(value) for key, value in content.items()},
    )  # fmt: skip
    answers = layout.wrap(Session(runtime, file).answers)
    if alone:
        return answers, None
    write_atomically(path / FACTS, f"{json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)}\n".encode())
    if "kind" in content:
        write_atomically(path / PROGRAM, program(content).encode())
    if isinstance(words := getattr(model, "vocabulary", None), BytePairs):
        write_atomically(path / TOKENIZER, words.saved().encode())
    return answers, None if step is None else write_step(model, step, path / STEP, runtime)


def facts(
    model: TaskModel, record: Record, layout: Layout, step: StepGraph | None, batch_first: bool
) -> dict[str, Any]:
    """Return the content of model.json: all that a program has to know to use the graph."""
    types = [str(tensor.dtype).removeprefix("torch.") for tensor in layout.example]
    inputs = zip(layout.inputs.items(), types, strict=True)
    return {
        "format": FORMAT,
        "mufuru": mufuru.__version__,
        "task": record.task,
        **model.raw(),
        "layout": BATCH_FIRST if batch_first else STEPS_FIRST,
        "inputs": {name: {"axes": list(sizes), "type": kind} for (name, sizes), kind in inputs},
        "outputs": {name: {"axes": list(sizes), "type": "float32"} for name, sizes in layout.outputs.items()},
        "step": step and {"input": step.input, "output": model.result, "states": list(map(about, step.states))},
        "settings": without_paths(record.config),
    }


def program(content: Mapping[str, Any]) -> str:
    """Return the program that answers raw data, with those functions alone that this model needs."""
    name = "language_model.py" if content["kind"] == "language model" else "predict.py"
    data = "numbers" if content.get("vocabulary") is None else "texts" if content["tokeniser"] else "pieces"
    blocks = (PROGRAMS / name).read_text(encoding="utf-8").split("\n\n\n")
    wanted = data, content["kind"]
    kept = [VARIANT.sub("", block) for block in blocks
            if (own := VARIANT.search(block.partition("\n")[0])) is None or own[1] in wanted]  # fmt: skip
    text = "\n\n\n".join(kept)
    # without what nothing calls, then without what nothing needs
    kept = [block for block in kept if not (own := re.match(r"def (\w+)", block)) or text.count(f"{own[1]}(") > 1]
    text = "\n\n\n".join(kept)
    lines = text.split("\n")
    return "\n".join(line for line in lines if not (own := re.fullmatch(r"import (\w+)", line)) or f"{own[1]}." in text)


def about(state: StepState) -> dict[str, Any]:
    axes = ["batch" if size is None else size for size in state.sizes]
    return {"input": state.name, "output": f"{state.name}_n", "axes": axes, "initial": state.initial}


def write_step(model: TaskModel, step: StepGraph, path: Path, runtime: Any) -> BySteps:
    """Write a single step; return a function that takes it from the first to the last."""
    batch = EXAMPLE[0]
    example = model.example(*EXAMPLE, seed=-1)[0][0], *(first(state, batch) for state in step.states)
    places = [state.sizes.index(None) for state in step.states]
    names = [state.name for state in step.states]
    write_graph(
        step.module, path, example, dynamic_shapes=({0: Dim.AUTO}, tuple({place: Dim.AUTO} for place in places)),
        input_names=(step.input, *names), output_names=(model.result, *(f"{name}_n" for name in names)),
        axes=[("batch",), *((*[None] * place, "batch") for place in places)],
    )  # fmt: skip
    session = Session(runtime, path)

    def by_steps(inputs: Tensor) -> list[Tensor]:
        states: Sequence[Tensor] = [first(state, inputs.size(1)) for state in step.states]
        answers = []
        for one in inputs:
            logits, *states = session.answers((one, *states))
            answers.append(logits)
        return answers

    return by_steps


def first(state: StepState, batch: int) -> Tensor:
    """Return a state before the first step."""
    return torch.full([batch if size is None else size for size in state.sizes], state.initial)


class Session:
    """An ONNX file as onnxruntime runs it, with tensors in place of arrays."""

    def __init__(self, runtime: Any, path: Path) -> None:
        # from its bytes: a path could lead to files elsewhere that hold the weights
        data = path.read_bytes()
        try:
            self.session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
        except Exception as error:
            # its errors have no class in common
            if not type(error).__module__.startswith("onnxruntime"):
                raise
            reason = " ".join(str(error).split())
            raise RunError(f"onnxruntime cannot read {path} ({reason}): export the run again") from None
        self.inputs = [place.name for place in self.session.get_inputs()]
        self.outputs = [place.name for place in self.session.get_outputs()]
        self.metadata: Mapping[str, str] = self.session.get_modelmeta().custom_metadata_map

    def answers(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs, in their order, for all inputs in theirs."""
        given = {name: tensor.contiguous().numpy() for name, tensor in zip(self.inputs, arguments, strict=True)}
        return [torch.from_numpy(array) for array in self.session.run(self.outputs, given)]


def onnxruntime() -> Any:
    """Import the package."""
    try:
        return importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise RunError(
            "onnxruntime is not installed, which runs ONNX files: `pip install '.[onnx]'` in the folder of mufuru"
        ) from None


def write_graph(*arguments: Any, **options: Any) -> None:
    try:
        export.onnx(*arguments, **options)
    except ImportError as error:
        raise RunError(str(error)) from None


def written(value: Any) -> str:
    """Return a value of model.json as the file's metadata has it: texts as they are, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
