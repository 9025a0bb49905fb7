"""`mufuru prune`: a trained model without the operations that it hardly uses, as a new run."""

from dataclasses import dataclass

from mufuru.disk import beside
from mufuru.experiments.cli import show_metrics
from mufuru.experiments.cli.usage import Output, Run, Split, Threads, parse
from mufuru.experiments.settings import SettingError
from mufuru.experiments.ship import prune

EXAMPLES = """\
  mufuru prune runs/first --threshold 0.01
  mufuru prune runs/book --threshold 0.02 --measure mean --split train -o runs/book-small
"""


@dataclass(frozen=True)
class Prune:
    """Drop the operations whose weight stays under a threshold over a data set. The softmax over the others is exact:
    their weights, divided by their sum. Weights and the metrics before and after are printed; the smaller model is a
    run that evaluate, predict, generate, score and export take."""

    run: Run
    """Folder of a finished run of mufuru."""
    threshold: float = 0.01
    """An operation is dropped if its weight is below this in every layer and direction."""
    measure: prune.Measure = "largest"
    """Weight that is compared: the largest of any unit at any step, or the mean of all."""
    split: Split = "valid"
    """Data over which the weights are measured."""
    output: Output = None
    """Folder of the new run; None for the name of the old one with -pruned."""
    threads: Threads = 1

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise SettingError(f"--threshold should be above 0 and below 1, got {self.threshold}")


def main(arguments: list[str]) -> int:
    chosen = parse(Prune, arguments, EXAMPLES)
    task, model = prune.load_prunable(chosen.run)
    uses = prune.measure_use(task, model, chosen.split)
    dropped = prune.choose(uses, chosen.measure, chosen.threshold)
    about = {name: getattr(chosen, name) for name in ("threshold", "measure", "split")}
    about["from"] = chosen.run.resolve().name
    output = chosen.output or beside(chosen.run, "-pruned")
    show(uses, prune.write_pruned(chosen.run, task, model, dropped, output, about))
    return 0


def show(uses: prune.Uses, pruned: prune.Pruned) -> None:
    """Print the weights by layer, the metrics before and after, and the change of the loss."""
    show_metrics({f"{place}, {name}": weights for place, use in uses.items() for name, weights in use.items()})
    print()
    both = {"before": pruned.before, "after": pruned.after}
    show_metrics({f"{split} {when}": both[when][split] for split in pruned.before for when in both})
    changes = ", ".join(
        f"{pruned.after[split]['loss'] - pruned.before[split]['loss']:+.6f} on {split}" for split in pruned.before
    )
    first, second = pruned.parameters
    print(
        f"\nDropped {', '.join(pruned.dropped)}: {first:,} parameters became {second:,}. The loss changed by {changes}."
    )
    print(f"The run is in {pruned.folder}. Next: mufuru evaluate {pruned.folder}")
