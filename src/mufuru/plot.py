"""A trace as pictures: `weights`, `units`, `states` and `contributions`. matplotlib is needed only when one is drawn.

All give a matplotlib figure that belongs to no window and shows itself in a notebook. The colour-blind can distinguish
the colours, which are also ordered in grey.

Examples:
    >>> import torch, mufuru
    >>> trace = mufuru.MuFuRU(10, 20).trace(torch.randn(3, 1, 10))
    >>> figure = mufuru.plot.weights(trace, tokens=["not", "a", "film"])
    >>> [axes.get_title(loc="left") for axes in figure.axes[:1]]
    ['Operation weights, mean over 20 units']
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mufuru.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tokens = Sequence[str] | None
WEIGHTS, STATES = "mako", "blue to orange"
RAMPS = {
    WEIGHTS: ("#F4F8F6", "#DEF5E5", "#79D6AE", "#38AAAC", "#357BA2", "#3B5698", "#3E356B", "#2B1C35"),
    STATES: ("#0B4F94", "#7DB0DD", "#F6F5F2", "#F0A868", "#A84300"),
}
OPERATIONS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#F0E442")
"""Okabe and Ito's colours; further operations repeat them."""
LARGEST = 40
"""Maximum number of tokens for which cells show numbers, and tokens their names."""


def weights(
    trace: Trace,
    tokens: Tokens = None,
    *,
    unit: int | None = None,
    sequence: int = 0,
    layer: int = 0,
    direction: int = 0,
) -> Figure:
    """Which operation was used where: a heat map of token by operation, the mean over units or of one `unit`."""
    p = one(trace, trace.weights(layer, direction), sequence)
    hidden = p.size(-1)
    mean = p.mean(-1) if unit is None else p[..., checked("unit", unit, hidden)]
    name = f"mean over {hidden} units" if unit is None else f"unit {unit}"
    names = named(tokens, len(p))
    figure, axes = _new(_width(len(p)), 1.3 + 0.33 * len(trace.ops))
    _heat(axes, 100 * mean.T, WEIGHTS, 0.0, 100.0, "weight, %")
    _label(axes, f"Operation weights, {name}", names, list(trace.op_names))
    if len(p) <= LARGEST:
        for (step, op), value in zip(torch.cartesian_prod(*map(torch.arange, mean.shape)).tolist(),
                                     mean.flatten().tolist(), strict=True):  # fmt: skip
            ink = "white" if value > 0.45 else "black"
            axes.text(step, op, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color=ink)
    return figure


