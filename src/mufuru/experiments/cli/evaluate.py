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
from mufuru.experiments.engine import evaluate, load_run, store
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
    """Data to evaluate on."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""
    threads: int = 1
    """Threads to compute with."""
    dynamic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also evaluate a language model dynamically: it keeps learning from the text that it has predicted."""
    learning_rate: tuple[float, ...] = (Dynamic.learning_rate,)
    """Dynamic evaluation: step size of the gradient of a segment's mean loss; of several, the best on the validation
    data is used."""
    decay: float = Dynamic.decay
    """Dynamic evaluation: share of the way back to the trained weights after each segment."""
    segment: int = Dynamic.segment
    """Dynamic evaluation: tokens that are predicted before the weights change."""
    keep: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep dynamic evaluation on the test data in the folder of a finished run: its reports show it."""

    def __post_init__(self) -> None:
        if not self.learning_rate:
            raise SettingError("--learning-rate needs a number")
        default = self.ways == [Dynamic()]
        if not self.dynamic and (self.keep or not default):
            raise SettingError("learning rate, decay, segment and keep are those of dynamic evaluation: add --dynamic")
        if self.keep and self.split != "test":
            raise SettingError("--keep is for the test data: leave --split out")
        if self.keep and not RunFolder(self.run).finished:
            raise SettingError(f"--keep is for finished runs, and there is none in {self.run}: leave it out, or finish "
                               "the run")  # fmt: skip

    @property
    def ways(self) -> list[Dynamic]:
        """Settings of dynamic evaluation, one for each learning rate."""
        return [Dynamic(rate, self.decay, self.segment) for rate in dict.fromkeys(self.learning_rate)]


@dataclass(frozen=True)
class Adapted:
    """Result of dynamic evaluation."""

    how: Dynamic
    metrics: dict[str, float]
    tried: dict[str, dict[str, float] | None]
    """Validation metrics by learning rate; None for one that diverged. Empty where there was nothing to choose."""


def main(arguments: list[str]) -> int:
    description = "Evaluate a trained model: the weights of the run that its settings select."
    chosen = parse(Evaluate, arguments, prog="mufuru evaluate", description=description, examples=EXAMPLES)
    use_threads(chosen.threads, "mufuru evaluate")
    task, model = load_run(chosen.run)
    if chosen.dynamic and not isinstance(task, LMTask):
        raise UsageError(f"--dynamic is for language models, and {chosen.run} is none. See mufuru evaluate --help")
    metrics = evaluate(task, model, chosen.split)
    if not isinstance(task, LMTask) or not chosen.dynamic:
        show(chosen, metrics)
        return 0
    try:
        adapted = evaluate_dynamically(task, model, chosen.split, chosen.ways)
    except Diverged:
        show(chosen, metrics)
        raise
    show(chosen, metrics, adapted)
    if chosen.keep:
        document = asdict(adapted) | {"environment": store.environment()}
        write_atomically(RunFolder(chosen.run).dynamic, (json.dumps(document, indent=2) + "\n").encode())
    return 0


def evaluate_dynamically(task: LMTask, model: nn.Module, split: str, ways: list[Dynamic]) -> Adapted:
    """Evaluate with the learning rate that is best on the validation data, where there are several."""
    tried = {way: on_validation(task, model, way) for way in ways} if len(ways) > 1 else {}
    finite = {way: metrics for way, metrics in tried.items() if metrics}
    if tried and not finite:
        raise Diverged("dynamic evaluation diverged with every learning rate: try lower ones")
    best = min(finite, key=lambda way: finite[way]["loss"]) if finite else ways[0]
    known = finite.get(best) if split == "valid" else None
    metrics = known or with_progress(task, model, split, best)
    return Adapted(best, metrics, {str(way.learning_rate): metrics for way, metrics in tried.items()})


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


def show(chosen: Evaluate, metrics: dict[str, float], adapted: Adapted | None = None) -> None:
    """Print the metrics; of dynamic evaluation what was tried, then what was chosen."""
    if chosen.json:
        also = {"dynamic": asdict(adapted)} if adapted else {}
        print(json.dumps({"run": str(chosen.run), "split": chosen.split, "metrics": metrics} | also))
        return
    rows = {str(chosen.split): metrics}
    if adapted:
        diverged = {"loss": math.inf, "perplexity": math.inf}
        rows |= {f"valid, dynamic at {rate}": tried or diverged for rate, tried in adapted.tried.items()}
        rows[f"{chosen.split}, dynamic at {adapted.how.learning_rate:g}"] = adapted.metrics
    show_metrics(rows)
