"""A model beside its 8-bit form: the same metrics, the size of the files, and the time as a ratio."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from torch import nn

from mufuru.experiments.engine import evaluate
from mufuru.experiments.engine.evaluate import examining
from mufuru.experiments.tasks.task import Task
from mufuru.saving.files import WEIGHTS

BATCHES = 20
"""Most batches of one measurement."""
ROUNDS = 7


class Beside(NamedTuple):
    """The original and the other."""

    metrics: tuple[dict[str, float], dict[str, float]]
    bytes: tuple[int, int]
    ratio: float
    """Time of the other over that of the original."""


def compare(task: Task, one: nn.Module, other: nn.Module, split: str, folders: tuple[Path, Path]) -> Beside:
    """Metrics over a data set, and the sizes of the weights' files."""
    metrics = (evaluate(task, one, split), evaluate(task, other, split))
    sizes = tuple((folder / WEIGHTS).stat().st_size for folder in folders)
    return Beside(metrics, (sizes[0], sizes[1]), time_ratio(task, one, other, split))


def time_ratio(task: Task, one: nn.Module, other: nn.Module, split: str) -> float:
    """The median of several rounds, each a pass of both: what else the machine does meets both alike."""
    ratios = []
    for number in range(ROUNDS + 1):
        seconds = [_seconds(task, model, split) for model in (one, other)]
        # the first round packs weights and fills caches
        ratios += [seconds[1] / seconds[0]] if number else []
    return median(ratios)


def _seconds(task: Task, model: nn.Module, split: str) -> float:
    batches, state = list(islice(task.batches(split), BATCHES)), None
    with examining(model):
        start = time.perf_counter()
        for batch in batches:
            state = task.step(model, batch, state).state
        return time.perf_counter() - start
