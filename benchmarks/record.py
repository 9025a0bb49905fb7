"""The record of a run: every number and the machine, as JSON. Tables and plots are made from it alone.

A row is all peers at one shape, in one mode and on one number of threads. The record is written after every row, so
that a run that was stopped can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import engines
import numpy
import shapes
import torch
from measure import Ratio, Timing
from shapes import Mode, Shape

from mufuru.kernels.problem import loaded

ROOT = Path(__file__).parents[1]
VARYING = ("date", "commit", "command")
"""Entries that may differ between the runs of one record: two commits with the same sources may both have made it."""


@dataclass
class Record:
    machine: dict[str, str | int]
    settings: dict[str, str | float]
    complete: bool = False
    agreement: dict[str, dict[str, float]] = field(default_factory=dict)
    """By shape and pair: the largest difference, relative to the largest number."""
    timings: list[Timing] = field(default_factory=list)
    scaling: list[Timing] = field(default_factory=list)
    memory: dict[str, dict[str, float]] = field(default_factory=dict)
    """By shape and peer: bytes saved for the backward pass per step and unit."""

    def save(self, path: Path) -> None:
        """Write to the side first: an interrupted run leaves a whole file."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(self) | {"ratios to nn.GRU": self._ratios()}, indent=1) + "\n")
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> Record:
        data = json.loads(path.read_text())
        del data["ratios to nn.GRU"]
        for key in ("timings", "scaling"):
            data[key] = [Timing(**timing) for timing in data[key]]
        return cls(**data)

    def resume(self, path: Path) -> bool:
        """Take over the rows of a record made on this machine, by these sources and settings; whether there was one."""
        if not path.exists():
            return False
        try:
            other = Record.load(path)
        except (ValueError, KeyError, TypeError):
            return False
        if _fixed(self.machine) != _fixed(other.machine) or _fixed(self.settings) != _fixed(other.settings):
            return False
        self.machine, self.settings = other.machine, other.settings
        self.agreement, self.memory = other.agreement, other.memory
        self.timings, self.scaling = other.timings, other.scaling
        return True

    def has(self, shape: Shape, mode: Mode, threads: int, scaling: bool = False) -> bool:
        """Whether this row is there: a row is recorded whole."""
        wanted = (shape.name, mode, threads)
        return any((t.shape, t.mode, t.threads) == wanted for t in (self.scaling if scaling else self.timings))

    def find(self, shape: str, mode: Mode, threads: int, peer: str, scaling: bool = False) -> Timing | None:
        wanted = (shape, mode, threads, peer)
        for timing in self.scaling if scaling else self.timings:
            if (timing.shape, timing.mode, timing.threads, timing.peer) == wanted:
                return timing
        return None

    def ratio(self, shape: str, mode: Mode, threads: int, peer: str, base: str) -> Ratio | None:
        """None where one of them was not measured."""
        timing, other = (self.find(shape, mode, threads, name) for name in (peer, base))
        if timing is None or other is None or not (timing.samples and other.samples):
            return None
        return Ratio.of(timing, other)

    def _ratios(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for timing in self.timings:
            at: tuple[str, Mode, int] = (timing.shape, timing.mode, timing.threads)
            if ratio := self.ratio(*at, timing.peer, "nn.GRU"):
                row = dict(zip(("shape", "mode", "threads"), at, strict=True), peer=timing.peer, **asdict(ratio))
                rows.append(row | {"per multiplication": ratio.value / more_work(timing.peer, timing.shape)})
        return rows


def more_work(peer: str, shape: str) -> float:
    """A peer's multiplications by those of nn.GRU."""
    (at,) = (known for known in shapes.SHAPES if known.name == shape)
    return shapes.multiplications(peer, at) / shapes.multiplications(shapes.GRU, at)


def _fixed(described: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in described.items() if key not in VARYING}


def machine(date: str) -> dict[str, str | int]:
    return {
        "date": date,
        "commit": _commit(),
        "sources": _sources(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "instruction set of the kernel": loaded().mufuru_instruction_set().decode(),
        "instruction set of torch": torch.backends.cpu.get_cpu_capability(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        **engines.versions(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _sources() -> str:
    """A checksum of all code that is measured or measures."""
    mixed = hashlib.sha256()
    for path in sorted((*ROOT.glob("src/mufuru/**/*"), *ROOT.glob("benchmarks/*.py"))):
        if path.suffix in (".py", ".h", ".cpp"):
            mixed.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return mixed.hexdigest()[:12]


def _commit() -> str:
    changed = _git("status", "--porcelain", "--", "../src", "*.py")
    return (_git("rev-parse", "HEAD") or "unknown") + (" and changes" if changed else "")


def _git(*arguments: str) -> str:
    try:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
