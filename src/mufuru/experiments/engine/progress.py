"""Progress of one run or of many: a bar on a terminal, plain lines elsewhere, TensorBoard's files, or silence."""

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TextIO

from rich import progress as rich
from rich.console import Console

from mufuru.experiments.engine.errors import RunError

INTERVAL = 10.0
"""Seconds between two lines about many runs where there is no terminal."""


class Progress:
    """Silent progress, the base of the others. `step` is called after every update and must be cheap."""

    def describe(self, text: str) -> None:
        """Show a task's description of its data, before the run begins."""

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        """Begin a run, or resume it after `done` of `total` updates; `metric` is the one that selects."""

    def step(self, update: int, loss: float) -> None:
        """Record an update and its mean loss."""

    def validated(self, line: dict[str, Any]) -> None:
        """Record a validation: a line of metrics.jsonl."""

    def stop(self) -> None:
        """End the run, finished or not."""


def progress_for(stream: TextIO | None = None, quiet: bool = False) -> Progress:
    """Return the progress that suits a stream: a bar on a terminal, lines elsewhere."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return Live(Console(file=stream, force_terminal=None if stream.isatty() else False))


class Live(Progress):
    """A bar with loss, metric, speed and time left, drawn a few times a second by the loop itself; without a terminal a
    line per validation, at most one every few seconds; the first and the last always."""

    def __init__(self, console: Console, every: float | None = None) -> None:
        self.console, self.terminal = console, console.is_terminal
        self.every = (0.2 if self.terminal else 5.0) if every is None else every
        self._due, self._held, self._metric = 0.0, "", ""

    def describe(self, text: str) -> None:
        self._print(text)

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.metric, self.total, self.first, self.started = metric, total, done, time.monotonic()
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("loss {task.fields[loss]}{task.fields[metric]}  {task.fields[speed]} updates/s"),
            rich.TimeRemainingColumn(),
        )
        self.bar = rich.Progress(*columns, console=self.console, auto_refresh=False, disable=not self.terminal)
        self.task = self.bar.add_task(title, total=total, completed=done, loss="-", metric="", speed="-")
        self.bar.start()
        if not self.terminal:
            self._print(f"{title}: {total} updates" + (f", {done} of them done" if done else ""))
        self._due = 0.0

    def step(self, update: int, loss: float) -> None:
        if self.terminal and time.monotonic() >= self._due:
            self._draw(update, loss)

    def validated(self, line: dict[str, Any]) -> None:
        update, loss = line["update"], line["train"]["loss"]
        self._metric = f"  valid {self.metric} {line['valid'][self.metric]:.4f}"
        if self.terminal:
            if update == self.total:
                self._draw(update, loss)
            return
        speed = self._speed(update)
        left = timedelta(seconds=round((self.total - update) / speed)) if speed else "-:--:--"
        progress = f"update {update}/{self.total}  epoch {line['epoch']}  loss {loss:.4f}"
        self._held = f"{progress}{self._metric}  {speed:.0f} updates/s  {left} left"
        if time.monotonic() >= self._due:
            self._print(self._held)

    def stop(self) -> None:
        if self.terminal:
            self.bar.stop()
        elif self._held:
            self._print(self._held)

    def _speed(self, update: int) -> float:
        """Updates per second in this session."""
        return (update - self.first) / max(time.monotonic() - self.started, 1e-9)

    def _draw(self, update: int, loss: float) -> None:
        self._due = time.monotonic() + self.every
        shown: Any = {"loss": f"{loss:.4f}", "metric": self._metric, "speed": f"{self._speed(update):.0f}"}
        self.bar.update(self.task, completed=update, refresh=True, **shown)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self._due, self._held = time.monotonic() + self.every, ""


class TensorBoard(Progress):
    """Event files of every validation, in the folder `tensorboard` of the run."""

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

    def validated(self, line: dict[str, Any]) -> None:
        for split in ("train", "valid"):
            for name, value in line[split].items():
                self.writer.add_scalar(f"{name}/{split}", value, line["update"])
        self.writer.add_scalar("learning_rate", line["learning_rate"], line["update"])

    def stop(self) -> None:
        self.writer.close()


class Overall:
    """Progress of many runs, by the costs of finished runs and of the parts of unfinished ones."""

    def __init__(self, cost: float, done: int, runs: int | None, quiet: bool = False) -> None:
        self.cost, self.done, self.runs = cost, done, runs
        self.failed = self.early = 0
        self.settled_cost = 0.0
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            console=self.console,
            # with few long runs progress jumps: the speed is estimated over the last minutes
            speed_estimate_period=300,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task(self.text(), total=cost)
        self.start = self.printed = time.monotonic()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()
        if self.bar.disable:
            self.say(self.text())

    def text(self) -> str:
        runs = f"{self.done} runs" if self.runs is None else f"{self.done} of {self.runs} runs"
        early = f", {self.early} stopped early" if self.early else ""
        return runs + early + (f", {self.failed} failed" if self.failed else "")

    def settle(self, cost: float, failed: bool) -> None:
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
