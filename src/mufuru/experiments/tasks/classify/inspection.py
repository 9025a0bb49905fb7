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

DIGITS = 6
"""More differ between kernels."""


def operation_weights(model: nn.Module, batches: Iterable[Batch], vocabulary: Vocabulary | None) -> dict[str, Any]:
    """What the first layer does at each class of words, ready for JSON, as two tables of the same numbers.

    `"operation_weights": {"tokens", "counts", "ops", "weight", "entropy"}` has a row of mean operation weights for each
    class, read forwards; `entropy` is that of the choice, in nats. A layer of two directions has a second such table in
    its "backward". `"classes": {name: {"count", "mean": {op: weight}, "sd": {op: weight}}}` has the spread too: the
    standard deviation between the words of a class, of the mean weight over units, read forwards.

    Classes that the data does not have are left out. Without a vocabulary of words there is one class, "all".
    """
    names: tuple[str, ...] = ("all",) if vocabulary is None else CLASSES
    class_of = None
    if vocabulary is not None:
        class_of = torch.tensor([CLASSES.index(word_class(word)) for word in vocabulary.words])
    recorder, directions = record(model, batches, class_of, len(names))
    forward = recorder.use()
    table = summarise(forward, names)
    if directions == 2:
        table |= {"backward": summarise(recorder.use(direction=1), names)}
    return {"operation_weights": table, "classes": spread(forward, names)}


@torch.no_grad()
def record(
    model: nn.Module, batches: Iterable[Batch], class_of: Tensor | None, count: int
) -> tuple[mufuru.Recorder, int]:
    """What the layer does over all batches, and in how many directions it reads."""
    recorder, directions = mufuru.Recorder(labels=count), 1
    for batch in batches:
        with mufuru.tracing(model) as traces:
            model(batch.inputs)
        (layer,) = traces.values()
        steps = batch.inputs.data
        labels = torch.zeros(len(steps), dtype=torch.int64) if class_of is None else class_of[steps]
        recorder.add(layer[0], labels=batch.inputs._replace(data=labels))
        directions = layer[0].directions
    return recorder, directions


def summarise(use: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """A row of mean weights for each class."""
    seen = seen_rows(use)
    return {
        "tokens": [names[row] for row in seen],
        "counts": [int(use.label_steps[row]) for row in seen],
        "ops": list(use.op_names),
        "weight": [[round(value, DIGITS) for value in use.label_weight[row].tolist()] for row in seen],
        "entropy": round(float(use.entropy.sum(0).mean()), DIGITS),
    }


def spread(use: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Count, mean and deviation of each class."""
    return {
        names[row]: {
            "count": int(use.label_steps[row]),
            "mean": by_name(use.op_names, use.label_weight[row]),
            "sd": by_name(use.op_names, use.label_deviation[row]),
        }
        for row in seen_rows(use)
    }


def seen_rows(use: Any) -> list[int]:
    """The classes that the data has."""
    return [row for row, count in enumerate(use.label_steps.tolist()) if count]


def by_name(names: Iterable[str], values: Tensor) -> dict[str, float]:
    """Operation weights, rounded."""
    return {name: round(value, DIGITS) for name, value in zip(names, values.tolist(), strict=True)}
