"""The plots of all reports: learning curves, heat maps, and means with their intervals and every run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mufuru.experiments.report import runs
from mufuru.experiments.report.figures import CELLS, GRID, OPERATIONS, Look, heat, look, new, style
from mufuru.experiments.report.measure import Difference, Measure, Summary
from mufuru.experiments.report.runs import Lines, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Groups = Mapping[str, Lines]
"""Title of a row of figures -> its lines."""
Dots = Mapping[str, tuple[str, Summary | None]]
"""Name of a model -> its cell and its results."""
Curve = dict[float, list[float]]
Axis = Literal["epoch", "update"]
"""Unit of the horizontal axis: epochs, or updates where there are several evaluations in an epoch."""
RIGHT, WRONG = "#0072B2", "#D55E00"
FRAME = "#D55E00"
BELOW = 0.24
"""Single runs are drawn this far below their mean, so that the interval does not hide them."""
BEGINNING = 0.1
"""Part of a learning curve whose values may lie outside of the vertical axis."""
TITLE, NAME = 38, 44
"""Letters in a line of a panel's title, and of a row's name."""
APART = 0.09
"""Cells are drawn apart by this part of a doubling, so that no interval hides another."""


@style()
def curves(rows: Groups, metric: str, looks: Mapping[str, Look], by: Axis = "epoch") -> Figure:
    """Draw a row for each title: the loss on the left, the metric on the right."""
    figure = new(8.4, 0.6 + 2.3 * len(rows))
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey="col")
    for (left, right), (title, lines) in zip(grid, rows.items(), strict=True):
        for name, records in lines.items():
            _curve(left, curve(records, "train", "loss", by), looks[name], name)
            _curve(right, curve(records, "valid", metric, by), looks[name], name)
        for axes, what in ((left, "training loss"), (right, f"validation {metric}")):
            axes.set_title(f"{title}: {what}" if title else what)
            axes.grid(color=GRID, linewidth=0.8)
    for axes in grid[-1]:
        _along(axes, by)
    for column in zip(*grid, strict=True):
        _past_beginning(column[0], [line for axes in column for line in axes.lines])
    _legend(figure, grid[0][0])
    return figure


def _past_beginning(axes: Axes, lines: Sequence[Line2D]) -> None:
    """Fit the vertical axis to each line after its first tenth: else the steep beginning takes most of the axis."""
    values: list[list[float]] = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in lines]
    later = [value for one in values for value in one[int(len(one) * BEGINNING) :]]
    if later and min(later) < max(later):
        margin = 0.05 * (max(later) - min(later))
        axes.set_ylim(min(later) - margin, max(later) + margin)


@style()
def use(panels: Lines, by: Axis = "epoch") -> Figure:
    """Draw a panel for each title: a line for each operation's mean weight."""
    figure = new(4.2 * max(2, len(panels)), 3.0)
    (row,) = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, (title, records) in zip(row, panels.items(), strict=True):
        for place, name in enumerate(operations_of(records)):
            _curve(axes, curve(records, "operations", name, by), OPERATIONS[place % len(OPERATIONS)], name)
        axes.set_title("\n".join(wrap(title, TITLE)))
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


