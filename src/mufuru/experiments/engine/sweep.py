"""Many runs on all cores: what is finished is skipped, what was stopped goes on, what fails is told at the end."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from mufuru.experiments.engine.errors import Interrupted, RunError
from mufuru.experiments.engine.overall import Overall
from mufuru.experiments.engine.stopping import Stop
from mufuru.experiments.engine.store import open_store
from mufuru.experiments.engine.workers import GRACE, Job, Worker
from mufuru.experiments.record import RunFolder, config_document
from mufuru.kernels import library

__all__ = ["Job", "Outcome", "sweep", "usable_cores"]

ATTEMPTS = 2
"""How often a run is tried whose process dies."""


@dataclass
class Outcome:
    """What became of the jobs: how many were finished before, and the rest by name."""

    skipped: int = 0
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Name and what went wrong."""


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sweep(
    jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False, checkpoint_seconds: float = 60.0
) -> Outcome:
    """Make all runs, in their order. A run with other settings in a job's folder is an error before anything starts."""
    check_folders(jobs)
    unfinished = [job for job in jobs if not is_finished(job)]
    outcome = Outcome(skipped=len(jobs) - len(unfinished))
    if unfinished:
        # built once here, found in the cache by every worker
        library.load()
        count = min(workers or usable_cores(), len(unfinished))
        with Overall(sum(job.cost for job in unfinished), outcome.skipped, len(jobs), quiet) as overall:
            Pool(unfinished, outcome, overall, checkpoint_seconds).run(count)
    return outcome


def check_folders(jobs: Sequence[Job]) -> None:
    """Two runs cannot share a folder."""
    if shared := [str(folder) for folder, count in Counter(job.folder for job in jobs).items() if count > 1]:
        raise ValueError(f"each run needs a folder of its own, got several for {', '.join(shared)}")


def is_finished(job: Job) -> bool:
    """Whether the run is there, whole; one with other settings in its place is an error."""
    folder = RunFolder(job.folder)
    if not folder.config.exists():
        return False
    with open_store(job.folder, config_document(job.kind, job.config), resume=True):
        return folder.finished


class Pool:
    """Workers, what each is doing, and what is still to be done."""

    def __init__(self, jobs: Sequence[Job], outcome: Outcome, overall: Overall, checkpoint_seconds: float) -> None:
        self.waiting = deque(jobs)
        self.outcome = outcome
        self.overall = overall
        self.checkpoint_seconds = checkpoint_seconds
        self.tries: Counter[str] = Counter()
        self.busy: dict[Worker, Job | None] = {}

    def run(self, count: int) -> None:
        """Work until nothing is left; a signal that asks to stop lets every run save itself first."""
        try:
            with Stop() as stop:
                for _ in range(count):
                    self.hire()
                while self.busy and not stop.requested:
                    self.listen()
                if stop.requested:
                    self.stop()
                    message = "stopped; all runs are saved. The same command goes on where they are"
                    raise Interrupted(message, stop.number)
        finally:
            for worker in self.busy:
                worker.end(kill=True)

    def listen(self) -> None:
        """Take the messages that are there, or those that come within a moment; a signal does not cut it short."""
        ready = wait([worker.connection for worker in self.busy], timeout=0.2)
        for worker in [worker for worker in self.busy if worker.connection in ready]:
            self.hear(worker)
        self.overall.refresh()

    def hire(self) -> None:
        self.busy[Worker(self.checkpoint_seconds)] = None

    def hear(self, worker: Worker) -> None:
        """Take one message from a worker."""
        job = self.busy[worker]
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            return self.lost(worker, job)
        if message.what == "progress" and job:
            return self.overall.part(job.name, message.fraction * job.cost)
        if message.what == "interrupted":
            return self.lost(worker, job)
        if job:
            self.settle(job, message.text if message.what == "failed" else None)
        return self.assign(worker)

    def assign(self, worker: Worker) -> None:
        """The next job, or the end of the worker."""
        if not self.waiting:
            self.busy.pop(worker)
            worker.connection.close()
            return
        job = self.waiting.popleft()
        self.busy[worker] = job
        self.tries[job.name] += 1
        worker.give(job)

    def settle(self, job: Job, failure: str | None) -> None:
        if failure is None:
            self.outcome.done.append(job.name)
        else:
            self.outcome.failed[job.name] = failure
        self.overall.settled(job.name, job.cost, failure is not None)

    def lost(self, worker: Worker, job: Job | None) -> None:
        """A process died: its run is tried once more, in a new process."""
        self.busy.pop(worker)
        reason = worker.obituary()
        if job is None:
            raise RunError(f"a process to train in could not start: {reason}")
        if self.tries[job.name] < ATTEMPTS:
            self.overall.say(f"{job.name}: {reason}; once more")
            self.waiting.appendleft(job)
        else:
            self.settle(job, reason)
        if self.waiting:
            self.hire()

    def stop(self) -> None:
        """Let every run save itself; a second Ctrl-C does not wait for that."""
        self.overall.say("Stopping: the runs save themselves first.")
        for worker in self.busy:
            worker.end()
        try:
            for worker in self.busy:
                worker.process.join(GRACE)
        except KeyboardInterrupt:
            self.overall.say("Not waiting: runs go on from their last checkpoints.")
