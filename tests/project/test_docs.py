"""The documentation is true: its blocks run, its links lead somewhere, its tables are the code's and the record's."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mufuru
from mufuru import ops
from mufuru.experiments.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLAIN = re.compile(
    r'(?:echo "(?P<input>[^"$`\\\\]*)" \| )?mufuru (?P<words>[^|><&;$`\\\\*?~(]*?)(?: > (?P<file>[\w.-]+))?(?: +#.*)?'
)
"""A line of the shell that needs none."""
PROMISE = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
GENERATED_FROM = (
    "README.md",
    "docs/index.md",
    "docs/picture.py",
    "docs/generate.py",
    "docs/real_files.py",
    "docs/your-own-data.md",
    "docs/your-own-data/results.json",
    "docs/operations.py",
    "docs/unit.md",
    "docs/reproduction/logic.md",
    "docs/reproduction/lm.md",
    "docs/reproduction/sentiment.md",
    "docs/reproduction/languages.md",
    "docs/from-training-to-production.md",
    "docs/scaling.md",
    "benchmarks/cost_model.py",
    "benchmarks/cost_tables.py",
    "benchmarks/results/cost.json",
    "benchmarks/large_text_tables.py",
    "benchmarks/results/large_text.json",
    "benchmarks/features.py",
    "benchmarks/roofline.py",
    "docs/gpu.md",
    "benchmarks/initialisation_tables.py",
    "benchmarks/results/features.json",
    "benchmarks/results/initialisation.json",
)
BRIDGES = {"sklearn", "torchrl"}
"""Modules for another library, imported by their own names."""
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


@pytest.fixture
def _command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder to work in, and the command `mufuru`, whether the package is installed or not."""
    command = tmp_path / "bin" / "mufuru"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m mufuru_command "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(Path(mufuru.__file__).parents[1]), prepend=os.pathsep)
    folder = tmp_path / "here"
    folder.mkdir()
    # pages name files that are beside them
    (folder / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], ids=name_of)
def test_only_public_names_are_used(page: Path) -> None:
    """A page or an example that needs more than `mufuru.__all__` shows what should be in it."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(body for kind, body in BLOCK.findall(text) if kind == "python") if page.suffix == ".md" else text
    used = set(re.findall(r"(?<![\w./-])mufuru\.(\w+)", code))
    used |= set(re.findall(r"^::: mufuru\.(\w+)", text, re.MULTILINE))
    for names in re.findall(r"^from mufuru import (.+)$", code, re.MULTILINE):
        used |= {name.partition(" as ")[0] for name in names.split(", ")}
    assert not re.search(r"^from mufuru\.", code, re.MULTILINE)
    assert used <= set(mufuru.__all__) | BRIDGES


# torch's own, once, when its compiler is first used
@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.usefixtures("_command", "torchlib_once")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run_and_print_what_they_promise(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2))
        if block[1] == "python":
            run(block[2], page, line, namespace)
        else:
            run_commands(block[2], page, line)


def test_blocks_compile_with_the_default_backend() -> None:
    for page in PAGES:
        for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            assert language != "python" or "backend=" not in code, name_of(page)


def run_commands(commands: str, page: Path, line: int) -> None:
    """Run a block of the shell; it says something and ends well. Plain lines of `mufuru` run in this process, which has
    loaded torch already."""
    where = f"{name_of(page)}, block at line {line}"
    lines = [PLAIN.fullmatch(command) for command in commands.splitlines()]
    if all(lines):
        assert "".join(run_here(found, where) for found in lines if found), where
        return
    done = subprocess.run(["sh", "-e", "-c", commands], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stderr}"
    assert done.stdout or ">" in commands, where


def run_here(command: re.Match[str], where: str) -> str:
    """Run `echo "..." | mufuru ... > FILE`, of which first and last part may be missing; return what it says."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{command['input'] or ''}\n".encode())))
        assert main(shlex.split(command["words"])) == 0, f"{where}: {command[0]}"
    if command["file"]:
        Path(command["file"]).write_text(printed.getvalue(), encoding="utf-8")
    return printed.getvalue()


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
    if (library := module.removeprefix("mufuru.")) in BRIDGES:
        pytest.importorskip(library, reason=f"needs {library}: pip install '.[{library}]'")
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Are the generated parts up to date? In a process of its own: other tests may have operations registered."""
    command = [sys.executable, str(folder / "docs" / "generate.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_generated_parts_are_what_code_and_record_say() -> None:
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


CHANGES = {
    "docs/unit.md": ("Keep previous hidden state", "Keep the state"),
    "benchmarks/results/initialisation.json": ('"updates": null', '"updates": 25'),
}
"""A file, a text in it, and another one in its place."""


def test_differences_of_code_and_of_record_are_noticed(tmp_path: Path) -> None:
    for name in GENERATED_FROM:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text, (old, new) = (ROOT / name).read_text(encoding="utf-8"), CHANGES.get(name, ("", ""))
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new) if old else text, encoding="utf-8")
    done = check(tmp_path)
    assert done.returncode == 1
    assert "out of date in docs/unit.md: operations, initialisation. Run make docs" in done.stderr


def test_results_on_first_values_are_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables = importlib.import_module("initialisation_tables")
    record = ROOT / "benchmarks" / "results" / "initialisation.json"
    page = tables.page(json.loads(record.read_text(encoding="utf-8")))
    assert record.with_suffix(".md").read_text(encoding="utf-8") == page


def test_every_option_is_documented() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for option in inspect.signature(mufuru.MuFuRU).parameters.values():
        if option.kind is option.KEYWORD_ONLY and option.name not in ("device", "dtype"):
            assert re.search(rf"`{option.name}\b", text), f"no page tells of {option.name}"
