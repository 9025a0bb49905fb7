"""Measure MuFuRU's Triton kernel on a GPU beside cuDNN's nn.GRU and nn.LSTM, the reference and a compiled step.

    python benchmarks/gpu.py                        all shapes, float32 and bfloat16: 60 rows of three seconds or more
    python benchmarks/gpu.py --quick                three shapes, to see that it runs
    python benchmarks/gpu.py --dtypes float16 --seconds 5

At every shape it first compares values and all gradients with the reference on the same device, and ends if they
differ. A shape that does not fit into the memory is passed over, and the record says so. It writes
benchmarks/results/gpu-NAME.json after every shape, and a page of ratios beside it. No record of a GPU exists yet:
please send yours.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.kernels import reference
from mufuru.kernels.triton.plan import PERSISTENT_UNITS, REGIMES
from mufuru.unit import Weights

RESULTS = Path(__file__).parent / "results"
NO_GPU = (
    "torch finds no GPU here: this benchmark needs one, with a build of torch for it. What can be checked without one "
    "is in the tests: python -m pytest tests/kernels -k triton"
)
SEND = (
    "Please send both files: a pull request that adds them to benchmarks/results/, or an issue with the JSON attached. "
    "They say how fast the kernel is on a {name}, which nobody has measured for this project."
)
GRU, LSTM, SEVEN, GATED, REFERENCE, COMPILED = (
    "nn.GRU", "nn.LSTM", "seven ops", "keep + replace", "reference", "compiled step",
)  # fmt: skip
SLOW_STEPS = 256
"""The reference and the compiled step, loops in Python, are left out for longer sequences."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
"""Largest difference from the reference in float32: a hundred steps of rounding."""


@dataclass(frozen=True)
class Shape:
    name: str
    steps: int
    batch: int
    inputs: int
    hidden: int


SHAPES = (
    Shape("logic 64", 21, 50, 12, 64),
    Shape("sentiment", 20, 25, 100, 100),
    Shape("language model", 35, 20, 200, 200),
    *(
        Shape(f"T {steps}, B {batch}, H {hidden}", steps, batch, hidden, hidden)
        for hidden in (128, 256, 512, 1024)
        for steps, batch in ((128, 64), (128, 512), (1024, 64))
    ),
)
QUICK = ("logic 64", "language model", "T 128, B 64, H 256")


@dataclass
class Row:
    """All peers at one shape, in one dtype and mode: seconds per call, round by round."""

    shape: str
    dtype: str
    mode: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Peers that could not run, and why."""

    def ratio(self, peer: str) -> float | None:
        """Ratio of the medians to nn.GRU's; below 1 is faster."""
        if not self.samples.get(peer) or not self.samples.get(GRU):
            return None
        return statistics.median(self.samples[peer]) / statistics.median(self.samples[GRU])


@dataclass
class Record:
    machine: dict[str, str]
    agreement: dict[str, float] = field(default_factory=dict)
    """By shape, dtype and layer: the difference from the reference."""
    skipped: dict[str, str] = field(default_factory=dict)
    """By shape and dtype: why it was neither compared nor measured."""
    rows: list[Row] = field(default_factory=list)

    def save(self, path: Path) -> None:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)


def main() -> None:
    options = parse()
    device = find_device()
    record = Record(machine(device))
    name = re.sub(r"\W+", "-", record.machine["device"]).strip("-").lower()
    path = options.output or RESULTS / f"gpu-{name}.json"
    shapes = [shape for shape in SHAPES if not options.quick or shape.name in QUICK]
    for shape in shapes:
        for dtype in (getattr(torch, name) for name in options.dtypes):
            run(record, shape, dtype, device, options.seconds)
            record.save(path)
            path.with_suffix(".md").write_text(page(record), encoding="utf-8")
            print(table([row for row in record.rows if row.shape == shape.name]), flush=True)
    for what, why in record.skipped.items():
        print(f"not measured: {what}: {why}")
    print(f"wrote {path} and {path.with_suffix('.md')}\n{SEND.format(name=record.machine['device'])}")


def find_device() -> torch.device:
    if not torch.cuda.is_available():
        sys.exit(NO_GPU)
    return torch.device("cuda")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three shapes only")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16", "float16"]
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for one row of the record, default 3")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/gpu-NAME.json")
    return parser.parse_args()


