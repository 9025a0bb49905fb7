"""`mufuru reproduce`: an experiment of the paper, from nothing to tables and figures."""

from __future__ import annotations

import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mufuru.experiments.cli.show import show_accuracy, show_models
from mufuru.experiments.cli.usage import UsageError, parse, pick
from mufuru.experiments.engine.sweep import Outcome
from mufuru.experiments.reproduce import EXPERIMENTS, Reproduction, reproduce

EXAMPLES = """\
  mufuru reproduce {name} --short
  mufuru reproduce {name} --jobs 8
  mufuru reproduce {name} --part {part}
"""
PARTS = {
    "logic": "figures --cells mufuru gru --sizes 8 64 --seeds 5",
    "lm": "paper --cells mufuru gru --record results/lm",
    "sentiment": "dimensions --dimensions 50 300",
}
"""A part of each experiment, for the examples."""
MAIN = {
    "logic": {
        "short": "Trained on short formulae, tested on longer ones",
        "sweep": "The paper's setting",
        "solved": "One setting for every size",
    },
    "lm": {
        "short": "Once through the text",
        "paper": "The paper's setting",
        "lean": "With a recurrent controller",
        "keep": "Another start of keep",
        "batch20": "With batches of 20",
        "best": "Well regularised",
    },
    "sentiment": {
        "short": "Once through the sentences",
        "paper": "The paper's setting",
        "dimensions": "Other word vectors",
        "best": "Well regularised",
        "trees": "Along the parse trees",
    },
}
"""The groups that are shown at the end, and their titles; the others are for the report."""
DESCRIPTION = """\
Train all runs of an experiment on all cores, then write tables, figures and a report.
What is finished is skipped: after Ctrl-C or worse the same command goes on."""


@dataclass(frozen=True)
class Options:
    """Where and how."""

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


def run(arguments: list[str]) -> int:
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
    """The help of `mufuru reproduce` itself."""
    first = next(iter(EXPERIMENTS))
    return (
        f"usage: mufuru reproduce EXPERIMENT [OPTIONS]\n\n{DESCRIPTION}\n\n"
        f"experiments: {', '.join(EXPERIMENTS)}\n\nmufuru reproduce EXPERIMENT --help lists all options.\n\n"
        f"examples:\n{examples(first)}"
    )


def examples(name: str) -> str:
    return EXAMPLES.format(name=name, part=PARTS[name])


def parse_experiment(name: str, arguments: list[str]) -> tuple[Options, Any]:
    """Options, and the grid of runs."""
    grid = EXPERIMENTS[name].grid
    flat = tyro.conf.arg(name="")
    fields = [("options", Annotated[Options, flat]), ("grid", Annotated[grid, flat])]
    command = make_dataclass("Reproduce", fields, frozen=True)
    parsed: Any = parse(
        command,
        arguments,
        prog=f"mufuru reproduce {name}",
        description=DESCRIPTION,
        examples=examples(name),
    )
    if parsed.options.jobs is not None and parsed.options.jobs < 1:
        raise UsageError(f"--jobs should be at least 1, got {parsed.options.jobs}. See mufuru reproduce {name} --help")
    return parsed.options, parsed.grid


def show(name: str, made: Reproduction) -> None:
    """The main results, and where the rest is."""
    table = show_accuracy if name == "logic" else show_models
    for group, title in MAIN[name].items():
        if records := [record for record in made.records if record.group == group]:
            table(title, records)
    if made.missing and not made.outcome.failed:
        print(f"Not finished: {made.missing} of the runs.")
    if made.files:
        print("Written:", *made.files, sep="\n  ")


def report_failures(outcome: Outcome) -> int:
    """Every run that failed, and the exit code."""
    for name, reason in outcome.failed.items():
        print(f"mufuru: {name} failed: {reason}", file=sys.stderr)
    if outcome.failed:
        print("mufuru: the same command tries these runs again", file=sys.stderr)
    return 1 if outcome.failed else 0
