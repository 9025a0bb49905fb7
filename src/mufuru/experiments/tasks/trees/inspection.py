"""What a TreeMuFuRU chooses where a word of some kind meets what it says something about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.tasks.classify.word_classes import CLASSES, word_class
from mufuru.experiments.tasks.trees.batches import Batch
from mufuru.experiments.tasks.trees.model import TreeClassifier

PHRASE = "phrase"
"""The class of a left child of several words."""
NAMES = (*CLASSES, PHRASE)


@torch.no_grad()
def operation_weights(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
    """`{"tokens", "counts", "ops", "weight", "entropy"}`: a row of mean weights for each class of a node's left child,
    which is where English has "not" and "very"; "ops" are the choices, such as keep_right.

    A left child of several words is a "phrase"; classes that the trees do not have are left out; `entropy` is that of
    the choice, in nats.
    """
    if not isinstance(model, TreeClassifier) or not isinstance(unit := model.unit, mufuru.TreeMuFuRU):
        raise TypeError(f"expected a classifier with a TreeMuFuRU, got {model}")
    class_of = torch.tensor([CLASSES.index(word_class(word)) for word in model.vocabulary.words])
    sums = torch.zeros(len(NAMES), len(unit.choices), dtype=torch.float64)
    counts, entropy = torch.zeros(len(NAMES), dtype=torch.int64), 0.0
    for batch in batches:
        weights = unit.trace(model.embed(batch.words), batch.levels).weights.double()
        classes = left_classes(batch, class_of)
        sums.index_add_(0, classes, weights.mean(-1))
        counts += torch.bincount(classes, minlength=len(NAMES))
        entropy += float(torch.special.entr(weights).sum(1).mean(-1).sum())
    seen = counts.nonzero().flatten().tolist()
    return {
        "tokens": [NAMES[row] for row in seen],
        "counts": [int(counts[row]) for row in seen],
        "ops": list(unit.choices),
        "weight": [[round(value, 6) for value in (sums[row] / counts[row]).tolist()] for row in seen],
        "entropy": round(entropy / max(int(counts.sum()), 1), 6),
    }


def left_classes(batch: Batch, class_of: Tensor) -> Tensor:
    """(inner nodes,): the class of each node's left child, by the nodes' numbers."""
    levels = batch.levels
    nothing = torch.zeros(0, 2, dtype=torch.int64)
    left = torch.cat((nothing, *levels.children))[:, 0][levels.places[levels.leaves :] - levels.leaves]
    # leaves come first in the order of heights too, and keep their order
    of_word = class_of[batch.words[left.clamp(max=levels.leaves - 1)]]
    return torch.where(left < levels.leaves, of_word, NAMES.index(PHRASE))
