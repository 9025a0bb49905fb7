"""`mufuru reproduce`: an experiment of the paper, from nothing to tables and figures."""

from __future__ import annotations

import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mufuru.experiments.cli.usage import UsageError, parse, pick
from mufuru.experiments.engine.sweep import Outcome
from mufuru.experiments.record import Record
from mufuru.experiments.reproduce import EXPERIMENTS, Reproduction, reproduce
from mufuru.experiments.reproduce.grid import Experiment

EXAMPLES = """\
  mufuru reproduce {name} --short
  mufuru reproduce {name} --jobs 8
  mufuru reproduce {name} --part {part}
"""
DESCRIPTION = """\
Train all runs of an experiment on all cores, then write tables, figures and a report.
What is finished is skipped: after Ctrl-C or worse the same command goes on."""


@dataclass(frozen=True)
class Options:
    """Options of every experiment."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = None
    """Folder of the runs and the report; None for a folder in runs/ named after the experiment."""
    jobs: Annotated[int | None, tyro.conf.arg(aliases=["-j"], metavar="N")] = None
    """Runs at the same time, with one thread each; None for one on each usable core."""
    record: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of records, small files that hold every number of the report. Finished runs are added to them, and a run
    that has a record is not made again: another machine continues from the records alone."""
    collect: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Make no run: only write the report and the records of those that are finished."""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """No progress, no tables: only errors."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints of a run."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    name, *rest = arguments
    pick("experiment", name, EXPERIMENTS)
    options, grid = parse_experiment(name, rest)
    made = reproduce(
        name,
        grid,
        options.output or Path("runs") / name,
        workers=options.jobs,
        record=options.record,
        collect=options.collect,
        quiet=options.quiet,
        checkpoint_seconds=options.checkpoint_seconds,
    )
    if not options.quiet:
        show(name, made)
    return report_failures(made.outcome)


def overview() -> str:
    """Return the help of `mufuru reproduce` itself."""
    first = next(iter(EXPERIMENTS))
    return (
        f"usage: mufuru reproduce EXPERIMENT [OPTIONS]\n\n{DESCRIPTION}\n\n"
        f"experiments: {', '.join(EXPERIMENTS)}\n\nmufuru reproduce EXPERIMENT --help lists all options.\n\n"
        f"examples:\n{examples(first)}"
    )


def examples(name: str) -> str:
    return EXAMPLES.format(name=name, part=EXPERIMENTS[name].example)


def parse_experiment(name: str, arguments: list[str]) -> tuple[Options, Any]:
    """Return the options, and the grid of runs."""
    grid = EXPERIMENTS[name].grid
    flat = tyro.conf.arg(name="")
    fields = [("options", Annotated[Options, flat]), ("grid", Annotated[grid, flat])]
    command = make_dataclass("Reproduce", fields, frozen=True)
    prog = f"mufuru reproduce {name}"
    parsed: Any = parse(command, arguments, prog=prog, description=DESCRIPTION, examples=examples(name))
    if parsed.options.jobs is not None and parsed.options.jobs < 1:
        raise UsageError(f"--jobs should be at least 1, got {parsed.options.jobs}. See mufuru reproduce {name} --help")
    return parsed.options, parsed.grid


def show(name: str, made: Reproduction) -> None:
    """Print the main results, and where the rest is."""
    for part, section in EXPERIMENTS[name].report.parts.items():
        if section.heading and (records := [record for record in made.records if record.group == part]):
            show_results(section.heading, EXPERIMENTS[name], records)
    if made.missing and not made.outcome.failed:
        print(f"Not finished: {made.missing} of the runs.")
    if made.files:
        print("Written:", *made.files, sep="\n  ")


def show_results(title: str, experiment: Experiment, records: list[Record]) -> None:
    """Print the test results of each model over the seeds."""
    measure = experiment.report.measure
    head = [*experiment.columns, "runs", f"test {measure.name} (95 % interval)"]
    table = Table(*head, title=title, title_justify="left", box=None)
    for name, some in experiment.lines(records).items():
        if summary := measure.summary(some):
            table.add_row(*name, str(summary.n), measure.interval(summary))
    Console(highlight=False).print(table)


def report_failures(outcome: Outcome) -> int:
    """Print every run that failed; return the exit code."""
    for name, reason in outcome.failed.items():
        print(f"mufuru: {name} failed: {reason}", file=sys.stderr)
    if outcome.failed:
        print("mufuru: the same command tries these runs again", file=sys.stderr)
    return 1 if outcome.failed else 0
