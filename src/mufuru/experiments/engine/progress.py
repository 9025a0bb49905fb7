"""Progress of one run or of many: a bar on a terminal, plain lines elsewhere, TensorBoard's files, or silence."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from mufuru.experiments.engine.errors import RunError

INTERVAL = 10.0
"""Seconds between two lines about many runs where there is no terminal."""


class Progress:
    """Shows nothing; subclasses show more. `step` comes after every update and must cost next to nothing."""

    def tell(self, text: str) -> None:
        """Show a task's description of its data, before the run begins."""

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        """Begin a run, or resume it after `done` of `total` updates; `metric` is the one that selects."""

    def step(self, update: int, loss: float) -> None:
        """Take note of an update and its mean loss."""

    def look(self, line: dict[str, Any]) -> None:
        """Take note of a validation: a line of metrics.jsonl."""

    def stop(self) -> None:
        """End the run, finished or not."""


def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Progress:
    """Return the progress that suits a stream: a bar on a terminal, lines elsewhere."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return Bar(Console(file=stream)) if stream.isatty() else Lines(stream)


class Speed:
    """Updates per second in this session, and the time that the rest should take."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.first, self.start = total, done, time.monotonic()

    def per_second(self, update: int) -> float:
        return (update - self.first) / max(time.monotonic() - self.start, 1e-9)

    def remaining(self, update: int) -> str:
        """Hours, minutes and seconds, or dashes while the speed is not known."""
        speed = self.per_second(update)
        return str(timedelta(seconds=round((self.total - update) / speed))) if speed else "-:--:--"


class Lines(Progress):
    """A line per validation, at most one every few seconds; the first and the last always."""

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self.stream = stream or sys.stderr
        self.every = every
        self._due = 0.0
        self._held: str | None = None

    def tell(self, text: str) -> None:
        self._print(text)

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.total, self.metric, self.speed = total, metric, Speed(total, done)
        self._print(f"{title}: {total} updates" + (f", {done} of them done" if done else ""))
        self._due = 0.0

    def look(self, line: dict[str, Any]) -> None:
        update = line["update"]
        text = (
            f"update {update}/{self.total}  epoch {line['epoch']}  loss {line['train']['loss']:.4f}  "
            f"valid {self.metric} {line['valid'][self.metric]:.4f}  "
            f"{self.speed.per_second(update):.0f} updates/s  {self.speed.remaining(update)} left"
        )
        if time.monotonic() < self._due:
            self._held = text
        else:
            self._print(text)

    def stop(self) -> None:
        if self._held:
            self._print(self._held)

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
        self._due = time.monotonic() + self.every
        self._held = None


class Bar(Progress):
    """A bar with loss, metric, speed and time left, drawn a few times a second by the loop itself."""

    def __init__(self, console: Console | None = None, every: float = 0.2) -> None:
        self.console = console or Console(stderr=True)
        self.every = every
        self._due = 0.0
        self._metric = ""

    def tell(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}{task.fields[metric]}  {task.fields[speed]} updates/s"),
            TimeRemainingColumn(),
        )
        self.name, self.speed, self._metric = metric, Speed(total, done), ""
        self.bar = RichProgress(*columns, console=self.console, auto_refresh=False)
        self.task = self.bar.add_task(title, total=total, completed=done, loss="-", metric="", speed="-")
        self.bar.start()

    def step(self, update: int, loss: float) -> None:
        if time.monotonic() >= self._due:
            self._draw(update, f"{loss:.4f}")

    def look(self, line: dict[str, Any]) -> None:
        self._metric = f"  valid {self.name} {line['valid'][self.name]:.4f}"
        if line["update"] == self.speed.total:
            self._draw(line["update"], f"{line['train']['loss']:.4f}")

    def stop(self) -> None:
        self.bar.stop()

    def _draw(self, update: int, loss: str) -> None:
        self._due = time.monotonic() + self.every
        speed = f"{self.speed.per_second(update):.0f}"
        self.bar.update(self.task, completed=update, loss=loss, metric=self._metric, speed=speed, refresh=True)


class TensorBoard(Progress):
    """Writes every validation into the folder `tensorboard` of the run."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RunError("TensorBoard is not installed: `pip install tensorboard`, or train without it") from None
        self._make = SummaryWriter
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        # hide what a killed run wrote after its last checkpoint
        self.writer = self._make(str(self.folder), purge_step=done + 1 if done else None)

    def look(self, line: dict[str, Any]) -> None:
        for split in ("train", "valid"):
            for name, value in line[split].items():
                self.writer.add_scalar(f"{name}/{split}", value, line["update"])
        self.writer.add_scalar("learning_rate", line["learning_rate"], line["update"])

    def stop(self) -> None:
        self.writer.close()


class Overall:
    """Progress of many runs, by the costs of finished runs and of the parts of unfinished ones."""

    def __init__(self, cost: float, done: int, runs: int, quiet: bool = False) -> None:
        self.cost, self.done, self.runs = cost, done, runs
        self.failed = 0
        self.settled_cost = 0.0
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.bar = RichProgress(
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
        self.start = self.printed = time.monotonic()

    def __enter__(self) -> Overall:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()
        if self.bar.disable:
            self.say(self.text())

    def text(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.runs} runs{failed}"

    def settle(self, cost: float, failed: bool) -> None:
        """Count a run that is finished or has failed."""
        self.settled_cost += cost
        self.failed += failed
        self.done += not failed

    def refresh(self, under_way: float) -> None:
        """Draw, or print a line if the last is old enough; `under_way` is the cost of the parts of unfinished runs."""
        completed = self.settled_cost + under_way
        self.bar.update(self.task, completed=completed, description=self.text())
        now = time.monotonic()
        if self.bar.disable and now - self.printed >= INTERVAL:
            self.printed = now
            self.say(f"{self.text()}, {self.left(completed, now - self.start)}")

    def left(self, completed: float, seconds: float) -> str:
        """Time that the rest will take at this speed; workers take a moment to start."""
        if completed < self.cost / 100:
            return "just begun"
        left = seconds * (self.cost - completed) / completed
        return f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left"

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)
