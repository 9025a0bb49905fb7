"""Many runs on all cores: finished ones are skipped, stopped ones resume, and failures are listed at the end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from mufuru.experiments.data import DataError
from mufuru.experiments.engine.errors import Interrupted, RunError, Stop
from mufuru.experiments.engine.fit import fit
from mufuru.experiments.engine.progress import Overall, Progress
from mufuru.experiments.engine.store import open_store
from mufuru.experiments.record import RunFolder, config_document
from mufuru.experiments.settings import SettingError
from mufuru.kernels import library

ATTEMPTS = 2
"""Times that a run is tried whose process dies."""
GRACE = 30.0
"""Seconds that a worker gets to save its run before it is killed."""
# a forked copy of a process with threads can hang; a spawned one starts clean
CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Job:
    """One run to make."""

    name: str
    kind: str
    config: Any
    folder: Path
    cost: float = 1.0
    """How long it takes, compared with the others; for the time that is left."""


@dataclass
class Outcome:
    """What became of the jobs."""

    skipped: int = 0
    """Runs that were finished before."""
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by name."""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sweep(
    jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False, checkpoint_seconds: float = 60.0
) -> Outcome:
    """Make all runs, in their order. A run with other settings in a job's folder is an error before anything starts."""
    if shared := [str(folder) for folder, count in Counter(job.folder for job in jobs).items() if count > 1]:
        raise ValueError(f"each run needs a folder of its own, got several for {', '.join(shared)}")
    unfinished = [job for job in jobs if not is_finished(job)]
    outcome = Outcome(skipped=len(jobs) - len(unfinished))
    if unfinished:
        # built once here, then in the cache for every worker
        library.load()
        count = min(workers or usable_cores(), len(unfinished))
        with Overall(sum(job.cost for job in unfinished), outcome.skipped, len(jobs), quiet) as overall:
            Pool(unfinished, outcome, overall, checkpoint_seconds).run(count)
    return outcome


def is_finished(job: Job) -> bool:
    """Return whether the run is finished; a run with other settings in its place is an error."""
    folder = RunFolder(job.folder)
    if not folder.config.exists():
        return False
    with open_store(job.folder, config_document(job.kind, job.config), resume=True):
        return folder.finished


class Worker:
    """A pool of one process that makes one run after another: when it dies, its run is known and no other is hurt."""

    process: BaseProcess
    job: Job
    future: Future[str | None]

    def __init__(self) -> None:
        self.fraction = CONTEXT.RawValue("d", -1.0)
        """Part of the run that is made; below 0 until the process is ready."""
        # a terminal that closes must not end the tracker of resources, which starts here
        with blocked("SIGHUP"):
            self.executor = ProcessPoolExecutor(1, CONTEXT, prepare, (self.fraction,))

    def start(self, job: Job, checkpoint_seconds: float) -> None:
        """Start a run; the first one starts the process."""
        self.job, self.fraction.value = job, min(self.fraction.value, 0.0)
        before = set(multiprocessing.active_children())
        try:
            with one_thread_each(), blocked("SIGINT"):
                self.future = self.executor.submit(work, job, checkpoint_seconds)
        except BrokenProcessPool as error:
            # it died after its last run
            self.future = Future()
            self.future.set_exception(error)
        for process in set(multiprocessing.active_children()) - before:
            self.process = process

    def end(self) -> str:
        """Wait for the process, and return how it ended."""
        self.executor.shutdown()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = ", most likely because memory ran out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"


