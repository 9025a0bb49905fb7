"""The model: words embedded, a unit that composes them up the tree, a linear classifier at every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.tasks.carried import ANY, Carried, carried_by
from mufuru.experiments.tasks.classify.meaning import Meaning
from mufuru.experiments.tasks.saved import TaskModel
from mufuru.experiments.tasks.trees.config import TreeCellConfig, TreesConfig
from mufuru.experiments.tasks.trees.lstm import TreeLSTM
from mufuru.experiments.tasks.words import embedding

GRU = ("keep", "replace")
"""The operations that make a GRU."""


class TreeClassifier(TaskModel):
    """Two classes have one logit, that of the second: a logistic regression. More have one each.

    The model carries the meaning of its numbers: the folder of a run is enough to use it.
    """

    settings = TreesConfig

    def __init__(self, config: TreesConfig, meaning: Meaning, fingerprint: str = ANY) -> None:
        super().__init__()
        if meaning.vocabulary is None:
            raise ValueError("a tree has words, and the meaning of the model's numbers has no vocabulary")
        self.config, self.meaning, self.vocabulary = config, meaning, meaning.vocabulary
        self.carried = Carried(meaning.to_json(), fingerprint)
        self.embedding = embedding(len(meaning.vocabulary), config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.unit = unit(config.cell, config.embedding_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        classes = len(meaning.labels)
        self.output = nn.Linear(config.cell.hidden_size, 1 if classes == 2 else classes)

    def forward(self, words: Tensor, levels: mufuru.Levels) -> Tensor:
        """(nodes, classes): the logits of every phrase."""
        states = self.unit(self.embed(words), levels)
        logits: Tensor = self.output(self.output_dropout(states))
        # beside a logit of 0 the softmax is the logistic function
        return logits if logits.size(1) > 1 else torch.cat((torch.zeros_like(logits), logits), 1)

    def embed(self, words: Tensor) -> Tensor:
        """(leaves, features): what the unit reads."""
        found: Tensor = self.embedding_dropout(self.embedding(words))
        return found

    @classmethod
    def restored(cls, config: TreesConfig, weights: Mapping[str, Tensor]) -> Self:
        """The model that weights belong to, without its data; its weights are still to be loaded."""
        return cls(config, Meaning.from_json(carried_by(weights)))


restore = TreeClassifier.restored


def unit(config: TreeCellConfig, input_size: int) -> nn.Module:
    """The unit that composes two phrases."""
    if config.cell == "lstm":
        return TreeLSTM(input_size, config.hidden_size, config.keep_bias)
    biases: dict[str, Any] = {} if config.reset_bias is None else {"reset_bias": config.reset_bias}
    biases |= {} if config.keep_bias is None else {"op_bias": {"keep": config.keep_bias}}
    ops = GRU if config.cell == "gru" else config.ops
    return mufuru.TreeMuFuRU(input_size, config.hidden_size, ops=ops, **biases)
