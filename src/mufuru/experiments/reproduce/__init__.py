"""The experiments of the paper: which runs they are made of, and what becomes of the runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mufuru.experiments.engine.sweep import Outcome, sweep
from mufuru.experiments.record import Record, read_records, write_records
from mufuru.experiments.reproduce import beforehand
from mufuru.experiments.reproduce.curves import thinned
from mufuru.experiments.reproduce.grid import Grid
from mufuru.experiments.reproduce.lm import LMGrid
from mufuru.experiments.reproduce.logic import LogicGrid
from mufuru.experiments.reproduce.sentiment import SentimentGrid
from mufuru_command import ending_at_once

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Grid",
    "LMGrid",
    "LogicGrid",
    "Reproduction",
    "SentimentGrid",
    "beforehand",
    "reproduce",
    "save",
]

CURVE_LINES = 40
"""Most lines of a learning curve in a file of records."""


@dataclass(frozen=True)
class Experiment:
    grid: type[Grid]
    long: bool = True
    """Runs of hours on real data: said before they start, and the data looked for. A run's cost is in seconds."""
    curve_lines: int = CURVE_LINES
    """Most lines of a learning curve in a file of records; 0 for none."""


EXPERIMENTS: dict[str, Experiment] = {
    # its runs are many and their curves would be most of the records
    "logic": Experiment(LogicGrid, long=False, curve_lines=0),
    "lm": Experiment(LMGrid),
    "sentiment": Experiment(SentimentGrid),
}


@dataclass(frozen=True)
class Reproduction:
    """What came of it: the records are those of the runs that were asked for."""

    outcome: Outcome
    records: list[Record]
    files: list[Path]


def reproduce(
    name: str,
    grid: Grid,
    output: Path,
    *,
    workers: int | None = None,
    record: Path | None = None,
    quiet: bool = False,
    checkpoint_seconds: float = 60.0,
) -> Reproduction:
    """Make all runs that are missing, then the report of all that there are, and the records if asked for."""
    experiment, jobs = EXPERIMENTS[name], grid.jobs(output)
    if experiment.long:
        beforehand.check_data(jobs)
        if not quiet:
            beforehand.announce(jobs, workers)
    outcome = sweep(jobs, workers=workers, quiet=quiet, checkpoint_seconds=checkpoint_seconds)
    # earlier parts of the experiment in the same folder belong to the report too
    records = read_records(output)
    if record is not None:
        save(records, record, experiment.curve_lines)
    files = _build(name, records, output / "report") if records else []
    asked_for = {job.name.partition("/")[0] for job in jobs}
    return Reproduction(outcome, [record for record in records if record.group in asked_for], files)


def _build(name: str, records: list[Record], output: Path) -> list[Path]:
    with ending_at_once():
        # matplotlib is slow to import, and not needed to train
        from mufuru.experiments.report import lm, logic, sentiment

    reports = {report.name: report for report in (lm.REPORT, logic.REPORT, sentiment.REPORT)}
    return reports[name].build(records, output)


def save(records: list[Record], folder: Path, curve_lines: int = 0) -> None:
    """A file for each group, with learning curves of at most so many lines."""
    kept = [replace(record, curve=thinned(record.curve, curve_lines)) for record in records]
    for group in sorted({record.group for record in kept}):
        write_records(folder / f"{group}.jsonl", (record for record in kept if record.group == group))
