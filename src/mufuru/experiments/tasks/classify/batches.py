"""Sequences as tensors: encoded once, then taken by number, those of like length together.

Packed, so that no step is spent on padding and no result can depend on it. Yet a batch takes as many steps as its
longest sequence has, so a batch of like lengths is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.draws import permutation

POOL = 50
"""Batches' worth of shuffled sequences that are sorted by length: fewer mix lengths more, more save more steps."""


class Batch(NamedTuple):
    """Some sequences, the longest first."""

    inputs: PackedSequence
    """The numbers of words, or (steps, channels) of numbers."""
    targets: Tensor
    """(batch,): the numbers of the labels; or (batch, labels), their shares."""
    which: Tensor
    """(batch,): the places of the sequences in the data."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Sequences, one after the other."""

    steps: Tensor
    """(steps of all sequences,) of words or (steps of all sequences, channels) of numbers."""
    lengths: Tensor
    """(sequences,): each at least 1."""
    targets: Tensor
    """(sequences,): the numbers of the labels; or (sequences, labels), their shares."""

    @cached_property
    def starts(self) -> Tensor:
        """(sequences,): where each begins."""
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, which: Tensor) -> Batch:
        """The sequences of these numbers. Inside a batch the order means nothing, so packing chooses it."""
        which = which[self.lengths[which].argsort(descending=True, stable=True)]
        lengths = self.lengths[which]
        step = torch.arange(int(lengths[0])).unsqueeze(1)
        present = step < lengths
        places = (self.starts[which] + step)[present]
        return Batch(PackedSequence(self.steps[places], present.sum(1)), self.targets[which], which)


class Batches(Sequence[Any]):
    """The batches of a data set, each made when it is asked for."""

    def __init__(self, encoded: Encoded, groups: Sequence[Tensor]) -> None:
        self.encoded, self.groups = encoded, groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Batches(self.encoded, self.groups[index])
        return self.encoded.batch(self.groups[index])


def in_order(lengths: Tensor, batch_size: int) -> Sequence[Tensor]:
    """Always the same groups, the shortest sequences first."""
    groups: Sequence[Tensor] = lengths.argsort(stable=True).split(batch_size)
    return groups


def shuffled(lengths: Tensor, batch_size: int, *name: str | int, pool: int = POOL) -> list[Tensor]:
    """Groups of like length in random order, by a name such as ("classify", seed, epoch): of pools of shuffled
    sequences, each sorted. All groups are full but one, which is of the last pool. In a pool of one batch lengths mean
    nothing.
    """
    order = permutation(len(lengths), *name, "sequences")
    pools = (some[lengths[some].argsort(stable=True)] for some in order.split(pool * batch_size))
    groups = [group for some in pools for group in some.split(batch_size)]
    return [groups[place] for place in permutation(len(groups), *name, "batches").tolist()]
