"""How far a download is: a bar on a terminal, plain lines elsewhere, or silence."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Says nothing; the others say more."""

    def start(self, name: str, done: int, total: int | None) -> None:
        """A download begins, or goes on after `done` bytes; `total` is None where it is not known."""

    def step(self, done: int) -> None:
        """So many bytes are there now."""

    def stop(self) -> None:
        """The download is over, complete or not."""


class Lines(Progress):
    """A line at the beginning and the end, and one every few seconds between."""

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self.stream, self.every = stream or sys.stderr, every

    def start(self, name: str, done: int, total: int | None) -> None:
        self.name, self.done, self.total, self.due = name, done, total, time.monotonic() + self.every
        self._print("going on with" if done else "downloading")

    def step(self, done: int) -> None:
        self.done = done
        if time.monotonic() >= self.due:
            self._print("downloading")
            self.due = time.monotonic() + self.every

    def stop(self) -> None:
        self._print("downloaded" if self.total is None or self.done >= self.total else "cut off:")

    def _print(self, what: str) -> None:
        of = "" if self.total is None else f" of {self.total / 1e6:.1f}"
        print(f"{what} {self.name}: {self.done / 1e6:.1f}{of} MB", file=self.stream, flush=True)


class Bar(Progress):
    """A bar with bytes, speed and time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)

    def start(self, name: str, done: int, total: int | None) -> None:
        columns = (
            TextColumn("downloading {task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self.bar = RichProgress(*columns, console=self.console)
        self.task = self.bar.add_task(name, total=total, completed=done)
        self.bar.start()

    def step(self, done: int) -> None:
        self.bar.update(self.task, completed=done)

    def stop(self) -> None:
        self.bar.stop()


def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Progress:
    """What suits a stream, stderr unless told: silence if asked for, a bar on a terminal, lines elsewhere."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return Bar(Console(file=stream)) if stream.isatty() else Lines(stream)
