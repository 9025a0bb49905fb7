"""Compile the native kernel with a C++ compiler and nothing else: `setup.py` uses this file where there is no torch."""

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra",
    "-ffp-contract=fast",  # products and sums in one instruction: g++'s default, but not that of every clang
)  # fmt: skip
X86_FLAGS = {
    "avx2.cpp": ("-mavx2", "-mfma"),
    "avx512.cpp": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"),
    "avx512bf16.cpp": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"),
}
"""Files for one instruction set, chosen at run time: left out on machines that are not x86-64."""
# on a Mac the compiler may run on the other architecture than this Python, and builds for its own unless asked
TARGET = ("-arch", platform.machine()) if sys.platform == "darwin" else ()
# torch may bring another libstdc++: take our own along and keep its symbols to ourselves
STATIC = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL") if sys.platform == "linux" else ()
TIMEOUT = 300.0
"""Seconds after which a compiler counts as hanging."""


class BuildError(Exception):
    """The library cannot be built. The message says why and what to do."""


def find_compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, or the first of c++, g++ and clang++ in PATH."""
    chosen = os.environ.get("CXX", "").strip()
    try:
        candidates = [[chosen], shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]
    except ValueError as error:
        raise BuildError(f"CXX={chosen} is not a command: {error}; set it to a C++ compiler or unset it") from error
    for words in candidates:
        if path := shutil.which(words[0]):
            return [path, *words[1:]]
    if chosen:
        raise BuildError(f"CXX={chosen} is not a program that can be run; set it to a C++ compiler or unset it")
    raise BuildError(
        "no C++ compiler found: install one (Debian and Ubuntu: apt install g++; macOS: xcode-select --install) "
        "so that c++, g++ or clang++ is in PATH, or set CXX"
    )


def compiler_version(compiler: Sequence[str]) -> str:
    """Return the output of the compiler's --version."""
    return _run_all([[*compiler, "--version"]], timeout=30.0)[0]


def flags_of(source_dir: Path) -> dict[str, list[str]]:
    """The source files by name, each with its flags on this machine."""
    sources = sorted(path.name for path in source_dir.glob("*.cpp"))
    if platform.machine().lower() in ("x86_64", "amd64"):
        return {name: [*FLAGS, *X86_FLAGS.get(name, ())] for name in sources}
    return {name: [*FLAGS, "-DMUFURU_PORTABLE_ONLY"] for name in sources if name not in X86_FLAGS}


def compile_library(source_dir: Path, output: Path, compiler: Sequence[str], timeout: float = TIMEOUT) -> None:
    """Compile all sources side by side and link them. `output` appears only once it is complete."""
    compiler = [*compiler, *TARGET]
    flags = flags_of(source_dir)
    if not flags:
        raise BuildError(f"no C++ sources in {source_dir}: install mufuru again")
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as name:
        work = Path(name)
        objects = [str(work / f"{source}.o") for source in flags]
        _run_all(
            [
                [*compiler, *flags[source], "-c", str(source_dir / source), "-o", target]
                for source, target in zip(flags, objects, strict=True)
            ],
            timeout,
        )
        _link(objects, work / output.name, compiler, deadline)
        os.replace(work / output.name, output)


def _link(objects: list[str], output: Path, compiler: Sequence[str], deadline: float) -> None:
    """Link, with a libstdc++ of our own where the compiler has one to give."""
    command = [*compiler, "-shared", "-o", str(output), *objects]
    try:
        _run_all([[*command, *STATIC]], deadline - time.monotonic())
    except BuildError:
        if not STATIC or time.monotonic() >= deadline:
            raise
        _run_all([command], deadline - time.monotonic())
    if not output.is_file():
        raise BuildError(f"{compiler[0]} reports success but wrote no file; set CXX to another C++ compiler")


def _run_all(commands: Sequence[Sequence[str]], timeout: float) -> list[str]:
    """Run all commands at the same time and return their output; if one fails or hangs, end them all."""
    deadline = time.monotonic() + timeout
    running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
    try:
        for command in commands:
            # a file, not a pipe: a pipe stays open for as long as any grandchild of a killed compiler lives
            log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
            running.append((_start(command, log), log))
        return [_finish(commands[0][0], process, log, deadline) for process, log in running]
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{commands[0][0]} did not finish in {timeout:.0f} s; set CXX to another compiler") from error
    finally:
        for process, log in running:
            _kill(process)
            log.close()


def _start(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command in a new session, so that it can be ended with all its children."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        log.close()
        raise BuildError(f"{command[0]} cannot be run ({error}); set CXX to another C++ compiler") from error


def _finish(program: str, process: subprocess.Popen[bytes], log: IO[bytes], deadline: float) -> str:
    code = process.wait(max(0.0, deadline - time.monotonic()))
    log.seek(0)
    printed = log.read().decode(errors="replace").strip()
    if code:
        last = "\n".join(printed.splitlines()[-15:])
        raise BuildError(
            f"{program} failed with exit code {code}; set CXX to another C++ compiler. Its output:\n{last}"
        )
    return printed


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
