"""The model: a recurrent layer reads the formula, a logistic regression on its last state says whether it is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer
from mufuru.experiments.tasks.logic.formulae import TOKENS
from mufuru.experiments.tasks.saved import TaskModel


class FormulaReader(TaskModel):
    """Tokens go in one-hot: with twelve of them the input weights are an embedding already."""

    settings = CellConfig
    one_hot: Tensor

    def __init__(self, cell: CellConfig) -> None:
        super().__init__()
        self.config = cell
        self.reader = SequenceLayer(cell, len(TOKENS))
        self.output = nn.Linear(self.reader.output_size, 1)
        self.register_buffer("one_hot", torch.eye(len(TOKENS)), persistent=False)

    def forward(self, tokens: PackedSequence) -> Tensor:
        """(batch,): the logits of being true."""
        _, state = self.reader(tokens._replace(data=self.one_hot.index_select(0, tokens.data)))
        logits: Tensor = self.output(self.reader.last(state)).squeeze(-1)
        return logits

    @classmethod
    def restored(cls, config: CellConfig, weights: Mapping[str, Tensor]) -> Self:
        """The vocabulary is the task's own: the settings of the layer are enough."""
        return cls(config)
