"""Test accuracy against hidden size for each cell, like the paper's Figure 1(a)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mufuru.experiments.report import runs
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.runs import Runs

APART = 0.09
"""Cells stand side by side by this much of a doubling, so that no interval hides another."""
GUESSING = 0.5
"""Half of all formulae are true: every gate has its negation among the gates."""


def draw(records: Runs) -> Figure:
    """Mean and 95 % interval over the seeds as lines; each run as a faint dot."""
    with style.style():
        figure = style.new(7.2, 4.2)
        axes = figure.add_subplot()
        cells = runs.cells(records)
        for position, cell in enumerate(cells):
            _line(axes, runs.where(records, cell__cell=cell), cell, position, position - (len(cells) - 1) / 2)
        sizes = runs.values(records, "cell.hidden_size")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        # half a doubling at either end, so that one size alone does not fill the axis
        axes.set_xlim(min(sizes) / 2**0.5, max(sizes) * 2**0.5)
        axes.set_xlabel("hidden size")
        axes.set_ylabel("test accuracy")
        axes.set_ylim(min(0.45, *_all(records)) - 0.01, 1.015)
        axes.grid(axis="y", color=style.GRID, linewidth=0.8)
        _guessing(axes)
        figure.legend(loc="outside upper center", ncols=max(len(cells), 1))
        return figure


def _guessing(axes: Axes) -> None:
    axes.axhline(GUESSING, color="#999999", linewidth=1, linestyle=(0, (1, 2)), zorder=1)
    across = axes.get_yaxis_transform()
    axes.text(1, GUESSING, "guessing", transform=across, ha="right", va="top", color="#666666", fontsize=8)


def _all(records: Runs) -> list[float]:
    return [value for record in records if (value := runs.metric(record)) is not None] or [1.0]


def _line(axes: Axes, records: Runs, cell: str, position: int, shift: float) -> None:
    look = style.look(cell, position)
    found = [
        (size, s)
        for size in runs.values(records, "cell.hidden_size")
        if (s := runs.summary(runs.where(records, cell__hidden_size=size)))
    ]
    places = [size * 2 ** (APART * shift) for size, _ in found]
    for x, (_, summary) in zip(places, found, strict=True):
        axes.plot(
            [x] * summary.n, summary.values, look.marker, color=look.colour, markersize=3, alpha=0.3, markeredgewidth=0
        )
        if interval := summary.interval(0, 1):
            axes.vlines(x, *interval, color=look.colour, linewidth=2.2, alpha=0.75)
    axes.plot(
        places,
        [summary.mean for _, summary in found],
        color=look.colour,
        marker=look.marker,
        linestyle=look.line,
        linewidth=1.6,
        markersize=6,
        label=runs.name(cell),
    )
