"""The content of a page as plain data. `render.py` writes it as HTML or Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mufuru.disk import write_atomically
from mufuru.experiments.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "–"


def count(number: int, thing: str) -> str:
    """Write a number of things, with a plural s unless it is 1."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


class Table(NamedTuple):
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
        files = {folder / f"{self.name}.svg": self.svg, folder / f"{self.name}.png": figures.png(self.figure)}
        for path, content in files.items():
            write_atomically(path, content)
        return list(files)


class Command(NamedTuple):
    """Lines to type."""

    text: str


class Folded(NamedTuple):
    """A table that opens on a click, and always in print."""

    title: str
    table: Table


Block = str | Table | Picture | Command | Folded
"""A string is a paragraph."""


class Section(NamedTuple):
    title: str
    blocks: tuple[Block, ...]


class Page(NamedTuple):
    title: str
    lead: str
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]