def machine(device: torch.device) -> dict[str, str]:
    """Return what the numbers depend on."""
    triton: Any = sys.modules.get("triton")
    found = {
        "date": datetime.date.today().isoformat(), "system": platform.platform(), "python": platform.python_version(),
        "torch": torch.__version__, "triton": getattr(triton, "__version__", "not imported"),
        "mufuru": mufuru.__version__, "float32 products": torch.get_float32_matmul_precision(),
        "device": platform.processor() or platform.machine(),
    }  # fmt: skip
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "device": properties.name, "memory": f"{properties.total_memory / 2**30:.0f} GiB",
            "processors": str(properties.multi_processor_count), "cuDNN": str(torch.backends.cudnn.version()),
            "CUDA": str(torch.version.cuda), "ROCm": str(torch.version.hip),
            "cuDNN's float32": "TF32" if torch.backends.cudnn.allow_tf32 else "IEEE",
        }  # fmt: skip
    return found


def run(
    record: Record, shape: Shape, dtype: torch.dtype, device: torch.device, seconds: float, kernel: Any = "triton"
) -> None:
    """Compare, then measure one shape in one dtype."""
    for ops in (mufuru.PAPER, ("keep", "replace")):
        layer = mufuru.MuFuRU(shape.inputs, shape.hidden, ops=ops, kernel=kernel, device=device, dtype=dtype)
        try:
            worst = disagreement(layer, shape)
        except Exception as error:  # such as too little memory: the other shapes are worth their numbers
            record.skipped[f"{shape.name}, {dtype}"] = f"{type(error).__name__}: {error}".partition("\n")[0]
            return
        record.agreement[f"{shape.name}, {dtype}, {len(ops)} operations"] = worst
        if not worst <= TOLERANCE[dtype]:
            sys.exit(f"{shape.name} in {dtype}: the kernel is {worst:.1e} away from the reference, which is wrong")
    for mode in ("training", "inference"):
        calls = peers(shape, dtype, device, mode == "training", kernel)
        row = Row(shape.name, str(dtype)[6:], mode)
        with torch.inference_mode(mode == "inference"):
            measure(calls, row, device, seconds)
        record.rows.append(row)


def disagreement(layer: mufuru.MuFuRU, shape: Shape) -> float:
    """The difference of values and gradients from the reference in float32."""
    weight = next(layer.parameters())
    x = torch.randn(shape.steps, shape.batch, shape.inputs, device=weight.device)
    # in parts of 16 steps: the reference keeps some twenty tensors of a step, and a GPU's memory is small
    whole = mufuru.MuFuRU(
        shape.inputs, shape.hidden, ops=layer.ops, kernel="reference", checkpoint_every=16, device=x.device
    )  # fmt: skip
    whole.load_state_dict(layer.state_dict())
    found, wanted = (_everything(model, x.to(next(model.parameters()).dtype)) for model in (layer, whole))
    return difference(found, wanted)


