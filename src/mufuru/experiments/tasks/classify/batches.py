"""Sequences as tensors: encoded once, then taken by index, those of similar length together.

Packed, so that no step is spent on padding and no result can depend on it. Yet a batch takes as many steps as its
longest sequence has, so a batch of similar lengths is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.draws import permutation
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.words import Meaning

POOL = 50
"""Batches' worth of shuffled sequences that are sorted by length: fewer mix lengths more, more save more steps."""


class Batch(NamedTuple):
    """Some sequences, the longest first."""

    inputs: PackedSequence
    """Ids of words, or (steps, channels) of numbers."""
    targets: Tensor
    """(batch,): the ids of the labels; or (batch, labels), their shares."""
    which: Tensor
    """(batch,): the indices of the sequences in the data."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Sequences, one after the other."""

    steps: Tensor
    """(steps of all sequences,) of words or (steps of all sequences, channels) of numbers."""
    lengths: Tensor
    """(sequences,): each at least 1."""
    targets: Tensor
    """(sequences,): the ids of the labels; or (sequences, labels), their shares."""

    @cached_property
    def starts(self) -> Tensor:
        """(sequences,): where each begins."""
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, which: Tensor) -> Batch:
        """The sequences of these indices. The order inside a batch does not matter, so packing chooses it."""
        which = which[self.lengths[which].argsort(descending=True, stable=True)]
        lengths = self.lengths[which]
        step = torch.arange(int(lengths[0])).unsqueeze(1)
        present = step < lengths
        places = (self.starts[which] + step)[present]
        return Batch(PackedSequence(self.steps[places], present.sum(1)), self.targets[which], which)


def in_order(lengths: Tensor, batch_size: int) -> Sequence[Tensor]:
    """Always the same groups, the shortest sequences first."""
    groups: Sequence[Tensor] = lengths.argsort(stable=True).split(batch_size)
    return groups


def shuffled(lengths: Tensor, batch_size: int, *name: str | int, pool: int = POOL) -> list[Tensor]:
    """Groups of similar length in random order, by a name such as ("classify", seed, epoch): taken from pools of
    shuffled sequences, each sorted by length. All groups are full but one, of the last pool. With a pool of one batch
    lengths do not matter.
    """
    order = permutation(len(lengths), *name, "sequences")
    pools = (some[lengths[some].argsort(stable=True)] for some in order.split(pool * batch_size))
    groups = [group for some in pools for group in some.split(batch_size)]
    return [groups[place] for place in permutation(len(groups), *name, "batches").tolist()]


def encode_texts(
    texts: Sequence[list[str]], targets: Tensor, vocabulary: Vocabulary, config: ClassifyConfig
) -> Encoded:
    """Texts as the ids of their words; one without words is read as an unknown word."""
    cut = [text[: config.max_length] or [UNKNOWN] for text in texts]
    words = chain.from_iterable(cut)
    ids = vocabulary.encode(map(str.lower, words) if config.lowercase else words)
    return Encoded(ids, torch.tensor([len(text) for text in cut], dtype=torch.int64), targets)


def encode_values(sequences: Sequence[Tensor], targets: Tensor, config: ClassifyConfig) -> Encoded:
    """Numbers, (steps, channels) of each sequence."""
    cut = [values[: config.max_length] for values in sequences]
    return Encoded(torch.cat(cut), torch.tensor([len(values) for values in cut]), targets)


def encode(
    texts: Sequence[list[str]], values: Sequence[Tensor], targets: Tensor, meaning: Meaning, config: ClassifyConfig
) -> Encoded:
    """Texts or values, as the model's meaning says."""
    if meaning.vocabulary is None:
        return encode_values(values, targets, config)
    return encode_texts(texts, targets, meaning.vocabulary, config)
