"""What the paper left open: learning rate × batch size × initialisation, a heat map for each cell and size."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from mufuru.experiments.report import choices, runs
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.runs import Runs

LOW = 0.5
"""Guessing has no colour."""


def draw(records: Runs) -> Figure:
    """A row of maps for each size and cell, a column for each initialisation; mean test accuracy in the cells."""
    with style.style():
        rows = [(s, c) for s in runs.values(records, "cell.hidden_size") for c in runs.cells(records)]
        columns = choices.initialisations(records)
        rates = runs.values(records, "training.learning_rate")
        batches = runs.values(records, "training.batch_size")
        size = (1.0 + len(columns) * (0.6 + 0.62 * len(batches)), 1.0 + len(rows) * (0.5 + 0.32 * len(rates)))
        figure = style.new(*size)
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
        for line, (hidden_size, cell) in zip(grid, rows, strict=True):
            for axes, start in zip(line, columns, strict=True):
                chosen = choices.started(runs.where(records, cell__cell=cell, cell__hidden_size=hidden_size), start)
                style.heat(axes, means(chosen, rates, batches), LOW, 1)
                axes.set_title(f"{runs.name(cell)}, {hidden_size} units" + (f", {start}" if len(columns) > 1 else ""))
        _label(grid, rates, batches)
        return figure


def means(records: Runs, rates: list[float], batches: list[int]) -> list[list[float]]:
    """Mean test accuracy, a row for each learning rate; NaN where nothing ran."""
    table = []
    for rate in rates:
        chosen = [runs.where(records, training__learning_rate=rate, training__batch_size=batch) for batch in batches]
        table.append([found.mean if (found := runs.summary(some)) else math.nan for some in chosen])
    return table


def _label(grid: Any, rates: list[float], batches: list[int]) -> None:
    for line in grid:
        line[0].set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        line[0].set_ylabel("learning rate")
    for axes in grid[-1]:
        axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
        axes.set_xlabel("batch size")
