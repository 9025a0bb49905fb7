"""`mufuru evaluate`: the metrics of a run's selected weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import parse
from mufuru.experiments.engine import evaluate, load_run

EXAMPLES = """\
  mufuru evaluate runs/first
  mufuru evaluate runs/first --split valid --json
"""


@dataclass(frozen=True)
class Evaluate:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run."""
    split: Literal["train", "valid", "test"] = "test"
    """Which data."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""
    threads: int = 1
    """Threads to compute with."""


def run(arguments: list[str]) -> int:
    description = "Evaluate a trained model: the weights of the run that its settings select."
    chosen = parse(Evaluate, arguments, prog="mufuru evaluate", description=description, examples=EXAMPLES)
    torch.set_num_threads(max(1, chosen.threads))
    task, model = load_run(chosen.run)
    metrics = evaluate(task, model, chosen.split)
    if chosen.json:
        print(json.dumps({"run": str(chosen.run), "split": chosen.split, "metrics": metrics}))
    else:
        show_metrics({chosen.split: metrics})
    return 0
