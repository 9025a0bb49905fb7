"""The operations of a MuFuRU at each class of words, and in some sentences word by word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.classify.batches import Batch, encode_texts
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.words import CLASSES, Meaning, word_class

DIGITS = 6
"""More differ between kernels."""
WORDS = ("not", "but", "very")
"""A negation, a contrast and an intensifier: a sentence is walked through for each."""
LONGEST = 20
"""Most tokens of such a sentence, so that it can be read at a glance."""


def operation_weights(model: nn.Module, batches: Iterable[Batch], vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The first layer's operations at each class of words, ready for JSON, as two tables of the same numbers.

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
    """Record the layer over all batches; return the recorder and the number of directions."""
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


def choose_sentences(texts: Sequence[list[str]]) -> dict[str, int]:
    """For each of `WORDS` the first text that has it, in the order of the data, of those of at most `LONGEST` tokens
    that are not taken yet; a word without such a text is left out. So nothing is picked by what a model does with it.
    """
    chosen: dict[str, int] = {}
    for word in WORDS:
        for index, text in enumerate(texts):
            short = len(text) <= LONGEST and index not in chosen.values()
            if short and word in map(str.lower, text):
                chosen[word] = index
                break
    return chosen


def walk(
    model: nn.Module, meaning: Meaning, config: ClassifyConfig, texts: Sequence[list[str]], targets: Tensor
) -> list[dict[str, Any]]:
    """`[{"word", "text", "label", "tokens": [{"token", "weights": {op: weight}, "probability"}]}]`.

    Sentences are those of `choose_sentences`. `weights` are the first layer's, read forwards, mean over units.
    `probability` is that of the sentence's own label if the sentence ended with this token.
    """
    if meaning.vocabulary is None:
        raise TypeError("a model of numbers has no sentences: expected one of words")
    sentences = []
    for word, index in choose_sentences(texts).items():
        tokens, target = texts[index][: config.max_length], int(targets[index])
        label = {"word": word, "text": " ".join(tokens), "label": meaning.labels[target]}
        sentences.append({**label, "tokens": _tokens(model, config, meaning.vocabulary, tokens, target)})
    return sentences


@torch.no_grad()
def _tokens(
    model: nn.Module, config: ClassifyConfig, vocabulary: Vocabulary, tokens: list[str], target: int
) -> list[dict[str, Any]]:
    beginnings = [tokens[: end + 1] for end in range(len(tokens))]
    everything = torch.arange(len(tokens))
    encoded = encode_texts(beginnings, everything, vocabulary, config)
    batch = encoded.batch(everything)
    # a batch has the longest first
    probabilities = model(batch.inputs)[batch.which.argsort()].double().softmax(1)[:, target]
    with mufuru.tracing(model) as traces:
        model(encoded.batch(everything[-1:]).inputs)
    (layer,) = traces.values()
    weights = layer[0].weights()[:, 0].mean(-1)
    return [
        {"token": token, "weights": by_name(layer[0].op_names, row), "probability": round(float(sure), DIGITS)}
        for token, row, sure in zip(tokens, weights, probabilities, strict=True)
    ]
