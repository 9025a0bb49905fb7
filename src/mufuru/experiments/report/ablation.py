"""The unit with fewer operations: which of them matters."""

from __future__ import annotations

from mufuru.experiments.record import Record
from mufuru.experiments.report import paper, runs, tables
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import Summary
from mufuru.experiments.report.tables import Table

ALL = "all seven"
GATED = "keep and replace"


def variant(record: Record) -> str:
    """What the unit may do, in words."""
    cell = str(runs.setting(record, "cell.cell"))
    if cell != "mufuru":
        return runs.name(cell)
    operations = set(runs.setting(record, "cell.ops") or paper.OPERATIONS)
    left_out = [name for name in paper.OPERATIONS if name not in operations]
    if operations <= set(paper.OPERATIONS) and len(left_out) <= 1:
        return f"without {left_out[0]}" if left_out else ALL
    added = operations - {"keep", "replace"}
    if {"keep", "replace"} <= operations and len(added) <= 1:
        return f"{GATED} with {added.pop()}" if added else GATED
    return ", ".join(sorted(operations))


def variants(records: Runs) -> list[str]:
    """All seven first, then those that lack one, then keep and replace with one, then the rest."""
    order = [ALL, *(f"without {op}" for op in paper.OPERATIONS), GATED]
    order += [f"{GATED} with {op}" for op in paper.OPERATIONS]
    found = {variant(record) for record in records}
    return [name for name in order if name in found] + sorted(found - set(order))


def of(records: Runs, name: str) -> list[Record]:
    return [record for record in records if variant(record) == name]


def change(records: Runs, name: str) -> Summary | None:
    """Test accuracy of a variant minus that of all seven, seed by seed; None for all seven itself."""
    return None if name == ALL else runs.difference(of(records, name), of(records, ALL))


def table(records: Runs, size: int, bar: float, caption: str) -> Table:
    here = runs.where(records, cell__hidden_size=size)
    rows = []
    for name in variants(here):
        found = runs.summary(of(here, name))
        rows.append((name, tables.accuracy(found), tables.share(found, bar), tables.gain(change(here, name))))
    head = ("operations", "test accuracy", f"runs with {bar} or more", "change from all seven")
    return Table(caption, head, tuple(rows))
