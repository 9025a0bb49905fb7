"""The experiments of the paper: a file for each, and the command that makes their runs and reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mufuru.disk import write_atomically
from mufuru.experiments import tasks
from mufuru.experiments.engine.sweep import Job, Outcome, sweep, usable_cores
from mufuru.experiments.record import Record, RunFolder, read_records
from mufuru.experiments.report import overview, render, runs
from mufuru.experiments.reproduce import lm, logic, recorded, sentiment
from mufuru.experiments.reproduce.grid import Experiment, Grid
from mufuru.experiments.settings import to_json
from mufuru_command import ending_at_once

EXPERIMENTS: dict[str, Experiment] = {
    experiment.report.name: experiment for experiment in (logic.EXPERIMENT, lm.EXPERIMENT, sentiment.EXPERIMENT)
}
REPORTS = tuple(experiment.report for experiment in EXPERIMENTS.values())


@dataclass(frozen=True)
class Reproduction:
    """The outcome of `reproduce`; the records are those of the runs that were asked for."""

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
        announce_recorded(jobs, left)
    if experiment.long:
        check_data(left)
        if not quiet:
            announce(left, workers)
    outcome = sweep(left, workers=workers, quiet=quiet, checkpoint_seconds=checkpoint_seconds)
    # earlier parts of the experiment in the same folder belong to the report too
    finished = read_records(output) if output.is_dir() else []
    if record is not None:
        recorded.save(finished, record, experiment.curve_lines)
    records = recorded.merge(kept, finished)
    # parts that are not published yet have no section
    known = [record for record in records if record.group in experiment.report.parts]
    _load_matplotlib()
    files = experiment.report.build(known, output / "report") if known else []
    chosen = [record for record in records if record.group in asked_for]
    return Reproduction(outcome, chosen, files, len(recorded.without_record(jobs, chosen)))


def write_page(records: Sequence[Record], path: Path) -> None:
    """Write the report of these runs: that of the paper's experiment where they belong to one, else run by run."""
    every = runs.unique(records)
    one = next((report for report in REPORTS if report.is_one_experiment(every)), None)
    page = one.page(every) if one else overview.page(every, REPORTS)
    _load_matplotlib()
    write_atomically(path, render.html(page))


def _load_matplotlib() -> None:
    """Import the library of the figures: it is slow to import, and not needed to train."""
    with ending_at_once():
        import matplotlib.backends.backend_agg  # noqa: F401


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not RunFolder(job.folder).finished]


def announce_recorded(jobs: Sequence[Job], left: Sequence[Job]) -> None:
    """Print how many runs are known from their records alone."""
    names = {job.name for job in left}
    if known := [job for job in unfinished(jobs) if job.name not in names]:
        print(f"{len(known)} of {len(jobs)} runs have a record: not made again.", file=sys.stderr, flush=True)


def announce(jobs: Sequence[Job], workers: int | None) -> None:
    """Print how many runs there are to make and how long they may take; a job's cost has to be in seconds."""
    if left := unfinished(jobs):
        print(sentence(len(jobs), left, min(workers or usable_cores(), len(left))), file=sys.stderr, flush=True)


def sentence(count: int, left: Sequence[Job], cores: int) -> str:
    # no core can share a run with another
    seconds = max(sum(job.cost for job in left) / cores, max(job.cost for job in left))
    on = "1 core" if cores == 1 else f"{cores} cores"
    return (
        f"{len(left)} of {count} runs to make: up to about {duration(seconds)} on {on}. "
        "Ctrl-C saves them, and the same command goes on."
    )


def duration(seconds: float) -> str:
    """Write a time in words that promise no more than a guess can."""
    if seconds < 90 * 60:
        minutes = max(1, round(seconds / 60))
        return f"{minutes} minute" + ("" if minutes == 1 else "s")
    return f"{round(seconds / 3600)} hours"


def check_data(jobs: Sequence[Job]) -> None:
    """Load all data before anything starts: what is missing is reported once, and downloads happen once."""
    seen: set[str] = set()
    for job in unfinished(jobs):
        settings = to_json(job.config)
        needed = [job.kind, settings["data"], settings.get("vectors"), settings.get("embedding_size")]
        if (key := json.dumps(needed)) not in seen:
            seen.add(key)
            tasks.KINDS[job.kind].make(job.config)