def units(
    trace: Trace,
    tokens: Tokens = None,
    *,
    sort: bool = True,
    sequence: int = 0,
    layer: int = 0,
    direction: int = 0,
) -> Figure:
    """Which operation led in every unit at every token: a map of units by tokens.

    A cell has the colour of the operation with the largest weight, the stronger the more of the weight it has: white
    where all operations have the same. Units with similar weights lie side by side, unless `sort` is off.
    """
    p = one(trace, trace.weights(layer, direction), sequence)
    steps, _, hidden = p.shape
    names = named(tokens, steps)
    order = similar(p) if sort else list(range(hidden))
    figure, axes = _new(_width(steps) + 1, 1.3 + max(1.6, min(8.0, 0.2 * hidden)))
    axes.imshow(leading(p)[:, order].transpose(0, 1).tolist(), aspect="auto", interpolation="nearest")
    every = -(-hidden // 40)
    rows = [f"{unit}" if place % every == 0 else "" for place, unit in enumerate(order)]
    _label(axes, "Leading operation of every unit", names, rows)
    axes.set_ylabel("unit, similar ones side by side" if sort else "unit")
    axes.spines[:].set_visible(False)
    _legend(axes, trace.op_names)
    return figure


def similar(p: Tensor) -> list[int]:
    """Order units by their weights (steps, operations, hidden), so that neighbours are alike.

    The two that are most alike begin a chain; whichever unit is nearest to one of its ends is attached there.
    """
    profiles = p.flatten(0, 1).T
    apart = torch.cdist(profiles, profiles, p=1).fill_diagonal_(torch.inf)
    if len(apart) < 3:
        return list(range(len(apart)))
    chain = list(divmod(int(apart.argmin()), len(apart)))
    # a unit that is in the chain is no one's nearest any more
    apart[:, chain] = torch.inf
    while len(chain) < len(apart):
        first, last = (int(apart[end].argmin()) for end in (chain[0], chain[-1]))
        ahead = bool(apart[chain[0], first] < apart[chain[-1], last])
        chain.insert(0 if ahead else len(chain), first if ahead else last)
        apart[:, chain[0 if ahead else -1]] = torch.inf
    return chain if chain[0] < chain[-1] else chain[::-1]


def leading(p: Tensor) -> Tensor:
    """(steps, hidden, 3): the colour of the leading operation, from white at equal weights to full at weight 1."""
    from matplotlib.colors import to_rgb

    count = p.size(1)
    colours = torch.tensor([to_rgb(OPERATIONS[op % len(OPERATIONS)]) for op in range(count)], device="cpu").double()
    weight, op = p.max(1)
    strength = ((weight - 1 / count) / (1 - 1 / count) if count > 1 else weight).clamp(0, 1).unsqueeze(-1)
    return 1 - strength * (1 - colours[op])


def states(trace: Trace, tokens: Tokens = None, *, sequence: int = 0, layer: int = 0, direction: int = 0) -> Figure:
    """The state of every unit after every token."""
    s = one(trace, trace.outputs(layer, direction), sequence)
    far = max(1.0, float(s.abs().max()))
    figure, axes = _new(_width(len(s)), 1.3 + max(1.2, min(6.0, 0.2 * s.size(1))))
    _heat(axes, s.T, STATES, -far, far, "state")
    every = -(-s.size(1) // 25)
    _label(axes, "States", named(tokens, len(s)), [f"{k}" if k % every == 0 else "" for k in range(s.size(1))])
    axes.set_ylabel("unit")
    return figure


def contributions(
    trace: Trace,
    unit: int,
    tokens: Tokens = None,
    *,
    step: int | None = None,
    sequence: int = 0,
    layer: int = 0,
    direction: int = 0,
) -> Figure:
    """Each operation's share of a unit's new states, stacked over all tokens, or at one `step`."""
    shares = one(trace, trace.contributions(layer, direction), sequence)
    unit = checked("unit", unit, shares.size(-1))
    new = one(trace, trace.outputs(layer, direction), sequence)[:, unit]
    names, shares = named(tokens, len(shares)), shares[..., unit]
    if step is None:
        return _stacked(shares, new, names, trace.op_names, unit)
    step = checked("step", step, len(shares))
    return _at_one_step(shares[step], float(new[step]), names[step], trace.op_names, unit)


def one(trace: Trace, values: Tensor, sequence: int) -> Tensor:
    """(steps, ...): the part of one sequence, up to its end."""
    layout = trace.sequences
    sequence = checked("sequence", sequence, layout.batch)
    rows = values if not layout.batched else values[sequence] if layout.batch_first else values[:, sequence]
    steps = int(trace.lengths[sequence])
    if not steps:
        raise ValueError(f"sequence {sequence} has no steps, so there is nothing to draw: choose another one")
    return rows[:steps].detach().cpu().double()


def checked(name: str, value: int, count: int) -> int:
    if not -count <= value < count:
        raise IndexError(f"{name} should be from 0 to {count - 1}, got {value}")
    return value % count


def named(tokens: Tokens, steps: int) -> list[str]:
    """The names of the steps: the tokens, or numbers from 0."""
    if tokens is None:
        return [str(step) for step in range(steps)]
    if isinstance(tokens, str) or len(tokens) != steps:
        got = "a text" if isinstance(tokens, str) else f"{len(tokens)}"
        raise ValueError(f"tokens should be a list of {steps} names, one for each step of the sequence, got {got}")
    # a dollar would begin mathematics
    return [str(token).replace("$", r"\$") for token in tokens]


@cache
def _figure_type() -> type[Figure]:
    """matplotlib's figure, and what a notebook asks for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that shows itself in a notebook, without pyplot."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            FigureCanvasAgg(self)

        def _repr_svg_(self) -> str:
            file = io.StringIO()
            self.savefig(file, format="svg", metadata={"Date": None})
            return file.getvalue()

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    return ShownFigure


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    try:
        kind = _figure_type()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"pictures need {error.name}: pip install matplotlib", name=error.name) from error
    figure = kind(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _width(steps: int) -> float:
    return max(4.5, min(16.0, 1.8 + 0.42 * steps))


def _heat(axes: Axes, values: Tensor, ramp: str, low: float, high: float, name: str) -> None:
    """Rows of cells, the first on top, and their scale."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list(ramp, RAMPS[ramp])
    image = axes.imshow(values.tolist(), cmap=shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label=name, fraction=0.05, pad=0.02)
    axes.spines[:].set_visible(False)


def _label(axes: Axes, title: str, tokens: list[str], rows: list[str] | None = None) -> None:
    every = -(-len(tokens) // LARGEST)
    slanted = max(map(len, tokens[::every]), default=0) > 4
    axes.set_xticks(range(0, len(tokens), every), tokens[::every], rotation=50 if slanted else 0,
                    ha="right" if slanted else "center", rotation_mode="anchor" if slanted else "default")  # fmt: skip
    if rows is not None:
        axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")


def _stacked(shares: Tensor, new: Tensor, tokens: list[str], ops: Sequence[str], unit: int) -> Figure:
    figure, axes = _new(_width(len(shares)) + 1, 3.2)
    places = range(len(shares))
    # positive shares stand on those below them, negative ones hang from them
    above, below = torch.zeros(2, len(shares), device="cpu").double()
    for op, name in enumerate(ops):
        share = shares[:, op]
        start = torch.where(share >= 0, above, below)
        colour = OPERATIONS[op % len(OPERATIONS)]
        axes.bar(places, share.tolist(), bottom=start.tolist(), color=colour, label=name, width=0.75)
        above, below = above + share.clamp(min=0), below + share.clamp(max=0)
    axes.plot(places, new.tolist(), "D", color="black", markersize=5, label="new state")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.use_sticky_edges = False  # room for a mark at the end of a bar
    _label(axes, f"What the new states of unit {unit} are made of", tokens)
    _beside(axes)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def _legend(axes: Axes, ops: Sequence[str]) -> None:
    """Name the colours of operations."""
    from matplotlib.patches import Patch

    colours = {name: OPERATIONS[op % len(OPERATIONS)] for op, name in enumerate(ops)}
    _beside(axes, handles=[Patch(color=colour, label=name) for name, colour in colours.items()])


def _beside(axes: Axes, **options: Any) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8, **options)


def _at_one_step(shares: Tensor, new: float, token: str, ops: Sequence[str], unit: int) -> Figure:
    names, values = [*ops, "new state"], [*shares.tolist(), new]
    figure, axes = _new(5.5, 1.2 + 0.32 * len(names))
    colours = ["#1C66AD" if value < 0 else "#C2570C" for value in values[:-1]]
    bars = axes.barh(range(len(names)), values, color=[*colours, "#333333"], height=0.7)
    axes.bar_label(bars, [f"{value:+.3f}" for value in values], padding=4, fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.margins(x=0.2)
    axes.invert_yaxis()
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(f"New state of unit {unit} at “{token}”", loc="left", fontsize=10, fontweight="bold")
    return figure
