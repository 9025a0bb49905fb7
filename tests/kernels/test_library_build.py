"""Building the native library: which compiler, which flags, and compilers that fail, hang or are not there."""

from __future__ import annotations

import platform
import runpy
import sys
import time
from pathlib import Path

import pytest
from libraries import (
    REAL,
    TOY,
    assert_nothing_left,
    assert_unavailable,
    assert_works,
    fake_compiler,
    find,
    needs_compiler,
    write_sources,
)

from mufuru.kernels import build

pytestmark = [needs_compiler, pytest.mark.usefixtures("alone")]


def test_no_compiler(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_unavailable(find(tmp_path, sources), "no C++ compiler found: install one")


@pytest.mark.parametrize("cxx", ["/no/such/c++", "c++ 'unclosed", "{folder}/text"])
def test_wrong_cxx(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, cxx: str) -> None:
    (tmp_path / "text").write_bytes(b"\x00not a program")
    (tmp_path / "text").chmod(0o755)
    monkeypatch.setenv("CXX", cxx.format(folder=tmp_path))
    found = find(tmp_path, sources)
    assert_unavailable(found, cxx.format(folder=tmp_path))
    assert "set" in found.status.reason


def test_cxx_with_arguments(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{REAL} -DEXTRA")
    found = find(tmp_path, sources)
    assert_works(found, "built")
    assert found.status.compiler == f"{REAL} -DEXTRA"


def test_compiler_that_fails(tmp_path: Path, sources: Path) -> None:
    (sources / "toy.cpp").write_text("int broken( { return; }\n")
    found = find(tmp_path, sources)
    assert_unavailable(found, "failed with exit code 1")
    assert "toy.cpp:1" in found.status.reason
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("point", ["at one of the files", "at the link", "without a file"])
def test_compiler_that_fails_half_way(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    scripts = {
        "at one of the files": ('case "$*" in *toy.cpp*) echo out of memory; exit 9;; esac', "out of memory"),
        "at the link": ('case "$*" in *-shared*) echo half > "$3"; echo disk full >&2; exit 9;; esac', "disk full"),
        "without a file": ('case "$*" in *-shared*) exit 0;; esac', "wrote no file"),
    }
    script, says = scripts[point]
    fake_compiler(monkeypatch, tmp_path, script)
    assert_unavailable(find(tmp_path, sources), says)
    assert_nothing_left(tmp_path)


def test_long_complaints_are_cut_to_their_end(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(monkeypatch, tmp_path, "seq 100; exit 1")
    reason = find(tmp_path, sources).status.reason
    assert reason.splitlines()[1:] == [str(line) for line in range(86, 101)]


def test_link_without_a_static_standard_library(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(monkeypatch, tmp_path, 'case "$*" in *-static-libstdc++*) exit 1;; esac')
    assert_works(find(tmp_path, sources), "built")


def test_compiler_that_hangs(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(monkeypatch, tmp_path, f"sleep 60 & echo $! >> '{tmp_path}/sleepers'; wait")
    monkeypatch.setattr(build, "TIMEOUT", 0.5)
    assert_unavailable(find(tmp_path, sources), "did not finish in 0 s")
    assert_nothing_left(tmp_path)
    for pid in (tmp_path / "sleepers").read_text().split():
        assert_ended(int(pid))


def assert_ended(pid: int) -> None:
    """The process is gone, or a zombie that nobody has collected; a signal takes a moment to arrive."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")


def test_interrupted_build_leaves_nothing(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # by the last of them, and not before Python knows of it
    fake_compiler(monkeypatch, tmp_path, 'case "$*" in *toy.cpp*) sleep 0.3; kill -INT $PPID;; esac; sleep 60')
    with pytest.raises(KeyboardInterrupt):
        find(tmp_path, sources)
    assert_nothing_left(tmp_path)
    monkeypatch.delenv("CXX")
    assert_works(find(tmp_path, sources), "built")


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "arm64"])
def test_flags_by_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    folder = write_sources(tmp_path / "many", dict.fromkeys(["plain.cpp", "avx2.cpp", "avx512.cpp", "vec.h"], ""))
    monkeypatch.setattr(platform, "machine", lambda: machine)
    flags = build.flags_of(folder)
    if machine == "arm64":
        assert list(flags) == ["plain.cpp"]
        assert "-DMUFURU_PORTABLE_ONLY" in flags["plain.cpp"]
        return
    assert list(flags) == ["avx2.cpp", "avx512.cpp", "plain.cpp"]
    assert {"-mavx2", "-mfma"} <= set(flags["avx2.cpp"])
    assert {"-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"} <= set(flags["avx512.cpp"])
    assert not any(flag.startswith("-m") for flag in flags["plain.cpp"])


def test_on_a_mac(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiler is asked for the architecture of this Python, and for no option of the GNU linker."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    # build.py as setup.py loads it, so that what it decides when it is imported is decided anew
    there = runpy.run_path(str(Path(build.__file__)))
    asked = tmp_path / "asked"
    script = f'echo "$*" >> "{asked}"; for last; do :; done; case "$*" in *-shared*) last=$5;; esac; : > "$last"'
    compiler = tmp_path / "clang++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    there["compile_library"](sources, tmp_path / "native.so", [str(compiler)])
    *compiled, linked = asked.read_text().splitlines()
    for line in (*compiled, linked):
        assert line.startswith("-arch arm64 ")
    assert all("-DMUFURU_PORTABLE_ONLY" in line for line in compiled)
    assert "-shared -o" in linked
    assert not {word for word in linked.split() if word.startswith(("-static", "-Wl"))}


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="instruction sets of x86-64")
def test_each_file_is_compiled_for_its_instruction_set(tmp_path: Path) -> None:
    files = TOY | {
        "avx2.cpp": "#if !defined(__AVX2__) || defined(__AVX512F__)\n#error\n#endif\n",
        "avx512.cpp": "#ifndef __AVX512BW__\n#error\n#endif\n",
        "portable.cpp": "#ifdef __AVX__\n#error\n#endif\n",
    }
    assert_works(find(tmp_path, write_sources(tmp_path / "many", files)), "built")
