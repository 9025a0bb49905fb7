"""Files of records, to which runs are added as they finish: another machine continues from the records alone."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from mufuru.experiments import tasks
from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.record import Record, read_records, write_records
from mufuru.experiments.settings import from_json

Place: TypeAlias = tuple[str, str, Any]
"""Part, task and settings: two runs that share them are the same run."""
DIGITS = 5
"""Significant digits of a number in a kept curve: a figure shows fewer."""


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


def merge(kept: Iterable[Record], finished: Iterable[Record]) -> list[Record]:
    """Return every run once; a finished run replaces its record."""
    return list({place(record): record for record in (*kept, *finished)}.values())


def save(records: Iterable[Record], folder: Path, curve_lines: int = 0) -> None:
    """Add runs to the files of their parts, with learning curves of at most `curve_lines` lines."""
    thin = [replace(record, curve=thinned(record.curve, curve_lines)) for record in records]
    for group in sorted({record.group for record in thin}):
        file = folder / f"{group}.jsonl"
        kept = read_records(file) if file.exists() else []
        write_records(file, merge(kept, (record for record in thin if record.group == group)))


def thinned(curve: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return at most `most` lines, evenly chosen with the last among them, and their numbers rounded."""
    if most < 1 or not curve:
        return []
    step = math.ceil(len(curve) / most)
    return [rounded(line) for line in curve[(len(curve) - 1) % step :: step]]


def rounded(value: Any) -> Any:
    """Round every fraction in a value of JSON."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
