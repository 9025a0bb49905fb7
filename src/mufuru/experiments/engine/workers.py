"""Processes that train one run after another. One that dies takes nothing with it but its own run."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from mufuru.experiments.data import DataError
from mufuru.experiments.engine.errors import Interrupted, RunError
from mufuru.experiments.engine.fit import fit
from mufuru.experiments.engine.progress import Progress
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import SettingError
from mufuru.kernels.library import MuFuRUKernelWarning

GRACE = 30.0
"""Seconds that a worker gets to save its run before it is killed."""


@dataclass(frozen=True)
class Job:
    """One run to be made."""

    name: str
    kind: str
    config: Any
    folder: Path
    cost: float = 1.0
    """How long it takes, compared with the others; for the time that is left."""


class Message(NamedTuple):
    """What a worker tells."""

    what: Literal["ready", "progress", "done", "failed", "interrupted"]
    text: str = ""
    fraction: float = 0.0


class Worker:
    """A process with a line to it."""

    def __init__(self, checkpoint_seconds: float) -> None:
        # a forked copy of a process with threads can hang; a spawned one starts clean
        context = get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=serve, args=(other_end, checkpoint_seconds), daemon=True)
        with one_thread_each(), ctrl_c_blocked():
            self.process.start()
        other_end.close()

    def give(self, job: Job) -> None:
        # a worker that has just died is noticed when it is listened to
        with suppress(OSError):
            self.connection.send(job)

    def obituary(self) -> str:
        """Why a process that is gone is gone."""
        self.process.join(GRACE)
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = ", most likely because memory ran out" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{hint}"
        return f"its process ended with exit code {code}"

    def end(self, kill: bool = False) -> None:
        """Ask a process to save and stop, or stop it at once."""
        if self.process.is_alive():
            self.process.kill() if kill else self.process.terminate()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Numerical libraries read these once, when they are loaded: workers on all cores should not have threads too."""
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
def ctrl_c_blocked() -> Iterator[None]:
    """A process that starts here does not hear Ctrl-C while it imports, until `serve` says what it means."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # it would unblock the signal when it starts
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(connection: Connection, checkpoint_seconds: float) -> None:
    """A worker's life: take a job, do it, tell; until there is no one to tell."""
    # Ctrl-C in a terminal goes to every process there: it is the parent's to decide what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # the parent has said it once for all
    warnings.simplefilter("ignore", MuFuRUKernelWarning)
    with suppress(EOFError, OSError):
        connection.send(Message("ready"))
        while True:
            message = work(connection.recv(), connection, checkpoint_seconds)
            connection.send(message)
            if message.what == "interrupted":
                return


def _end_with_parent() -> None:
    """When the parent is gone, save and stop as after Ctrl-C; whatever hangs is ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)


class Teller(Progress):
    """Tells the parent how far a run is, now and then."""

    def __init__(self, connection: Connection, every: float = 0.5) -> None:
        self.connection, self.every = connection, every
        self._due = 0.0

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.total = total

    def step(self, update: int, loss: float) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self.every
            # a parent that is gone is not told
            with suppress(OSError):
                self.connection.send(Message("progress", fraction=update / self.total))


def work(job: Job, connection: Connection, checkpoint_seconds: float) -> Message:
    """One run, begun or gone on with."""
    resume = RunFolder(job.folder).config.exists()
    try:
        progress = Teller(connection)
        fit(job.kind, job.config, job.folder, resume=resume, progress=progress, checkpoint_seconds=checkpoint_seconds)
    except Interrupted:
        return Message("interrupted")
    except (DataError, RunError, SettingError, OSError) as error:
        return Message("failed", str(error))
    except Exception:
        return Message("failed", f"this is a bug\n{traceback.format_exc()}")
    return Message("done")
