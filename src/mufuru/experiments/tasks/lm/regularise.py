"""What keeps a language model from learning its text by heart. All of it is off in evaluation.

Masks come from torch's generator, so that a resumed run draws the same. MuFuRU has weight-drop, dropout of the state
and zoneout inside. Torch's layers have none of them: weight-drop is made here, by running them with other weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import dropout

import mufuru
from mufuru.experiments.settings import SettingError, check_fraction
from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer, State


@dataclass(frozen=True)
class Regularisation:
    """Dropouts and penalties; all are 0 where not asked for."""

    embedding_dropout: float = 0.0
    """Dropout of whole words: a word loses its embedding wherever it stands in a window."""
    input_dropout: float = 0.0
    """Variational dropout of embedded words: one mask per window and sequence."""
    output_dropout: float = 0.0
    """Variational dropout of what the softmax reads: one mask per window and sequence."""
    weight_dropout: float = 0.0
    """Dropout of recurrent weights (weight-drop): one mask per window."""
    state_dropout: float = 0.0
    """Variational dropout of the state where it enters a product (mufuru only)."""
    zoneout: float = 0.0
    """Probability of a unit to keep its state in a step (mufuru only)."""
    activation_penalty: float = 0.0
    """Activation regularisation, AR: times the mean square of what the softmax reads."""
    temporal_penalty: float = 0.0
    """Temporal activation regularisation, TAR: times the mean square of the change of the outputs from step to step."""

    def __post_init__(self) -> None:
        check_fraction(self, "embedding_dropout", "input_dropout", "output_dropout")
        check_fraction(self, "weight_dropout", "state_dropout", "zoneout")
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingError(f"{name} should be a number of at least 0, got {getattr(self, name)}")

    def check_cell(self, cell: CellConfig) -> None:
        """Refuse what the cell cannot do rather than leave it out."""
        for name in ("state_dropout", "zoneout"):
            if cell.cell != "mufuru" and getattr(self, name):
                raise SettingError(f"{name} is an option of mufuru, not of {cell.cell}: leave it out")

    def prepare(self, reader: SequenceLayer) -> None:
        """Hand a MuFuRU layer the noise that it makes itself."""
        if isinstance(reader.rnn, mufuru.MuFuRU):
            for name in ("weight_dropout", "state_dropout", "zoneout"):
                setattr(reader.rnn, name, getattr(self, name))

    def read(self, reader: SequenceLayer, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Run the layer, in training with some of its recurrent weights left out."""
        if not (self.weight_dropout and reader.training) or isinstance(reader.rnn, mufuru.MuFuRU):
            output, state = reader(x, state)
        else:
            weights = dropped_weights(reader, self.weight_dropout)
            output, state = functional_call(reader, weights, (x, state))
        return output, state

    def penalty(self, outputs: Tensor, dropped: Tensor) -> Tensor | None:
        """The two activation regularisations, of the outputs before and after dropout; (steps, batch, features)."""
        if not (self.activation_penalty or self.temporal_penalty):
            return None
        change = outputs[1:] - outputs[:-1]
        # one step alone has no change, and the mean of nothing is no number
        temporal = change.square().sum() / max(1, change.numel())
        return self.activation_penalty * dropped.square().mean() + self.temporal_penalty * temporal


def dropped_weights(reader: SequenceLayer, probability: float) -> dict[str, Tensor]:
    """The recurrent weights after dropout, by the names that they have in the layer."""
    named: Any = reader.named_parameters()
    return {name: dropout(weight, probability) for name, weight in named if name.startswith("rnn.weight_hh")}


def drop_words(x: Tensor, tokens: Tensor, vocabulary: int, probability: float) -> Tensor:
    """The rows of `x` (steps, batch, features) that belong to dropped words become 0, the others larger."""
    if not probability:
        return x
    # the same as dropping rows of the embedding matrix, without a copy of it
    return x * dropout(x.new_ones(vocabulary), probability)[tokens].unsqueeze(-1)


def drop_features(x: Tensor, probability: float) -> Tensor:
    """Variational dropout of `x` (steps, batch, features): a mask is the same at every step."""
    return x * dropout(x.new_ones(x.shape[1:]), probability) if probability else x
