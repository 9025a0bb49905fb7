"""Many runs: what a run to make is, who makes runs, and how a worker makes one and reports on it."""

import signal
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from mufuru.experiments.engine.errors import Interrupted, PlaceError
from mufuru.experiments.engine.fit import fit
from mufuru.experiments.engine.progress import Progress
from mufuru.experiments.engine.remote import Mirror, Remote, mirrored
from mufuru.experiments.record import RunFolder, read_lines
from mufuru.experiments.settings import UserError

GRACE = 30.0
"""Seconds that a worker gets to save its run before it is killed."""


@dataclass(frozen=True)
class Job:
    """One run to make."""

    name: str
    kind: str
    config: Any
    folder: Path
    cost: float = 1.0
    """Expected duration compared with the others; for the time that is left."""


@dataclass(frozen=True)
class Where:
    """The machines that make runs, and the folder or URL that keeps them."""

    root: Path
    """Folder with the folders of all runs."""
    workers: int | None = None
    """Runs at the same time; None for one on each core."""
    cluster: str | None = None
    """Address of a Ray cluster, or auto; None for this machine."""
    store: str | None = None
    """URL where runs are kept; their records are copied to their folders. None to keep them in their folders."""
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if file := next((path for path in (self.root, *self.root.parents) if path.is_file()), None):
            raise PlaceError(f"{file} is a file: expected a folder for the runs, or a name that is free")
        if self.store and self.store.startswith("memory:") and self.cluster is None:
            raise PlaceError(
                f"--store {self.store} is the memory of one process, and runs have processes of their own: give a URL "
                "that all of them reach, such as s3://bucket/folder or file:///folder"
            )


@dataclass(frozen=True)
class Validation:
    """A validation of a run under way."""

    number: int
    """Counted from 1."""
    value: float
    """The metric that selects."""


@dataclass(frozen=True)
class Looked:
    """A validation of a run under way."""

    job: Job
    validation: Validation


@dataclass(frozen=True)
class Ended:
    """A run is over: finished, failed for a reason, or halted on request."""

    job: Job
    failure: str | None
    halted: bool = False


@dataclass(frozen=True)
class Died:
    """The process or the machine of a run is gone; the run can be resumed."""

    job: Job
    reason: str
    innocent: bool = False
    """Whether the run cannot have caused it, as when a machine is switched off."""


Event: TypeAlias = Looked | Ended | Died


class Backend(Protocol):
    """Makes runs: in processes of this machine, or as tasks of a cluster."""

    def running(self) -> dict[str, tuple[Job, float]]:
        """Return the runs under way by name, and the part of each that is made."""

    def room(self) -> int:
        """Return how many runs can be started now."""

    def start(self, job: Job) -> None:
        """Start a run."""

    def listen(self, seconds: float) -> list[Event]:
        """Return the events since the last call, or within some seconds."""

    def halt(self, name: str) -> None:
        """Let one run save itself and stop."""

    def stop(self) -> None:
        """Let every run save itself and stop; return when they have, or after a while."""

    def close(self) -> None:
        """End what still runs, and leave nothing behind."""


class Reporter(Progress):
    """Reports a run's progress to the process that started it, which may ask the run to stop."""

    interval = 0.1
    """Seconds between two reports; a validation does not wait for them."""
    due = 0.0
    folder: Path
    mirror: Mirror | None = None

    def report(self, fraction: float, validations: list[Validation]) -> bool:
        """Send the part of the run that is made, and the validations since the last report; return whether to stop.

        After a resume, the earlier validations are sent first.
        """
        raise NotImplementedError

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.total, self.metric, self.validations, self.unsent = total, metric, 0, list[Validation]()
        for line in read_lines(RunFolder(self.folder).metrics):
            self.validated(line)

    def step(self, update: int, loss: float) -> None:
        if self.mirror:
            self.mirror.step()
        if (now := time.monotonic()) >= self.due:
            self.due = now + self.interval
            if self.report(update / self.total, self.taken()):
                # the run saves itself, as after Ctrl-C
                signal.raise_signal(signal.SIGTERM)

    def validated(self, line: dict[str, Any]) -> None:
        self.validations += 1
        self.unsent.append(Validation(self.validations, line["valid"][self.metric]))
        self.due = 0.0

    def stop(self) -> None:
        self.report(1.0, self.taken())

    def taken(self) -> list[Validation]:
        """Return the validations to send."""
        validations, self.unsent = self.unsent, []
        return validations


def work(job: Job, where: Where, reporter: Reporter) -> str | None:
    """Make or resume one run, in its folder or behind the URL; return why it failed.

    Raises `Interrupted` when a signal or the reporter asks the run to stop: it is saved.
    """
    try:
        with mirrored(Remote(where.store) / job.name) if where.store else nullcontext() as mirror:
            reporter.mirror = mirror
            reporter.folder = folder = mirror.files.path if mirror else job.folder
            resume, seconds = RunFolder(folder).config.exists(), where.checkpoint_seconds
            fit(job.kind, job.config, folder, resume=resume, progress=reporter, checkpoint_seconds=seconds)
    except Interrupted:
        raise
    except (UserError, OSError) as error:
        return str(error)
    except Exception:
        return f"this is a bug\n{traceback.format_exc()}"
    return None
