"""Where a run stands: the numbers that go into a checkpoint beside the tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mufuru.experiments.tasks.task import Totals


@dataclass
class Status:
    """Where a run stands, beside its tensors."""

    update: int = 0
    """Updates made."""
    epoch: int = 0
    """Epochs completed."""
    batch: int = 0
    """Batches taken in the epoch that is under way."""
    totals: Totals = field(default_factory=Totals)
    """Training since the last look at the validation data."""
    best: float | None = None
    """Best validation metric, smoothed."""
    best_update: int = 0
    recent: list[float] = field(default_factory=list)
    """Validation metrics of the last looks, as many as are smoothed over."""
    waited: int = 0
    """Looks at the validation data since the best."""
    factor: float = 1.0
    """The plateau schedule's."""
    log_bytes: int = 0
    """Length of metrics.jsonl."""
    seconds: float = 0.0
    """Time spent in training, over all sessions."""

    def smoothed(self, metric: float, looks: int) -> float:
        """Take in a metric; return the mean of the last looks, or of as many as there are."""
        self.recent = [*self.recent, metric][-looks:]
        return sum(self.recent) / len(self.recent)

    def improves(self, metric: float, higher_is_better: bool) -> bool:
        """Whether a metric is better than the best so far; the first always is."""
        return self.best is None or (metric > self.best if higher_is_better else metric < self.best)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Status:
        """What `dataclasses.asdict` made of one."""
        return cls(**{**values, "totals": Totals(**values["totals"])})
