"""The model: words embedded or numbers as they are, a recurrent layer, one vector per sequence, a linear classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.tasks.carried import ANY, Carried, carried_by
from mufuru.experiments.tasks.cells import SequenceLayer
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.meaning import Meaning
from mufuru.experiments.tasks.classify.pooling import Pooling
from mufuru.experiments.tasks.saved import TaskModel
from mufuru.experiments.tasks.words import embedding


class Classifier(TaskModel):
    """Two classes have one logit, that of the second: a logistic regression, as in the paper. More have one each.

    The model carries the meaning of its numbers: the folder of a run is enough to use it.
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

    def forward(self, inputs: PackedSequence) -> Tensor:
        """(batch, classes): the logits of sequences packed in their own order, the longest first."""
        x = self.embedding_dropout(self.embedding(inputs.data))
        outputs, state = self.reader(inputs._replace(data=x))
        found = self.pooling(outputs, self.reader.last(state))
        logits: Tensor = self.output(self.output_dropout(found))
        # beside a logit of 0 the softmax is the logistic function
        return logits if logits.size(1) > 1 else torch.cat((torch.zeros_like(logits), logits), 1)

    @classmethod
    def restored(cls, config: ClassifyConfig, weights: Mapping[str, Tensor]) -> Self:
        """The model that weights belong to, without its data; its weights are still to be loaded."""
        return cls(config, Meaning.from_json(carried_by(weights)))


restore = Classifier.restored


class Standardise(nn.Module):
    """Takes each channel's mean away and divides by its deviation; the layer's own input weights do the rest."""

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
