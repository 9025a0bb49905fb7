"""Inside a trained model of sequences: its operations at each class of words, and sentences word by word."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.cells import DIGITS, traced, weight_table
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.model import Batch
from mufuru.experiments.tasks.classify.use import batched
from mufuru.experiments.tasks.words import CLASSES, Meaning, word_class

WORDS = ("not", "but", "very")
"""A negation, a contrast and an intensifier: each gets a sentence."""
LONGEST = 20
"""Maximum tokens of such a sentence, so that it can be read at a glance."""


def operation_weights(model: nn.Module, batches: Iterable[Batch], vocabulary: Vocabulary | None) -> dict[str, Any]:
    """Return the first layer's operations at each class of words, ready for JSON, as two tables of the same numbers.

    `"operation_weights": {"tokens", "counts", "ops", "weight", "entropy"}` has a row of mean operation weights for each
    class, read forwards; `entropy` is that of the choice, in nats. A layer of two directions has a second such table in
    its "backward". `"classes": {name: {"count", "mean": {op: weight}, "sd": {op: weight}}}` has the spread too: the
    standard deviation between the words of a class, of the mean weight over units, read forwards.

    Classes that the data does not have are left out. Without a vocabulary of words there is one class, "all".
    """
    names = ("all",) if vocabulary is None else CLASSES
    words = () if vocabulary is None else vocabulary.words
    class_of = torch.tensor([CLASSES.index(word_class(word)) for word in words])
    recorder, directions = mufuru.Recorder(labels=len(names)), 1
    for batch in batches:
        trace, _ = traced(model, batch.inputs)
        steps = batch.inputs.data
        labels = class_of[steps] if words else torch.zeros(len(steps), dtype=torch.int64)
        recorder.add(trace, labels=batch.inputs._replace(data=labels))
        directions = trace.directions
    forward = recorder.use()
    seen = {name: row for row, name in enumerate(names) if int(forward.label_steps[row])}
    table = summarise(forward, seen)
    if directions == 2:
        table |= {"backward": summarise(recorder.use(direction=1), seen)}
    spread = {
        name: {
            "count": int(forward.label_steps[row]),
            "mean": by_name(forward.op_names, forward.label_weight[row]),
            "sd": by_name(forward.op_names, forward.label_deviation[row]),
        }
        for name, row in seen.items()
    }
    return {"operation_weights": table, "classes": spread}


def summarise(use: Any, rows: dict[str, int]) -> dict[str, Any]:
    """Return the mean weights of each class."""
    chosen = list(rows.values())
    entropy = float(use.entropy.sum(0).mean())
    return weight_table(rows, use.label_steps[chosen], use.op_names, use.label_weight[chosen], entropy)


def by_name(names: Iterable[str], values: Tensor) -> dict[str, float]:
    return {name: round(value, DIGITS) for name, value in zip(names, values.tolist(), strict=True)}


def choose_sentences(texts: Sequence[list[str]]) -> dict[str, int]:
    """Return for each of `WORDS` the first text that has it, is not taken yet and has at most `LONGEST` tokens.

    A word without such a text is left out. So no choice depends on a model.
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
    """Return `[{"word", "text", "label", "tokens": [{"token", "weights": {op: weight}, "probability"}]}]`.

    Sentences are those of `choose_sentences`. `weights` are the first layer's, read forwards, mean over units.
    `probability` is that of the sentence's own label if the sentence ended with this token.
    """
    sentences = []
    for word, index in choose_sentences(texts).items():
        tokens, target = texts[index][: config.max_length], int(targets[index])
        label = {"word": word, "text": " ".join(tokens), "label": meaning.labels[target]}
        sentences.append({**label, "tokens": _tokens(model, config, meaning, tokens, target)})
    return sentences


@torch.no_grad()
def _tokens(
    model: nn.Module, config: ClassifyConfig, meaning: Meaning, tokens: list[str], target: int
) -> list[dict[str, Any]]:
    prefixes, order = batched([tokens[: end + 1] for end in range(len(tokens))], meaning, config)
    probabilities = model(prefixes)[order].double().softmax(1)[:, target]
    trace, _ = traced(model, batched([tokens], meaning, config)[0])
    return [
        {"token": token, "weights": by_name(trace.op_names, row), "probability": round(float(probability), DIGITS)}
        for token, row, probability in zip(tokens, trace.weights()[:, 0].mean(-1), probabilities, strict=True)
    ]
