"""A small native library, a compiler that obeys the tests, and what they say of a library that was found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mufuru.kernels import library
from mufuru.kernels.library import Found

EXPORT = 'extern "C" __attribute__((visibility("default")))'
TOY = {
    "toy.h": "int answer();\n",
    "answer.cpp": '#include "toy.h"\nint answer() { return 42; }\n',
    "toy.cpp": f'#include "toy.h"\n{EXPORT} int mufuru_abi() {{ return {library.ABI}; }}\n'
    f"{EXPORT} int toy_answer() {{ return answer(); }}\n",
}
REAL = next((path for path in ("/usr/bin/c++", "/usr/bin/g++", "/usr/bin/clang++") if os.path.exists(path)), None)
needs_compiler = pytest.mark.skipif(REAL is None, reason="needs a C++ compiler in /usr/bin")


def write_sources(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def find(tmp_path: Path, sources: Path, cache: Path | None = None) -> Found:
    return library.find(tmp_path / "no package", sources, cache or tmp_path / "cache")


def fake_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Path:
    """A compiler that does as `script` says, then as the real one; every use but --version is a line in the result."""
    log, program = tmp_path / "uses", tmp_path / "fake-c++"
    lines = [
        "#!/bin/sh",
        f'[ "$1" = --version ] && echo >> "{log}.version" && exec {REAL} --version',
        f'echo "$@" >> "{log}"',
        script,
        f'exec {REAL} "$@"',
    ]
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    log.touch()
    return log


def assert_works(found: Found, state: str, says: str = "") -> None:
    assert found.status.state == state, found.status
    assert found.library is not None
    assert found.library.toy_answer() == 42
    assert says in found.status.reason
    assert bool(says) == bool(found.status.reason)


def assert_unavailable(found: Found, says: str) -> None:
    assert found.library is None
    assert found.status.state == "unavailable"
    assert found.status.path is None
    assert says in found.status.reason


def assert_nothing_left(tmp_path: Path) -> None:
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def cached_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache" / "kernels").glob("*.so")
    return path


def damage(path: Path, content: bytes) -> None:
    """Change a file without touching the one that this process has mapped under the same name."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(content)
    copy.replace(path)
