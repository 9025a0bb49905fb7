"""What a task is: data, model, step, metrics. The engine knows nothing more of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from mufuru.experiments.settings import Training

Batch = Any
"""What a task's `batches` gives and its `step` takes; tensors or named tuples of them."""
State = Any
"""What one step hands to the next: None, a tensor, or nested tuples of tensors."""


class TaskConfig(Protocol):
    """A frozen dataclass of all settings of a run."""

    @property
    def training(self) -> Training: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Step:
    """What one batch gives. Sums and counts stay apart, so that no metric depends on the batch size."""

    loss: Tensor
    """Sum of the losses of all predictions; differentiable."""
    count: int
    """Predictions made."""
    state: State = None
    """Carried to the next batch, detached; None where batches do not follow each other."""
    sums: Mapping[str, Tensor | float] = field(default_factory=dict)
    """More sums over the predictions, such as the number of right ones."""
    penalty: Tensor | None = None
    """Added to the mean loss for the gradient only, such as activation regularisation."""


@dataclass
class Totals:
    """Steps added up over a data set."""

    loss: float = 0.0
    count: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.loss += float(step.loss.detach())
        self.count += step.count
        for name, value in step.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.detach() if isinstance(value, Tensor) else value)

    def mean(self, name: str) -> float:
        """A sum per prediction; the loss goes by its own name."""
        return (self.loss if name == "loss" else self.sums[name]) / self.count


class Task(Protocol):
    """One experiment: made from its settings alone, so that the same settings give the same data in the same order.

    It may have a `description`, a sentence about its data that is told to the user when a run begins.
    """

    config: Any
    metric: str
    """The key of `metrics` that chooses the best weights."""
    higher_is_better: bool

    def build(self) -> nn.Module:
        """A fresh model; its first weights come from torch's global generator."""
        ...

    def batches(self, split: str, epoch: int = 0) -> Sequence[Batch]:
        """All batches of "train", "valid" or "test". The order of "train" follows from seed and epoch alone, so that a
        resumed run can take up any batch."""
        ...

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        """Run the model over one batch."""
        ...

    def metrics(self, totals: Totals) -> dict[str, float]:
        """What the totals over a data set mean: the loss, and what people talk of."""
        ...

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """What the report wants to know of a trained model beyond metrics, ready for JSON; {} where nothing."""
        ...
