"""Steps of mkdocs beyond its plugins: programs and records become pages, formulae become MathML, long pages are folded.

Pages link to files outside of docs/, so that they work where the repository is read as it is. In the site those files
are pages too. MathML is drawn by the browser itself: no script, no fonts, no network.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = (
    *sorted(ROOT.glob("examples/*.py")),
    *sorted(ROOT.glob("examples/*.ipynb")),
    *sorted(ROOT.glob("benchmarks/*.py")),
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("benchmarks/results/*.md")),
)
COPIES = (*sorted(ROOT.glob("benchmarks/results/*.svg")), *sorted(ROOT.glob("benchmarks/results/*.json")))
LINK = re.compile(r"\]\(((?:\.\./)+)((?:examples|benchmarks)/[^)#]*)")
EMPTY = re.compile(r"<th( [^>]*)?></th>")
PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>(&#x02032;)</mi></msup>")
NUMBERS = re.compile(r"(?<=\d)–(?=\d)|(?<=%) (?=[↑↓])")
CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Programs and notebooks as pages with their code, records as they are."""
    for path in PAGES:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _page(name), content=_as_markdown(path)))
    for path in COPIES:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """A link out of docs/ leads to the page that stands for the file, and one back into docs/ to its page."""
    depth = len(PurePosixPath(page.file.src_uri).parts)

    def inside(match: re.Match[str]) -> str:
        # one step up less: what lies beside docs/ in the repository lies in the site's root
        up = match[1].removeprefix("../") if match[1].count("../") == depth else match[1]
        return f"]({up}{_page(match[2])}"

    return LINK.sub(inside, markdown).replace("](../docs/", "](../")


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    content = FORMULA.sub(lambda match: convert(html.unescape(match[2]), display=_display[match[1]]), content)
    # the font's prime is raised already
    content = PRIME.sub(r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', content)
    content = CELL.sub(lambda cell: NUMBERS.sub(lambda sign: together(sign[0]), cell[0]), content)
    # a heading without words is none, say screen readers
    content = EMPTY.sub(r"<td\1></td>", content)
    return folded(content) if '<h2 id="in-short"' in content else content


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme's dialog of the search has no name."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def folded(content: str) -> str:
    """Return a long page with every section but the first closed: site.js opens the one that a link leads to."""
    top, *sections = re.split(r"(?=<h2)", content)
    for place, section in enumerate(sections[1:], 1):
        heading, end, rest = section.partition("</h2>")
        # a link inside of what is clicked to open it could not be reached
        heading = re.sub(r'<a class="headerlink".*?</a>', "", heading)
        sections[place] = f'<details class="fold"><summary>{heading}{end}</summary>{rest}</details>\n'
    return top + "".join(sections)


def together(sign: str) -> str:
    """Return a sign of a cell at which no line is broken: an interval stays whole, an arrow with its unit."""
    return "&nbsp;" if sign == " " else f"{sign}&NoBreak;"


_display = {"span": "inline", "div": "block"}


def _as_markdown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{text}```\n"
    if path.suffix == ".ipynb":
        return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _cell(cell))
    return text


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    """A cell of a notebook: its text, or its code, what that printed and the pictures that it drew."""
    source, outputs = "".join(cell["source"]), cell.get("outputs", [])
    yield f"```python\n{source}\n```" if cell["cell_type"] == "code" else source
    if printed := "".join("".join(output.get("text", "")) for output in outputs):
        yield f"```text\n{printed.rstrip()}\n```"
    for output in outputs:
        if picture := "".join(output.get("data", {}).get("image/png", "")).replace("\n", ""):
            yield f"![Drawn by {source.splitlines()[-1]}](data:image/png;base64,{picture})"


def _page(name: str) -> str:
    """The page of a file: mkdocs makes pages of Markdown only."""
    if name.endswith((".py", ".ipynb")):
        return f"{PurePosixPath(name).with_suffix('.md')}"
    return name or "benchmarks/README.md"
