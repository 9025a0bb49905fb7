"""The command line as a user meets it: exit code, what is printed, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import mufuru
from mufuru.experiments.cli import main

SOURCE = str(Path(mufuru.__file__).parents[1])
TINY = ("--train-formulae", "40", "--valid-formulae", "20", "--test-formulae", "20", "--batch-size", "10")
PATIENCE = 60.0
"""Seconds until a process that should have done something is given up."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    """Run in this process; no user should ever see a traceback."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    said = Said(code, *capsys.readouterr())
    assert "Traceback" not in said.err
    return said


def assert_refused(said: Said, code: int, *words: str) -> None:
    """These words on stderr and nothing on stdout: one line that begins with the program's name, or after a typing
    mistake the framed message of the parser, which names the help."""
    assert said.code == code, said
    assert said.out == ""
    message = " ".join(said.err.replace("│", " ").split())
    if message.startswith("mufuru: "):
        assert said.err.count("\n") == 1
    else:
        assert code == 2
        assert "--help" in message
    for word in words:
        assert word in message


def start(*arguments: object) -> subprocess.Popen[str]:
    """Run in a process of its own, which can be killed, and is when its test is over."""
    return opened([sys.executable, "-m", "mufuru_command", *map(str, arguments)], {"PYTHONPATH": SOURCE})


def lasting(*arguments: object) -> subprocess.Popen[str]:
    """Run in a process that serves several tests: whoever starts it ends it."""
    process = start(*arguments)
    _opened.remove(process)
    return process


_opened: list[subprocess.Popen[str]] = []
"""Processes that may still be running."""


def opened(line: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    _opened.append(process)
    return process


def end_all() -> None:
    """Kill what a test has left running, as one that failed halfway does, with all that it started."""
    while _opened:
        process = _opened.pop()
        if process.poll() is None:
            for member in [*family(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            process.communicate()


def family(parent: int) -> Iterator[int]:
    """A process and all that it started, and that those started, where /proc has them."""
    yield parent
    with suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{parent}/task"):
            for child in Path(f"/proc/{parent}/task/{task}/children").read_text().split():
                yield from family(int(child))


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run in a process of its own, which does not outlive the context."""
    with start(*arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=PATIENCE)
    return Said(process.returncode, out, err)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Until something is so; an error if it never is, or if the process ends first."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.002)
