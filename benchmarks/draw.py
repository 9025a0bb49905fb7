"""The plots: ratios to nn.GRU with the bars as marks, and how time grows.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; every peer has a marker of its own, too.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import scaling
import shapes
import tables
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator
from record import Record
from shapes import BARS, MODES, Mode, Shape

# colour, marker
STYLE = {
    shapes.SEVEN: ("#D55E00", "o"),
    shapes.GATED: ("#0072B2", "s"),
    shapes.CONTROLLER: ("#009E73", "^"),
    shapes.CUSTOM: ("#CC79A7", "v"),
    shapes.REFERENCE: ("#999999", "x"),
    shapes.GRU: ("#0072B2", "s"),
    shapes.LSTM: ("#E69F00", "D"),
    shapes.ONNX: ("#56B4E9", "P"),
    shapes.OPENVINO: ("#56B4E9", "X"),
    shapes.TORCHRL: ("#F0E442", "d"),
    shapes.RESETS: ("#D55E00", "<"),
    shapes.HALF_SEVEN: ("#D55E00", "h"),
    shapes.HALF_GATED: ("#0072B2", "h"),
    shapes.HALF_GRU: ("#000000", "h"),
    shapes.HALF_OPENVINO: ("#56B4E9", "h"),
    shapes.COMPILED: ("#666666", "*"),
    shapes.EMPTY: ("#000000", "+"),
    shapes.FLOOR: ("#000000", "o"),
}
ROW = 0.8
"""Part of a row's height over which its peers are spread."""


def draw(record: Record, stem: Path) -> list[Path]:
    """Write SVG and PNG; the SVGs' paths."""
    plt.rcParams.update(
        {"font.size": 9, "svg.hashsalt": "mufuru", "axes.spines.top": False, "axes.spines.right": False}
    )
    written = []
    if record.timings:
        written.append(_ratios(record, stem))
    if record.scaling:
        written.append(_scaling(record, stem.with_name(stem.name + "-scaling")))
    return written


def _write(figure: Figure, stem: Path) -> Path:
    path = stem.with_name(stem.name + ".svg")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    figure.savefig(stem.with_name(stem.name + ".png"), dpi=130, bbox_inches="tight")
    plt.close(figure)
    return path


def _ratios(record: Record, stem: Path) -> Path:
    counts = tables.thread_counts(record)
    names = [shape.name for shape in shapes.SHAPES if any(t.shape == shape.name for t in record.timings)]
    present = [p for p in shapes.PEERS if p != shapes.GRU and any(t.peer == p and t.samples for t in record.timings)]
    size = (11, 1.2 + len(counts) * (0.8 + 0.75 * len(names)))
    figure, grid = plt.subplots(
        len(counts), 2, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for row, threads in zip(grid, counts, strict=True):
        for axes, mode in zip(row, MODES, strict=True):
            _panel(axes, record, mode, threads, names, present)
    for axes in grid[-1]:
        axes.set_xlabel("time by that of nn.GRU (left is faster)")
    handles = [_handle(peer) for peer in present]
    mark = Line2D([], [], color="#666666", marker="|", linestyle="", markersize=10, markeredgewidth=2.5)
    mark.set_label("bar, in its peer's colour: what we hold ourselves to")
    handles.append(mark)
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False)
    return _write(figure, stem)


def _handle(peer: str) -> Line2D:
    colour, marker = STYLE[peer]
    return Line2D([], [], color=colour, marker=marker, linestyle="", label=peer, markerfacecolor=_fill(peer))


def _fill(peer: str) -> str:
    """The floor is hollow."""
    return "white" if peer == shapes.FLOOR else STYLE[peer][0]


def _panel(axes: Axes, record: Record, mode: Mode, threads: int, names: list[str], present: list[str]) -> None:
    for row, name in enumerate(names):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", linewidth=0, zorder=0)
        here = [peer for peer in present if record.ratio(name, mode, threads, peer, shapes.GRU)]
        for place, peer in enumerate(here):
            y = row + ROW * ((place + 0.5) / len(here) - 0.5)
            _point(axes, record, name, mode, threads, peer, y, ROW / len(here))
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", which="major", color="#DDDDDD", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"{mode}, {threads} thread{'s' if threads > 1 else ''}", loc="left", fontweight="bold")


def _point(
    axes: Axes, record: Record, shape: str, mode: Mode, threads: int, peer: str, y: float, height: float
) -> None:
    ratio = record.ratio(shape, mode, threads, peer, shapes.GRU)
    if ratio is None:
        return
    colour, marker = STYLE[peer]
    axes.plot([ratio.low, ratio.high], [y, y], color=colour, linewidth=2.5, alpha=0.4, solid_capstyle="butt")
    axes.plot(ratio.value, y, color=colour, marker=marker, markersize=5.5, linestyle="", markerfacecolor=_fill(peer))
    for bar in BARS:
        if (bar.shape, bar.mode, bar.peer, bar.base) == (shape, mode, peer, shapes.GRU):
            axes.vlines(bar.limit, y - height / 2, y + height / 2, color=colour, linewidth=2.5)


def _scaling(record: Record, stem: Path) -> Path:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    lengths, widths = scaling.LENGTHS, scaling.WIDTHS
    _growth(left, record, lengths, lengths[-1], [shape.steps for shape in lengths])
    left.set(title="time per step, by that of the longest", xlabel="steps T", ylim=(0, None))
    _growth(right, record, widths, widths[0], [shape.hidden_size for shape in widths])
    right.set(title="time, by that of the narrowest", xlabel="units M", yscale="log")
    right.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    for axes in (left, right):
        axes.grid(color="#DDDDDD", linewidth=0.8)
    right.legend(frameon=False, loc="upper left")
    return _write(figure, stem)


def _growth(axes: Axes, record: Record, sizes: tuple[Shape, ...], base: Shape, ticks: list[int]) -> None:
    for peer in scaling.COMPARED:
        colour, marker = STYLE[peer]
        for mode, line in zip(MODES, ("-", "--"), strict=True):
            values = [float("nan") if v is None else v for v in tables.growth(record, sizes, mode, peer, base)]
            axes.plot(ticks, values, color=colour, marker=marker, linestyle=line, markersize=5, label=f"{peer}, {mode}")
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
