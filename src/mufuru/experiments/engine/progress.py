"""How far a run is: a bar on a terminal, plain lines elsewhere, or silence."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Says nothing; the others say more. `step` comes after every update and must cost next to nothing."""

    def tell(self, text: str) -> None:
        """What a task has to say of its data, before the run begins."""

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        """A run begins, or goes on after `done` of `total` updates; `metric` is the one that selects."""

    def step(self, update: int, loss: float) -> None:
        """An update was made, with this mean loss."""

    def look(self, line: dict[str, Any]) -> None:
        """The validation data was looked at: what a line of metrics.jsonl holds."""

    def stop(self) -> None:
        """The run is over, finished or not."""


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
    """A line for a look at the validation data, at most one every few seconds; the first and the last always."""

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


def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Progress:
    """What suits a stream: silence if asked for, a bar on a terminal, lines elsewhere."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return Bar(Console(file=stream)) if stream.isatty() else Lines(stream)
