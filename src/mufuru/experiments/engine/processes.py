"""Runs in processes of this machine, with one thread each."""

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any

import torch

from mufuru.experiments.engine.errors import Failure, Interrupted
from mufuru.experiments.engine.work import GRACE, Died, Ended, Event, Job, Looked, Reporter, Validation, Where, work
from mufuru.kernels import library

# a forked copy of a process with threads can hang; a spawned one starts clean
CONTEXT = multiprocessing.get_context("spawn")


class Worker:
    """A process that makes one run after another: when it dies, its run is known and no other is hurt."""

    job: Job

    def __init__(self) -> None:
        self.fraction = -1.0
        """Part of the run that is made; below 0 until the process is ready."""
        self.pipe, there = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=serve, args=(there,))
        # what a terminal sends goes to every process there, and to the tracker of resources, which starts here
        with one_thread_each(), blocked("SIGINT", "SIGHUP"):
            self.process.start()
        # the process has its own; with this one open its end would not be seen
        there.close()

    def start(self, job: Job, where: Where) -> None:
        """Start a run."""
        self.job, self.fraction = job, min(self.fraction, 0.0)
        # if the process has died after its last run, its end is read next
        with suppress(OSError):
            self.pipe.send((job, where))

    def end(self) -> str:
        """Wait for the process, and return how it ended."""
        self.pipe.close()
        self.process.join()
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
        return {worker.job.name: (worker.job, max(0.0, worker.fraction)) for worker in self.busy}

    def room(self) -> int:
        return self.count - len(self.busy)

    def start(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else Worker()
        worker.start(job, self.where)
        self.busy.append(worker)

    def listen(self, seconds: float) -> list[Event]:
        ready = connection.wait([worker.pipe for worker in self.busy], seconds)
        return [event for worker in self.busy.copy() if worker.pipe in ready for event in self.hear(worker)]

    def hear(self, worker: Worker) -> Iterator[Event]:
        """Yield the events of a worker; after the end of its run it waits for another if it can."""
        try:
            while worker in self.busy and worker.pipe.poll():
                match worker.pipe.recv():
                    case float(fraction):
                        worker.fraction = fraction
                    case Validation() as validation:
                        yield Looked(worker.job, validation)
                    case failure, halted:
                        self.busy.remove(worker)
                        self.idle.append(worker)
                        yield Ended(worker.job, failure, halted)
        except (EOFError, OSError):
            self.busy.remove(worker)
            reason = worker.end()
            if worker.fraction < 0:
                raise Failure(f"a process to train in could not start: {reason}") from None
            yield Died(worker.job, reason)

    def halt(self, name: str) -> None:
        for worker in self.busy:
            if worker.job.name == name:
                with suppress(OSError):
                    worker.pipe.send(None)

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
def blocked(*names: str) -> Iterator[None]:
    """Block signals; a process that starts within this context does not hear them until it unblocks them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in names])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Piped(Reporter):
    """Reports through a worker's pipe."""

    halted = False

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def report(self, fraction: float, validations: list[Validation]) -> bool:
        # a parent that is gone reads nothing, and wants the run to stop
        try:
            for message in (*validations, fraction):
                self.pipe.send(message)
            while self.pipe.poll():
                self.halted = self.pipe.recv() is None
        except (EOFError, OSError):
            self.halted = True
        return self.halted


def serve(pipe: Any) -> None:
    """Make runs in a worker's process, one after the other, until nobody asks for more.

    Sends for each why it failed, and whether it was halted.
    """
    # Ctrl-C in a terminal goes to every process there: the parent decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGHUP])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # the parent has warned once for all
    warnings.simplefilter("ignore", library.MuFuRUKernelWarning)
    with suppress(EOFError, OSError):
        pipe.send(0.0)
        while True:
            # the wish to stop a run may come after its end
            if asked := pipe.recv():
                (job, where), reporter = asked, Piped(pipe)
                try:
                    pipe.send((work(job, where, reporter), False))
                except Interrupted as error:
                    if not reporter.halted:
                        # all is saved; this process would wait for its next run
                        os._exit(128 + error.number)
                    pipe.send((None, True))


def _end_with_parent() -> None:
    """When the parent is gone, save and stop as after Ctrl-C; end whatever hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)
