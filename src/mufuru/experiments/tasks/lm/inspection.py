"""Which operations a MuFuRU uses at which kind of token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.lm.batches import Window
from mufuru.experiments.tasks.lm.function_words import FUNCTION_WORDS

BANDS = (10, 100, 1000, 10_000)
"""Bounds of the frequency bands: the ten most frequent words of the training text, the next ninety, and so on."""


def operation_weights(model: nn.Module, windows: Sequence[Window], corpus: Corpus, level: str) -> dict[str, Any]:
    """The first layer's mean operation weights by class of the token it reads, ready for JSON.

    `{"tokens": names of the classes, "groups": "kind" or "frequency", "counts": steps, "ops", "weight": [[per
    operation] per class], "entropy"}`. A token is in one class of each group; <eos> and <unk> are kinds and have no
    frequency. Classes that the text does not have are left out; entropy is that of the choice, in nats.
    """
    use = record(model, windows, len(corpus.vocabulary))
    ranks = frequency_ranks(corpus)
    rows = []
    for group, name, tokens in classes(corpus.vocabulary, ranks, level):
        steps = use.label_steps[tokens]
        if int(steps.sum()):
            weight = (use.label_weight[tokens].nan_to_num() * steps.unsqueeze(1)).sum(0) / steps.sum()
            rows.append((name, group, int(steps.sum()), [round(value, 6) for value in weight.tolist()]))
    names, groups, counts, weights = (list(column) for column in zip(*rows, strict=True))
    entropy = round(float(use.entropy.sum(0).mean()), 6)
    return {
        "tokens": names, "groups": groups, "counts": counts, "ops": list(use.op_names), "weight": weights,
        "entropy": entropy,
    }  # fmt: skip


@torch.no_grad()
def record(model: nn.Module, windows: Sequence[Window], vocabulary: int) -> Any:
    """The mean operation weights at each token of the vocabulary."""
    recorder, state = mufuru.Recorder(labels=vocabulary), None
    for window in windows:
        with mufuru.tracing(model) as traces:
            _, state = model(window.inputs, state)
        (layer,) = traces.values()
        recorder.add(layer[0], labels=window.inputs)
    return recorder.use()


def frequency_ranks(corpus: Corpus) -> Tensor:
    """(vocabulary,): 0 for the most frequent word of the training text; the special words are not counted."""
    counts = torch.bincount(corpus.train, minlength=len(corpus.vocabulary))
    counts[special(corpus.vocabulary)] = -1
    ranks = torch.empty_like(counts)
    ranks[counts.argsort(descending=True, stable=True)] = torch.arange(len(counts))
    return ranks


def special(vocabulary: Vocabulary) -> list[int]:
    """The numbers of <eos> and <unk>."""
    return [number for number in (vocabulary.end, vocabulary.unknown_index) if number is not None]


def classes(vocabulary: Vocabulary, ranks: Tensor, level: str) -> Iterator[tuple[str, str, Tensor]]:
    """Group, name and token numbers of every class."""
    kind_of: Callable[[str], str] = kind_of_character if level == "char" else kind_of_word
    marks = {vocabulary.words[number] for number in special(vocabulary)}
    kinds = [word if word in marks else kind_of(word) for word in vocabulary.words]
    for kind in sorted(set(kinds), key=lambda kind: (kind in marks, kind)):
        yield "kind", kind, torch.tensor([number for number, found in enumerate(kinds) if found == kind])
    last = len(vocabulary) - len(marks)
    for low, high in zip((0, *BANDS), (*BANDS, last), strict=True):
        if low < min(high, last):
            name = f"rank {low + 1:,} to {min(high, last):,}"
            yield "frequency", name, ((ranks >= low) & (ranks < min(high, last))).nonzero().flatten()


def kind_of_word(word: str) -> str:
    """The Penn Treebank writes N for any number."""
    if word.lower() in FUNCTION_WORDS:
        return "function words"
    if word == "N" or any(letter.isdigit() for letter in word):
        return "numbers"
    return "content words" if any(letter.isalpha() for letter in word) else "punctuation"


def kind_of_character(character: str) -> str:
    if character.isspace():
        return "blanks"
    if character.isalpha():
        return "letters"
    return "digits" if character.isdigit() else "punctuation"
