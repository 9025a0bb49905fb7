"""A sentence read word by word: the weight of every operation, and what the model believes so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mufuru.experiments.report.figures import style

RIGHT, WRONG = "#0072B2", "#D55E00"


def draw(steps: Sequence[dict[str, Any]], ops: Sequence[str], label: str) -> Figure:
    """A row for each word: on the left the weights, on the right the label's probability as a bar from one half."""
    with style.style():
        figure = style.new(0.6 * len(ops) + 4.0, 0.3 * len(steps) + 0.9)
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(0.6 * len(ops), 2.2))
        values = [[step["weights"][op] for op in ops] for step in steps]
        style.heat(left, values, 0, math.ceil(10 * max(map(max, values))) / 10)
        left.set_xticks(range(len(ops)), ops)
        left.set_yticks(range(len(steps)), [_literal(step["token"]) for step in steps])
        left.set_title("weight of each operation")
        right.set_title(f"probability of {_literal(label)}")
        _belief(right, [step["probability"] for step in steps])
        return figure


def _literal(text: str) -> str:
    """A dollar would begin mathematics."""
    return text.replace("$", r"\$")


def _belief(axes: Axes, probabilities: list[float]) -> None:
    colours = [RIGHT if value >= 0.5 else WRONG for value in probabilities]
    axes.barh(range(len(probabilities)), [value - 0.5 for value in probabilities], left=0.5, height=0.7, color=colours)
    axes.axvline(0.5, color="#666666", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
    axes.grid(axis="x", color=style.GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)
