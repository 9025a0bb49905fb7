"""Which operations a MuFuRU uses at which kind of word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.classify.batches import Batch
from mufuru.experiments.tasks.classify.word_classes import CLASSES, word_class


def operation_weights(model: nn.Module, batches: Iterable[Batch], vocabulary: Vocabulary | None) -> dict[str, Any]:
    """`{"tokens", "counts", "ops", "weight", "entropy"}`: a row of mean operation weights for each class of words, over
    those steps of the first layer, read forwards; classes that the data does not have are left out.

    `entropy` is that of the choice, in nats. Without a vocabulary of words there is one class, "all". A layer of two
    directions has a second such table in "backward".
    """
    names: tuple[str, ...] = ("all",) if vocabulary is None else CLASSES
    classes = None
    if vocabulary is not None:
        classes = torch.tensor([CLASSES.index(word_class(word)) for word in vocabulary.words])
    recorder, directions = record(model, batches, classes, len(names))
    table = summarise(recorder.use(), names)
    return table if directions == 1 else table | {"backward": summarise(recorder.use(direction=1), names)}


@torch.no_grad()
def record(
    model: nn.Module, batches: Iterable[Batch], classes: Tensor | None, count: int
) -> tuple[mufuru.Recorder, int]:
    """What the layer does over all batches, and in how many directions it reads."""
    recorder, directions = mufuru.Recorder(labels=count), 1
    for batch in batches:
        with mufuru.tracing(model) as traces:
            model(batch.inputs)
        (layer,) = traces.values()
        steps = batch.inputs.data
        labels = torch.zeros(len(steps), dtype=torch.int64) if classes is None else classes[steps]
        recorder.add(layer[0], labels=batch.inputs._replace(data=labels))
        directions = layer[0].directions
    return recorder, directions


def summarise(use: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The table, rounded: more digits than these differ between kernels."""
    seen = [row for row, count in enumerate(use.label_steps.tolist()) if count]
    return {
        "tokens": [names[row] for row in seen],
        "counts": [int(use.label_steps[row]) for row in seen],
        "ops": list(use.op_names),
        "weight": [[round(value, 6) for value in use.label_weight[row].tolist()] for row in seen],
        "entropy": round(float(use.entropy.sum(0).mean()), 6),
    }
