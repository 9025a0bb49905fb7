"""Queries on the runs of the experiment with formulae, and tables of them."""

from collections.abc import Callable, Mapping
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import runs
from mufuru.experiments.report.measure import NOISE, Measure, Summary, paired, wilson
from mufuru.experiments.report.page import MISSING, Table
from mufuru.experiments.report.runs import Runs

SHARE = Measure("accuracy", digits=3, lowest=0.0, highest=1.0)
SIZE = 8
"""The memory size in the paper (section 4.1), which gives no accuracy in numbers."""
SOLVED = 0.99
"""Test accuracy from which a run counts as having learned to evaluate formulae."""
SETTINGS = {"sweep": ("paper", 0), "solved": ("solved", 100)}
"""The groups of figure (a), their presets and first seeds: the paper's setting as far as it is known, and one that
learns. The second was chosen by trying others on seeds below 100: it is measured on seeds that had no part in that."""
GATES = ("keep", "replace")
"""The operations that a GRU has."""
GUESSING = 0.5
"""Half of all formulae are true: every gate has its negation among the gates."""


def at(records: Runs, cell: str, size: int = SIZE) -> list[Record]:
    return runs.where(records, cell__cell=cell, cell__hidden_size=size)


def sizes(records: Runs) -> list[int]:
    return runs.values(records, "cell.hidden_size")


def summaries(records: Runs, cell: str, least: int = 0) -> dict[int, Summary]:
    """Return the test accuracy of a cell at each hidden size from the least up."""
    every = {size: SHARE.summary(at(records, cell, size)) for size in sizes(records) if size >= least}
    return {size: summary for size, summary in every.items() if summary}


def gap(records: Runs) -> Summary | None:
    """Return training accuracy minus test accuracy, run by run."""
    return paired(SHARE.by_seed(records, "train"), SHARE.by_seed(records))


def reached(records: Runs) -> str:
    summary = SHARE.summary(records)
    return MISSING if summary is None else SHARE.solved(summary, SOLVED)


def mean_accuracy(records: Runs) -> str:
    return SHARE.interval(SHARE.summary(records))


def side_by_side(one: Runs, other: Runs) -> tuple[str, str, str]:
    """Write two means and the first minus the second, seed by seed."""
    return mean_accuracy(one), mean_accuracy(other), SHARE.change(SHARE.difference(one, other))


def share(records: Runs) -> str:
    """Write the share of runs that solve the task and its 95 % interval (Wilson)."""
    if not records:
        return MISSING
    hits = sum((runs.metric(record) or 0) >= SOLVED - NOISE for record in records)
    low, high = wilson(hits, len(records))
    return f"{hits / len(records):.0%} ({low:.0%}–{high:.0%})".replace("%", " %")


def pivot(
    rows: Mapping[Any, Runs], head: tuple[str, ...], caption: str, entry: Callable[[Runs], str], lead: str = ""
) -> Table:
    """Return a row for each group of runs, by the row's first entries, and a column for each cell. `lead` describes one
    more column, MuFuRU minus GRU, seed by seed, which is there where both ran."""
    cells = runs.cells(record for records in rows.values() for record in records)
    leading = bool(lead) and {"mufuru", "gru"} <= set(cells)
    lines = []
    for name, records in rows.items():
        by_cell = {cell: runs.where(records, cell__cell=cell) for cell in cells}
        line = (*name, *map(entry, by_cell.values()))
        line += (SHARE.change(SHARE.difference(by_cell["mufuru"], by_cell["gru"])),) if leading else ()
        lines.append(line)
    names = (*head, *map(runs.name, cells), *(["MuFuRU − GRU"] if leading else []))
    return Table(f"{caption}. Last column: {lead}" if leading else caption, names, tuple(lines))
