"""What a page consists of, as plain data. `html.py` makes a file of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from mufuru.disk import write_atomically
from mufuru.experiments.report.figures import style
from mufuru.experiments.report.tables import Table


@dataclass(frozen=True)
class Picture:
    """A figure with its words: what is to be seen (`caption`), and what it shows to those who cannot see (`alt`)."""

    name: str
    """Of its files."""
    draw: Callable[[], Figure]
    alt: str
    caption: str

    @cached_property
    def figure(self) -> Figure:
        """Drawn when it is first asked for: a page of Markdown needs its words only."""
        return self.draw()

    @cached_property
    def svg(self) -> bytes:
        return style.svg(self.figure)

    def write(self, folder: Path) -> list[Path]:
        """The figure as SVG and PNG; the paths."""
        paths = [folder / f"{self.name}.svg", folder / f"{self.name}.png"]
        write_atomically(paths[0], self.svg)
        write_atomically(paths[1], style.png(self.figure))
        return paths


@dataclass(frozen=True)
class Command:
    """What to type."""

    text: str


@dataclass(frozen=True)
class Folded:
    """A table that opens on a click, and always in print."""

    title: str
    table: Table


Block = str | Table | Picture | Command | Folded
"""A string is a paragraph."""


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    sections: tuple[Section, ...]
