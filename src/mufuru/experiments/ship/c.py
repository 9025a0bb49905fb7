"""A run's model as one C99 file without dependencies, for devices without an interpreter: series and characters.

The file is the text of `step.c`, which adapts to the sizes, with sizes, weights and tables, which are written here.
"""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import mufuru
from mufuru.disk import write_atomically
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.engine import Failure, RunError
from mufuru.experiments.ship.onnx import BySteps
from mufuru.experiments.tasks.models import CFile, TaskModel, exportable
from mufuru.int8 import SCALE, pack, unpack
from mufuru.unit import ACTIVATIONS, RESETS, Unit

OPERATIONS = {
    "keep": "s",
    "replace": "v",
    "max": "s > v ? s : v",
    "min": "s < v ? s : v",
    "mul": "s * v",
    "diff": "0.5f * fabsf(s - v)",
    "forget": "0.0f",
    "sqr_diff": "0.25f * (s - v) * (s - v)",
    "negate": "-s",
    "add": "s + v",
}
"""The operations of `mufuru.ops` in C."""
POOLINGS = ("last", "max", "mean", "attention")
OPTIONS = {"pool": POOLINGS, "reset": RESETS, "act": ACTIVATIONS}
"""Options that have a number in the file, and a name, such as POOL_MAX."""
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror")
STEP = Path(__file__).with_name("step.c")
POINTS = range(0x110000)
"""Code points of Unicode."""


class Written(NamedTuple):
    """A model's file."""

    by_steps: BySteps
    original: TaskModel
    """The model that the file computes: with 8 bits, that of the rounded weights."""
    weights: int
    """Bytes of weights and tables."""
    state: int
    """Bytes of a state."""


def write(model: TaskModel, path: Path, bits: int) -> Written:
    """Write the file, compile it, and return a function that answers from there."""
    made, facts = readable(model)
    compiler = find_compiler()
    tensors: dict[str, Tensor] = dict(made.state_dict())
    if bits == 8:
        tensors = pack(tensors)
        made.load_state_dict(unpack(tensors, torch.float32))
    if facts.units is not None:
        tensors = in_units(facts.units, tensors, bits)
    name = "model" if (word := re.sub(r"\W", "_", path.stem, flags=re.ASCII))[:1].isdigit() or not word else word
    sizes = sizes_of(made, facts, bits)
    arrays = arrays_of(made, facts, tensors)
    write_atomically(path, source(name, made, facts, sizes, arrays).encode())
    state = 4 * (1 + sizes["LAYERS"] * (sizes["HIDDEN"] + sizes["CONTROLLER"]) + pooled(made, sizes["HIDDEN"]))
    weights = sum(array.nbytes for array in arrays.values())
    return Written(compiled(path, name, sizes, state, compiler), made, weights, state)


def readable(model: TaskModel) -> tuple[Any, CFile]:
    """Return a copy with a MuFuRU that can be written, and the model's facts, or say why there are none."""
    if (facts := model.c_file()) is None:
        raise RunError(f"a {type(model).__name__} cannot be written as C: only classifiers, regressors and language "
                       "models can")  # fmt: skip
    if facts.vocabulary is not None and facts.level not in ("char", "characters"):
        raise RunError("the model reads words, or parts of them, and a C file characters or numbers: train it with "
                       "characters, or export it with --to onnx")  # fmt: skip
    if model.config.cell.bidirectional:
        raise RunError("the model reads in both directions, so it has no answer after a step, which a C file computes: "
                       "train one without bidirectional, or export it with --to onnx")  # fmt: skip
    made: Any = exportable(model)
    if missing := [op for op in made.reader.rnn.ops if op not in OPERATIONS]:
        raise RunError(f"the operation {missing[0]} has no form in C, only {', '.join(OPERATIONS)} have")
    return made, facts


def in_units(units: tuple[float, float], tensors: dict[str, Tensor], bits: int) -> dict[str, Tensor]:
    """Return the weights with the units of the data in the last layer: its answers need no scaling."""
    rows, (deviation, mean) = "output.weight" + (SCALE if bits == 8 else ""), units
    return tensors | {rows: tensors[rows] * deviation, "output.bias": tensors["output.bias"] * deviation + mean}


def pooled(model: Any, hidden: int) -> int:
    """Return the numbers in the state of the pooling."""
    name = getattr(model.config, "pooling", "last")
    return {"last": 0, "max": hidden, "mean": hidden, "attention": hidden + 2}[name]


