"""Status of a run: counters, learning rate, and the running average of the weights."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.task import Totals


@dataclass
class Status:
    """Status of a run beside its tensors; part of a checkpoint."""

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
    best_loss: float | None = None
    """Validation loss of the best, smoothed."""
    chosen_by: str = ""
    """Reason for the choice of the best: a better "metric", a lower "loss" at the same metric, or "later" at the same
    of both."""
    tied: int = 0
    """Validations with the best metric, the best one among them."""
    recent: list[float] = field(default_factory=list)
    """Validation metrics to smooth over, the latest last."""
    recent_losses: list[float] = field(default_factory=list)
    """The losses of the same validations."""
    waited: int = 0
    """Validations since the best."""
    factor: float = 1.0
    """Current factor of the plateau schedule."""
    log_bytes: int = 0
    """Length of metrics.jsonl."""
    seconds: float = 0.0
    """Training time, over all sessions."""

    def smoothed(self, metric: float, loss: float, count: int) -> tuple[float, float]:
        """Add a metric and its loss; return their means over the last `count`, or over as many as there are."""
        self.recent, self.recent_losses = [*self.recent, metric][-count:], [*self.recent_losses, loss][-count:]
        return sum(self.recent) / len(self.recent), sum(self.recent_losses) / len(self.recent_losses)

    def rank(self, metric: float, loss: float, higher_is_better: bool, ties: str) -> str:
        """Return why a validation is the best so far: "metric", "loss" or "later"; empty if it is not."""
        if self.best is None or (metric > self.best if higher_is_better else metric < self.best):
            return "metric"
        if ties == "earliest" or metric != self.best or self.best_loss is None or loss > self.best_loss:
            return ""
        return "loss" if loss < self.best_loss else "later"

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        return cls(**{**values, "totals": Totals(**values["totals"])})


def learning_rate(training: Training, update: int, total: int, factor: float = 1.0) -> float:
    """Learning rate of an update, counted from 0, of `total`; `factor` is that of the plateau schedule."""
    # the first step is above 0, since an update with rate 0 does nothing
    warmup = min(1.0, (update + 1) / training.warmup) if training.warmup else 1.0
    progress, fade = max(0, update - training.warmup) / max(1, total - training.warmup), 1.0
    if training.schedule == "linear":
        fade = 1.0 - progress
    elif training.schedule == "cosine":
        fade = 0.5 * (1.0 + math.cos(math.pi * progress))
    return training.learning_rate * warmup * fade * factor


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
        """Average in the weights after this number of updates."""
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
        self.values = {name: state[name].to(value.device, copy=True) for name, value in self.values.items()}

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(values[name])