def difference(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest of any tensor: of output and state relative to the largest number, of gradients to the norm.

    Max, min and diff have a corner where state and features are equal. Among millions of pairs some are equal but for
    rounding, and right kernels take different sides: single gradients differ then, and their norm hardly.
    """
    shares = []
    for place, (got, expected) in enumerate(zip(found, wanted, strict=True)):
        order = float("inf") if place < VALUES else 2
        away, scale = (torch.linalg.vector_norm(tensor, order) for tensor in (got.float() - expected, expected))
        shares.append(away / scale.clamp_min(1e-6))
    return float(torch.stack(shares).max())  # NaN, if there is one


VALUES = 2
"""Output and final state stand in front of the gradients."""


def _everything(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    output, h_n = model(x)
    loss = output.float().square().sum() + h_n.float().sum()
    return [output.detach(), h_n.detach(), *torch.autograd.grad(loss, [x, *model.parameters()])]


def peers(
    shape: Shape, dtype: torch.dtype, device: torch.device, training: bool, kernel: Any
) -> dict[str, Callable[[], None]]:
    """Calls by name: a training step, or a forward pass."""
    x = torch.randn(shape.steps, shape.batch, shape.inputs, device=device, dtype=dtype, requires_grad=training)
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    sizes = shape.inputs, shape.hidden
    layers: dict[str, nn.Module] = {
        GRU: nn.GRU(*sizes, **options),
        LSTM: nn.LSTM(*sizes, **options),
        SEVEN: mufuru.MuFuRU(*sizes, kernel=kernel, **options),
        GATED: mufuru.MuFuRU(*sizes, ops=("keep", "replace"), kernel=kernel, **options),
    }
    calls = {name: _step(layer, x, training) for name, layer in layers.items()}
    for regime in regimes(shape):
        calls[f"{SEVEN}, {regime}"] = _in_regime(regime, calls[SEVEN])
    if shape.steps <= SLOW_STEPS:
        slow = mufuru.MuFuRU(*sizes, kernel="reference", **options)
        calls[REFERENCE] = _step(slow, x, training)
        calls[COMPILED] = _step(_CompiledStep(slow), x, training)
    return calls


def _step(layer: nn.Module, x: Tensor, training: bool) -> Callable[[], None]:
    def train() -> None:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        layer(x)[0].sum().backward()

    return train if training else lambda: layer(x) and None


def regimes(shape: Shape) -> list[str]:
    """The regimes that can be asked for at this shape."""
    return [regime for regime in REGIMES if regime != "persistent" or shape.hidden <= PERSISTENT_UNITS]


def _in_regime(regime: str, call: Callable[[], None]) -> Callable[[], None]:
    def forced() -> None:
        with _environment("MUFURU_TRITON_REGIME", regime):
            call()

    return forced


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


class _CompiledStep(nn.Module):
    """One step of the reference under torch.compile, in a loop in Python."""

    def __init__(self, layer: mufuru.MuFuRU) -> None:
        super().__init__()
        self.layer, self.step = layer, torch.compile(reference.step)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.layer
        weights = Weights(*layer.parameters())
        from_x = nn.functional.linear(x, weights.ih, weights.bias_ih)
        s = x.new_zeros(x.size(1), layer.hidden_size)
        states = []
        for row in from_x.unbind():
            s = self.step(layer.unit, weights, row, s, None, mufuru.kernels.Masks())[0]
            states.append(s)
        return torch.stack(states), s


def measure(calls: dict[str, Callable[[], None]], row: Row, device: torch.device, seconds: float) -> None:
    """Rounds in which every peer gives one sample, in random order, until the time is over."""
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        try:
            call()
            once = sample(call, 2, device)
            repeats[name] = max(1, round(0.02 / max(once, 1e-6)))
        except Exception as error:
            row.failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    order, shuffle = list(repeats), random.Random(0).shuffle
    row.samples = {name: [] for name in order}
    gc.collect()
    start = time.perf_counter()
    while not row.samples or not next(iter(row.samples.values())) or time.perf_counter() - start < seconds:
        shuffle(order)
        for name in order:
            row.samples[name].append(sample(calls[name], repeats[name], device))
        if not order:
            break


def sample(call: Callable[[], None], repeats: int, device: torch.device) -> float:
    """Seconds per call: on a GPU by its own clock, from an idle device to an idle device."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3 / repeats


def table(rows: list[Row]) -> str:
    """Ratios to nn.GRU as Markdown: below 1 is faster."""
    names = sorted({name for row in rows for name in (*row.samples, *row.failed)} - {GRU})
    lines = [f"| shape | dtype | mode | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for row in rows:
        ratios = (row.ratio(name) for name in names)
        cells = " | ".join("–" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        lines.append(f"| {row.shape} | {row.dtype} | {row.mode} | {cells} |")
    return "\n".join(lines)


def page(record: Record) -> str:
    """The record as a page."""
    machine = "\n".join(f"- {key}: {value}" for key, value in record.machine.items())
    worst = max(record.agreement.values(), default=0.0)
    skipped = [f"- {key}: {why}" for key, why in record.skipped.items()]
    failed = sorted({f"- {name}: {why}" for row in record.rows for name, why in row.failed.items()})
    return "\n".join([
        "# Triton kernel on a GPU", "", machine, "",
        "Time by that of `nn.GRU`: below 1 is faster. Seven operations have 8/3 of its multiplications.",
        "", table(record.rows), "",
        f"Largest difference from the reference: {worst:.1e}.",
        *(["", "Not measured:", "", *skipped] if skipped else []),
        *(["", "Could not run:", "", *failed] if failed else []), "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
