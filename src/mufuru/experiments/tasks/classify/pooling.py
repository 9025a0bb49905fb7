"""From the outputs of all steps to one vector per sequence.

Outputs come packed, so each is of a sequence's own step: there is no padding that could have an influence.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

PoolingName = Literal["last", "max", "mean", "attention"]


class Pooling(nn.Module):
    """`last`: the state at the end, both directions side by side. `max` and `mean`: of every feature over all steps.
    `attention`: the outputs' mean with the weights softmax(w · output), w learned.
    """

    def __init__(self, name: PoolingName, features: int) -> None:
        super().__init__()
        self.name = name
        self.query = nn.Parameter(torch.zeros(features)) if name == "attention" else None

    def forward(self, outputs: PackedSequence, last: Tensor) -> Tensor:
        """(batch, features), in the order of the packed rows as `last` is."""
        if self.name == "last":
            return last
        rows, owners = outputs.data, owner(outputs.batch_sizes)
        if self.name == "max":
            return _max(rows, owners, len(last))
        if self.query is None:
            lengths = torch.bincount(owners, minlength=len(last))
            return _sum(rows, owners, len(last)) / lengths.unsqueeze(1)
        weights = attention(rows @ self.query, owners, len(last))
        return _sum(weights.unsqueeze(1) * rows, owners, len(last))


def owner(batch_sizes: Tensor) -> Tensor:
    """(rows,): which sequence each packed row belongs to."""
    present = torch.arange(int(batch_sizes[0])) < batch_sizes.unsqueeze(1)
    return present.nonzero()[:, 1]


def attention(scores: Tensor, owners: Tensor, count: int) -> Tensor:
    """(rows,): the softmax of the scores within each sequence."""
    # the largest is taken away as a constant, so that no exponential is too large
    largest = _max(scores.detach().unsqueeze(1), owners, count).squeeze(1)
    weights = (scores - largest[owners]).exp()
    return weights / _sum(weights.unsqueeze(1), owners, count).squeeze(1)[owners]


def _sum(rows: Tensor, owners: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, rows.size(1)).index_add(0, owners, rows)


def _max(rows: Tensor, owners: Tensor, count: int) -> Tensor:
    lowest = rows.new_full((count, rows.size(1)), -torch.inf)
    return lowest.scatter_reduce(0, owners.unsqueeze(1).expand_as(rows), rows, "amax", include_self=False)
