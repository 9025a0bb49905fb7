"""A page as one HTML file that needs no network: style and pictures inside, and everything else forbidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

from mufuru.experiments.report.css import CSS
from mufuru.experiments.report.page import Block, Command, Folded, Page, Picture, Section
from mufuru.experiments.report.tables import Table

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
PIXELS = 96 / 72
"""CSS pixels in a point, in which matplotlib gives sizes."""
READABLE = 40
"""A picture is not shrunk below this many em: on a phone it can be pushed sideways instead."""


def render(page: Page) -> str:
    """The whole file."""
    body = "\n".join(_section(section) for section in page.sections)
    links = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in page.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{CSS}</style>
</head>
<body>
<header>
<h1>{escape(page.title)}</h1>
<p class="lead">{_words(page.lead)}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<footer>Written by mufuru from the records of finished runs.</footer>
</body>
</html>
"""


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    name = _anchor(section.title)
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    makers: dict[type, Callable[[Any], str]] = {Table: table, Picture: picture, Command: _command, Folded: _folded}
    return makers[type(block)](block) if type(block) in makers else f"<p>{_words(str(block))}</p>"


def _words(text: str) -> str:
    """A paragraph: between backquotes stands code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _command(command: Command) -> str:
    return f"<pre><code>{escape(command.text)}</code></pre>"


def _folded(folded: Folded) -> str:
    return f"<details><summary>{escape(folded.title)}</summary>\n{table(folded.table)}\n</details>"


def table(content: Table) -> str:
    """Headers for every column and every row; wide tables move inside their own frame, by keyboard too."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in content.head)
    rows = "\n".join(_row(row, content.head) for row in content.rows)
    kind = ' class="wordy"' if content.wordy else ""
    label = escape(content.caption.split(".")[0], quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table{kind}>\n'
        f"<caption><span>{escape(content.caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(row: tuple[str, ...], head: tuple[str, ...]) -> str:
    """On a narrow screen each cell of a wordy table brings its column's name."""
    first, *others = row
    cells = zip(head[1:], others, strict=True)
    named = "".join(f'<td data-label="{escape(name)}">{escape(cell)}</td>' for name, cell in cells)
    return f'<tr><th scope="row">{escape(first)}</th>{named}</tr>'


def picture(content: Picture) -> str:
    return (
        f'<figure>\n<div class="picture" role="region" tabindex="0" aria-label="{escape(content.name)}">'
        f"{inline(content)}</div>\n<figcaption>{escape(content.caption)}</figcaption>\n</figure>"
    )


def inline(content: Picture) -> str:
    """matplotlib's SVG made fit for a page of several: no prologue, names of its own, and a text for screen readers."""
    text = content.svg.decode()
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = _anchor(content.name) + "-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}')
    opening, rest = text.split(">", 1)
    width = round(float(_attribute(opening, "width").removesuffix("pt")) * PIXELS)
    least = min(width, READABLE * 16)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{escape(content.alt, quote=True)}" viewBox="{_attribute(opening, "viewBox")}" '
        f'style="width:{width}px;max-width:max(100%,{least}px)">{rest.strip()}'
    )


def _attribute(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    if found is None:
        raise ValueError(f"expected an SVG with {name}, got {tag}")
    return found[1]
