"""The documentation is true: its Python blocks run, its links lead somewhere, its table is the code's."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mufuru
from mufuru import ops

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
MODULES = [name for _, name, _ in pkgutil.walk_packages(mufuru.__path__, "mufuru.")]


@pytest.fixture(autouse=True)
def _own_operations_go() -> Iterator[None]:
    """The operations that a page registers are gone after it."""
    before = ops.names()
    yield
    for name in set(ops.names()) - set(before):
        mufuru.unregister(name)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run_and_print_what_they_promise(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        run(block[1], page, text.count("\n", 0, block.start(1)), namespace)


def run(code: str, page: Path, line: int, namespace: dict[str, Any]) -> None:
    """Run a block; an error names the page and its line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    if promised := PROMISE.findall(code):
        assert printed.getvalue().splitlines() == promised, f"{name_of(page)}, block at line {line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        other = (page.parent / target) if target else page
        assert other.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(other), f"{name_of(page)} links to {target}#{anchor}: {anchors(other)}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_table_of_operations_is_the_codes() -> None:
    # a process of its own: other tests may have operations registered
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_option_is_documented() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for option in inspect.signature(mufuru.MuFuRU).parameters.values():
        if option.kind is option.KEYWORD_ONLY and option.name not in ("device", "dtype"):
            assert re.search(rf"`{option.name}\b", text), f"no page tells of {option.name}"
