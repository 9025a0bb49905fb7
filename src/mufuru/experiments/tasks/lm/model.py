"""The model: embedding, recurrent layer, softmax over the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.carried import ANY, Carried, carried_by
from mufuru.experiments.tasks.cells import SequenceLayer, State
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.regularise import drop_features, drop_words
from mufuru.experiments.tasks.lm.softmax import log_probabilities_by, loss_sum
from mufuru.experiments.tasks.saved import TaskModel


class Predictions(NamedTuple):
    """What a window gives."""

    loss: Tensor
    """Sum over all predictions, in nats."""
    state: State
    """After the last step; still with its past."""
    penalty: Tensor | None
    """Activation regularisation; None outside of training."""


class LanguageModel(TaskModel):
    """Carries its vocabulary and a fingerprint of its text: the folder of a run is enough to use it, and weights that
    were trained on another text are refused.
    """

    settings = LMConfig

    def __init__(self, config: LMConfig, vocabulary: Vocabulary, fingerprint: str = ANY) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.noise = config.regularisation
        self.embedding = nn.Embedding(len(vocabulary), config.features)
        self.reader = SequenceLayer(config.cell, config.features)
        self.output = nn.Linear(self.reader.output_size, len(vocabulary))
        if config.tied:
            self.output.weight = self.embedding.weight
        for weight in dict.fromkeys((self.embedding.weight, self.output.weight)):
            nn.init.uniform_(weight, -config.embedding_scale, config.embedding_scale)
        nn.init.zeros_(self.output.bias)
        self.noise.prepare(self.reader)
        self.carried = Carried(vocabulary.to_json(), fingerprint)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read tokens (steps, batch); returned are the layer's outputs (steps, batch, hidden) and its state."""
        x = self.embedding(tokens)
        if self.training:
            x = drop_words(x, tokens, self.embedding.num_embeddings, self.noise.embedding_dropout)
            x = drop_features(x, self.noise.input_dropout)
        return self.noise.read(self.reader, x, state)

    def predict(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> Predictions:
        """How well the targets, laid out as the tokens, are predicted: each from the tokens up to its own place."""
        if not torch.is_grad_enabled() and not self.training:
            found, state = self.log_probabilities(tokens, targets, state)
            return Predictions(-found.sum(dtype=torch.float64), state, None)
        outputs, state = self(tokens, state)
        dropped = drop_features(outputs, self.noise.output_dropout) if self.training else outputs
        loss = loss_sum(dropped.flatten(0, 1), self.output.weight, self.output.bias, targets.flatten())
        return Predictions(loss, state, self.noise.penalty(outputs, dropped) if self.training else None)

    def log_probabilities(self, tokens: Tensor, targets: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The logarithm of each target's probability, laid out as the targets, and the state."""
        outputs, state = self(tokens, state)
        found = log_probabilities_by(self.output, outputs.flatten(0, 1), targets.flatten())
        return found.view(targets.shape), state

    @classmethod
    def restored(cls, config: LMConfig, weights: Mapping[str, Tensor]) -> Self:
        """A model that fits the weights, made without the text that they were trained on."""
        return cls(config, Vocabulary.from_json(carried_by(weights)))


restore = LanguageModel.restored
