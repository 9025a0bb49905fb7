"""What mkdocs does beyond its plugins: programs and records become pages, formulae become MathML.

Pages link to files outside of docs/, so that they work where the repository is read as it is. In the site those files
are pages too. MathML is drawn by the browser itself: no script, no fonts, no network.
"""

from __future__ import annotations

import html
import re
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = (
    *sorted(ROOT.glob("examples/*.py")),
    *sorted(ROOT.glob("benchmarks/*.py")),
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("benchmarks/results/*.md")),
)
FIGURES = tuple(sorted(ROOT.glob("benchmarks/results/*.svg")))
LINK = re.compile(r"\]\(((?:\.\./)+)((?:examples|benchmarks)/[^)#]*)")
SHIM = re.compile(r'<script src="https://unpkg.com/[^"]*"></script>')
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Programs as pages with their code, records as they are."""
    for path in PAGES:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        content = f"# {path.name}\n\n```python\n{text}```\n" if path.suffix == ".py" else text
        files.append(File.generated(config, _page(name), content=content))
    for path in FIGURES:
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
    return FORMULA.sub(lambda match: convert(html.unescape(match[2]), display=_display[match[1]]), content)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """No page loads anything from elsewhere: not the help for searching in pages opened from disk either."""
    return SHIM.sub("", output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    return SHIM.sub("", output)


_display = {"span": "inline", "div": "block"}


def _page(name: str) -> str:
    """The page of a file: mkdocs makes pages of Markdown only."""
    if name.endswith(".py"):
        return name.removesuffix(".py") + ".md"
    return name or "benchmarks/README.md"
