"""Pages as text. HTML: one file that needs no network, with style and pictures inside and everything else forbidden.
Markdown: blocks for the documentation."""

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template

from mufuru.experiments.report.page import Block, Command, Folded, Page, Picture, Section, Table

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
PIXELS = 96 / 72
"""CSS pixels in a point, in which matplotlib gives sizes."""
READABLE = 40 * 16
"""A picture is not shrunk below this many pixels: on a phone it can be pushed sideways instead."""
TEMPLATE = Path(__file__).with_name("page.html")


def html(page: Page) -> bytes:
    """Return the whole file."""
    links = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in page.sections)
    # the first line of the style sheet is a comment
    style = "\n" + TEMPLATE.with_suffix(".css").read_text(encoding="utf-8").partition("\n")[2]
    parts = {"policy": POLICY, "title": escape(page.title), "style": style, "lead": _words(page.lead), "links": links}
    parts["body"] = "\n".join(map(_section, page.sections))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts).encode(errors="backslashreplace")


def _section(section: Section) -> str:
    blocks = "\n".join(map(_block, section.blocks))
    name = _anchor(section.title)
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Picture():
            return (
                f'<figure>\n<div class="picture" role="group" tabindex="0" aria-label="{escape(block.name)}">'
                f"{_inline(block)}</div>\n<figcaption>{escape(block.caption)}</figcaption>\n</figure>"
            )
        case Command():
            return f"<pre><code>{escape(block.text)}</code></pre>"
        case Folded():
            return f"<details><summary>{escape(block.title)}</summary>\n{_table(block.table)}\n</details>"
        case _:
            return f"<p>{_words(block)}</p>"


def _words(text: str) -> str:
    """Write a paragraph, with code between backquotes."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _table(content: Table) -> str:
    """Write headers for every column and row; wide tables scroll inside their own frame, by keyboard too. On a narrow
    screen each cell of a wordy table shows its column's name."""
    names = [escape(cell) for cell in content.head]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f'<td data-label="{name}">{escape(c)}</td>' for name, c in zip(names[1:], cells, strict=True))
        + "</tr>"
        for first, *cells in content.rows
    )
    kind = ' class="wordy"' if content.wordy else ""
    label = escape(content.caption.split(".")[0], quote=True)
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{label}"><table{kind}>\n'
        f"<caption><span>{escape(content.caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _inline(content: Picture) -> str:
    """Fit matplotlib's SVG for a page of several: no prologue, unique ids, and a text for screen readers."""
    text = content.svg.decode()
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = _anchor(content.name) + "-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')
    opening, rest = text.split(">", 1)
    given = dict(re.findall(r'\b(width|viewBox)="([^"]*)"', opening))
    width = round(float(given["width"].removesuffix("pt")) * PIXELS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{escape(content.alt, quote=True)}" viewBox="{given["viewBox"]}" '
        f'style="width:{width}px;max-width:max(100%,{min(width, READABLE)}px)">{rest.strip()}'
    )


def markdown(blocks: Iterable[Block], pictures: str) -> str:
    """Return paragraphs, tables and pictures; `pictures` is the folder of their SVG files, as the page names it."""
    return "\n".join(_markdown(block, pictures) for block in blocks)


def _markdown(block: Block, pictures: str) -> str:
    match block:
        case Table():
            return markdown_table(block)
        case Folded():
            return markdown_table(block.table)
        case Picture():
            return f"![{_escaped(block.alt)}]({pictures}/{block.name}.svg)\n\n*{_escaped(block.caption)}*\n"
        case Command():
            return "".join(f"    {line}\n" for line in block.text.splitlines())
        case _:
            # a paragraph may hold code between backquotes
            parts = (part if place % 2 else _escaped(part) for place, part in enumerate(block.split("`")))
            return "`".join(parts) + "\n"


def markdown_table(content: Table) -> str:
    """Return the caption as a paragraph, then the table; numbers are right-aligned."""
    rule = tuple("---" if column == 0 or content.wordy else "---:" for column in range(len(content.head)))
    lines = [_line(content.head), "|" + "|".join(rule) + "|", *(_line(row) for row in content.rows)]
    return f"{_escaped(content.caption)}\n\n" + "\n".join(lines) + "\n"


def _escaped(plain: str) -> str:
    """Escape plain text: nothing in it is taken for a mark."""
    for mark in "\\`*_<[":
        plain = plain.replace(mark, "\\" + mark)
    return plain


def _line(row: tuple[str, ...]) -> str:
    # a bar or a line break would end the cell
    return "| " + " | ".join(_escaped(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
