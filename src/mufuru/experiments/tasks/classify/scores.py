"""Scores of a classifier beyond its metrics: confusion matrix, scores of each class, calibration."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BINS = 10
"""Bins of confidence, of equal width, of the calibration error."""
COLDEST, HOTTEST = 1e-3, 1e3
"""Bounds of the temperature."""


@torch.no_grad()
def logits_of(model: nn.Module, batches: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Return (examples, classes) logits in double precision, and the targets."""
    pairs = [(model(batch.inputs).double(), batch.targets) for batch in batches]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([targets for _, targets in pairs])


def details(logits: Tensor, targets: Tensor, labels: Sequence[str]) -> dict[str, Any]:
    """Return the confusion matrix, the scores of each class and the calibration error, ready for JSON."""
    matrix = confusion(logits.argmax(1), targets, len(labels))
    return {
        "labels": list(labels),
        "confusion": matrix.tolist(),
        "classes": per_class(matrix, labels),
        "calibration_error": calibration_error(logits.softmax(1), targets),
    }


def confusion(predicted: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Return (classes, classes) counts: a row for each true class, a column for each predicted one."""
    return torch.bincount(targets * classes + predicted, minlength=classes**2).view(classes, classes)


def per_class(matrix: Tensor, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and number of examples by label; a score without anything to count is 0."""
    both, true, predicted = (counts.tolist() for counts in (matrix.diag(), matrix.sum(1), matrix.sum(0)))
    return {
        label: {
            "precision": right / max(came, 1),
            "recall": right / max(there, 1),
            "f1": 2 * right / max(came + there, 1),
            "examples": there,
        }
        for label, right, there, came in zip(labels, both, true, predicted, strict=True)
    }


def calibration_error(probabilities: Tensor, targets: Tensor) -> float:
    """Return the expected calibration error: the mean distance of confidence and accuracy over bins of confidence."""
    confidence, predicted = probabilities.max(1)
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gap = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, confidence - (predicted == targets).double())
    return float(gap.abs().sum() / len(targets))


def temperature(logits: Tensor, targets: Tensor) -> float:
    r"""Return the temperature $T$ with the lowest loss of softmax(logits / T), by bisection.

    The loss is convex in $1 / T$, and its derivative is $\sum_i (E_p[z_i] - z_{i, y_i})$. For logits that are always
    right it has no minimum, and there is nothing to choose by: then $T = 1$.
    """
    low, high = 1 / HOTTEST, 1 / COLDEST
    right = logits.gather(1, targets.unsqueeze(1)).squeeze(1)

    def slope(inverse: float) -> float:
        return float((((inverse * logits).softmax(1) * logits).sum(1) - right).sum())

    if bool((logits.argmax(1) == targets).all()):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 2 / (low + high)
