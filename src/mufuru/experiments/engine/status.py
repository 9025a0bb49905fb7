"""Where a run stands: counters, learning rate, and the running average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.task import Totals


@dataclass
class Status:
    """Where a run stands, beside its tensors; part of a checkpoint."""

    update: int = 0
    """Updates made."""
    epoch: int = 0
    """Epochs completed."""
    batch: int = 0
    """Batches taken in the current epoch."""
    totals: Totals = field(default_factory=Totals)
    """Training totals since the last validation."""
    best: float | None = None
    """Best validation metric, smoothed."""
    best_update: int = 0
    recent: list[float] = field(default_factory=list)
    """Validation metrics to smooth over, the latest last."""
    waited: int = 0
    """Validations since the best."""
    factor: float = 1.0
    """Current factor of the plateau schedule."""
    log_bytes: int = 0
    """Length of metrics.jsonl."""
    seconds: float = 0.0
    """Training time, over all sessions."""

    def smoothed(self, metric: float, count: int) -> float:
        """Take in a metric; return the mean of the last `count`, or of as many as there are."""
        self.recent = [*self.recent, metric][-count:]
        return sum(self.recent) / len(self.recent)

    def improves(self, metric: float, higher_is_better: bool) -> bool:
        """Return whether a metric is better than the best so far; the first always is."""
        return self.best is None or (metric > self.best if higher_is_better else metric < self.best)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Status:
        """Undo `dataclasses.asdict`."""
        return cls(**{**values, "totals": Totals(**values["totals"])})


def learning_rate(training: Training, update: int, total: int, factor: float = 1.0) -> float:
    """Learning rate of an update, counted from 0, of `total`; `factor` is that of the plateau schedule."""
    return training.learning_rate * warmup(training, update) * fade(training, update, total) * factor


def warmup(training: Training, update: int) -> float:
    """Rise linearly to 1; the first step is above 0, since an update with rate 0 does nothing."""
    return min(1.0, (update + 1) / training.warmup) if training.warmup else 1.0


def fade(training: Training, update: int, total: int) -> float:
    """Fall from 1 after the warm-up to 0 after the last update."""
    progress = max(0, update - training.warmup) / max(1, total - training.warmup)
    if training.schedule == "linear":
        return 1.0 - progress
    if training.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0


def next_factor(training: Training, factor: float, improved: bool) -> float:
    """Factor of the plateau schedule after a validation: smaller by `decay` unless the metric improved."""
    return factor if improved or training.schedule != "plateau" else factor * training.decay


class Average:
    """The exponential moving average of a model's parameters, often better than the parameters themselves.

    It forgets its first values quickly: after n updates the decay is at most (1 + n) / (10 + n).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        # a parameter with two names is listed once
        self.values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights after this number of updates."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for name, parameter in self.model.named_parameters():
            self.values[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights within this context; afterwards it has its own, to the bit."""
        own = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        self._fill(self.values)
        try:
            yield
        finally:
            self._fill(own)

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the model's state with the averaged weights."""
        with self.in_place():
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up the result of `state`."""
        self.values = {name: state[name].clone() for name in self.values}

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(values[name])
