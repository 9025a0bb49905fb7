"""`mufuru evaluate`: the metrics of a run's selected weights."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress
from torch import nn

from mufuru.disk import write_atomically
from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import UsageError, parse, use_threads
from mufuru.experiments.engine import environment, evaluate, load_run
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm import LMTask, dynamic
from mufuru.experiments.tasks.lm.dynamic import Diverged, Dynamic

EXAMPLES = """\
  mufuru evaluate runs/first
  mufuru evaluate runs/first --split valid --json
  mufuru evaluate runs/words --dynamic --learning-rate 0.05 0.1 0.2
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
    dynamic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of a language model, also dynamic evaluation: it goes on learning from the text that it has predicted."""
    learning_rate: tuple[float, ...] = (Dynamic.learning_rate,)
    """Of dynamic evaluation: step size of the gradient of a segment's mean loss. Of several, that which suits the
    validation data best."""
    decay: float = Dynamic.decay
    """Of dynamic evaluation: share of the way back to the trained weights after each segment."""
    segment: int = Dynamic.segment
    """Of dynamic evaluation: tokens that are predicted before the weights change."""
    keep: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep dynamic evaluation on the test data in the folder of a finished run: its reports show it."""


@dataclass(frozen=True)
class Found:
    """Dynamic evaluation: with what, how good, and how good on the validation data each learning rate was."""

    how: Dynamic
    metrics: dict[str, float]
    tried: dict[str, dict[str, float] | None]
    """By learning rate; None for one with which it diverged. Empty where there was nothing to choose."""


def run(arguments: list[str]) -> int:
    description = "Evaluate a trained model: the weights of the run that its settings select."
    chosen = parse(Evaluate, arguments, prog="mufuru evaluate", description=description, examples=EXAMPLES)
    use_threads(chosen.threads, "mufuru evaluate")
    ways = ways_of(chosen)
    task, model = load_run(chosen.run)
    if chosen.dynamic and not isinstance(task, LMTask):
        raise UsageError(f"--dynamic is for language models, and {chosen.run} is none. See mufuru evaluate --help")
    metrics = evaluate(task, model, chosen.split)
    if not isinstance(task, LMTask) or not chosen.dynamic:
        show(chosen, metrics)
        return 0
    try:
        found = evaluate_dynamically(task, model, chosen.split, ways)
    except Diverged:
        show(chosen, metrics)
        raise
    show(chosen, metrics, found)
    if chosen.keep:
        keep(found, chosen.run)
    return 0


def show(chosen: Evaluate, metrics: dict[str, float], found: Found | None = None) -> None:
    if chosen.json:
        also = {"dynamic": asdict(found)} if found else {}
        print(json.dumps({"run": str(chosen.run), "split": chosen.split, "metrics": metrics} | also))
    else:
        plain: dict[str, dict[str, float]] = {chosen.split: metrics}
        show_metrics(plain | (rows_of(found, chosen.split) if found else {}))


def ways_of(chosen: Evaluate) -> list[Dynamic]:
    """One for each learning rate."""
    if not chosen.learning_rate:
        raise UsageError("--learning-rate needs a number. See mufuru evaluate --help")
    try:
        ways = [Dynamic(rate, chosen.decay, chosen.segment) for rate in dict.fromkeys(chosen.learning_rate)]
    except SettingError as error:
        raise UsageError(f"{error}. See mufuru evaluate --help") from None
    if not chosen.dynamic and (ways != [Dynamic()] or chosen.keep):
        raise UsageError("learning rate, decay, segment and keep are those of dynamic evaluation: add --dynamic")
    if chosen.keep and chosen.split != "test":
        raise UsageError("--keep is for the test data: leave --split out")
    if chosen.keep and not RunFolder(chosen.run).finished:
        raise UsageError(
            f"--keep is for finished runs, and there is none in {chosen.run}: leave it out, or finish the run"
        )
    return ways


def evaluate_dynamically(task: LMTask, model: nn.Module, split: str, ways: list[Dynamic]) -> Found:
    """With the learning rate that suits the validation data best, where there are several."""
    tried = {way: on_validation(task, model, way) for way in ways} if len(ways) > 1 else {}
    finite = {way: metrics for way, metrics in tried.items() if metrics}
    if tried and not finite:
        raise Diverged("dynamic evaluation diverged with every learning rate: try lower ones")
    best = min(finite, key=lambda way: finite[way]["loss"]) if finite else ways[0]
    known = finite.get(best) if split == "valid" else None
    metrics = known or with_progress(task, model, split, best)
    return Found(best, metrics, {str(way.learning_rate): metrics for way, metrics in tried.items()})


def on_validation(task: LMTask, model: nn.Module, way: Dynamic) -> dict[str, float] | None:
    try:
        return with_progress(task, model, "valid", way)
    except Diverged:
        return None


def with_progress(task: LMTask, model: nn.Module, split: str, way: Dynamic) -> dict[str, float]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(f"{split}, learning rate {way.learning_rate:g}", total=None)
        return dynamic.evaluate(
            task, model, split, way, lambda done, tokens: bar.update(line, completed=done, total=tokens)
        )


def rows_of(found: Found, split: str) -> dict[str, dict[str, float]]:
    """For the table: what was tried, then what was chosen."""
    nothing = {"loss": math.inf, "perplexity": math.inf}
    tried = {f"valid, dynamic at {rate}": metrics or nothing for rate, metrics in found.tried.items()}
    return tried | {f"{split}, dynamic at {found.how.learning_rate:g}": found.metrics}


def keep(found: Found, folder: Path) -> None:
    document = asdict(found) | {"environment": environment.environment()}
    write_atomically(RunFolder(folder).dynamic, (json.dumps(document, indent=2) + "\n").encode())
