"""The unit with fewer operations: a dot with its interval for each variant."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mufuru.experiments.report import ablation, runs
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.runs import Runs


def draw(records: Runs) -> Figure:
    """A panel for each hidden size; each run is a faint dot, the mean of all seven a line."""
    with style.style():
        names, sizes = ablation.variants(records), runs.values(records, "cell.hidden_size")
        figure = style.new(3.0 + 3.4 * len(sizes), 0.9 + 0.3 * len(names))
        grid = figure.subplots(1, len(sizes), sharey=True, sharex=True, squeeze=False)[0]
        for axes, size in zip(grid, sizes, strict=True):
            _panel(axes, runs.where(records, cell__hidden_size=size), names)
            axes.set_title(f"{size} units")
        grid[0].set_yticks(range(len(names)), names)
        grid[0].invert_yaxis()
        return figure


def _panel(axes: Axes, records: Runs, names: list[str]) -> None:
    for row, name in enumerate(names):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", linewidth=0, zorder=0)
        _variant(axes, ablation.of(records, name), row, name)
    if whole := runs.summary(ablation.of(records, ablation.ALL)):
        axes.axvline(whole.mean, color=style.CELLS["mufuru"].colour, linewidth=1, linestyle="--", zorder=1)
    axes.set_xlabel("test accuracy")
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.grid(axis="x", color=style.GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)


def _variant(axes: Axes, records: Runs, row: int, name: str) -> None:
    found = runs.summary(records)
    if found is None:
        return
    look = style.CELLS["mufuru"] if name == ablation.ALL else style.CELLS["gru"]
    axes.plot(found.values, [row] * found.n, "o", color=look.colour, markersize=3.5, alpha=0.3, markeredgewidth=0)
    if interval := found.interval(0, 1):
        axes.hlines(row, *interval, color=look.colour, linewidth=2.2, alpha=0.75)
    axes.plot(found.mean, row, look.marker, color=look.colour, markersize=6.5)
