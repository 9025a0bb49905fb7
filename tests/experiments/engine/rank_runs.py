"""Runs on several ranks: real processes joined by gloo, as torchrun would start them, but forked from one server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from mufuru.experiments.engine import Interrupted, Progress, RunError, fit
from mufuru.experiments.engine.torchrun import joined

NEVER = 1e9
"""Seconds between checkpoints that no run lives to see."""
PATIENCE = 60.0
"""Seconds until a rank that waits for another gives up, unless a test is about that."""


@dataclass(frozen=True)
class Launch:
    """A run on some ranks, and what befalls one of them."""

    kind: str
    config: Any
    folder: Path
    size: int = 2
    resume: bool = False
    seconds: float = NEVER
    """Between checkpoints."""
    patience: float = PATIENCE
    grace: float = 20.0
    """Seconds to end for the ranks that are left when one has failed."""
    strike: tuple[int, int, int] | None = None
    """Rank, update, and the signal that the rank sends itself after it."""
    configs: dict[int, Any] = field(default_factory=dict)
    """Settings of ranks that have others."""


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    code: int | None
    message: str
    told: list[str]


class Fate(Progress):
    """Notes what is told, and strikes."""

    def __init__(self, path: Path, at: int | None, number: int) -> None:
        self.path, self.at, self.number = path, at, number

    def describe(self, text: str) -> None:
        self._note(text)

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self._note(f"started after {done}")

    def step(self, update: int, loss: float) -> None:
        if update == self.at:
            os.kill(os.getpid(), self.number)

    def _note(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text + "\n")


def run_rank(rank: int, port: int, launch: Launch, notes: Path) -> None:
    """Be one of the ranks, on one thread as `mufuru train` is; the exit code is the command's."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(launch.size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    struck, at, number = launch.strike or (None, None, 0)
    progress = Fate(notes / f"told {rank}", at if rank == struck else None, number)
    config = launch.configs.get(rank, launch.config)
    options = {"progress": progress, "resume": launch.resume, "checkpoint_seconds": launch.seconds}
    try:
        with joined(launch.patience) as ranks:
            fit(launch.kind, config, launch.folder, ranks=ranks, **options)
    except RunError as error:
        (notes / f"message {rank}").write_text(str(error))
        raise SystemExit(128 + error.number if isinstance(error, Interrupted) else 1) from None


def launch(*args: Any, **options: Any) -> list[Ended]:
    """Run on ranks until all have ended."""
    return follow(Launch(*args, **options))


def follow(wanted: Launch) -> list[Ended]:
    context = get_context("forkserver")
    context.set_forkserver_preload(["rank_runs", "torch._dynamo", "torch.nn.parallel"])
    notes = wanted.folder.parent / f"notes of {wanted.folder.name} {time.monotonic_ns()}"
    notes.mkdir(parents=True)
    kinds: Any = distributed
    store = kinds.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: Sequence[Any] = [
        context.Process(target=run_rank, args=(rank, store.port, wanted, notes)) for rank in range(wanted.size)
    ]
    for process in processes:
        process.start()
    _wait(processes, wanted.grace)
    return [Ended(process.exitcode, *_read(notes, rank)) for rank, process in enumerate(processes)]


def _wait(processes: Sequence[Any], grace: float) -> None:
    """As torchrun does: once a rank has failed, the others get little time."""
    while any(process.is_alive() for process in processes):
        if any(process.exitcode for process in processes):
            break
        time.sleep(0.01)
    for process in processes:
        process.join(timeout=grace)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()


def _read(notes: Path, rank: int) -> tuple[str, list[str]]:
    message, told = notes / f"message {rank}", notes / f"told {rank}"
    return message.read_text() if message.exists() else "", told.read_text().splitlines() if told.exists() else []
