"""What is said and checked before runs start that take long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from mufuru.experiments import tasks
from mufuru.experiments.engine.sweep import Job, usable_cores
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import to_json


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not RunFolder(job.folder).finished]


def announce_recorded(jobs: Sequence[Job], left: Sequence[Job]) -> None:
    """Say how many runs are known from their records alone."""
    names = {job.name for job in left}
    if recorded := [job for job in unfinished(jobs) if job.name not in names]:
        print(f"{len(recorded)} of {len(jobs)} runs have a record: not made again.", file=sys.stderr, flush=True)


def announce(jobs: Sequence[Job], workers: int | None) -> None:
    """How many runs there are to make and how long they may take; a job's cost has to be in seconds."""
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
    """In words that promise no more than a guess can."""
    if seconds < 90 * 60:
        minutes = max(1, round(seconds / 60))
        return f"{minutes} minute" + ("" if minutes == 1 else "s")
    return f"{round(seconds / 3600)} hours"


def check_data(jobs: Sequence[Job]) -> None:
    """Have all data before anything starts: what cannot be had is told once, and downloads happen once."""
    seen: set[str] = set()
    for job in unfinished(jobs):
        settings = to_json(job.config)
        needed = [job.kind, settings["data"], settings.get("vectors"), settings.get("embedding_size")]
        if (key := json.dumps(needed)) not in seen:
            seen.add(key)
            tasks.KINDS[job.kind].make(job.config)
