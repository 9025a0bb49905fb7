"""The experiments of the paper: which runs they are made of, and what becomes of the runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mufuru.experiments.engine.sweep import Job, Outcome, sweep
from mufuru.experiments.record import Record, read_records
from mufuru.experiments.reproduce import beforehand, recorded
from mufuru.experiments.reproduce.grid import Grid
from mufuru.experiments.reproduce.lm import LMGrid
from mufuru.experiments.reproduce.logic import LogicGrid
from mufuru.experiments.reproduce.recorded import save
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
    "recorded",
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
    unfinished: frozenset[str] = frozenset()
    """Parts whose runs are still being made: results/ may hold some of them, and no page shows them."""

    @property
    def every_run(self) -> list[Job]:
        return self.grid().jobs(Path())


EXPERIMENTS: dict[str, Experiment] = {
    # its runs are many and their curves would be most of the records
    "logic": Experiment(LogicGrid, long=False, curve_lines=0, unfinished=frozenset({"features"})),
    "lm": Experiment(LMGrid, unfinished=frozenset({"operations", "best-seeds"})),
    "sentiment": Experiment(SentimentGrid, unfinished=frozenset({"tuning"})),
}


@dataclass(frozen=True)
class Reproduction:
    """What came of it: the records are those of the runs that were asked for."""

    outcome: Outcome
    records: list[Record]
    files: list[Path]
    missing: int = 0
    """Runs that were asked for and are not finished."""


def reproduce(
    name: str,
    grid: Grid,
    output: Path,
    *,
    workers: int | None = None,
    record: Path | None = None,
    collect: bool = False,
    quiet: bool = False,
    checkpoint_seconds: float = 60.0,
) -> Reproduction:
    """Make all runs that are missing, then the report of all that there are, and the records if asked for.

    A run that has a record is not made again; `collect` makes none at all.
    """
    experiment, jobs = EXPERIMENTS[name], grid.jobs(output)
    asked_for = {recorded.place(job)[0] for job in jobs}
    kept = [one for one in recorded.read(record) if one.group in asked_for] if record is not None else []
    left = [] if collect else recorded.without_record(jobs, kept)
    if not quiet and not collect:
        beforehand.announce_recorded(jobs, left)
    if experiment.long:
        beforehand.check_data(left)
        if not quiet:
            beforehand.announce(left, workers)
    outcome = sweep(left, workers=workers, quiet=quiet, checkpoint_seconds=checkpoint_seconds)
    # earlier parts of the experiment in the same folder belong to the report too
    found = read_records(output) if output.is_dir() else []
    if record is not None:
        save(found, record, experiment.curve_lines)
    records = recorded.merge(kept, found)
    files = _build(name, records, output / "report")
    chosen = [record for record in records if record.group in asked_for]
    return Reproduction(outcome, chosen, files, len(recorded.without_record(jobs, chosen)))


def _build(name: str, records: list[Record], output: Path) -> list[Path]:
    """Write the report of the parts that it knows."""
    with ending_at_once():
        # matplotlib is slow to import, and not needed to train
        from mufuru.experiments.report import lm, logic, sentiment

    report = {report.name: report for report in (lm.REPORT, logic.REPORT, sentiment.REPORT)}[name]
    known = [record for record in records if record.group in report.parts]
    return report.build(known, output) if known else []
