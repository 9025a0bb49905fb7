"""Many runs: finished ones are skipped, stopped ones resume, and failures are listed at the end."""

import os
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mufuru.experiments.engine.errors import Interrupted, RunError, Stop
from mufuru.experiments.engine.processes import Processes
from mufuru.experiments.engine.progress import Overall
from mufuru.experiments.engine.remote import Remote, fetch_records
from mufuru.experiments.engine.store import check_same, open_store
from mufuru.experiments.engine.work import Backend, Died, Ended, Event, Job, Looked, Validation, Where
from mufuru.experiments.record import RunFolder, config_document
from mufuru.kernels import library

__all__ = ["Job", "Outcome", "Plan", "Pool", "Where", "is_finished", "opened", "sweep", "usable_cores"]

ATTEMPTS = 2
"""Times that a run is tried whose process dies."""
LOSSES = 20
"""Times that a run is resumed whose machine is gone."""


@dataclass
class Outcome:
    """Jobs by how they ended."""

    skipped: int = 0
    """Runs that were finished before."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by name."""


class Plan(Protocol):
    """Decides which runs are made."""

    def next(self) -> Job | None:
        """Return the next run to start; None for none."""

    def enough(self) -> bool:
        """Return whether to stop what still runs."""

    def look(self, job: Job, validation: Validation) -> bool:
        """Take note of a validation; return whether to stop the run."""

    def settle(self, job: Job, failure: str | None, halted: bool) -> None:
        """Take note of a run that is over."""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sweep(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    quiet: bool = False,
    checkpoint_seconds: float = 60.0,
    cluster: str | None = None,
    store: str | None = None,
) -> Outcome:
    """Make all runs, in their order. A run with other settings in a job's folder is an error before anything starts.

    Runs are made in processes of this machine, or on the Ray cluster with the address `cluster`. They are kept in their
    folders, or behind the URL `store`: then their records are copied to their folders.
    """
    if shared := [str(folder) for folder, count in Counter(job.folder for job in jobs).items() if count > 1]:
        raise ValueError(f"each run needs a folder of its own, got several for {', '.join(shared)}")
    unfinished = [job for job in jobs if not is_finished(job, store)]
    outcome = Outcome(skipped=len(jobs) - len(unfinished))
    if unfinished:
        root = Path(os.path.commonpath([job.folder.parent.absolute() for job in unfinished]))
        where = Where(root, workers, cluster, store, checkpoint_seconds)
        cost = sum(job.cost for job in unfinished)
        with opened(where, len(unfinished)) as backend, Overall(cost, outcome.skipped, len(jobs), quiet) as overall:
            Pool(Listed(unfinished, outcome), backend, where.store, overall).run()
    return outcome


def is_finished(job: Job, store: str | None = None) -> bool:
    """Return whether the run is finished; a run with other settings in its place is an error. The records of one that
    is finished behind a URL are copied to its folder."""
    folder = RunFolder(job.folder)
    if store is None:
        if not folder.config.exists():
            return False
        with open_store(job.folder, config_document(job.kind, job.config), resume=True):
            return folder.finished
    remote = Remote(store) / job.name
    if not remote.has(folder.config.name):
        return False
    check_same(remote.read_json(folder.config.name), config_document(job.kind, job.config), remote.url)
    if finished := remote.has(folder.result.name):
        fetch_records(remote, folder)
    return finished


class Listed:
    """A plan that makes all of its runs."""

    def __init__(self, jobs: Sequence[Job], outcome: Outcome) -> None:
        self.waiting, self.outcome = deque(jobs), outcome

    def next(self) -> Job | None:
        return self.waiting.popleft() if self.waiting else None

    def enough(self) -> bool:
        return False

    def look(self, job: Job, validation: Validation) -> bool:
        return False

    def settle(self, job: Job, failure: str | None, halted: bool) -> None:
        if failure is None:
            self.outcome.done.append(job.name)
        else:
            self.outcome.failed[job.name] = failure


def opened(where: Where, most: int) -> AbstractContextManager[Backend]:
    """Open the place where runs are made, at most `most` at the same time."""
    if where.cluster is not None:
        from mufuru.experiments.engine.cluster import connected

        return connected(where.cluster, where)
    # built once here, then in the cache for every worker
    library.load()
    return nullcontext(Processes(min(where.workers or usable_cores(), most), where))


class Pool:
    """The runs under way, and those that have to be resumed."""

    def __init__(self, plan: Plan, backend: Backend, store: str | None, overall: Overall) -> None:
        self.plan, self.backend, self.store, self.overall = plan, backend, store, overall
        self.again: deque[Job] = deque()
        self.attempts: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()

    def run(self) -> None:
        """Work until nothing is left; a signal that asks to stop lets every run save itself first."""
        try:
            with Stop() as stop:
                while not stop.number and not self.plan.enough() and self.fill():
                    for event in self.backend.listen(0.2):
                        self.handle(event)
                    under_way = self.backend.running().values()
                    self.overall.refresh(sum(job.cost * fraction for job, fraction in under_way))
                if self.backend.running():
                    self.stop()
                if stop.number:
                    raise Interrupted("stopped; all runs are saved. The same command resumes them", stop.number)
        finally:
            self.backend.close()

    def fill(self) -> bool:
        """Start runs while there is room for them; return whether any is under way."""
        while self.backend.room() > 0 and (job := self.again.popleft() if self.again else self.plan.next()):
            self.backend.start(job)
        return bool(self.backend.running())

    def handle(self, event: Event) -> None:
        match event:
            case Looked(job, validation):
                if self.plan.look(job, validation):
                    self.backend.halt(job.name)
            case Ended(job, failure, halted):
                self.settle(job, failure, halted)
            case Died():
                self.resume(event)

    def settle(self, job: Job, failure: str | None, halted: bool = False) -> None:
        """Take note of a run that is over."""
        if self.store and failure is None and not halted:
            try:
                fetch_records(Remote(self.store) / job.name, RunFolder(job.folder))
            except RunError as error:
                failure = str(error)
        self.plan.settle(job, failure, halted)
        self.overall.settle(job.cost, failed=failure is not None)

    def resume(self, died: Died) -> None:
        """Try a run again whose process died: once more if it may be the run's fault."""
        job = died.job
        counts, most = (self.losses, LOSSES) if died.innocent else (self.attempts, ATTEMPTS)
        counts[job.name] += 1
        if counts[job.name] < most:
            self.overall.say(f"{job.name}: {died.reason}; {'resumed' if died.innocent else 'once more'}")
            self.again.append(job)
        else:
            self.settle(job, died.reason)

    def stop(self) -> None:
        """Let every run save itself; a second Ctrl-C does not wait for that."""
        self.overall.say("Stopping: the runs save themselves first.")
        try:
            self.backend.stop()
        except KeyboardInterrupt:
            self.overall.say("Not waiting: runs resume from their last checkpoints.")
