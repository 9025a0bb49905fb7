"""The progress of many runs: one bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""


class Overall:
    """Adds up the costs of finished runs and of the parts of unfinished ones."""

    def __init__(self, cost: float, done: int, runs: int, quiet: bool = False) -> None:
        self.cost, self.done, self.runs, self.quiet = cost, done, runs, quiet
        self.failed = 0
        self.settled_cost = 0.0
        self.parts: dict[str, float] = {}
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            # with few long runs progress comes in jumps: the speed is that of the last minutes
            speed_estimate_period=300,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task(self.text(), total=cost)
        self.start = self.spoken = time.monotonic()

    def __enter__(self) -> Overall:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()
        if self.bar.disable:
            self.console.print(self.text(), markup=False)

    def text(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.runs} runs{failed}"

    def part(self, name: str, cost: float) -> None:
        """A run has got so far; one that starts again may go back."""
        self.parts[name] = cost

    def settled(self, name: str, cost: float, failed: bool) -> None:
        self.parts.pop(name, None)
        self.settled_cost += cost
        self.failed += failed
        self.done += not failed

    def refresh(self) -> None:
        """Draw, or write a line if the last is old enough."""
        completed = self.settled_cost + sum(self.parts.values())
        self.bar.update(self.task, completed=completed, description=self.text())
        now = time.monotonic()
        if self.bar.disable and now - self.spoken >= INTERVAL:
            self.spoken = now
            self.console.print(f"{self.text()}, {self.left(completed, now - self.start)}", markup=False)

    def left(self, completed: float, seconds: float) -> str:
        """The time that the rest will take if it goes on like this; workers take a moment to start."""
        if completed < self.cost / 100:
            return "just begun"
        left = seconds * (self.cost - completed) / completed
        return f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left"

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)
