"""`mufuru evaluate`: the metrics of a run's selected weights."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mufuru.disk import write_atomically
from mufuru.experiments import tasks
from mufuru.experiments.cli import show_metrics
from mufuru.experiments.cli.usage import AsJson, Flag, Folder, Run, Split, Threads, parse
from mufuru.experiments.data.layout import Format
from mufuru.experiments.engine import evaluate, load_model, load_run, read_config, store
from mufuru.experiments.engine.evaluate import examining, read_layout
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm.dynamic import Diverged, Dynamic
from mufuru.experiments.tasks.task import HowToRead
from mufuru_command import say

EXAMPLES = """\
  mufuru evaluate runs/first
  mufuru evaluate runs/first --split valid --json
  mufuru evaluate runs/reviews --data new-reviews.csv
  mufuru evaluate runs/reviews --find-data /mnt/data
  mufuru evaluate runs/words --dynamic --learning-rate 0.05 0.1 0.2
"""


MOST_CLASSES = 20
"""Maximum classes of a printed confusion matrix."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained model: the weights of the run that its settings select."""

    run: Run
    """Folder of a run."""
    split: Split = "test"
    """Data to evaluate on."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Another file with labels to evaluate on, read as the training file was; the data of the run is not needed."""
    format: Format | None = None
    """Format of that file; None for that of training, or by its name."""
    text_column: str | None = None
    """Its column of texts or sequences, or its number, from 1; None for that of training."""
    label_column: str | None = None
    """Its column of labels, or its number; None for that of training."""
    find_data: Folder = None
    """Folder that has the files of the run's data now, if they were moved; the content must be the same."""
    json: AsJson = False
    threads: Threads = 1
    dynamic: Flag = False
    """Also evaluate a language model dynamically: it keeps learning from the text that it has predicted."""
    learning_rate: tuple[float, ...] = (Dynamic.learning_rate,)
    """Dynamic evaluation: step size of the gradient of a segment's mean loss; of several, the best on the validation
    data is used."""
    decay: float = Dynamic.decay
    """Dynamic evaluation: share of the way back to the trained weights after each segment."""
    segment: int = Dynamic.segment
    """Dynamic evaluation: tokens that are predicted before the weights change."""
    keep: Flag = False
    """Keep dynamic evaluation on the test data in the folder of a finished run: its reports show it."""

    def __post_init__(self) -> None:
        if not self.learning_rate:
            raise SettingError("--learning-rate needs a number")
        if self.data is None and (self.format or self.text_column or self.label_column):
            raise SettingError("--format, --text-column and --label-column are for a file: name it with --data")
        if self.data is not None and (self.dynamic or self.find_data or self.split != "test"):
            raise SettingError("--data names the file to evaluate on: leave --split, --find-data and --dynamic out")
        ways = self.ways  # made in any case: an invalid setting is refused here
        if not self.dynamic and (ways != [Dynamic()] or self.keep):
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


def main(arguments: list[str]) -> int:
    chosen = parse(Evaluate, arguments, EXAMPLES)
    adapt = tasks.hook(read_config(chosen.run)[0], "dynamic", chosen.run) if chosen.dynamic else None
    task, model = load(chosen)
    split = "data" if chosen.data else chosen.split
    metrics, adapted = evaluate(task, model, split), {}
    more = getattr(task, "details", None)
    with examining(model):
        details = more(model, split) if more else {}
    try:
        if adapt:
            adapted = evaluate_dynamically(partial(adapt, task, model), chosen.split, chosen.ways)
    finally:
        show(chosen, metrics, adapted, details)
    if chosen.keep:
        document = adapted | {"environment": store.environment()}
        write_atomically(RunFolder(chosen.run).dynamic, (json.dumps(document, indent=2) + "\n").encode())
    return 0


def load(chosen: Evaluate) -> tuple[Any, Any]:
    """Return the task with the data to evaluate on, and the trained model."""
    if chosen.data is None:
        return load_run(chosen.run, chosen.find_data)
    kind, config = read_config(chosen.run)
    new_data = tasks.hook(kind, "new_data", chosen.run)
    how = HowToRead(read_layout(chosen.run), "yes", chosen.format, chosen.text_column, chosen.label_column)
    model = load_model(chosen.run)
    task = new_data(model, config, chosen.data, how)
    if not chosen.json:
        say(task.description, 0)
    return task, model


def evaluate_dynamically(adapt: Callable[..., dict[str, float]], split: str, ways: list[Dynamic]) -> dict[str, Any]:
    """Evaluate with the learning rate that is best on the validation data, where there are several.

    `tried` has the validation metrics by learning rate, None for one that diverged.
    """
    console = Console(stderr=True)

    def measure(split: str, way: Dynamic) -> dict[str, float]:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            line = bar.add_task(f"{split}, learning rate {way.learning_rate:g}", total=None)
            return adapt(split, way, lambda done, tokens: bar.update(line, completed=done, total=tokens))

    tried: dict[Dynamic, dict[str, float] | None] = dict.fromkeys(ways) if len(ways) > 1 else {}
    for way in tried:
        with suppress(Diverged):
            tried[way] = measure("valid", way)
    finite = {way: metrics for way, metrics in tried.items() if metrics}
    if tried and not finite:
        raise Diverged("dynamic evaluation diverged with every learning rate: try lower ones")
    best = min(finite, key=lambda way: finite[way]["loss"]) if finite else ways[0]
    metrics = finite[best] if split == "valid" and finite else measure(split, best)
    return {"how": asdict(best), "metrics": metrics, "tried": {str(way.learning_rate): tried[way] for way in tried}}


def show(chosen: Evaluate, metrics: dict[str, float], adapted: dict[str, Any], details: dict[str, Any]) -> None:
    """Print the metrics; for dynamic evaluation every learning rate that was tried, then the chosen one; for a
    classifier the scores of each class and the confusion matrix."""
    if chosen.json:
        also = ({"dynamic": adapted} if adapted else {}) | ({"details": details} if details else {})
        about = {"data": str(chosen.data)} if chosen.data else {"split": chosen.split}
        print(json.dumps({"run": str(chosen.run), **about, "metrics": metrics} | also))
        return
    rows = {chosen.data.name if chosen.data else str(chosen.split): metrics}
    if adapted:
        diverged = {"loss": math.inf, "perplexity": math.inf}
        rows |= {f"valid, dynamic at {rate}": tried or diverged for rate, tried in adapted["tried"].items()}
        rows[f"{chosen.split}, dynamic at {adapted['how']['learning_rate']:g}"] = adapted["metrics"]
    show_metrics(rows)
    if "confusion" in details:
        show_classes(details)


def show_classes(details: dict[str, Any]) -> None:
    """Print the scores of each class, and the confusion matrix unless it is too wide to read."""
    show_metrics(details["classes"])
    print(f"calibration error {details['calibration_error']:.4f}")
    labels, console = details["labels"], Console(highlight=False)
    if len(labels) > MOST_CLASSES:
        print(f"The confusion matrix of {len(labels)} classes is in the output of --json.")
        return
    table = Table("true, predicted:", *labels, box=None)
    for label, row in zip(labels, details["confusion"], strict=True):
        table.add_row(label, *map(str, row))
    console.print(table)
