"""The experiments of the paper: a file for each, and the command that makes their runs and reports."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from mufuru.disk import write_atomically
from mufuru.experiments import tasks
from mufuru.experiments.engine.errors import Interrupted
from mufuru.experiments.engine.sweep import Job, Outcome, sweep, usable_cores
from mufuru.experiments.record import Record, RunFolder, read_records
from mufuru.experiments.report import overview, render, runs
from mufuru.experiments.report.page import count
from mufuru.experiments.reproduce import languages, lm, logic, recorded, sentiment, unit_maps
from mufuru.experiments.reproduce.grid import Cluster, Experiment, Flag, Grid, Jobs, Store
from mufuru.experiments.settings import UserError, check_positive, to_json
from mufuru_command import ending_at_once

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT for module in (logic, lm, sentiment, languages)
}


class Reproduction(NamedTuple):
    """The outcome of `reproduce`; the records are those of the runs that were asked for."""

    outcome: Outcome
    records: list[Record]
    files: list[Path]
    missing: int = 0
    """Runs that were asked for and are not finished."""


@dataclass(frozen=True)
class Options:
    """Options of every experiment."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = None
    """Folder of the runs and the report; None for a folder in runs/ named after the experiment."""
    jobs: Jobs = None
    cluster: Cluster = None
    store: Store = None
    record: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of records, small files that hold every number of the report. Finished runs are added to them, after
    Ctrl-C too, and a run that has a record is not made again: another machine continues from the records alone."""
    collect: Flag = False
    """Make no run: only write the report and the records of those that are finished."""
    quiet: Flag = False
    """No progress, no tables: only errors."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints of a run."""

    def __post_init__(self) -> None:
        check_positive(self, "jobs")


def reproduce(name: str, grid: Grid, options: Options) -> Reproduction:
    """Make all missing runs, then the report of all runs, and the records if asked for.

    A run that has a record is not made again.
    """
    experiment, output, record = EXPERIMENTS[name], options.output or Path("runs") / name, options.record
    jobs = grid.jobs(output)
    asked_for = {recorded.place(job)[0] for job in jobs}
    kept = [one for one in recorded.read(record) if one.group in asked_for] if record is not None else []
    left = [] if options.collect else recorded.without_record(jobs, kept)
    if experiment.long:
        check_data(left)
    if not options.quiet and not options.collect:
        # how long it takes on a cluster, only the cluster knows
        announce(jobs, left, options.jobs, experiment.long and options.cluster is None)
    try:
        outcome = sweep(
            left,
            workers=options.jobs,
            quiet=options.quiet,
            checkpoint_seconds=options.checkpoint_seconds,
            cluster=options.cluster,
            store=options.store,
        )
    except Interrupted:
        # a damaged record or a full disk is named when all runs are made
        with suppress(UserError, OSError):
            keep(output, record, experiment)
        raise
    # earlier parts of the experiment in the same folder belong to the report too
    finished = keep(output, record, experiment)
    records = runs.unique(recorded.merge(kept, finished))
    # parts that are not published yet have no section
    known = [record for record in records if record.group in experiment.parts]
    _load_matplotlib()
    files = experiment.build(known, output / "report", unit_maps.complete) if known else []
    chosen = [record for record in records if record.group in asked_for]
    return Reproduction(outcome, chosen, files, len(recorded.without_record(jobs, chosen)))


def keep(output: Path, record: Path | None, experiment: Experiment) -> list[Record]:
    """Return the finished runs of a folder, and add them to the files of records if there is a folder for these."""
    finished = read_records(output) if output.is_dir() else []
    if record is not None:
        recorded.save(finished, record, experiment.curve_lines)
    return finished


def write_page(records: Sequence[Record], path: Path) -> None:
    """Write the report of these runs: that of the paper's experiment where they belong to one, else run by run."""
    every = runs.unique(records)
    reports = EXPERIMENTS.values()
    one = next((report for report in reports if report.is_one_experiment(every)), None)
    page = unit_maps.complete(one.page(every) if one else overview.page(every, reports), every)
    _load_matplotlib()
    write_atomically(path, render.html(page))


def _load_matplotlib() -> None:
    """Import the library of the figures: it is slow to import, and not needed to train."""
    with ending_at_once():
        import matplotlib.backends.backend_agg  # noqa: F401


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not RunFolder(job.folder).finished]


def announce(jobs: Sequence[Job], left: Sequence[Job], workers: int | None, long: bool) -> None:
    """Print how many runs are known from their records alone; where runs are long, how many there are to make and how
    long that may take."""
    names = {job.name for job in left}
    if known := [job for job in unfinished(jobs) if job.name not in names]:
        print(f"{len(known)} of {len(jobs)} runs have a record: not made again.", file=sys.stderr, flush=True)
    if long and (to_make := unfinished(left)):
        print(sentence(len(left), to_make, min(workers or usable_cores(), len(to_make))), file=sys.stderr, flush=True)


def sentence(total: int, left: Sequence[Job], cores: int) -> str:
    # no core can share a run with another
    seconds = max(sum(job.cost for job in left) / cores, max(job.cost for job in left))
    return (
        f"{len(left)} of {total} runs to make: up to about {duration(seconds)} on {count(cores, 'core')}. "
        "Ctrl-C saves them, and the same command continues."
    )


def duration(seconds: float) -> str:
    """Write a time as roughly as it is known."""
    return count(max(1, round(seconds / 60)), "minute") if seconds < 90 * 60 else f"{round(seconds / 3600)} hours"


def check_data(jobs: Sequence[Job]) -> None:
    """Load all data before anything starts: missing data are reported once, and downloads happen once."""
    needed: dict[str, Job] = {}
    for job in unfinished(jobs):
        settings = to_json(job.config)
        key = [job.kind, settings["data"], settings.get("vectors"), settings.get("embedding_size")]
        needed.setdefault(json.dumps(key), job)
    for job in needed.values():
        tasks.KINDS[job.kind].make(job.config)
