"""The model: words embedded or numbers as they are, a recurrent layer, one vector per sequence, a linear classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.tasks.cells import SequenceLayer, per_step
from mufuru.experiments.tasks.classify.config import ClassifyConfig, PoolingName
from mufuru.experiments.tasks.models import ANY, Carried, SequenceModel, carried_by
from mufuru.experiments.tasks.words import Meaning, class_logits, embedding


class Classifier(SequenceModel):
    """Two classes have one logit, that of the second: a logistic regression, as in the paper. More have one each.

    The model carries the meaning of its ids: a run folder is enough to use it.
    """

    settings = ClassifyConfig

    def __init__(self, config: ClassifyConfig, meaning: Meaning, fingerprint: str = ANY) -> None:
        super().__init__()
        self.config, self.meaning = config, meaning
        self.carried = Carried(meaning.to_json(), fingerprint)
        if meaning.vocabulary is None:
            size = meaning.channels
            self.embedding: nn.Module = Standardise(size)
        else:
            size = config.embedding_size
            self.embedding = embedding(len(meaning.vocabulary), config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.reader = SequenceLayer(config.cell, size)
        self.pooling = Pooling(config.pooling, self.reader.output_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        classes = len(meaning.labels)
        self.output = nn.Linear(self.reader.output_size, 1 if classes == 2 else classes)

    def forward(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> Tensor:
        """(batch, classes): the logits of sequences packed in their own order, the longest first, or padded."""
        x = per_step(lambda steps: self.embedding_dropout(self.embedding(steps)), inputs)
        outputs, state = self.reader(x, None, lengths)
        return self.logits(self.pooling(outputs, self.reader.last(state), lengths))

    def logits(self, pooled: Tensor) -> Tensor:
        """(batch, classes) from one vector per sequence."""
        return class_logits(self.output(self.output_dropout(pooled)))

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        if self.meaning.vocabulary is None:
            return torch.randn(steps, batch, self.meaning.channels, generator=generator)
        return torch.randint(len(self.meaning.vocabulary), (steps, batch), generator=generator)

    @classmethod
    def restored(cls, config: ClassifyConfig, weights: Mapping[str, Tensor]) -> Self:
        """A model that fits the weights, without its data."""
        return cls(config, Meaning.from_json(carried_by(weights)))


class Standardise(nn.Module):
    """Subtracts each channel's mean and divides by its deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def measure(self, values: Tensor) -> None:
        """Take mean and deviation of all steps, (steps, channels); a channel that never changes becomes 0."""
        deviation, mean = torch.std_mean(values.double(), 0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation


class Pooling(nn.Module):
    """One vector per sequence from the outputs of all steps.

    `last`: the final state, both directions side by side. `max` and `mean`: of every feature over all steps.
    `attention`: the outputs' mean with the weights softmax(w · output), w learned.
    """

    def __init__(self, name: PoolingName, features: int) -> None:
        super().__init__()
        self.name = name
        self.query = nn.Parameter(torch.zeros(features)) if name == "attention" else None

    def forward(self, outputs: PackedSequence | Tensor, last: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(batch, features) from packed outputs, or from padded ones, (steps, batch, features), and lengths."""
        if self.name == "last":
            return last
        if isinstance(outputs, PackedSequence):
            # index_add instead of a sum over padding: no padding, and its own order of summation
            return self._packed(outputs.data, owner(outputs.batch_sizes), len(last))
        if lengths is None:
            lengths = torch.full((outputs.size(1),), outputs.size(0))
        return self._padded(outputs, lengths)

    def _packed(self, rows: Tensor, owners: Tensor, count: int) -> Tensor:
        if self.name == "max":
            return _max(rows, owners, count)
        if self.query is None:
            lengths = torch.bincount(owners, minlength=count)
            return _sum(rows, owners, count) / lengths.unsqueeze(1)
        weights = attention(rows @ self.query, owners, count)
        return _sum(weights.unsqueeze(1) * rows, owners, count)

    def _padded(self, outputs: Tensor, lengths: Tensor) -> Tensor:
        """Outputs are zero past the end of a sequence."""
        beyond = (torch.arange(outputs.size(0)).unsqueeze(1) >= lengths).unsqueeze(-1)
        if self.name == "max":
            return outputs.masked_fill(beyond, -torch.inf).amax(0)
        if self.query is None:
            return outputs.sum(0) / lengths.unsqueeze(-1)
        scores = (outputs @ self.query).unsqueeze(-1).masked_fill(beyond, -torch.inf)
        return (scores.softmax(0) * outputs).sum(0)


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
