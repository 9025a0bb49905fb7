"""Learning curves: training loss and validation metric by epoch, mean over the seeds, and their middle half."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from mufuru.experiments.report import runs
from mufuru.experiments.report.figures import EVERY_LOOK, GRID, Look, new, style
from mufuru.experiments.report.runs import Lines, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = Mapping[str, Lines]
"""Title of a row of figures -> its lines."""
Curve = dict[float, list[float]]
Axis = Literal["epoch", "update"]
"""Unit of the horizontal axis: epochs, or updates where there are several evaluations in an epoch."""


def draw(rows: Groups, metric: str, looks: Mapping[str, Look], by: Axis = "epoch") -> Figure:
    """Draw a row for each title: the loss on the left, the metric on the right."""
    with style():
        figure = new(8.4, 0.6 + 2.3 * len(rows))
        grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey="col")
        for (left, right), (title, lines) in zip(grid, rows.items(), strict=True):
            for name, records in lines.items():
                _line(left, curve(records, "train", "loss", by), looks[name], name)
                _line(right, curve(records, "valid", metric, by), looks[name], name)
            for axes, what in ((left, "training loss"), (right, f"validation {metric}")):
                axes.set_title(f"{title}: {what}" if title else what)
                axes.grid(color=GRID, linewidth=0.8)
        for axes in grid[-1]:
            _along(axes, by)
        _legend(figure, grid[0][0])
        return figure


def draw_use(panels: Lines, by: Axis = "epoch") -> Figure:
    """Draw a panel for each title: a line for each operation's mean weight."""
    with style():
        figure = new(4.2 * max(2, len(panels)), 3.0)
        (row,) = figure.subplots(1, len(panels), squeeze=False, sharey=True)
        for axes, (title, records) in zip(row, panels.items(), strict=True):
            for place, name in enumerate(operations_of(records)):
                _line(axes, curve(records, "operations", name, by), EVERY_LOOK[place % len(EVERY_LOOK)], name)
            axes.set_title(title)
            _along(axes, by)
            axes.grid(color=GRID, linewidth=0.8)
        row[0].set_ylabel("mean weight")
        _legend(figure, row[0])
        return figure


def _along(axes: Axes, by: Axis) -> None:
    """Label the horizontal axis; there is no half of an epoch or update."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(by)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def operations_of(records: Runs) -> list[str]:
    """Return the operations whose use the curves hold, in the order of the runs' settings."""
    held = dict.fromkeys(name for record in records for line in record.curve for name in line.get("operations", ()))
    # records are written with their names in alphabetical order
    listed = (name for record in records for name in runs.setting(record, "cell.ops") or ())
    return list(dict.fromkeys([*(name for name in listed if name in held), *held]))


def curve(records: Runs, split: str, metric: str, by: Axis = "epoch") -> Curve:
    """Return the values of all runs by epoch or update."""
    values: Curve = {}
    for record in records:
        for line in record.curve:
            value = line.get(split, {}).get(metric)
            if value is not None:
                values.setdefault(float(line[by]), []).append(float(value))
    return dict(sorted(values.items()))


def axis_of(records: Runs) -> Axis:
    """Return epochs where every run has one evaluation in each, else updates."""
    once = all(len({line["epoch"] for line in record.curve}) == len(record.curve) for record in records)
    return "epoch" if once else "update"


def _line(axes: Axes, values: Curve, look: Look, name: str) -> None:
    along = list(values)
    means = [statistics.fmean(some) for some in values.values()]
    marks: Any = {"marker": look.marker, "markevery": max(1, len(along) // 6), "markersize": 4}
    axes.plot(along, means, color=look.colour, linestyle=look.line, linewidth=1.6, label=name, **marks)
    if any(len(some) > 1 for some in values.values()):
        low, high = zip(*map(middle, values.values()), strict=True)
        axes.fill_between(along, low, high, color=look.colour, alpha=0.15, linewidth=0)


def middle(values: list[float]) -> tuple[float, float]:
    """Return the quarter points, between which half of the runs are."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, max(1, len(labels))))
