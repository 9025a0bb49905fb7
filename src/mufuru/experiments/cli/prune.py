"""`mufuru prune`: a trained model without the operations that it hardly uses, as a run of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mufuru.disk import beside
from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import UsageError, parse, use_threads
from mufuru.experiments.ship import prune

EXAMPLES = """\
  mufuru prune runs/first --threshold 0.01
  mufuru prune runs/book --threshold 0.02 --measure mean --split train -o runs/book-small
"""
DESCRIPTION = """\
Drop the operations whose weight stays under a threshold over a data set. What is left of the softmax is exact: the
remaining weights, divided by their sum. Printed are the weights, and the metrics before and after; the smaller model is
a run that evaluate, predict, generate, score and export take."""


@dataclass(frozen=True)
class Prune:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run of mufuru."""
    threshold: float = 0.01
    """An operation is dropped if its weight is below this in every layer and direction."""
    measure: prune.Measure = "largest"
    """Weight that is compared: the largest of any unit at any step, or the mean of all."""
    split: Literal["train", "valid", "test"] = "valid"
    """Over which data the weights are measured."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = None
    """Folder of the new run; None for the name of the old one with -pruned."""
    threads: int = 1
    """Threads to compute with."""


def main(arguments: list[str]) -> int:
    chosen = parse(Prune, arguments, prog="mufuru prune", description=DESCRIPTION, examples=EXAMPLES)
    if not 0 < chosen.threshold < 1:
        raise UsageError(f"--threshold should be above 0 and below 1, got {chosen.threshold}. See mufuru prune --help")
    use_threads(chosen.threads, "mufuru prune")
    task, model = prune.load_prunable(chosen.run)
    uses = prune.measure_use(task, model, chosen.split)
    dropped = prune.choose(uses, chosen.measure, chosen.threshold)
    about = {
        "from": chosen.run.resolve().name,
        "threshold": chosen.threshold,
        "measure": chosen.measure,
        "split": chosen.split,
    }
    output = chosen.output or beside(chosen.run, "-pruned")
    show(uses, prune.write_pruned(chosen.run, task, model, dropped, output, about))
    return 0


def show(uses: prune.Uses, pruned: prune.Pruned) -> None:
    """The weights by layer, the metrics before and after, and the change of the loss."""
    rows: dict[str, dict[str, float]] = {}
    for place, operations in uses.places.items():
        for measure in ("largest", "mean"):
            rows[f"{place}, {measure}"] = {name: getattr(use, measure) for name, use in operations.items()}
    show_metrics(rows)
    print()
    show_metrics(
        {f"{split} {when}": metrics[split] for split in pruned.before
         for when, metrics in (("before", pruned.before), ("after", pruned.after))}
    )  # fmt: skip
    print()
    changes = ", ".join(
        f"{pruned.after[split]['loss'] - pruned.before[split]['loss']:+.6f} on {split}" for split in pruned.before
    )
    first, second = pruned.parameters
    print(
        f"Dropped {', '.join(pruned.dropped)}: {first:,} parameters became {second:,}. The loss changed by {changes}."
    )
    print(f"The run is in {pruned.folder}. Next: mufuru evaluate {pruned.folder}")