def sizes_of(model: Any, facts: CFile, bits: int) -> dict[str, int]:
    """Return sizes and options by their names in the file."""
    unit: Unit = model.reader.rnn.unit
    words = facts.vocabulary
    sizes = {
        "BITS": bits,
        "LAYERS": model.reader.rnn.num_layers,
        "HIDDEN": unit.hidden_size,
        "INPUTS": model.reader.rnn.input_size,
        "OPS": len(unit.ops),
        "ROWS": sum(unit.rows),
        "RESET": RESETS[unit.reset],
        "ACTIVATION": ACTIVATIONS[unit.activation],
        "CONTROLLER": unit.controller_size or 0,
        "CONTROLLER_ACTIVATION": ACTIVATIONS[unit.controller_activation],
        "POOLING": POOLINGS.index(getattr(model.config, "pooling", "last")),
        "MAX_LENGTH": getattr(model.config, "max_length", None) or 0,
        "TOKENS": 0 if words is None else len(words),
        "LABELS": len(facts.labels),
        "NUMBERS": int(facts.units is not None),
        "OUTPUTS": model.output.out_features,
    }
    sizes |= {} if words is None else {"UNKNOWN": words.unknown}
    return sizes | ({} if facts.first_token is None else {"FIRST_TOKEN": facts.first_token})


