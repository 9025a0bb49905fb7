"""The native kernel on ARM64: compiled by g++ for it and run on an emulated processor. `make arm64` runs all cases."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mufuru.kernels import build, library

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src" / "mufuru" / "kernels" / "csrc"
COMPILER, DISASSEMBLER, EMULATOR = "aarch64-linux-gnu-g++", "aarch64-linux-gnu-objdump", "qemu-aarch64"
MISSING = [name for name in (COMPILER, DISASSEMBLER, EMULATOR) if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: apt install g++-aarch64-linux-gnu qemu-user)"
)
PORTABLE = "-DMUFURU_PORTABLE_ONLY"


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a compiler warns"
    return done.stdout


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("arm64")
    found = [folder / f"{name}.o" for name in ("plain", "entry")]
    for target in found:
        run(COMPILER, *build.FLAGS, PORTABLE, "-c", CSRC / f"{target.stem}.cpp", "-o", target)
    return found


def sums(printed: str, instruction_set: str) -> list[tuple[str, float, float]]:
    """Name, sum and size of each case, as `native_check few` prints them before it calls the set right."""
    before = printed.split(f"{instruction_set}: right")[0].splitlines()
    lines = [line.rsplit(maxsplit=2) for line in before if line.startswith(("layer", "softmax"))]
    return [(name, float(total), float(size)) for name, total, size in lines]


def test_results_are_those_of_this_machine(objects: list[Path], tmp_path: Path) -> None:
    """The same cases by the emulated processor and by the library that is live here, before rounding grows large."""
    here = library.status().path
    if here is None or not here.exists():
        pytest.skip("no native library on this machine to compare with")
    check, emulated, own = ROOT / "tests" / "kernels" / "native_check.cpp", tmp_path / "emulated", tmp_path / "own"
    run(COMPILER, "-std=c++17", "-O2", f"-I{CSRC}", check, *objects, "-static", "-pthread", "-o", emulated)
    host = [
        *build.find_compiler(),
        "-std=c++17",
        "-O2",
        f"-I{CSRC}",
        check,
        here,
        "-pthread",
        f"-Wl,-rpath,{here.parent}",
    ]
    run(*host, "-o", own)
    found, wanted = sums(run(EMULATOR, emulated, "few"), "plain"), sums(run(own, "few"), "plain")
    assert len(found) > 20
    assert [case[0] for case in found] == [case[0] for case in wanted]
    for (name, total, size), (_, expected, _) in zip(found, wanted, strict=True):
        # one rounding fewer in every multiplication with addition, grown over at most four steps
        assert abs(total - expected) <= (1e-4 if name.endswith("32") else 1e-12) * size, name


def test_tiles_live_in_registers(objects: list[Path]) -> None:
    """The loops of the largest tiles are 24 multiplications of whole vectors, and nothing in them is kept in memory."""
    listing = run(DISASSEMBLER, "-dC", "--no-show-raw-insn", objects[0])
    # the compiler puts the tiles into the product of which they are parts
    bodies = re.findall(r"<[^\n]*::product<float, 2>[^\n]*>:\n(.*?)\n\n", listing, re.DOTALL)
    loops = [loop for body in bodies for loop in innermost_loops(body)]
    tiles = [loop for loop in loops if sum(text.startswith("fmla") for text in loop) == 24]
    assert tiles
    for loop in tiles:
        assert all(re.match(r"fmla\s+v\d+\.4s", text) for text in loop if text.startswith("fm"))
        assert not [text for text in loop if "[sp" in text or "[x29" in text]
        assert not [text for text in loop if text.startswith("st")]


def innermost_loops(body: str) -> list[list[str]]:
    """Return the instructions of all loops of a function that have no loop inside."""
    lines = [re.match(r"\s*([0-9a-f]+):\s+(.*)", line) for line in body.splitlines()]
    code = [(int(line[1], 16), line[2]) for line in lines if line]
    backs = [(end, re.match(r"b\.\w+\s+([0-9a-f]+)", jump)) for end, jump in code]
    loops = [(begin, end) for end, back in backs if back and (begin := int(back[1], 16)) <= end]
    inner = [
        one for one in loops if not any(one != other and one[0] <= other[0] <= other[1] <= one[1] for other in loops)
    ]
    return [[text for place, text in code if begin <= place <= end] for begin, end in inner]


@pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++")
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", ""], ids=["arm64", "this machine"])
def test_clang_has_no_complaint(target: str) -> None:
    if not target and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("instruction sets of x86-64")
    chosen = [f"--target={target}", PORTABLE] if target else []
    names = ["plain.cpp", "entry.cpp", *([] if target else build.X86_FLAGS)]
    for name in names:
        flags = () if target else build.X86_FLAGS.get(name, ())
        run("clang++", *chosen, *build.FLAGS, *flags, "-fsyntax-only", CSRC / name)
