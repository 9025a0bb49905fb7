"""The style of all figures, and their files: the same records give the same bytes.

Colours are those of Okabe and Ito, which the colour-blind can distinguish; every cell has its own marker, too. Text
stays text in an SVG, so that it can be searched and read aloud. matplotlib is slow to import and not needed to train:
the functions that need it import it.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from mufuru import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: Any = {
    "font.size": 10,
    # Verdana is as wide as the font that the layout is made for
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "svg.fonttype": "none",
    "svg.hashsalt": "mufuru",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.formatter.useoffset": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "legend.frameon": False,
}
GRID = "#DDDDDD"
MAP = "Blues"
"""From white up in one hue: reads the same to all eyes and in grey."""


class Look(NamedTuple):
    colour: str
    marker: str
    line: str = "-"


CELLS = {
    "mufuru": Look("#D55E00", "o"),
    "gru": Look("#0072B2", "s"),
    "lstm": Look("#009E73", "^", "--"),
    "vanilla": Look("#666666", "D", ":"),
}
OTHERS = (Look("#CC79A7", "v"), Look("#E69F00", "P"), Look("#56B4E9", "X"), Look("#000000", "*"))
EVERY_LOOK = (*CELLS.values(), *OTHERS)
OPERATIONS = tuple(seen._replace(colour=colour) for colour, seen in zip(plot.OPERATIONS, EVERY_LOOK, strict=True))
"""Operations by their place in a layer, in the colours of `mufuru.plot`; the explorer's are lighter."""
MODELS = CELLS | {"paper-gru": Look("#56B4E9", "X", "--"), "transformer": Look("#CC79A7", "v", ":")}
"""Looks of cells, and of models that are not cells."""


def look(cell: str, position: int = 0) -> Look:
    """Return a cell's colour and marker; other cells take the next ones by their position."""
    return MODELS.get(cell) or OTHERS[position % len(OTHERS)]


@contextmanager
def style() -> Iterator[None]:
    """Use our settings instead of the user's, which are restored afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def new(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, known to no window manager."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.05, hspace=0.04))
    FigureCanvasAgg(figure)
    return figure


def svg(figure: Figure) -> bytes:
    with warnings.catch_warnings():
        # text stays text: the reader's fonts draw it
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        return _saved(figure, format="svg", metadata={"Date": None, "Creator": None})


def png(figure: Figure) -> bytes:
    return _saved(figure, format="png", dpi=150, metadata={"Software": None})


def _saved(figure: Figure, **options: Any) -> bytes:
    with style():
        file = io.BytesIO()
        figure.savefig(file, **options)
        return file.getvalue()


def heat(axes: Axes, values: Sequence[Sequence[float]], low: float, high: float) -> None:
    """Draw coloured cells with their numbers, the first row on top; NaN stays empty."""
    import matplotlib

    rows, columns = len(values), len(values[0])
    edges = [x - 0.5 for x in range(columns + 1)], [y - 0.5 for y in range(rows + 1)]
    shades = matplotlib.colormaps[MAP]
    axes.pcolormesh(*edges, values, cmap=shades, vmin=low, vmax=high, edgecolors="white", linewidth=1.5)
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if not math.isnan(value):
                ink = _ink(shades((value - low) / (high - low)))
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _ink(ground: tuple[float, ...]) -> str:
    """Return black or white, whichever is easier to read on that colour (WCAG's relative luminance)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in ground[:3])
    # at this luminance the contrast with black and with white is the same
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"