def arrays_of(model: Any, facts: CFile, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights and tables by their names in the file."""
    arrays: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if name.startswith("carried") or (name == "output.weight" and getattr(model.config, "tied", False)):
            continue
        short = name.removesuffix(SCALE).removeprefix("reader.rnn.").removeprefix("pooling.").replace("embedding.", "")
        short = {"weight": "embedding", "output.weight": "output", "output.bias": "output_bias"}.get(short, short)
        # a matrix of the file is its weights and, with 8 bits, its scales
        ending = "_scale" if name.endswith(SCALE) else "_w" if tensor.dim() > 1 else ""
        arrays[short + ending] = tensor.numpy()
    if words := facts.vocabulary:
        table = characters(words, getattr(model.config, "lowercase", False))
        arrays["characters"] = np.array(list(table), np.uint32)
        arrays["tokens"] = np.array(list(table.values()), np.int32)
    return arrays


def characters(words: Vocabulary, lowercase: bool) -> dict[int, int]:
    """Return the token of every known character, by its code point, in their order."""
    known = {word: token for token, word in enumerate(words.words) if token != words.unknown}
    read = ((point, chr(point).lower() if lowercase else chr(point)) for point in POINTS)
    return {point: known[character] for point, character in read if character in known}


TYPES = {"float32": "float", "int8": "int8_t", "uint32": "uint32_t", "int32": "int32_t"}


def source(
    name: str, model: Any, facts: CFile, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> str:
    """Return the text of the file."""
    defines = {**sizes, **({"CHARACTERS": len(arrays["characters"])} if sizes["TOKENS"] else {})}
    numbered = (
        (f"{kind}_{option}", number) for kind, options in OPTIONS.items() for number, option in enumerate(options)
    )
    lines = [*(f"#define {option.upper()} {number}" for option, number in numbered), ""]
    lines += [f"#define {key} {value}" for key, value in defines.items()]
    weights: list[str] = []
    for key, array in arrays.items():
        weights += [f"static const {TYPES[array.dtype.name]} {key}[{array.size}] = {{", *rows(array), "};"]
    matrices = [key.removesuffix("_w") for key in ("embedding_w", "output_w") if key in arrays]
    weights += [f"static const matrix {key} = {braced(key, sizes)};" for key in matrices]
    if "output_w" not in arrays:
        weights += ["#define output embedding  /* tied */"]
    answers = (f"    {quoted(label)}," for label in facts.labels)
    weights += [f"const char *const {name}_labels[LABELS] = {{", *answers, "};", ""]
    weights += [*layers(sizes), "", *composition(model.reader.rnn.ops)]
    text = re.sub(r"\bmodel_(?=[a-z])", f"{name}_", STEP.read_text())
    for mark, written in (("/* SIZES */", lines), ("/* WEIGHTS */", weights)):
        text = text.replace(mark, "\n".join(written))
    return f"{heading(name, sizes)}\n{text}"


def heading(name: str, sizes: Mapping[str, int]) -> str:
    step = f"{name}_token(character)" if sizes["TOKENS"] else "values"
    answers = "values" if sizes["NUMBERS"] else "probabilities"
    what = "character, a code point" if sizes["TOKENS"] else f"step, its {sizes['INPUTS']} value(s), not scaled"
    return f"""\
/* Written by mufuru {mufuru.__version__}: a model as C99. It needs the C library's mathematics (-lm) and nothing else.

   #include "{name}.c"
   {name}_state state;                              the memory of one sequence
   float {answers}[LABELS];
   {name}_start(&state);
   {name}_step(&state, {step});                     for every {what}
   {name}_{answers}(&state, {answers});     after any step; {name}_labels names them
*/"""


def rows(array: np.ndarray[Any, Any]) -> Iterator[str]:
    """Yield the numbers of an array, exactly, some in a line."""
    flat, suffix = array.ravel(), "f" if array.dtype == np.float32 else ""
    if suffix and not np.isfinite(flat).all():
        raise RunError("a weight is infinite or NaN: it cannot be written as C")
    for start in range(0, len(flat), 12):
        yield "    " + ", ".join(f"{number!s}{suffix}" for number in flat[start : start + 12]) + ","


def braced(key: str, sizes: Mapping[str, int]) -> str:
    return f"{{{key}_w, {key}_scale}}" if sizes["BITS"] == 8 else f"{{{key}_w}}"


def layers(sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the table of the layers."""
    fields = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    fields += ["weight_kk", "weight_op", "bias_op"] if sizes["CONTROLLER"] else []
    yield "static const layer layers[LAYERS] = {"
    for layer in range(sizes["LAYERS"]):
        own = (f"{field}_l{layer}" for field in fields)
        values = (key if key.startswith("bias") else braced(key, sizes) for key in own)
        yield f"    {{{sizes['HIDDEN'] if layer else sizes['INPUTS']}, {', '.join(values)}}},"
    yield "};"


def composition(ops: Sequence[str]) -> Iterator[str]:
    """Yield the function that computes all operations of a unit."""
    yield "static void compose(float s, float v, float *composed)"
    yield "{"
    yield "    (void)s, (void)v;"
    for place, op in enumerate(ops):
        yield f"    composed[{place}] = {OPERATIONS[op]};  /* {op} */"
    yield "}"


def quoted(text: str) -> str:
    """Return a text as a string of C; all but letters, digits and blanks by their bytes, also ?, as in trigraphs."""
    plain = (chr(byte) if (chr(byte).isalnum() and byte < 128) or byte == 32 else f"\\{byte:03o}"
             for byte in text.encode())  # fmt: skip
    return f'"{"".join(plain)}"'


def find_compiler() -> list[str]:
    """Return the command of the C compiler: $CC, or the first of cc, gcc and clang."""
    for candidate in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        words = shlex.split(candidate)
        if path := shutil.which(words[0]):
            return [path, *words[1:]]
    raise RunError("no C compiler found, which the check of the file needs: install one, such as gcc, or set CC")


def compiled(path: Path, name: str, sizes: Mapping[str, int], state: int, compiler: Sequence[str]) -> BySteps:
    """Compile the file as a library; return a function that runs it step by step."""
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "model.so"
        line = [*compiler, *FLAGS, "-O2", "-shared", "-fPIC", "-o", str(library), str(path), "-lm"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = next(iter(done.stderr.strip().splitlines()), "no message")
            raise Failure(f"{compiler[0]} cannot compile what was written ({reason}): nothing is kept")
        loaded = ctypes.CDLL(str(library))
    step, logits = (getattr(loaded, f"{name}_{function}") for function in ("step", "logits"))

    def one(sequence: Tensor) -> Tensor:
        # of zeros, as a state starts; `start` of a language model also reads the token before a text
        memory, steps = ctypes.create_string_buffer(state), []
        for values in sequence.contiguous():
            step(memory, int(values) if sizes["TOKENS"] else ctypes.c_void_p(values.data_ptr()))
            steps.append(torch.empty(sizes["LABELS"]))
            logits(memory, ctypes.c_void_p(steps[-1].data_ptr()))
        return torch.stack(steps)

    return lambda inputs: list(torch.stack([one(inputs[:, row]) for row in range(inputs.size(1))], 1))
