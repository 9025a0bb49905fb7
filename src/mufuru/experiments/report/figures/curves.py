"""Learning curves: training loss and validation metric by epoch, mean over the seeds, and their middle half."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mufuru.experiments.report import runs
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.runs import Runs

Groups = Mapping[str, Mapping[str, Runs]]
"""Row title -> name of the line -> the runs that differ in their seed alone."""
Curve = dict[float, list[float]]
Axis = Literal["epoch", "update"]
"""What the curves run along: epochs, or updates where there are several looks in an epoch."""
EVERY_LOOK = (*style.CELLS.values(), *style.OTHERS)


def draw(rows: Groups, metric: str, looks: dict[str, style.Look], by: Axis = "epoch") -> Figure:
    """A row for each title: the loss on the left, the metric on the right."""
    with style.style():
        figure = style.new(8.4, 0.6 + 2.3 * len(rows))
        grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey="col")
        for (left, right), (title, lines) in zip(grid, rows.items(), strict=True):
            for name, records in lines.items():
                _line(left, curve(records, "train", "loss", by), looks[name], name)
                _line(right, curve(records, "valid", metric, by), looks[name], name)
            for axes, what in ((left, "training loss"), (right, f"validation {metric}")):
                axes.set_title(f"{title}: {what}" if title else what)
                axes.grid(color=style.GRID, linewidth=0.8)
        for axes in grid[-1]:
            _along(axes, by)
        _legend(figure, grid[0][0])
        return figure


def draw_use(panels: Mapping[str, Runs], by: Axis = "epoch") -> Figure:
    """A panel for each title: a line for each operation's mean weight."""
    with style.style():
        figure = style.new(4.2 * max(2, len(panels)), 3.0)
        (row,) = figure.subplots(1, len(panels), squeeze=False, sharey=True)
        for axes, (title, records) in zip(row, panels.items(), strict=True):
            for place, name in enumerate(operations_of(records)):
                _line(axes, curve(records, "operations", name, by), EVERY_LOOK[place % len(EVERY_LOOK)], name)
            axes.set_title(title)
            _along(axes, by)
            axes.grid(color=style.GRID, linewidth=0.8)
        row[0].set_ylabel("mean weight")
        _legend(figure, row[0])
        return figure


def _along(axes: Axes, by: Axis) -> None:
    """There is no half of an epoch or update."""
    axes.set_xlabel(by)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def operations_of(records: Runs) -> list[str]:
    """Those whose use the curves hold, in the order of the runs' settings."""
    held = dict.fromkeys(name for record in records for line in record.curve for name in line.get("operations", ()))
    # records are written with their names in alphabetical order
    listed = (name for record in records for name in runs.setting(record, "cell.ops") or ())
    return list(dict.fromkeys([*(name for name in listed if name in held), *held]))


def curve(records: Runs, split: str, metric: str, by: Axis = "epoch") -> Curve:
    """The values of all runs by epoch or update."""
    found: Curve = {}
    for record in records:
        for line in record.curve:
            value = line.get(split, {}).get(metric)
            if value is not None:
                found.setdefault(float(line[by]), []).append(float(value))
    return dict(sorted(found.items()))


def axis_of(records: Runs) -> Axis:
    """Epochs where every run has one look in each, else updates."""
    once = all(len({line["epoch"] for line in record.curve}) == len(record.curve) for record in records)
    return "epoch" if once else "update"


def _line(axes: Axes, found: Curve, look: style.Look, name: str) -> None:
    epochs = list(found)
    means = [statistics.fmean(values) for values in found.values()]
    every = max(1, len(epochs) // 6)
    axes.plot(
        epochs,
        means,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markevery=every,
        markersize=4,
        linewidth=1.6,
        label=name,
    )
    if any(len(values) > 1 for values in found.values()):
        low, high = zip(*map(middle, found.values()), strict=True)
        axes.fill_between(epochs, low, high, color=look.colour, alpha=0.15, linewidth=0)


def middle(values: list[float]) -> tuple[float, float]:
    """The quarter points, between which half of the runs are."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, max(1, len(labels))))
