"""`mufuru evaluate`: the metrics of a run's selected weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from torch import nn

from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import UsageError, parse, use_threads
from mufuru.experiments.engine import evaluate, load_run
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm import LMTask, dynamic
from mufuru.experiments.tasks.lm.dynamic import Dynamic
from mufuru.experiments.tasks.task import Task

EXAMPLES = """\
  mufuru evaluate runs/first
  mufuru evaluate runs/first --split valid --json
  mufuru evaluate runs/words --dynamic --learning-rate 0.05
"""

DYNAMIC = "dynamic"


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
    dynamic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of a language model, also dynamic evaluation: it goes on learning from the text that it has predicted. Choose the
    next three on the validation data."""
    learning_rate: float = Dynamic.learning_rate
    """Of dynamic evaluation: step size of the gradient of a segment's mean loss."""
    decay: float = Dynamic.decay
    """Of dynamic evaluation: share of the way back to the trained weights after each segment."""
    segment: int = Dynamic.segment
    """Of dynamic evaluation: tokens that are predicted before the weights change."""


def run(arguments: list[str]) -> int:
    description = "Evaluate a trained model: the weights of the run that its settings select."
    chosen = parse(Evaluate, arguments, prog="mufuru evaluate", description=description, examples=EXAMPLES)
    use_threads(chosen.threads, "mufuru evaluate")
    if not chosen.dynamic and how_of(chosen) != Dynamic():
        raise UsageError("learning rate, decay and segment are those of dynamic evaluation: add --dynamic")
    task, model = load_run(chosen.run)
    found: dict[str, dict[str, float]] = {chosen.split: evaluate(task, model, chosen.split)}
    if chosen.dynamic:
        found[DYNAMIC] = evaluate_dynamically(task, model, chosen)
    if chosen.json:
        also = {"dynamic": found[DYNAMIC]} if chosen.dynamic else {}
        print(json.dumps({"run": str(chosen.run), "split": chosen.split, "metrics": found[chosen.split]} | also))
    else:
        show_metrics(found)
    return 0


def evaluate_dynamically(task: Task, model: nn.Module, chosen: Evaluate) -> dict[str, float]:
    """Only language models can: what follows a text is its own label."""
    if not isinstance(task, LMTask):
        raise UsageError(f"--dynamic is for language models, and {chosen.run} is none. See mufuru evaluate --help")
    return dynamic.evaluate(task, model, chosen.split, how_of(chosen))


def how_of(chosen: Evaluate) -> Dynamic:
    try:
        return Dynamic(chosen.learning_rate, chosen.decay, chosen.segment)
    except SettingError as error:
        raise UsageError(f"{error}. See mufuru evaluate --help") from None
