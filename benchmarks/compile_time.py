"""Time that `torch.compile(fullgraph=True)` takes for short and for long sequences, and how `nn.GRU` answers it.

A compiled loop that is unrolled takes longer, the more steps there are; one operator for all steps does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from record import machine
from torch import Tensor, nn

from mufuru import MuFuRU

OUTPUT = Path(__file__).parent / "results" / "compile_time.json"


def first_call(layer: nn.Module, x: Tensor, backend: str) -> float:
    """Seconds of compiling and of the first forward and backward pass."""
    torch.compiler.reset()
    module = torch.compile(layer, fullgraph=True, backend=backend)
    start = time.perf_counter()
    module(x)[0].sum().backward()
    return time.perf_counter() - start


def measure(steps: list[int], repeats: int, backend: str) -> list[dict[str, Any]]:
    """The lengths take turns; the first round, which also imports the compiler, is not counted."""
    layer = MuFuRU(16, 32, num_layers=2)
    found: dict[int, list[float]] = {count: [] for count in steps}
    for _ in range(repeats + 1):
        for count in steps:
            found[count].append(first_call(layer, torch.randn(count, 4, 16), backend))
    return [{"steps": count, "median": statistics.median(t[1:]), "seconds": t[1:]} for count, t in found.items()]


def says(layer: nn.Module, backend: str) -> str:
    """Why the layer cannot be compiled into one graph; empty if it can."""
    try:
        first_call(layer, torch.randn(10, 4, 16), backend)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    record = {
        "machine": machine(time.strftime("%Y-%m-%d")),
        "backend": options.backend,
        "MuFuRU": measure(options.steps, options.repeats, options.backend),
        "nn.GRU": says(nn.GRU(16, 32), options.backend),
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for row in record["MuFuRU"]:
        print(f"MuFuRU, {row['steps']} steps: {row['median']:.2f} s")
    print(f"nn.GRU: {record['nn.GRU'] or 'compiles'}")


if __name__ == "__main__":
    main()
