"""Interface of the backends that make runs: processes of this machine, or tasks of a cluster."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mufuru.experiments.engine.work import Job, Validation

GRACE = 30.0
"""Seconds that a worker gets to save its run before it is killed."""


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
    """Makes runs."""

    def running(self) -> dict[str, tuple[Job, float]]:
        """Return the runs under way by name, and the part of each that is made."""
        ...

    def room(self) -> int:
        """Return how many runs can be started now."""
        ...

    def start(self, job: Job) -> None: ...

    def listen(self, seconds: float) -> list[Event]:
        """Return the events since the last call, or within some seconds."""
        ...

    def halt(self, name: str) -> None:
        """Let one run save itself and stop."""
        ...

    def stop(self) -> None:
        """Let every run save itself and stop; return when they have, or after a while."""
        ...

    def close(self) -> None:
        """End what still runs, and leave nothing behind."""
        ...
