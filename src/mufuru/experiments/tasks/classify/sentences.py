"""Some sentences, word by word: what a MuFuRU does at each, and what it thinks so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.encoding import encode_texts
from mufuru.experiments.tasks.classify.inspection import DIGITS, by_name
from mufuru.experiments.tasks.classify.meaning import Meaning

WORDS = ("not", "but", "very")
"""A negation, a contrast and an intensifier: a sentence is walked through for each."""
LONGEST = 20
"""Most tokens of such a sentence, so that it can be read at a glance."""


def choose(texts: Sequence[list[str]]) -> dict[str, int]:
    """For each of `WORDS` the first text that has it, in the order of the data, of those of at most `LONGEST` tokens
    that are not taken yet; a word without such a text is left out. So nothing is picked by what a model does with it.
    """
    found: dict[str, int] = {}
    for word in WORDS:
        for number, text in enumerate(texts):
            short = len(text) <= LONGEST and number not in found.values()
            if short and word in map(str.lower, text):
                found[word] = number
                break
    return found


def walk(
    model: nn.Module, meaning: Meaning, config: ClassifyConfig, texts: Sequence[list[str]], targets: Tensor
) -> list[dict[str, Any]]:
    """`[{"word", "text", "label", "tokens": [{"token", "weights": {op: weight}, "probability"}]}]`, by `choose`.

    `weights` are the first layer's, read forwards, mean over units. `probability` is that of the sentence's own label
    if the sentence ended with this token.
    """
    if meaning.vocabulary is None:
        raise TypeError("a model of numbers has no sentences: expected one of words")
    found = []
    for word, number in choose(texts).items():
        tokens, target = texts[number][: config.max_length], int(targets[number])
        label = {"word": word, "text": " ".join(tokens), "label": meaning.labels[target]}
        found.append({**label, "tokens": _tokens(model, config, meaning.vocabulary, tokens, target)})
    return found


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
