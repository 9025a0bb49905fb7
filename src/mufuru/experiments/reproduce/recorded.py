"""Files of records, to which runs are added as they finish: another machine continues from the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from mufuru.experiments import tasks
from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.record import Record, read_records, write_records
from mufuru.experiments.reproduce.curves import thinned
from mufuru.experiments.settings import from_json

Place: TypeAlias = tuple[str, str, Any]
"""Part, task and settings: what makes two runs the same run."""


def place(run: Record | Job) -> Place:
    """Place of a run; settings newer than a record have their defaults."""
    if isinstance(run, Job):
        return run.name.partition("/")[0], run.kind, run.config
    return run.group, run.task, from_json(tasks.KINDS[run.task].config, run.config)


def read(folder: Path) -> list[Record]:
    """Return the records of all parts in a folder; none if there is no such folder."""
    return [record for file in sorted(folder.glob("*.jsonl")) for record in read_records(file)]


def without_record(jobs: Sequence[Job], records: Iterable[Record]) -> list[Job]:
    """Return the jobs that still have to be run."""
    there = {place(record) for record in records}
    return [job for job in jobs if place(job) not in there]


def merge(kept: Iterable[Record], found: Iterable[Record]) -> list[Record]:
    """Return every run once; a run that was found replaces its record."""
    return list({place(record): record for record in (*kept, *found)}.values())


def save(records: Iterable[Record], folder: Path, curve_lines: int = 0) -> None:
    """Add runs to the files of their parts, with learning curves of at most so many lines."""
    found = [replace(record, curve=thinned(record.curve, curve_lines)) for record in records]
    for group in sorted({record.group for record in found}):
        file = folder / f"{group}.jsonl"
        kept = read_records(file) if file.exists() else []
        write_records(file, merge(kept, (record for record in found if record.group == group)))
