"""`mufuru export`: a trained model as files for others, checked against the original first."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import parse, use_threads
from mufuru.experiments.engine import load_run
from mufuru.experiments.ship.export import UNSEEN, Exported, Target, compare_int8, export_run
from mufuru.experiments.tasks.task import Task
from mufuru.int8 import dynamic

EXAMPLES = """\
  mufuru export runs/reviews --to safetensors -o reviews
  mufuru export runs/reviews --to onnx -o reviews.onnx
  mufuru export runs/book --to torch-export
  mufuru export runs/book --to int8
"""
DESCRIPTION = """\
Write the selected weights of a finished run for others. safetensors: a folder with config.json, model.safetensors and
README.md, a model card; from_pretrained reads it, and it can go to the Hub as it is. int8: the same with matrices in 8
bits; printed are metrics, size and time beside the original. onnx and torch-export: one file with open batch and time.
What was written is compared with the original at sizes it was not made with; where it differs, nothing is kept."""


@dataclass(frozen=True)
class Export:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run."""
    to: Target
    """Format to write."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="PATH")] = None
    """File, or folder for safetensors and int8; None for the name of the run with an ending."""
    split: Literal["train", "valid", "test"] = "test"
    """Data on which int8 is measured beside the original."""
    threads: int = 1
    """Threads to compute with."""


def main(arguments: list[str]) -> int:
    chosen = parse(Export, arguments, prog="mufuru export", description=DESCRIPTION, examples=EXAMPLES)
    use_threads(chosen.threads, "mufuru export")
    # before anything is written: the data has to be there to measure on
    task = load_run(chosen.run)[0] if chosen.to == "int8" else None
    done = export_run(chosen.run, chosen.to, chosen.output)
    if task is not None:
        show_int8(task, chosen.split, done)
    checked = ", ".join(f"{batch} x {steps}" for batch, steps in UNSEEN)
    kind = "its 8-bit weights" if chosen.to == "int8" else "the original"
    print(f"Wrote {done.path}. Largest difference from {kind}: {done.error:.2g}, at batches x steps of {checked}.")
    return 0


def show_int8(task: Task, split: str, done: Exported) -> None:
    """The original and the 8-bit model, side by side."""
    small = dynamic(type(done.model).from_pretrained(done.path))
    with tempfile.TemporaryDirectory() as place:
        done.model.save_pretrained(place)
        beside = compare_int8(task, done.model, small, split, (Path(place), done.path))
    ratios = (1.0, beside.ratio)
    show_metrics(
        {
            name: {**metrics, "megabytes": size / 1e6, "time": ratio}
            for name, metrics, size, ratio in zip(
                ("original", "int8"), beside.metrics, beside.bytes, ratios, strict=True
            )
        }
    )
    print(f"\nMetrics on {split}. Time is that of the original, the median of passes that take turns.")
