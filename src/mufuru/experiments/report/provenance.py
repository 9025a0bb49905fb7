"""The origin of numbers: settings, seeds, versions, commits and commands of the runs behind them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from mufuru.experiments.report import runs
from mufuru.experiments.report.page import MISSING, Table
from mufuru.experiments.report.runs import Runs

MANY = 4
"""More lists than these are counted and not written out."""


def settings(groups: Mapping[str, Runs], caption: str) -> Table:
    """Return every setting of each group of runs; where its runs differ, all values."""
    flat = {name: [runs.flat(record.config) for record in records] for name, records in groups.items()}
    return Table(caption, ("setting", *groups), _rows(flat), wordy=True)


def environment(records: Runs) -> Table:
    """Return versions, commit and machine."""
    flat = [{k: v for k, v in runs.flat(r.environment).items() if k != "command"} for r in records]
    caption = "Versions, commit and machine. Where runs differ, all values"
    return Table(caption, ("made with", "value"), _rows({"value": flat}), wordy=True)


def varying(records: Runs) -> list[str]:
    """Return the settings in which the runs differ, by their dotted names, the seed last."""
    flat = [runs.flat(record.config) for record in records]
    names = sorted({name for settings in flat for name in settings}, key=lambda name: (name == "seed", name))
    return [name for name in names if len({json.dumps(settings.get(name)) for settings in flat}) > 1]


def commands(records: Runs) -> list[str]:
    """Return the different command lines, each once."""
    every = [r.environment["command"] for r in records if r.environment.get("command")]
    return sorted({shlex.join(c) if isinstance(c, list) else str(c) for c in every})


def _rows(groups: dict[str, list[dict[str, Any]]]) -> tuple[tuple[str, ...], ...]:
    # a file of records has lost the order of the settings
    names = sorted({name for members in groups.values() for member in members for name in member})
    return tuple(
        (name, *(listed(m[name] for m in members if name in m) for members in groups.values())) for name in names
    )


def listed(values: Iterable[Any]) -> str:
    """Write all different values, in order; whole numbers without gaps as a range."""
    different = {json.dumps(value): value for value in values}
    order = sorted(
        different.values(), key=lambda v: (isinstance(v, str), v if isinstance(v, int | float) else 0, str(v))
    )
    if len(order) > 2 and all(type(v) is int for v in order) and order[-1] - order[0] == len(order) - 1:
        return f"{order[0]} to {order[-1]}"
    if len(order) > MANY and any(isinstance(v, list) for v in order):
        return f"{len(order)} different"
    return (" · " if any(isinstance(v, list) for v in order) else ", ").join(map(plain, order)) or MISSING


def plain(value: Any) -> str:
    """Write a value of JSON as people do."""
    if isinstance(value, list):
        return " ".join(map(plain, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
