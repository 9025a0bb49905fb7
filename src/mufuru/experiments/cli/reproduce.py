"""`mufuru reproduce`: an experiment of the paper, from nothing to tables and figures."""

from rich.console import Console
from rich.table import Table

from mufuru.experiments.cli import overview, report_failures
from mufuru.experiments.cli.usage import parse_both
from mufuru.experiments.record import Record
from mufuru.experiments.report.runs import by_settings
from mufuru.experiments.reproduce import EXPERIMENTS, Options, Reproduction, reproduce
from mufuru.experiments.reproduce.grid import Experiment, Grid
from mufuru.experiments.settings import choose

EXAMPLES = """\
  mufuru reproduce {name} --short
  mufuru reproduce {name} --jobs 8
  mufuru reproduce {name} --part {part}
  mufuru reproduce {name} --cluster auto
"""
DESCRIPTION = """\
Train all runs of an experiment on all cores, then write tables, figures and a report.
Finished runs are skipped: after Ctrl-C or worse the same command continues."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        first = examples(next(iter(EXPERIMENTS)))
        return overview("mufuru reproduce EXPERIMENT", "[OPTIONS]", DESCRIPTION, EXPERIMENTS, first)
    name, *rest = arguments
    options, grid = parse_experiment(name, rest)
    made = reproduce(name, grid, options)
    if not options.quiet:
        show(name, made)
    return report_failures(made.outcome.failed, "the same command tries these runs again")


def examples(name: str) -> str:
    return EXAMPLES.format(name=name, part=EXPERIMENTS[name].example)


def parse_experiment(name: str, arguments: list[str]) -> tuple[Options, Grid]:
    """Return the options, and the grid of runs."""
    grid = choose("experiment", name, EXPERIMENTS).grid
    return parse_both(Options, grid, arguments, examples(name), f"mufuru reproduce {name}", DESCRIPTION)


def show(name: str, made: Reproduction) -> None:
    """Print the main results, and where the rest is."""
    for part, section in EXPERIMENTS[name].parts.items():
        if section.heading and (records := [record for record in made.records if record.group == part]):
            show_results(section.heading, EXPERIMENTS[name], records)
    if made.missing and not made.outcome.failed:
        print(f"Not finished: {made.missing} of the runs.")
    if made.files:
        print("Written:", *made.files, sep="\n  ")


def show_results(title: str, experiment: Experiment, records: list[Record]) -> None:
    """Print the test results of each model over the seeds."""
    measure = experiment.measure
    head = ("model", "runs", f"test {measure.name} (95 % interval)")
    table = Table(*head, title=title, title_justify="left", box=None)
    for name, some in by_settings(records).items():
        if summary := measure.summary(some):
            table.add_row(name, str(summary.n), measure.interval(summary))
    Console(highlight=False).print(table)
