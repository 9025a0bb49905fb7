"""Which operations a model uses while it learns."""

from __future__ import annotations

from torch import nn

import mufuru
from mufuru.experiments.engine.evaluate import examining
from mufuru.experiments.tasks.task import Task

BATCHES = 4
"""Batches that are looked at, evenly chosen from the validation data: enough to see a course."""


def operation_use(task: Task, model: nn.Module) -> dict[str, float]:
    """Mean weight of each operation over units and some validation data, in the first layer, read forwards; {} for a
    model without a MuFuRU."""
    if not any(isinstance(module, mufuru.MuFuRU) for module in model.modules()):
        return {}
    batches, recorder = task.batches("valid"), mufuru.Recorder()
    for place in chosen(len(batches)):
        with examining(model), mufuru.tracing(model) as traces:
            task.step(model, batches[place], None)
        for layers in traces.values():
            for trace in layers:
                recorder.add(trace)
    return recorder.use().mean()


def chosen(count: int) -> list[int]:
    """Which of so many batches are looked at."""
    return sorted({place * count // BATCHES for place in range(BATCHES)})
