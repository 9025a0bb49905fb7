"""`mufuru export`: a trained model as files for others, checked against the original first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mufuru.experiments.cli import show_metrics
from mufuru.experiments.cli.usage import Flag, Run, Split, Threads, parse
from mufuru.experiments.engine import load_run
from mufuru.experiments.ship.export import UNSEEN, Bits, Target, compare_int8, export_run

EXAMPLES = """\
  mufuru export runs/reviews --to safetensors -o reviews
  mufuru export runs/reviews --to onnx -o reviews
  mufuru export runs/reviews --to onnx --batch-first -o reviews.onnx
  mufuru export runs/book --to torch-export
  mufuru export runs/book --to int8
  mufuru export runs/ecg --to c --bits 8 -o ecg.c
"""


@dataclass(frozen=True)
class Export:
    """Write the selected weights of a finished run for others. safetensors: a folder with config.json,
    model.safetensors and README.md, a model card; from_pretrained reads it, and it can go to the Hub as it is. int8:
    the same with matrices in 8 bits; metrics, size and time are printed beside the original's. onnx: a folder with
    model.onnx, step.onnx for one step at a time, model.json with vocabulary, labels and layout, and predict.py, which
    takes raw data and needs onnxruntime and numpy alone; or one file, if its path ends in .onnx. torch-export: one
    file. Batch and time of graphs are dynamic. c: one C99 file without dependencies with weights, state and a step
    function, for models of numbers and characters. The files are compared with the original at sizes they were not made
    with; where they differ, nothing is kept."""

    run: Run
    """Folder of a finished run."""
    to: Target
    """Format to write."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="PATH")] = None
    """File, or folder for safetensors, int8 and onnx; None for the name of the run with an ending."""
    batch_first: Flag = False
    """Inputs and outputs of onnx and torch-export as (batch, steps), not (steps, batch)."""
    bits: Bits = 32
    """Bits of the weights of c: 32, or 8 with a scale for each row."""
    split: Split = "test"
    """Data on which int8 is compared with the original."""
    threads: Threads = 1


def main(arguments: list[str]) -> int:
    chosen = parse(Export, arguments, EXAMPLES)
    # before anything is written: the data has to be there to measure on
    task = load_run(chosen.run)[0] if chosen.to == "int8" else None
    done = export_run(chosen.run, chosen.to, chosen.output, batch_first=chosen.batch_first, bits=chosen.bits)
    if task is not None:
        show_metrics(compare_int8(task, done, chosen.split))
        print(f"\nMetrics on {chosen.split}. Time is relative to the original: median of alternating passes.")
    checked = ", ".join(f"{batch} x {steps}" for batch, steps in UNSEEN)
    kind = "its 8-bit weights" if chosen.to == "int8" or chosen.bits == 8 else "the original"
    sizes = "; ".join(f"{name}: {size:,} bytes" for name, size in done.sizes)
    print(f"Wrote {done.path}{f' ({sizes})' if sizes else ''}. ", end="")
    print(f"Largest difference from {kind}: {done.error:.2g}, at batches x steps of {checked}.")
    return 0
