"""Parts of a page as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from mufuru.experiments.report.page import Block, Command, Folded, Picture
from mufuru.experiments.report.tables import Table


def render(blocks: Iterable[Block], pictures: str) -> str:
    """Paragraphs, tables and pictures; `pictures` is the folder of their SVG files, as the page names it."""
    return "\n".join(_block(block, pictures) for block in blocks)


def _block(block: Block, pictures: str) -> str:
    match block:
        case Table():
            return table(block)
        case Folded():
            return table(block.table)
        case Picture():
            return f"![{text(block.alt)}]({pictures}/{block.name}.svg)\n\n*{text(block.caption)}*\n"
        case Command():
            return "".join(f"    {line}\n" for line in block.text.splitlines())
        case _:
            # a paragraph may hold code between backquotes
            return (
                "`".join(text(part) if place % 2 == 0 else part for place, part in enumerate(block.split("`"))) + "\n"
            )


def table(content: Table) -> str:
    """The caption as a paragraph, then the table; numbers stand to the right."""
    rule = tuple("---" if column == 0 or content.wordy else "---:" for column in range(len(content.head)))
    lines = [_line(content.head), "|" + "|".join(rule) + "|", *(_line(row) for row in content.rows)]
    return f"{text(content.caption)}\n\n" + "\n".join(lines) + "\n"


def text(plain: str) -> str:
    """Plain text as Markdown: nothing in it is taken for a mark."""
    for mark in "\\`*_<[":
        plain = plain.replace(mark, "\\" + mark)
    return plain


def _line(row: tuple[str, ...]) -> str:
    # a bar or a line break would end the cell
    return "| " + " | ".join(text(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
