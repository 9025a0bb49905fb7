"""The model and its batches: a recurrent layer reads a formula, a logistic regression on its last state judges it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.utils.rnn import PackedSequence, pad_sequence

from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer, per_step
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, Formula
from mufuru.experiments.tasks.models import SequenceModel


class FormulaReader(SequenceModel):
    """Model of formulae. Tokens are one-hot: with twelve of them the input weights are an embedding already."""

    settings = CellConfig
    argument = "tokens"
    one_hot: Tensor

    def __init__(self, cell: CellConfig) -> None:
        super().__init__()
        self.config = cell
        self.reader = SequenceLayer(cell, len(TOKENS))
        self.output = nn.Linear(self.reader.output_size, 1)
        self.register_buffer("one_hot", torch.eye(len(TOKENS)), persistent=False)

    def forward(self, tokens: PackedSequence | Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return (batch,): the logits of being true."""
        _, state = self.reader(per_step(self.embed, tokens), None, lengths)
        logits: Tensor = self.output(self.reader.last(state)).squeeze(-1)
        return logits

    def embed(self, tokens: Tensor) -> Tensor:
        return embedding(tokens, self.one_hot)

    @classmethod
    def restored(cls, config: CellConfig | LogicConfig, weights: Mapping[str, Tensor]) -> Self:
        """Return a model for a run's settings, or for those of its layer, which are the model's own."""
        return super().restored(config.cell if isinstance(config, LogicConfig) else config, weights)

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        return torch.randint(len(TOKENS), (steps, batch), generator=generator)


class Batch(NamedTuple):
    """Some formulae, the longest first."""

    tokens: PackedSequence
    """The ids of the tokens. Packed, so that no step is spent on padding and no result can depend on it."""
    values: Tensor
    """(batch,): the values of the formulae, 0 or 1."""


class Encoded(NamedTuple):
    """Formulae as a matrix, encoded once and then indexed."""

    tokens: Tensor
    """(steps, formulae): the ids of the tokens, any id past the end."""
    lengths: Tensor
    """(formulae,)"""
    values: Tensor
    """(formulae,): 0 or 1, in the dtype of the loss."""

    def batches(self, order: Tensor, batch_size: int) -> list[Batch]:
        """Return all formulae in the given order, cut into batches; the last may be smaller.

        All batches are made at once: one after the other would cost a tenth of the training.
        """
        # the order inside a batch does not matter, so it is the one that packing needs; 0 is the length of no formula
        count = -(-len(order) // batch_size)
        rows, lengths = order.new_zeros(2, count * batch_size)
        rows[: len(order)], lengths[: len(order)] = order, self.lengths[order]
        lengths, longest_first = lengths.view(count, -1).sort(descending=True, stable=True)
        rows = rows.view(count, -1).gather(1, longest_first)
        present = torch.arange(len(self.tokens)).unsqueeze(1) < lengths.unsqueeze(1)
        tokens = self.tokens[:, rows].transpose(0, 1)[present].split(lengths.sum(1).tolist())
        values = self.values[rows]
        return [
            Batch(PackedSequence(data, sizes[:steps]), column[:count])
            for data, sizes, steps, column, count in zip(
                tokens, present.sum(2), lengths[:, 0].tolist(), values, (lengths > 0).sum(1).tolist(), strict=True
            )
        ]


def encode(formulae: Sequence[Formula]) -> Encoded:
    tokens = [torch.tensor(formula.tokens) for formula in formulae]
    values = torch.tensor([float(formula.value) for formula in formulae])
    return Encoded(pad_sequence(tokens), torch.tensor(list(map(len, tokens))), values)
