"""Formulae as tensors: encoded once, then indexed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.tasks.logic.formulae import Formula


class Batch(NamedTuple):
    """Some formulae, the longest first."""

    tokens: PackedSequence
    """The numbers of the tokens. Packed, so that no step is spent on padding and no result can depend on it."""
    values: Tensor
    """(batch,): what the formulae evaluate to, 0 or 1."""


class Encoded(NamedTuple):
    """Formulae as a matrix."""

    tokens: Tensor
    """(steps, formulae): the numbers of the tokens, any number past the end."""
    lengths: Tensor
    """(formulae,)"""
    values: Tensor
    """(formulae,): 0 or 1, in the type of the loss."""

    def batches(self, order: Tensor, batch_size: int) -> list[Batch]:
        """All formulae in the given order, cut into batches; the last may be smaller.

        All batches are made at once: one after the other would cost a tenth of the training.
        """
        rows, lengths = self._longest_first(order, batch_size)
        present = torch.arange(len(self.tokens)).unsqueeze(1) < lengths.unsqueeze(1)
        tokens = self.tokens[:, rows].transpose(0, 1)[present].split(lengths.sum(1).tolist())
        values = self.values[rows]
        return [
            Batch(PackedSequence(data, sizes[:steps]), column[:count])
            for data, sizes, steps, column, count in zip(
                tokens, present.sum(2), lengths[:, 0].tolist(), values, (lengths > 0).sum(1).tolist(), strict=True
            )
        ]

    def _longest_first(self, order: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        """(batches, batch size): which formulae, and their lengths, 0 where the last batch has no more.

        Inside a batch the order means nothing, so the one that packing needs is chosen.
        """
        batches = -(-len(order) // batch_size)
        rows, lengths = order.new_zeros(2, batches * batch_size)
        rows[: len(order)], lengths[: len(order)] = order, self.lengths[order]
        lengths, longest_first = lengths.view(batches, -1).sort(descending=True, stable=True)
        return rows.view(batches, -1).gather(1, longest_first), lengths


def encode(formulae: Sequence[Formula]) -> Encoded:
    """The formulae in their order."""
    lengths = torch.tensor([len(formula.tokens) for formula in formulae])
    tokens = torch.zeros(int(lengths.max()), len(formulae), dtype=torch.int64)
    for column, formula in enumerate(formulae):
        tokens[: len(formula.tokens), column] = torch.tensor(formula.tokens)
    return Encoded(tokens, lengths, torch.tensor([float(formula.value) for formula in formulae]))
