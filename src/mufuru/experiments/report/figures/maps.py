"""Heat maps: weights of the operations by token, a sentence word by word, and any grid of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mufuru.experiments.report.figures import GRID, heat, new, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = "#0072B2", "#D55E00"
FRAME = "#D55E00"


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


def operations(panels: Mapping[str, Weights]) -> Figure:
    """Draw one heat map for each title, in one scale, like the paper's Figure 1(b); the highest weight of each token is
    framed."""
    with style():
        tokens = max(len(weights.tokens) for weights in panels.values())
        width = sum(0.6 * len(weights.operations) for weights in panels.values())
        figure = new(width + 1.0, 0.34 * tokens + 0.8)
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        high = _up(max(max(map(max, weights.values)) for weights in panels.values()))
        for panel, (title, weights) in zip(axes, panels.items(), strict=True):
            heat(panel, [list(row) for row in weights.values], 0, high)
            _name(panel, title, weights)
        return figure


def _up(value: float) -> float:
    return math.ceil(10 * value) / 10


def _name(axes: Axes, title: str, weights: Weights) -> None:
    from matplotlib.patches import Rectangle

    axes.set_title(title)
    # keep_left and its like are wider than their columns
    axes.set_xticks(range(len(weights.operations)), [name.replace("_", "\n") for name in weights.operations])
    axes.set_yticks(range(len(weights.tokens)), weights.tokens)
    for row, values in enumerate(weights.values):
        best = values.index(max(values))
        axes.add_patch(Rectangle((best - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=FRAME, linewidth=1.6))


def sentence(steps: Sequence[dict[str, Any]], ops: Sequence[str], label: str) -> Figure:
    """Draw a row for each word: the weights on the left, the label's probability on the right, a bar from one half."""
    with style():
        figure = new(0.6 * len(ops) + 4.0, 0.3 * len(steps) + 0.9)
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(0.6 * len(ops), 2.2))
        values = [[step["weights"][op] for op in ops] for step in steps]
        heat(left, values, 0, _up(max(map(max, values))))
        left.set_xticks(range(len(ops)), ops)
        left.set_yticks(range(len(steps)), [_literal(step["token"]) for step in steps])
        left.set_title("weight of each operation")
        right.set_title(f"probability of {_literal(label)}")
        _belief(right, [step["probability"] for step in steps])
        return figure


def _literal(text: str) -> str:
    """Escape dollars, which would begin mathematics."""
    return text.replace("$", r"\$")


def _belief(axes: Axes, probabilities: list[float]) -> None:
    colours = [RIGHT if value >= 0.5 else WRONG for value in probabilities]
    axes.barh(range(len(probabilities)), [value - 0.5 for value in probabilities], left=0.5, height=0.7, color=colours)
    axes.axvline(0.5, color="#666666", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)


class Side(NamedTuple):
    """The label and the ticks of a side of all maps."""

    label: str
    ticks: Sequence[str]


def grid(maps: Sequence[Mapping[str, list[list[float]]]], down: Side, across: Side, low: float, high: float) -> Figure:
    """Draw rows of heat maps by their titles, all in one scale; NaN stays empty."""
    with style():
        columns = len(maps[0])
        width, height = 0.6 + 0.62 * len(across.ticks), 0.5 + 0.32 * len(down.ticks)
        figure = new(1.0 + columns * width, 1.0 + len(maps) * height)
        every = figure.subplots(len(maps), columns, squeeze=False, sharex=True, sharey=True)
        for line, row in zip(every, maps, strict=True):
            for axes, (title, values) in zip(line, row.items(), strict=True):
                heat(axes, values, low, high)
                axes.set_title(title)
            line[0].set_yticks(range(len(down.ticks)), down.ticks)
            line[0].set_ylabel(down.label)
        for axes in every[-1]:
            axes.set_xticks(range(len(across.ticks)), across.ticks)
            axes.set_xlabel(across.label)
        return figure
