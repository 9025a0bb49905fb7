"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

HUGE = 1e7


def show_metrics(splits: Mapping[str, Mapping[str, float]]) -> None:
    """A table with a row per data set and a column per metric."""
    names = list(dict.fromkeys(name for metrics in splits.values() for name in metrics))
    table = Table("", *names, title_justify="left", box=None)
    for split, metrics in splits.items():
        table.add_row(split, *(number(metrics.get(name)) for name in names))
    Console(highlight=False).print(table)


def number(value: float | None) -> str:
    """A metric with four digits, a huge one in scientific notation."""
    return "" if value is None else f"{value:.4f}" if value < HUGE else f"{value:.4g}"
