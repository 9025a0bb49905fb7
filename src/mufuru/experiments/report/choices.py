"""The runs over what the paper left open, as rows: learning rate, batch size and first values, for each size."""

from __future__ import annotations

from mufuru.experiments.record import Record
from mufuru.experiments.report import runs, tables
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import Summary
from mufuru.experiments.report.tables import Table


def initialisation(record: Record) -> str:
    """How the weights start, in words."""
    kind = str(runs.setting(record, "cell.initialisation") or "default")
    return f"{kind} ±{runs.setting(record, 'cell.initial_scale'):g}" if kind == "uniform" else kind


def initialisations(records: Runs) -> list[str]:
    """The default first."""
    return sorted({initialisation(record) for record in records}, key=lambda name: (name != "default", name))


def started(records: Runs, start: str) -> list[Record]:
    return [record for record in records if initialisation(record) == start]


def table(records: Runs, size: int, caption: str) -> Table:
    """For each choice the mean test accuracy of every cell, and by how much MuFuRU leads the GRU, seed by seed."""
    here = runs.where(records, cell__hidden_size=size)
    cells = runs.cells(here)
    both = {"mufuru", "gru"} <= set(cells)
    head = ("learning rate", "batch size", "first values", *map(runs.name, cells), *(["MuFuRU − GRU"] if both else []))
    rows = []
    for rate in runs.values(here, "training.learning_rate"):
        for batch in runs.values(here, "training.batch_size"):
            chosen = runs.where(here, training__learning_rate=rate, training__batch_size=batch)
            rows += [
                (f"{rate:g}", str(batch), start, *_results(started(chosen, start), cells, both))
                for start in initialisations(chosen)
            ]
    return Table(caption, head, tuple(rows))


def _results(records: Runs, cells: list[str], both: bool) -> list[str]:
    found = {cell: runs.where(records, cell__cell=cell) for cell in cells}
    lead = [tables.gain(runs.difference(found["mufuru"], found["gru"]))] if both else []
    return [tables.accuracy(runs.summary(found[cell])) for cell in cells] + lead


def best(records: Runs, cell: str, size: int) -> tuple[str, list[Record]] | None:
    """The choice with the highest mean test accuracy, in words, and its runs; None where nothing ran."""
    found: dict[str, list[Record]] = {}
    for record in runs.where(records, cell__cell=cell, cell__hidden_size=size):
        found.setdefault(described(record), []).append(record)
    means = {name: s.mean for name, some in found.items() if (s := runs.summary(some))}
    if not means:
        return None
    name = max(means, key=lambda name: means[name])
    return name, found[name]


def leads(records: Runs) -> list[Summary]:
    """MuFuRU's test accuracy minus the GRU's, seed by seed, for every choice that both have."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        cell = str(runs.setting(record, "cell.cell"))
        found.setdefault(described(record), {}).setdefault(cell, []).append(record)
    each = [runs.difference(cells.get("mufuru", []), cells.get("gru", [])) for cells in found.values()]
    return [lead for lead in each if lead is not None]


def described(record: Record) -> str:
    """A choice in words."""
    rate, batch = runs.setting(record, "training.learning_rate"), runs.setting(record, "training.batch_size")
    return f"rate {rate:g}, batches of {batch}, {initialisation(record)} first values"
