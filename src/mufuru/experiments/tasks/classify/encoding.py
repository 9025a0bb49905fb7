"""From words and numbers as data sets and people give them to tensors, by the meaning of a model's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.tasks.classify.batches import Encoded
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.meaning import Meaning


def encode_texts(
    texts: Sequence[list[str]], targets: Tensor, vocabulary: Vocabulary, config: ClassifyConfig
) -> Encoded:
    """Texts as the numbers of their words; one without words is read as an unknown word."""
    cut = [text[: config.max_length] or [UNKNOWN] for text in texts]
    words = chain.from_iterable(cut)
    numbers = vocabulary.encode(map(str.lower, words) if config.lowercase else words)
    return Encoded(numbers, torch.tensor([len(text) for text in cut], dtype=torch.int64), targets)


def encode_values(sequences: Sequence[Tensor], targets: Tensor, config: ClassifyConfig) -> Encoded:
    """Numbers, (steps, channels) of each sequence."""
    cut = [values[: config.max_length] for values in sequences]
    return Encoded(torch.cat(cut), torch.tensor([len(values) for values in cut]), targets)


def encode(
    texts: Sequence[list[str]], values: Sequence[Tensor], targets: Tensor, meaning: Meaning, config: ClassifyConfig
) -> Encoded:
    """Whichever of texts and values the model reads."""
    if meaning.vocabulary is None:
        return encode_values(values, targets, config)
    return encode_texts(texts, targets, meaning.vocabulary, config)