def _curve(axes: Axes, values: Curve, look: Look, name: str) -> None:
    along = list(values)
    means = [statistics.fmean(some) for some in values.values()]
    marks: Any = {"marker": look.marker, "markevery": max(1, len(along) // 6), "markersize": 4}
    axes.plot(along, means, color=look.colour, linestyle=look.line, linewidth=1.6, label=name, **marks)
    if any(len(some) > 1 for some in values.values()):
        low, high = zip(*map(middle, values.values()), strict=True)
        axes.fill_between(along, low, high, color=look.colour, alpha=0.15, linewidth=0)


def middle(values: list[float]) -> tuple[float, float]:
    """Return the quarter points, between which half of the runs are."""
    low, high = np.quantile(values, (0.25, 0.75)).tolist()
    return low, high


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # as many as stand side by side in the width of the figure
    fit = int(figure.get_figwidth() * 12 // max(map(len, labels), default=1))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, max(1, len(labels)), max(1, fit)))


class Weights(NamedTuple):
    """The average weight of every operation at every token: a row per token, a column per operation."""

    tokens: tuple[str, ...]
    operations: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    deviations: tuple[tuple[float, ...], ...] | None
    """Standard deviation between runs; None for one run alone."""
    n: int

    def row(self, token: str) -> dict[str, float]:
        return dict(zip(self.operations, self.values[self.tokens.index(token)], strict=True))


@style()
def operations(panels: Mapping[str, Weights]) -> Figure:
    """Draw one heat map for each title, in one scale, like the paper's Figure 1(b); the highest weight of each token is
    framed."""
    from matplotlib.patches import Rectangle

    tokens = max(len(weights.tokens) for weights in panels.values())
    width = sum(0.6 * len(weights.operations) for weights in panels.values())
    figure = new(width + 1.0, 0.34 * tokens + 0.8)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    high = _up(max(max(map(max, weights.values)) for weights in panels.values()))
    for panel, (title, weights) in zip(axes, panels.items(), strict=True):
        heat(panel, weights.values, 0, high)
        panel.set_title(title)
        # keep_left and its like are wider than their columns
        panel.set_xticks(range(len(weights.operations)), [name.replace("_", "\n") for name in weights.operations])
        panel.set_yticks(range(len(weights.tokens)), weights.tokens)
        for row, values in enumerate(weights.values):
            best = values.index(max(values))
            frame = Rectangle((best - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=FRAME, linewidth=1.6)
            panel.add_patch(frame)
    return figure


def _up(value: float) -> float:
    return math.ceil(10 * value) / 10


@style()
def sentence(steps: Sequence[dict[str, Any]], ops: Sequence[str], label: str) -> Figure:
    """Draw a row for each word: the weights on the left, the label's probability on the right, a bar from one half."""
    figure = new(0.6 * len(ops) + 4.0, 0.3 * len(steps) + 0.9)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(0.6 * len(ops), 2.2))
    values = [[step["weights"][op] for op in ops] for step in steps]
    heat(left, values, 0, _up(max(map(max, values))))
    left.set_xticks(range(len(ops)), ops)
    left.set_yticks(range(len(steps)), [_literal(step["token"]) for step in steps])
    left.set_title("weight of each operation")
    right.set_title(f"probability of {_literal(label)}")
    probabilities = [step["probability"] for step in steps]
    colours = [RIGHT if value >= 0.5 else WRONG for value in probabilities]
    right.barh(range(len(steps)), [value - 0.5 for value in probabilities], left=0.5, height=0.7, color=colours)
    right.axvline(0.5, color="#666666", linewidth=1)
    right.set_xlim(0, 1)
    right.set_xticks([0, 0.5, 1])
    _upright_grid(right)
    return figure


def _literal(text: str) -> str:
    """Escape dollars, which would begin mathematics."""
    return text.replace("$", r"\$")


Side = tuple[str, Sequence[str]]
"""Label and ticks of a side of all maps."""


@style()
def grid(maps: Sequence[Mapping[str, list[list[float]]]], down: Side, across: Side, low: float, high: float) -> Figure:
    """Draw rows of heat maps by their titles, all in one scale; NaN stays empty."""
    columns = len(maps[0])
    width, height = 0.6 + 0.62 * len(across[1]), 0.5 + 0.32 * len(down[1])
    figure = new(1.0 + columns * width, 1.0 + len(maps) * height)
    every = figure.subplots(len(maps), columns, squeeze=False, sharex=True, sharey=True)
    for line, row in zip(every, maps, strict=True):
        for axes, (title, values) in zip(line, row.items(), strict=True):
            heat(axes, values, low, high)
            axes.set_title(title)
        line[0].set_yticks(range(len(down[1])), down[1])
        line[0].set_ylabel(down[0])
    for axes in every[-1]:
        axes.set_xticks(range(len(across[1])), across[1])
        axes.set_xlabel(across[0])
    return figure


@style()
def models(lines: Dots, measure: Measure, published: Mapping[str, float]) -> Figure:
    """Draw a row for each model; the published number is an upright stroke."""
    figure = new(7.2, 0.9 + 0.42 * len(lines))
    axes = figure.add_subplot()
    for row, (name, (cell, summary)) in enumerate(lines.items()):
        if summary is not None:
            seen = look(cell, row)
            _runs(axes, summary, row + BELOW, seen, size=4, alpha=0.35)
            _mean(axes, summary.mean, measure.bounds(summary), row, seen, size=7)
        _stroke(axes, published.get(name), row)
    axes.set_xlabel(f"test {measure.name}")
    _rows(axes, ["\n".join(wrap(name, NAME)) for name in lines])
    return figure


@style()
def variants(panels: Mapping[str, Mapping[str, Summary]], names: Sequence[str], base: str, measure: Measure) -> Figure:
    """Draw a panel for each title with a row for each name; the mean of the base is a broken line."""
    figure = new(3.0 + 3.4 * len(panels), 0.9 + 0.3 * len(names))
    grid = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (title, summaries) in zip(grid, panels.items(), strict=True):
        for row, name in enumerate(names):
            if summary := summaries.get(name):
                seen = CELLS["mufuru" if name == base else "gru"]
                _runs(axes, summary, row, seen._replace(marker="o"), size=3.5, alpha=0.3)
                _mean(axes, summary.mean, measure.bounds(summary), row, seen, size=6.5)
        if base in summaries:
            axes.axvline(summaries[base].mean, color=CELLS["mufuru"].colour, linewidth=1, linestyle="--", zorder=1)
        axes.set_xlabel(f"test {measure.name}")
        axes.set_title(title)
        _rows(axes, names)
    return figure


class Row(NamedTuple):
    """A row of a forest plot."""

    title: str
    difference: Difference
    published: float | None


@style()
def forest(panels: Mapping[str, tuple[Measure, Sequence[Row]]]) -> Figure:
    """Draw differences between MuFuRU and GRU with their intervals, a panel for each measure by its title; right of the
    upright line MuFuRU is better."""
    heights = [len(rows) for _, rows in panels.values()]
    figure = new(7.6, 0.5 + 0.75 * len(panels) + 0.4 * sum(heights))
    figure.suptitle("MuFuRU − GRU: right of 0 MuFuRU is better; black stroke: the paper", fontsize=10)
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for (axes,), (title, (measure, rows)) in zip(grid, panels.items(), strict=True):
        for place, row in enumerate(rows):
            _mean(axes, row.difference.mean, row.difference.interval(), place, CELLS["mufuru"], size=7)
            _stroke(axes, row.published, place)
        axes.axvline(0, color="#666666", linewidth=1, zorder=1)
        _rows(axes, [row.title for row in rows])
        axes.set_title(f"{title}: {measure.name}")
        if measure.lower_is_better:
            axes.invert_xaxis()
    return figure


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows from the top down, every second one on a stripe."""
    for row in range(0, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", linewidth=0, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _upright_grid(axes)


def _runs(axes: Axes, summary: Summary, row: float, seen: Look, size: float, alpha: float) -> None:
    # one run is its own mean
    values = summary.values if summary.n > 1 else ()
    dots: Any = {"color": seen.colour, "markersize": size, "alpha": alpha, "markeredgewidth": 0}
    axes.plot(values, [row] * len(values), seen.marker, **dots)


def _mean(axes: Axes, mean: float, interval: tuple[float, float] | None, row: float, seen: Look, size: float) -> None:
    if interval:
        axes.hlines(row, *interval, color=seen.colour, linewidth=2.2, alpha=0.75)
    axes.plot([mean], [row], seen.marker, color=seen.colour, markersize=size)


def _stroke(axes: Axes, published: float | None, row: float) -> None:
    if published is not None:
        axes.vlines(published, row - 0.34, row + 0.34, color="#000000", linewidth=2, zorder=3)


def _upright_grid(axes: Axes) -> None:
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)


@style()
def by_size(
    lines: Mapping[str, Mapping[int, Summary]],
    names: Mapping[str, str],
    measure: Measure,
    levels: Mapping[str, float],
    least_error: float | None = None,
) -> Figure:
    """Draw a line over the hidden sizes for each cell; `names` are those of the legend. `levels` are drawn across.

    With a least error the axis is that of the error's logarithm, with the least added so that none can be drawn.
    """
    from matplotlib.ticker import NullLocator

    sizes = sorted({size for line in lines.values() for size in line})
    values = [value for line in lines.values() for summary in line.values() for value in summary.values]
    figure = new(7.2, 4.2)
    axes = figure.add_subplot()
    for position, (cell, line) in enumerate(lines.items()):
        _sizes(axes, line, look(cell, position), position - (len(lines) - 1) / 2, names[cell], measure)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    # half a doubling at either end, so that one size alone does not fill the axis
    axes.set_xlim(min(sizes) / 2**0.5, max(sizes) * 2**0.5)
    axes.set_xlabel("hidden size")
    axes.set_ylabel(f"test {measure.name}")
    if least_error is None:
        axes.set_ylim(min(0.45, *values) - 0.01, 1.015)
    else:
        _by_error(axes, least_error)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    across = axes.get_yaxis_transform()
    for name, level in levels.items():
        axes.axhline(level, color="#999999", linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        axes.text(1.01, level, name, transform=across, ha="left", va="center", color="#666666", fontsize=8)
    figure.legend(loc="outside upper center", ncols=max(len(lines), 1))
    return figure


def _by_error(axes: Axes, least: float) -> None:
    """Scale an axis of accuracies by the logarithm of the error, to which the least is added."""
    axes.set_yscale(
        "function",
        functions=(
            lambda values: -np.log10(np.maximum(1 - np.asarray(values) + least, least / 2)),
            lambda heights: 1 + least - 10.0 ** -np.asarray(heights),
        ),
    )
    ticks = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(0.4, 1 + least / 4)


def _sizes(axes: Axes, line: Mapping[int, Summary], seen: Look, shift: float, name: str, measure: Measure) -> None:
    places = [size * 2 ** (APART * shift) for size in line]
    for x, summary in zip(places, line.values(), strict=True):
        dots: Any = {"color": seen.colour, "markersize": 3, "alpha": 0.3, "markeredgewidth": 0}
        axes.plot([x] * summary.n, summary.values, seen.marker, **dots)
        if interval := measure.bounds(summary):
            axes.vlines(x, *interval, color=seen.colour, linewidth=2.2, alpha=0.75)
    means = [summary.mean for summary in line.values()]
    line_style: Any = {"color": seen.colour, "marker": seen.marker, "linestyle": seen.line}
    axes.plot(places, means, linewidth=1.6, markersize=6, label=name, **line_style)


@style()
def by_length(panels: Mapping[str, Mapping[str, tuple[str, Sequence[Mapping[int, float]]]]]) -> Figure:
    """Draw a panel for each title; in it for each name the look of a cell, and accuracies by length, run by run."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = new(3.0 * columns, 0.5 + 2.1 * rows)
    every = [axes for row in figure.subplots(rows, columns, squeeze=False, sharey=True) for axes in row]
    for axes, (title, lines) in zip(every, panels.items(), strict=False):
        for name, (cell, several) in lines.items():
            seen = look(cell)
            for line in several:
                axes.plot([*line], [*line.values()], color=seen.colour, linewidth=0.6, alpha=0.25)
            means = {length: statistics.fmean(line[length] for line in several) for length in several[0]}
            axes.plot([*means], [*means.values()], color=seen.colour, linestyle=seen.line, linewidth=1.8, label=name)
        axes.set_title(title)
        axes.set_ylim(-0.02, 1.02)
        axes.grid(color=GRID, linewidth=0.8)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    for axes in every[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("length of string, up to")
    for axes in every[::columns]:
        axes.set_ylabel("accuracy")
    most = max(every[: len(panels)], key=lambda axes: len(axes.get_legend_handles_labels()[1]))
    _legend(figure, most)
    return figure


@style()
def effects(points: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Draw the effect of forbidding an operation against its weight, a point for each token, a colour for each
    operation."""
    figure = new(6.4, 4.2)
    axes = figure.add_subplot()
    for (name, some), seen in zip(points.items(), OPERATIONS, strict=False):
        axes.plot(*zip(*some, strict=True), seen.marker, color=seen.colour, markersize=6, alpha=0.8, label=name)
    axes.axhline(0, color=GRID, linewidth=1)
    axes.set_xlabel("mean weight at a token")
    axes.set_ylabel("accuracy lost without it there")
    axes.grid(color=GRID, linewidth=0.8)
    _legend(figure, axes)
    return figure


@style()
def automaton(facts: Mapping[str, Any], tokens: Sequence[str]) -> Figure:
    """Draw the automaton of one unit: for each gate the state after a value and the gate against the state before.

    `facts` is that of `logic.probes.automaton`; dots are the states after a value and at most one gate.
    """
    states, following = np.array(facts["states"]), np.array(facts["next"])

    def read(state: Any, *symbols: int) -> Any:
        for symbol in symbols:
            state = np.interp(state, states, following[symbol])
        return state

    values, gates = range(2), range(2, len(tokens))
    first = np.array([read(0.0, value) for value in values])
    visited = np.concatenate([first, *(read(first, value, gate) for value in values for gate in gates)])
    figure = new(9.0, 4.4)
    panels = figure.subplots(2, -(-len(gates) // 2), sharex=True, sharey=True, squeeze=False)
    for axes, gate in zip(panels.flat, gates, strict=False):
        for value, seen in zip(values, (CELLS["gru"], CELLS["mufuru"]), strict=True):
            axes.plot(states, read(states, value, gate), color=seen.colour, linewidth=1.4, label=f"with {value}")
            axes.plot(visited, read(visited, value, gate), seen.marker, color=seen.colour, markersize=3.5, alpha=0.7)
        for line in (axes.axhline, axes.axvline):
            line(facts["boundary"], color="#999999", linewidth=1, linestyle=(0, (1, 2)))
        axes.plot([-1, 1], [-1, 1], color=GRID, linewidth=0.8, zorder=0)
        axes.set_title(tokens[gate])
    for axes in panels[-1]:
        axes.set_xlabel("state before")
    for axes in panels[:, 0]:
        axes.set_ylabel("state after")
    _legend(figure, panels.flat[0])
    return figure


@style()
def forecasts(panels: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw a panel for each forecast: the values before its origin, the truth, the interval and the naive one."""
    figure = new(8.4, 0.5 + 2.0 * len(panels))
    column = [row[0] for row in figure.subplots(len(panels), 1, squeeze=False)]
    for axes, panel in zip(column, panels, strict=True):
        levels = sorted(panel["quantiles"], key=float)
        past, ahead = range(1 - len(panel["before"]), 1), range(1, len(panel["truth"]) + 1)
        axes.plot([*past, *ahead], [*panel["before"], *panel["truth"]], color="0.45", linewidth=1.2, label="truth")
        axes.plot(ahead, panel["quantiles"]["0.5"], color=RIGHT, marker="o", markersize=3, label="forecast")
        axes.plot(ahead, panel["naive"], color=WRONG, linestyle=":", label="seasonal-naive")
        if len(levels) > 1:
            low, high = panel["quantiles"][levels[0]], panel["quantiles"][levels[-1]]
            axes.fill_between(ahead, low, high, color=RIGHT, alpha=0.2, label=f"quantiles {levels[0]} to {levels[-1]}")
        axes.axvline(0, color=GRID, linewidth=0.8)
        axes.set_title(panel["series"])
        axes.grid(color=GRID, linewidth=0.8)
    column[-1].set_xlabel("steps after the origin")
    _legend(figure, column[0])
    return figure