class Pool:
    """The workers, and the jobs that wait."""

    def __init__(self, jobs: Sequence[Job], outcome: Outcome, overall: Overall, checkpoint_seconds: float) -> None:
        self.waiting = deque(jobs)
        self.outcome, self.overall, self.checkpoint_seconds = outcome, overall, checkpoint_seconds
        self.attempts: Counter[str] = Counter()
        self.busy: list[Worker] = []

    def run(self, count: int) -> None:
        """Work until nothing is left; a signal that asks to stop lets every run save itself first."""
        try:
            with Stop() as stop:
                for _ in range(count):
                    self.start(Worker())
                while self.busy and not stop.requested:
                    self.listen()
                if stop.requested:
                    self.stop()
                    message = "stopped; all runs are saved. The same command goes on where they are"
                    raise Interrupted(message, stop.number)
        finally:
            for worker in self.busy:
                worker.process.kill()
                worker.end()

    def start(self, worker: Worker) -> None:
        """Start the next job."""
        job = self.waiting.popleft()
        self.attempts[job.name] += 1
        worker.start(job, self.checkpoint_seconds)
        self.busy.append(worker)

    def listen(self) -> None:
        """Handle the runs that are over, now or within a moment."""
        over = wait([worker.future for worker in self.busy], timeout=0.2, return_when=FIRST_COMPLETED).done
        for worker in [worker for worker in self.busy if worker.future in over]:
            self.busy.remove(worker)
            try:
                self.settle(worker.job, worker.future.result())
            except BrokenProcessPool:
                worker = self.replace(worker)
            if self.waiting:
                self.start(worker)
            else:
                worker.executor.shutdown()
        self.overall.refresh(sum(max(0.0, worker.fraction.value) * worker.job.cost for worker in self.busy))

    def settle(self, job: Job, failure: str | None) -> None:
        """Take note of a run that is over."""
        if failure is None:
            self.outcome.done.append(job.name)
        else:
            self.outcome.failed[job.name] = failure
        self.overall.settle(job.cost, failed=failure is not None)

    def replace(self, worker: Worker) -> Worker:
        """Return a new worker for one whose process died; its run is tried once more."""
        job, reason = worker.job, worker.end()
        if worker.fraction.value < 0:
            raise RunError(f"a process to train in could not start: {reason}") from None
        if self.attempts[job.name] < ATTEMPTS:
            self.overall.say(f"{job.name}: {reason}; once more")
            self.waiting.appendleft(job)
        else:
            self.settle(job, reason)
        return Worker()

    def stop(self) -> None:
        """Let every run save itself; a second Ctrl-C does not wait for that."""
        self.overall.say("Stopping: the runs save themselves first.")
        for worker in self.busy:
            worker.process.terminate()
        try:
            for worker in self.busy:
                worker.process.join(GRACE)
        except KeyboardInterrupt:
            self.overall.say("Not waiting: runs go on from their last checkpoints.")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Set the variables that numerical libraries read when they load: workers on all cores need no threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def blocked(name: str) -> Iterator[None]:
    """Block a signal; a process that starts within this context does not hear it until it unblocks it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name)])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Shared(Progress):
    """Writes the part of the run that is made where the parent process reads it."""

    fraction: Any = None

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.total = total

    def step(self, update: int, loss: float) -> None:
        self.fraction.value = update / self.total


def prepare(fraction: Any) -> None:
    """Prepare a worker's process."""
    # Ctrl-C in a terminal goes to every process there: the parent decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # the parent has warned once for all
    warnings.simplefilter("ignore", library.MuFuRUKernelWarning)
    Shared.fraction, fraction.value = fraction, 0.0


def _end_with_parent() -> None:
    """When the parent is gone, save and stop as after Ctrl-C; end whatever hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)


def work(job: Job, checkpoint_seconds: float) -> str | None:
    """Make or resume one run; return why it failed."""
    resume = RunFolder(job.folder).config.exists()
    try:
        fit(job.kind, job.config, job.folder, resume=resume, progress=Shared(), checkpoint_seconds=checkpoint_seconds)
    except Interrupted as error:
        # all is saved; a process of the pool would wait for its next run
        os._exit(128 + error.number)
    except (DataError, RunError, SettingError, OSError) as error:
        return str(error)
    except Exception:
        return f"this is a bug\n{traceback.format_exc()}"
    return None
