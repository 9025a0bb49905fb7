"""What this process and all that it started hold: processes, threads, files, memory."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import family

from mufuru.experiments.engine.progress import Overall
from mufuru.experiments.engine.sweep import Job, sweep
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig

SHORT = LogicConfig(CellConfig(hidden_size=2), Training(epochs=2, batch_size=10), 0, 20, 10, 10)
WARM = 6
"""Runs after which all workers have made one, and have all that they need."""
GROWTH = 40
"""Megabytes that a process may grow by in all later runs: heaps grow in steps."""


class Held(NamedTuple):
    threads: int
    files: int
    megabytes: int


def held() -> dict[int, Held]:
    """Count what this process and each that it started hold."""
    counts = {}
    for process in set(family(os.getpid())):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
            if "VmRSS" in status:
                files = len(os.listdir(f"/proc/{process}/fd"))
                counts[process] = Held(int(status["Threads"]), files, int(status["VmRSS"].split()[0]) // 1024)
    return counts


def assert_leaks_nothing(root: Path, count: int, monkeypatch: pytest.MonkeyPatch, cluster: str | None = None) -> None:
    """Make many short runs, and compare what is held after a few of them with the end."""
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        pytest.skip("counts processes in /proc")
    seen: list[dict[int, Held]] = []
    settle = Overall.settle

    def count_after(self: Overall, cost: float, failed: bool) -> None:
        settle(self, cost, failed)
        seen.append(held())

    monkeypatch.setattr(Overall, "settle", count_after)
    jobs = [Job(f"run-{seed}", "logic", replace(SHORT, seed=seed), root / f"run-{seed}") for seed in range(count)]
    assert len(sweep(jobs, workers=2, quiet=True, cluster=cluster).done) == count
    warm, end = seen[:WARM], seen[-3:]
    # Ray starts threads when it likes, and processes with many; a leak in every second run of two processes would show
    slack = (count - WARM) // 2 if cluster else 0
    assert min(map(len, end)) <= max(map(len, warm)) + slack, "processes"
    lasting = set(warm[-1]).intersection(*end)
    assert os.getpid() in lasting
    for process in lasting:
        before, after = [[one[process] for one in some if process in one] for some in (warm, end)]
        for name, more in (("threads", slack // 2), ("files", slack // 2), ("megabytes", GROWTH)):
            least, most = min(getattr(one, name) for one in after), max(getattr(one, name) for one in before)
            assert least <= most + more, f"{name} of process {process}"
