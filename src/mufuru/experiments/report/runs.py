"""Questions to records: which cell, which size, which seed, how good."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from mufuru.experiments.record import Record, RecordError
from mufuru.experiments.report.statistics import Summary, paired, summarise

Runs: TypeAlias = Sequence[Record]

CELLS = {"mufuru": "MuFuRU", "gru": "GRU", "lstm": "LSTM", "vanilla": "tanh RNN"}
"""Names as people say them, in the order of every table and legend."""

ADVICE = "`mufuru report` shows such runs one by one."


def setting(record: Record, path: str) -> Any:
    """A setting by its dotted name, such as "cell.hidden_size"; None where the task has no such setting."""
    found: Any = record.config
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def on_papers_data(record: Record) -> bool:
    """Not on a user's own."""
    return not any(setting(record, name) for name in ("data.text", "data.data", "data.treebank"))


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def where(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """The records with these settings; a double underscore stands for the dot."""
    named = {name.replace("__", "."): value for name, value in wanted.items()}
    return [record for record in records if all(setting(record, name) == value for name, value in named.items())]


def values(records: Iterable[Record], path: str) -> list[Any]:
    """All values that a setting has, in order; None first."""
    found = {json.dumps(value): value for value in (setting(record, path) for record in records)}
    return sorted(found.values(), key=lambda value: (value is not None, isinstance(value, str), value or 0))


def cells(records: Iterable[Record]) -> list[str]:
    """The cells among the records, MuFuRU first."""
    found = {setting(record, "cell.cell") for record in records}
    return [cell for cell in CELLS if cell in found] + sorted(map(str, found - CELLS.keys() - {None}))


def name(cell: str) -> str:
    return CELLS.get(cell, cell)


def unique(records: Iterable[Record]) -> list[Record]:
    """Each run once, in an order that does not depend on how they were found."""
    found = {json.dumps([r.task, r.group, r.config], sort_keys=True): r for r in records}
    return [found[key] for key in sorted(found)]


def metric(record: Record, split: str = "test", key: str = "accuracy") -> float | None:
    """A metric of the selected weights; None where it was not measured."""
    value = record.result.get(split, {}).get(key)
    return None if value is None else float(value)


def by_seed(records: Iterable[Record], split: str = "test", key: str = "accuracy") -> dict[int, float]:
    """The metric of each seed, of records that differ in nothing else."""
    found: dict[int, float] = {}
    for record in records:
        seed, value = int(setting(record, "seed")), metric(record, split, key)
        if seed in found:
            raise RecordError(f"two runs with seed {seed} where one was expected: they differ in settings. {ADVICE}")
        if value is not None:
            found[seed] = value
    return found


def summary(records: Iterable[Record], split: str = "test", key: str = "accuracy") -> Summary | None:
    """The metric over the seeds; None where no run has it."""
    found = by_seed(records, split, key)
    return summarise([found[seed] for seed in sorted(found)]) if found else None


def difference(one: Iterable[Record], other: Iterable[Record]) -> Summary | None:
    """By how much the first reach a higher test accuracy, seed by seed."""
    return paired(by_seed(one), by_seed(other))
