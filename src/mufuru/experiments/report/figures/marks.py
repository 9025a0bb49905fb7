"""Means with their intervals and every run: by row, by row in several panels, and by hidden size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mufuru.experiments.report.figures import CELLS, GRID, Look, look, new, style
from mufuru.experiments.report.measure import Measure
from mufuru.experiments.report.statistics import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BELOW = 0.24
"""Single runs stand this far below their mean, so that the interval does not hide them."""
APART = 0.09
"""Cells stand side by side by this much of a doubling, so that no interval hides another."""


def models(lines: Mapping[str, tuple[str, Summary | None]], measure: Measure, published: Mapping[str, float]) -> Figure:
    """Draw a row for each model, given by name as its cell and summary; the published number is an upright stroke."""
    with style():
        figure = new(7.2, 0.9 + 0.42 * len(lines))
        axes = figure.add_subplot()
        for row, (name, (cell, summary)) in enumerate(lines.items()):
            _stripe(axes, row)
            if summary is not None:
                seen = look(cell, row)
                _runs(axes, summary, row + BELOW, seen.marker, seen.colour, size=4, alpha=0.35)
                _mean(axes, summary, row, seen, measure, size=7)
            if name in published:
                axes.vlines(published[name], row - 0.34, row + 0.34, color="#000000", linewidth=2, zorder=3)
        _rows(axes, measure)
        axes.set_yticks(range(len(lines)), list(lines))
        axes.set_ylim(len(lines) - 0.5, -0.5)
        return figure


def variants(panels: Mapping[str, Mapping[str, Summary]], names: Sequence[str], base: str, measure: Measure) -> Figure:
    """Draw a panel for each title with a row for each name; the mean of the base is a broken line."""
    with style():
        figure = new(3.0 + 3.4 * len(panels), 0.9 + 0.3 * len(names))
        grid = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
        for axes, (title, summaries) in zip(grid, panels.items(), strict=True):
            for row, name in enumerate(names):
                _stripe(axes, row)
                if name in summaries:
                    seen = CELLS["mufuru"] if name == base else CELLS["gru"]
                    _runs(axes, summaries[name], row, "o", seen.colour, size=3.5, alpha=0.3)
                    _mean(axes, summaries[name], row, seen, measure, size=6.5)
            if base in summaries:
                axes.axvline(summaries[base].mean, color=CELLS["mufuru"].colour, linewidth=1, linestyle="--", zorder=1)
            _rows(axes, measure)
            axes.set_ylim(-0.5, len(names) - 0.5)
            axes.set_title(title)
        grid[0].set_yticks(range(len(names)), names)
        grid[0].invert_yaxis()
        return figure


def _stripe(axes: Axes, row: int) -> None:
    if row % 2 == 0:
        axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", linewidth=0, zorder=0)


def _runs(axes: Axes, summary: Summary, row: float, marker: str, colour: str, size: float, alpha: float) -> None:
    places = [row] * summary.n
    axes.plot(summary.values, places, marker, color=colour, markersize=size, alpha=alpha, markeredgewidth=0)


def _mean(axes: Axes, summary: Summary, row: float, seen: Look, measure: Measure, size: float) -> None:
    if interval := measure.bounds(summary):
        axes.hlines(row, *interval, color=seen.colour, linewidth=2.2, alpha=0.75)
    axes.plot([summary.mean], [row], seen.marker, color=seen.colour, markersize=size)


def _rows(axes: Axes, measure: Measure) -> None:
    axes.set_xlabel(f"test {measure.name}")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)


def by_size(
    lines: Mapping[str, Mapping[int, Summary]], names: Mapping[str, str], measure: Measure, guessing: float
) -> Figure:
    """Draw a line over the hidden sizes for each cell; `names` are those of the legend."""
    from matplotlib.ticker import NullLocator

    sizes = sorted({size for line in lines.values() for size in line})
    values = [value for line in lines.values() for summary in line.values() for value in summary.values]
    with style():
        figure = new(7.2, 4.2)
        axes = figure.add_subplot()
        for position, (cell, line) in enumerate(lines.items()):
            _line(axes, line, look(cell, position), position - (len(lines) - 1) / 2, names[cell], measure)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        # half a doubling at either end, so that one size alone does not fill the axis
        axes.set_xlim(min(sizes) / 2**0.5, max(sizes) * 2**0.5)
        axes.set_xlabel("hidden size")
        axes.set_ylabel(f"test {measure.name}")
        axes.set_ylim(min(0.45, *values) - 0.01, 1.015)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.axhline(guessing, color="#999999", linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        across = axes.get_yaxis_transform()
        axes.text(1, guessing, "guessing", transform=across, ha="right", va="top", color="#666666", fontsize=8)
        figure.legend(loc="outside upper center", ncols=max(len(lines), 1))
        return figure


def _line(axes: Axes, line: Mapping[int, Summary], seen: Look, shift: float, name: str, measure: Measure) -> None:
    places = [size * 2 ** (APART * shift) for size in line]
    for x, summary in zip(places, line.values(), strict=True):
        dots: Any = {"color": seen.colour, "markersize": 3, "alpha": 0.3, "markeredgewidth": 0}
        axes.plot([x] * summary.n, summary.values, seen.marker, **dots)
        if interval := measure.bounds(summary):
            axes.vlines(x, *interval, color=seen.colour, linewidth=2.2, alpha=0.75)
    means = [summary.mean for summary in line.values()]
    line_style: Any = {"color": seen.colour, "marker": seen.marker, "linestyle": seen.line}
    axes.plot(places, means, linewidth=1.6, markersize=6, label=name, **line_style)
