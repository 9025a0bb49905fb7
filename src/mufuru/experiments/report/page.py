"""The content of a page as plain data. `render.py` writes it as HTML or Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mufuru.disk import write_atomically
from mufuru.experiments.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "–"


def count(number: int, thing: str) -> str:
    """Write a number of things, of which one has no s."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


@dataclass(frozen=True)
class Table:
    """Plain text in rows."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    wordy: bool = False
    """Whether cells hold sentences and not numbers."""


@dataclass(frozen=True)
class Picture:
    """A figure with its caption and its alternative text (`alt`) for those who cannot see it."""

    name: str
    """Name of its files, without their endings."""
    draw: Callable[[], Figure]
    alt: str
    caption: str

    @cached_property
    def figure(self) -> Figure:
        """The figure, drawn when it is first needed: a page of Markdown needs its words only."""
        return self.draw()

    @cached_property
    def svg(self) -> bytes:
        return figures.svg(self.figure)

    def write(self, folder: Path) -> list[Path]:
        """Write the figure as SVG and PNG; return the paths."""
        paths = [folder / f"{self.name}.svg", folder / f"{self.name}.png"]
        write_atomically(paths[0], self.svg)
        write_atomically(paths[1], figures.png(self.figure))
        return paths


@dataclass(frozen=True)
class Command:
    """Lines to type."""

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

    @property
    def pictures(self) -> list[Picture]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]
