"""The average weight of every operation at every token, like the paper's Figure 1(b)."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mufuru.experiments.report.figures import style
from mufuru.experiments.report.weights import Weights


def draw(panels: dict[str, Weights]) -> Figure:
    """One heat map for each title, in one scale; the highest weight of each token is framed."""
    with style.style():
        tokens = max(len(weights.tokens) for weights in panels.values())
        width = sum(0.6 * len(weights.operations) for weights in panels.values())
        figure = style.new(width + 1.0, 0.34 * tokens + 0.8)
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        high = math.ceil(10 * max(max(map(max, weights.values)) for weights in panels.values())) / 10
        for panel, (title, weights) in zip(axes, panels.items(), strict=True):
            style.heat(panel, [list(row) for row in weights.values], 0, high)
            _name(panel, title, weights)
        return figure


def _name(axes: Axes, title: str, weights: Weights) -> None:
    axes.set_title(title)
    # keep_left and its like are wider than their columns
    axes.set_xticks(range(len(weights.operations)), [name.replace("_", "\n") for name in weights.operations])
    axes.set_yticks(range(len(weights.tokens)), weights.tokens)
    for row, values in enumerate(weights.values):
        best = values.index(max(values))
        frame = Rectangle((best - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor="#D55E00", linewidth=1.6)
        axes.add_patch(frame)
