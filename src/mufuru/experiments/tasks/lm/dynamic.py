r"""Dynamic evaluation (Krause et al., "Dynamic Evaluation of Neural Sequence Models", 2018) by gradient descent.

The text is read in segments. Each is predicted with the weights as they are, and only then learned from:

$$\theta_i = \theta_{i-1} - \eta \nabla L(s_i) + \lambda (\theta_g - \theta_{i-1})$$

where $\theta_g$ are the trained weights. So every token is predicted once, from nothing but what came before it, but
the model that predicts the end of the text is not the one that predicted its beginning: a perplexity to be reported
apart.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mufuru.experiments.settings import SettingError, check_positive
from mufuru.experiments.tasks.cells import detach
from mufuru.experiments.tasks.lm.model import first_token
from mufuru.experiments.tasks.lm.task import LMTask, Windows
from mufuru.experiments.tasks.task import Totals


@dataclass(frozen=True)
class Dynamic:
    """Settings of dynamic evaluation."""

    learning_rate: float = 0.1
    """Step size along the gradient of a segment's mean loss."""
    decay: float = 0.001
    """Share of the way back to the trained weights after each segment."""
    segment: int = 20
    """Tokens that are predicted before the weights change."""

    def __post_init__(self) -> None:
        check_positive(self, "learning_rate", "segment")
        if not 0 <= self.decay <= 1:
            raise SettingError(f"decay should be from 0 to 1, got {self.decay}")


class Diverged(SettingError):
    """Dynamic evaluation reached a loss that is not finite. Exit code 1."""

    code = 1


def evaluate(
    task: LMTask, model: nn.Module, split: str, how: Dynamic, show: Callable[[int, int], None] = lambda done, all: None
) -> dict[str, float]:
    """Return the metrics over a split; the model itself is not changed. `show(done, all)` gets numbers of tokens."""
    tokens = getattr(task.corpus, split)
    learner: Any = copy.deepcopy(model).eval()
    weights = list(learner.parameters())
    trained = [weight.detach().clone() for weight in weights]
    totals, state = Totals(), None
    for window in Windows(tokens, first_token(task.corpus.vocabulary), 1, how.segment):
        with torch.enable_grad():
            segment = learner.predict(window.inputs, window.targets, state)
            gradients = torch.autograd.grad(segment.loss / segment.count, weights)
        totals.add(task.counted(segment, window))
        state = detach(segment.state)
        if not math.isfinite(totals.loss):
            raise Diverged(
                f"dynamic evaluation diverged: the loss is {totals.loss} after {totals.count} tokens. "
                f"Try a learning_rate below {how.learning_rate:g}"
            )
        with torch.no_grad():
            for weight, gradient, start in zip(weights, gradients, trained, strict=True):
                weight.lerp_(start, how.decay).sub_(how.learning_rate * gradient)
        show(totals.count, len(tokens))
    return task.metrics(totals)
