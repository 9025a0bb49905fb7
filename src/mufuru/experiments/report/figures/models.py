"""Models side by side: a mark with its interval for each, every run, and the paper's number."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mufuru.experiments.report import models
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.models import Measure
from mufuru.experiments.report.runs import Runs

PUBLISHED = "#000000"
BELOW = 0.24
"""Single runs stand this far below their mean, so that the interval does not hide them."""


def draw(lines: Mapping[str, Runs], measure: Measure, published: Mapping[str, float]) -> Figure:
    """A row for each line of runs."""
    with style.style():
        figure = style.new(7.2, 0.9 + 0.42 * len(lines))
        axes = figure.add_subplot()
        for row, (name, records) in enumerate(lines.items()):
            if row % 2 == 0:
                axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", linewidth=0, zorder=0)
            _line(axes, row, records, style.look(str(models.cell_of(records[0])), row))
            if name in published:
                axes.vlines(published[name], row - 0.34, row + 0.34, color=PUBLISHED, linewidth=2, zorder=3)
        axes.set_yticks(range(len(lines)), list(lines))
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_xlabel(f"test {measure.name}")
        axes.grid(axis="x", color=style.GRID, linewidth=0.8)
        axes.tick_params(axis="y", length=0)
        return figure


def _line(axes: Axes, row: int, records: Runs, look: style.Look) -> None:
    found = models.summary(records)
    if found is None:
        return
    axes.plot(
        found.values,
        [row + BELOW] * found.n,
        look.marker,
        color=look.colour,
        markersize=4,
        alpha=0.35,
        markeredgewidth=0,
    )
    if interval := found.interval():
        axes.hlines(row, *interval, color=look.colour, linewidth=2.2, alpha=0.75)
    axes.plot([found.mean], [row], look.marker, color=look.colour, markersize=7)
