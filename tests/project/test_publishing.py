"""What a release rests on: workflows that run our own commands, files that an index takes, one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import mufuru

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FILES = [*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_every_file_can_be_read(path: Path) -> None:
    assert read(path)


def test_the_workflow_runs_what_developers_run() -> None:
    steps = read(GITHUB / "workflows" / "test.yml")["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_a_commit_runs_what_make_test_runs_first() -> None:
    (hook,) = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    target = hook["entry"].removeprefix("make ")
    assert re.search(rf"^test: {target}\b", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_wheels_are_tried_with_their_library() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    code = re.fullmatch(r'python -c "(.*)"', settings["test-command"])
    assert code is not None
    # here the library is built at first use or comes from the cache: all else must hold
    checked = code[1].replace("== 'wheel'", "in ('built', 'cache', 'wheel')")
    assert checked != code[1]
    subprocess.run([sys.executable, "-c", checked], check=True)


def test_one_version_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1].strip("\"'") == mufuru.__version__


def test_an_index_takes_the_source_archive(tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="needs twine")
    pytest.importorskip("build", reason="needs build")
    tree = tmp_path / "tree"
    files = subprocess.run(["git", "ls-files", "-z", "src", "setup.py", "pyproject.toml", "README.md", "LICENSE"],
                           cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    if files.returncode:
        pytest.skip("needs the repository")
    for name in files.stdout.split("\0")[:-1]:
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation"]
    subprocess.run(build, cwd=tree, check=True, capture_output=True)
    (archive,) = (tree / "dist").iterdir()
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", archive], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "PASSED" in checked.stdout


def test_nothing_advises_a_name_that_is_not_ours() -> None:
    """On a public index `mufuru` may be somebody else's: `pip install '.[...]'` in a clone is right everywhere."""
    places = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    advice = re.compile(r"pip install '?mufuru\b")
    assert [path.name for path in places if advice.search(path.read_text(encoding="utf-8"))] == []
