"""Runs in processes of this machine, with one thread each."""

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from mufuru.experiments.engine.errors import Failure, Interrupted
from mufuru.experiments.engine.work import GRACE, Died, Ended, Event, Job, Looked, Reporter, Validation, Where, work
from mufuru.kernels import library

# a forked copy of a process with threads can hang; a spawned one starts clean
CONTEXT = multiprocessing.get_context("spawn")
HALTED = "asked to stop"


class Worker:
    """A pool of one process that makes one run after another: when it dies, its run is known and no other is hurt."""

    process: BaseProcess
    job: Job
    future: Future[str | None]

    def __init__(self) -> None:
        self.fraction = CONTEXT.RawValue("d", -1.0)
        """Part of the run that is made; below 0 until the process is ready."""
        self.halt = CONTEXT.RawValue("b", 0)
        """Whether the run should save itself and stop."""
        self.validations, self.sender = CONTEXT.Pipe(duplex=False)
        # a terminal that closes must not end the tracker of resources, which starts here
        with blocked("SIGHUP"):
            self.executor = ProcessPoolExecutor(1, CONTEXT, prepare, (self.fraction, self.halt, self.sender))

    def start(self, job: Job, where: Where) -> None:
        """Start a run; the first one starts the process."""
        self.job, self.fraction.value, self.halt.value = job, min(self.fraction.value, 0.0), 0
        before = set(multiprocessing.active_children())
        try:
            with one_thread_each(), blocked("SIGINT"):
                self.future = self.executor.submit(make, job, where)
        except BrokenProcessPool as error:
            # it died after its last run
            self.future = Future()
            self.future.set_exception(error)
        for process in set(multiprocessing.active_children()) - before:
            self.process = process
        # the process has its own; with this one open its end would not be seen
        self.sender.close()

    def looked(self) -> Iterator[Looked]:
        """Return the validations since the last call."""
        with suppress(EOFError, OSError):
            while self.validations.poll():
                yield Looked(self.job, self.validations.recv())

    def end(self) -> str:
        """Wait for the process, and return how it ended."""
        self.executor.shutdown()
        self.validations.close()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = ", most likely because memory ran out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"


class Processes:
    """The workers of this machine."""

    def __init__(self, count: int, where: Where) -> None:
        self.count, self.where = count, where
        self.busy: list[Worker] = []
        self.idle: list[Worker] = []

    def running(self) -> dict[str, tuple[Job, float]]:
        return {worker.job.name: (worker.job, max(0.0, worker.fraction.value)) for worker in self.busy}

    def room(self) -> int:
        return self.count - len(self.busy)

    def start(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else Worker()
        worker.start(job, self.where)
        self.busy.append(worker)

    def listen(self, seconds: float) -> list[Event]:
        over = wait([worker.future for worker in self.busy], seconds, FIRST_COMPLETED).done
        events: list[Event] = [looked for worker in self.busy for looked in worker.looked()]
        for worker in [worker for worker in self.busy if worker.future in over]:
            self.busy.remove(worker)
            events.append(self.settle(worker))
        return events

    def settle(self, worker: Worker) -> Event:
        """Return how a run ended; its worker waits for another if it can."""
        try:
            failure = worker.future.result()
        except BrokenProcessPool:
            reason = worker.end()
            if worker.fraction.value < 0:
                raise Failure(f"a process to train in could not start: {reason}") from None
            return Died(worker.job, reason)
        self.idle.append(worker)
        return Ended(worker.job, None, halted=True) if failure == HALTED else Ended(worker.job, failure)

    def halt(self, name: str) -> None:
        for worker in self.busy:
            if worker.job.name == name:
                worker.halt.value = 1

    def stop(self) -> None:
        for worker in self.busy:
            worker.process.terminate()
        for worker in self.busy:
            worker.process.join(GRACE)

    def close(self) -> None:
        for worker in self.busy:
            worker.process.kill()
        for worker in (*self.busy, *self.idle):
            worker.end()
        self.busy, self.idle = [], []


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Set the variables that numerical libraries read when they load: workers on all cores need no threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


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


class Shared(Reporter):
    """Writes where the parent process reads."""

    fraction: Any = None
    halt: Any = None
    sender: Any = None

    def report(self, fraction: float, validations: list[Validation]) -> bool:
        self.fraction.value = fraction
        # a parent that is gone reads nothing
        with suppress(OSError):
            for validation in validations:
                self.sender.send(validation)
        return bool(self.halt.value)


def prepare(fraction: Any, halt: Any, sender: Any) -> None:
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
    Shared.fraction, Shared.halt, Shared.sender, fraction.value = fraction, halt, sender, 0.0


def _end_with_parent() -> None:
    """When the parent is gone, save and stop as after Ctrl-C; end whatever hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)


def make(job: Job, where: Where) -> str | None:
    """Make one run; return why it failed."""
    try:
        return work(job, where, Shared())
    except Interrupted as error:
        if Shared.halt.value:
            return HALTED
        # all is saved; a process of the pool would wait for its next run
        os._exit(128 + error.number)
