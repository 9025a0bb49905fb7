"""The learning rate, as a function of the update's number."""

from __future__ import annotations

import math

from mufuru.experiments.settings import Training


def learning_rate(training: Training, update: int, total: int, factor: float = 1.0) -> float:
    """The rate of an update, counted from 0, of `total`; `factor` is where the plateau schedule has got to."""
    return training.learning_rate * warmup(training, update) * fade(training, update, total) * factor


def warmup(training: Training, update: int) -> float:
    """A straight rise whose first step is above 0, since an update with rate 0 does nothing; full after `warmup`."""
    return min(1.0, (update + 1) / training.warmup) if training.warmup else 1.0


def fade(training: Training, update: int, total: int) -> float:
    """From 1 after the warm-up to 0 after the last update."""
    progress = max(0, update - training.warmup) / max(1, total - training.warmup)
    if training.schedule == "linear":
        return 1.0 - progress
    if training.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0


def next_factor(training: Training, factor: float, improved: bool) -> float:
    """The plateau schedule after a look at the validation data: smaller by `decay` unless the metric improved."""
    return factor if improved or training.schedule != "plateau" else factor * training.decay
