"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from mufuru.experiments.record import Record

HUGE = 1e7


def show_metrics(splits: Mapping[str, Mapping[str, float]]) -> None:
    """A table with a row per data set and a column per metric."""
    names = list(dict.fromkeys(name for metrics in splits.values() for name in metrics))
    rows = ([split, *(number(metrics.get(name)) for name in names)] for split, metrics in splits.items())
    _show("", ["", *names], rows)


def number(value: float | None) -> str:
    """A metric with four digits, a huge one in scientific notation."""
    return "" if value is None else f"{value:.4f}" if value < HUGE else f"{value:.4g}"


def show_accuracy(title: str, records: Sequence[Record]) -> None:
    """The test accuracy of each cell and size over the seeds."""
    _show(title, ["cell", "units", "runs", "test accuracy (95 % interval)"], _accuracies(records))


def _accuracies(records: Sequence[Record]) -> Iterator[list[str]]:
    from mufuru.experiments.report import runs, tables

    for cell in runs.cells(records):
        for size in runs.values(runs.where(records, cell__cell=cell), "cell.hidden_size"):
            found = runs.summary(runs.where(records, cell__cell=cell, cell__hidden_size=size))
            if found:
                yield [runs.name(cell), str(size), str(found.n), tables.accuracy(found)]


def show_models(title: str, records: Sequence[Record]) -> None:
    """The test metric of each model over the seeds."""
    from mufuru.experiments.report import models

    measure = models.measure_of(records)
    head = ["model", "runs", f"test {measure.name} (95 % interval)"]
    summaries = ((name, models.summary(found)) for name, found in models.by_settings(records).items())
    _show(title, head, ([name, str(found.n), measure.interval(found)] for name, found in summaries if found))


def _show(title: str, head: Sequence[str], rows: Iterator[list[str]]) -> None:
    table = Table(*head, title=title or None, title_justify="left", box=None)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
