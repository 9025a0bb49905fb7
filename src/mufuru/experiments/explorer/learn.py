"""Watch it learn: `mufuru train logic` in a separate process, one at a time, as the page shows it.

The run folder is the meeting point, as for reports: the process writes it, this module reads its metrics. So a pause is
a checkpoint, and a closed page changes nothing.
"""

import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from mufuru import PAPER, ops
from mufuru.experiments.explorer import numbers
from mufuru.experiments.explorer.runs import ExploredRun, Refused, check_range
from mufuru.experiments.record import RunFolder, read_json, read_lines
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.cells import CellConfig

UNITS = 32
"""Maximum units of a lesson's model."""
SEEDS = 1_000_000
UPDATES = 1000
EVERY = 10
"""Updates between two points of the curves."""
SECONDS = 300.0
"""Time after which a lesson pauses by itself."""
INTERRUPTED = (130, -signal.SIGINT)
"""Exit codes of a run that was asked to stop: after its checkpoint, or before it had begun."""


@dataclass(frozen=True)
class Action:
    """A request of the page; the settings are those of a new lesson."""

    do: Literal["start", "pause", "resume", "stop", "explore"]
    units: int = 8
    seed: int = 0
    ops: tuple[str, ...] = PAPER

    def check(self) -> None:
        check_range("units", self.units, 1, UNITS)
        check_range("seed", self.seed, 0, SEEDS)
        try:
            CellConfig(hidden_size=self.units, ops=self.ops)
        except SettingError as error:
            raise Refused(422, str(error)) from None

    @property
    def arguments(self) -> list[str]:
        """The command without `mufuru`, and without the folder."""
        settings = ["--hidden-size", str(self.units), "--ops", *self.ops, "--seed", str(self.seed)]
        pace = ["--updates", str(UPDATES), "--evaluate-every", str(EVERY)]
        return ["train", "logic", "--preset", "solved", *settings, *pace]


class Lesson:
    """A run in a temporary folder, and the process that trains it, if any. Made and asked by one thread."""

    def __init__(self, number: int, action: Action) -> None:
        self.number, self.action = number, action
        self.place = TemporaryDirectory(prefix="mufuru-lesson-", ignore_cleanup_errors=True)
        self.folder = RunFolder(Path(self.place.name) / "run")
        self.errors = Path(self.place.name) / "errors.txt"
        self.pausing = False
        self.begin()

    def begin(self) -> None:
        """Train from the beginning, or from the last checkpoint."""
        # a process that was stopped while it still imported torch has left no run
        where = ["--resume"] if self.folder.config.exists() else [*self.action.arguments, "--output"]
        command = [*(["train"] if where == ["--resume"] else []), *where, str(self.folder.path), "--quiet"]
        with open(self.errors, "wb") as errors:
            # a session of its own: Ctrl-C in the terminal is for the server, which ends the process
            line, nothing = [sys.executable, "-m", "mufuru", *command], subprocess.DEVNULL
            self.process = subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=errors, start_new_session=True)
        self.pausing = False
        self.clock = threading.Timer(SECONDS, self.pause)
        self.clock.daemon = True
        self.clock.start()

    @property
    def state(self) -> str:
        """Return running, pausing, paused, finished or failed."""
        code = self.process.poll()
        if code is None:
            return "pausing" if self.pausing else "running"
        self.clock.cancel()
        if code == 0:
            return "finished"
        return "paused" if code in INTERRUPTED else "failed"

    def pause(self) -> None:
        """Ask for a checkpoint and an end."""
        self.pausing = True
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the process, whatever it does, and remove the run."""
        self.clock.cancel()
        self.process.kill()
        self.process.wait()
        self.place.cleanup()

    def info(self) -> dict[str, Any]:
        """Return state, settings and curves."""
        # the state first: what it says to be there is then read
        state, lines = self.state, read_lines(self.folder.metrics)
        test = read_json(self.folder.result)["test"]["accuracy"] if state == "finished" else None
        reason = self.errors.read_text(errors="replace").strip().rpartition("\n")[2] if state == "failed" else ""
        return {
            "state": state, "units": self.action.units, "seed": self.action.seed, "ops": list(self.action.ops),
            "update": [line["update"] for line in lines],
            "train": [round(line["train"]["accuracy"], 4) for line in lines],
            "valid": [round(line["valid"]["accuracy"], 4) for line in lines],
            "use": {name: [round(line["operations"][name], 4) for line in lines] for name in self.action.ops},
            "test": test, "reason": reason, "command": shlex.join(["mufuru", *self.action.arguments]),
        }  # fmt: skip


class Learning:
    """The only lesson at a time; `load` makes a run to explore of a run folder."""

    def __init__(self, load: Callable[[Path], ExploredRun]) -> None:
        self.load = load
        self.lesson: Lesson | None = None
        self.count = 0

    def info(self) -> dict[str, Any]:
        limits = {"units": UNITS, "seed": SEEDS, "updates": UPDATES, "seconds": SECONDS}
        known = [numbers.described(ops.get(name)) for name in PAPER]
        return {"limits": limits, "known": known} | (self.lesson.info() if self.lesson else {"state": "none"})

    def handle(self, action: Action) -> None:
        """Start, pause, resume or stop; refuse what the state does not allow."""
        now = self.lesson.state if self.lesson else "none"
        allowed = {"start": ("none", "paused", "finished", "failed"), "pause": ("running", "pausing"),
                   "resume": ("paused",), "explore": ("paused", "finished")}  # fmt: skip
        if now not in allowed.get(action.do, (now,)):
            hint = ": one model is trained at a time, stop it first" if action.do == "start" else ""
            raise Refused(409, f"cannot {action.do} now, as the training is {now}{hint}")
        if action.do == "start":
            action.check()
        if action.do in ("start", "stop"):
            self.close()
        if action.do == "start":
            self.count += 1
            self.lesson = Lesson(self.count, action)
        elif self.lesson and action.do in ("pause", "resume"):
            (self.lesson.pause if action.do == "pause" else self.lesson.begin)()

    def explored(self) -> ExploredRun:
        """Return the model as it is now."""
        assert self.lesson is not None
        if not self.lesson.folder.last.exists():
            raise Refused(409, "it was paused before it had learned anything: resume it")
        run, lines = self.load(self.lesson.folder.path), read_lines(self.lesson.folder.metrics)
        return replace(run, name=f"lesson-{self.lesson.number}-update-{lines[-1]['update'] if lines else 0}")

    def close(self) -> None:
        """End the lesson, if there is one."""
        if self.lesson:
            self.lesson.close()
        self.lesson = None
