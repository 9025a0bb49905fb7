"""One run of many, as a worker makes it: in a process of this machine or of a cluster's."""

import signal
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mufuru.experiments.data import DataError
from mufuru.experiments.engine.errors import Interrupted, RunError
from mufuru.experiments.engine.fit import fit
from mufuru.experiments.engine.progress import Progress
from mufuru.experiments.engine.remote import Mirror, Remote, mirrored
from mufuru.experiments.record import RunFolder, read_lines
from mufuru.experiments.settings import SettingError


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
class Validation:
    """A validation of a run under way."""

    number: int
    """Counted from 1."""
    value: float
    """The metric that selects."""


class Reporter(Progress):
    """Sends a run's progress to the process that started it, which may ask the run to stop."""

    folder: Path
    mirror: Mirror | None = None

    def send(self, fraction: float) -> None:
        """Send the part of the run that is made; called after every update."""
        raise NotImplementedError

    def send_validation(self, validation: Validation) -> None:
        """Send a validation; after a resume, the earlier ones are sent first."""
        raise NotImplementedError

    def asked_to_stop(self) -> bool:
        raise NotImplementedError

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.total, self.metric, self.validations = total, metric, 0
        for line in read_lines(RunFolder(self.folder).metrics):
            self.validated(line)

    def step(self, update: int, loss: float) -> None:
        if self.mirror:
            self.mirror.step(update, loss)
        self.send(update / self.total)
        if self.asked_to_stop():
            # the run saves itself, as after Ctrl-C
            signal.raise_signal(signal.SIGTERM)

    def validated(self, line: dict[str, Any]) -> None:
        self.validations += 1
        self.send_validation(Validation(self.validations, line["valid"][self.metric]))


def work(job: Job, store: str | None, checkpoint_seconds: float, reporter: Reporter) -> str | None:
    """Make or resume one run, in its folder or behind the URL `store`; return why it failed.

    Raises `Interrupted` when a signal or the reporter asks the run to stop: it is saved.
    """
    try:
        with mirrored(Remote(store) / job.name) if store else nullcontext() as mirror:
            reporter.mirror = mirror
            reporter.folder = mirror.files.path if mirror else job.folder
            resume = RunFolder(reporter.folder).config.exists()
            fit(
                job.kind,
                job.config,
                reporter.folder,
                resume=resume,
                progress=reporter,
                checkpoint_seconds=checkpoint_seconds,
            )
    except Interrupted:
        raise
    except (DataError, RunError, SettingError, OSError) as error:
        return str(error)
    except Exception:
        return f"this is a bug\n{traceback.format_exc()}"
    return None
