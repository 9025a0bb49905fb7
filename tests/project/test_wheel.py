"""The wheel: with the native library where there is a compiler, without it where there is none."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from libraries import TOY, write_sources

from mufuru.kernels import library

ROOT = Path(__file__).parents[2]
CSRC = "mufuru/kernels/csrc"
LIBRARY = "mufuru/kernels/_native.abi.so"
MISSING = [name for name in ("build", "setuptools") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}: pip install {' '.join(MISSING)}"),
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the source tree"),
]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler"
)


def copy_tree(folder: Path) -> Path:
    """The files that a build reads, without what earlier builds left."""
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "_native*")
    )
    return folder


def run(*command: str, cwd: Path, **settings: str) -> str:
    """Run and return what it prints; the user's settings of compiler and cache do not reach it."""
    kept = {k: v for k, v in os.environ.items() if k not in ("CXX", "MUFURU_BUILD", "MUFURU_CACHE", "PYTHONPATH")}
    result = subprocess.run(
        command, cwd=cwd, env=kept | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def build_wheel(tree: Path, **settings: str) -> tuple[Path, str]:
    """The wheel and what building it printed. Without isolation: a test may not fetch anything."""
    printed = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=tree, **settings)
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel, printed


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def install(wheel: Path, target: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index")
    run(*pip, "--target", str(target), str(wheel), cwd=target.parent)
    return target


def build_native(folder: Path, sources: dict[str, str]) -> Path:
    """A wheel with a library made of these sources, or of the kernel's own."""
    tree = copy_tree(folder / "tree")
    if sources:
        shutil.rmtree(tree / "src" / CSRC)
        write_sources(tree / "src" / CSRC, sources)
    wheel, printed = build_wheel(tree)
    assert "without its native kernel" not in printed, printed
    return wheel


@pytest.fixture(scope="module")
def toy_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel whose library is quickly built."""
    return build_native(tmp_path_factory.mktemp("toy"), TOY)


@needs_compiler
def test_wheel_serves_every_python_of_its_platform(toy_wheel: Path) -> None:
    assert re.fullmatch(r"mufuru-[^-]+-py3-none-(?!any)\w+\.whl", toy_wheel.name)
    names = names_in(toy_wheel)
    assert LIBRARY in names
    assert {f"{CSRC}/{name}" for name in TOY} <= set(names)
    assert not [name for name in names if name.startswith("tests") or name.endswith(".o")]


@needs_compiler
def test_library_of_the_wheel_loads_where_nothing_may_be_built(toy_wheel: Path, tmp_path: Path) -> None:
    assert_loads(toy_wheel, tmp_path)


@needs_compiler
@pytest.mark.slow
def test_wheel_of_the_whole_kernel_loads(tmp_path: Path) -> None:
    wheel = build_native(tmp_path, {})
    assert {f"{CSRC}/{path.name}" for path in (ROOT / "src" / CSRC).iterdir()} <= set(names_in(wheel))
    assert_loads(wheel, tmp_path)


def assert_loads(wheel: Path, tmp_path: Path) -> None:
    target = install(wheel, tmp_path / "site")
    code = (
        "from mufuru.kernels.library import load, status\n"
        "assert load() is not None, status()\n"
        "print(status().state, status().path)"
    )
    settings = {"PYTHONPATH": str(target), "MUFURU_BUILD": "0", "MUFURU_CACHE": str(tmp_path / "cache")}
    printed = run(sys.executable, "-W", "error", "-c", code, cwd=tmp_path, **settings)
    assert printed.split() == ["wheel", str(target / LIBRARY)]


@pytest.fixture
def built() -> str:
    """The library that the tests run on, built by the same function as that of a wheel."""
    if library.load() is None:
        pytest.skip(f"needs the native library: {library.status().reason}")
    return str(library.status().path)


needs_nm = pytest.mark.skipif(sys.platform != "linux" or shutil.which("nm") is None, reason="needs nm for ELF")


@needs_nm
def test_library_needs_nothing_but_the_system_libraries(built: str, tmp_path: Path) -> None:
    undefined = [line.split() for line in run("nm", "-D", "--undefined-only", built, cwd=tmp_path).splitlines()]
    # weak symbols may stay undefined: the tool chain's own hooks
    needed = [words[-1] for words in undefined if words[-2] not in "wv"]
    assert [name for name in needed if not re.search(r"@(GLIBC|GLIBCXX|CXXABI|GCC)_", name)] == []
    assert [words[-1] for words in undefined if re.search(r"torch|c10|aten|2at", words[-1])] == []


@needs_nm
def test_library_shows_only_its_own_functions(built: str, tmp_path: Path) -> None:
    shown = [line.split()[-1] for line in run("nm", "-D", "--defined-only", built, cwd=tmp_path).splitlines()]
    assert "mufuru_abi" in shown
    assert [name for name in shown if not name.startswith("mufuru_")] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"CXX": "false"},
        pytest.param({"CXX": "/no/such/c++"}, marks=pytest.mark.slow),
        pytest.param({"MUFURU_BUILD": "0"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_wheel_without_a_compiler_is_pure_and_says_so(tmp_path: Path, settings: dict[str, str]) -> None:
    tree = copy_tree(tmp_path / "tree")
    stale = tree / "build" / "lib" / LIBRARY
    stale.parent.mkdir(parents=True)
    stale.touch()
    wheel, printed = build_wheel(tree, **settings)
    assert re.fullmatch(r"mufuru-[^-]+-py3-none-any\.whl", wheel.name)
    assert [name for name in names_in(wheel) if name.endswith(".so")] == []
    assert "warning: the package is built without its native kernel" in printed
    site = install(wheel, tmp_path / "site")
    assert (site / "mufuru" / "kernels" / "csrc").is_dir()
    # -S: without the packages of this environment, torch among them
    said = run(sys.executable, "-S", str(site / "bin" / "mufuru"), "--version", cwd=tmp_path, PYTHONPATH=str(site))
    assert said == f"mufuru {wheel.name.split('-')[1]}\n"


def test_editable_install_has_no_library_that_could_grow_old(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree")
    code = "from setuptools import build_meta; print(build_meta.build_editable('dist'))"
    (tree / "dist").mkdir()
    run(sys.executable, "-c", code, cwd=tree)
    assert len(list((tree / "dist").glob("*.whl"))) == 1
    assert list(tree.rglob("*.so")) == []
