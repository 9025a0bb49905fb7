"""The model: embedding, recurrent layer, softmax over the vocabulary, and the noise of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.func import functional_call
from torch.nn.functional import dropout

import mufuru
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.cells import SequenceLayer, State
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.softmax import log_probabilities_by, loss_sum
from mufuru.experiments.tasks.models import ANY, Carried, Graph, TaskModel, Tensors, carried_by, exportable


class Predictions(NamedTuple):
    """Results of a window."""

    loss: Tensor
    """Sum over all predictions, in nats."""
    state: State
    """State after the last step, not detached."""
    penalty: Tensor | None
    """Activation regularisation; None outside of training."""


class LanguageModel(TaskModel):
    """Carries its vocabulary and a fingerprint of its text: a run folder is enough to use it, and weights that were
    trained on another text are refused.
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
        if isinstance(self.reader.rnn, mufuru.MuFuRU):
            # it makes this noise itself
            for name in ("weight_dropout", "state_dropout", "zoneout"):
                setattr(self.reader.rnn, name, getattr(self.noise, name))
        self.carried = Carried(vocabulary.to_json(), fingerprint)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read tokens (steps, batch); return the layer's outputs (steps, batch, hidden) and its state."""
        x = self.embedding(tokens)
        if self.training:
            x = drop_words(x, tokens, self.embedding.num_embeddings, self.noise.embedding_dropout)
            x = drop_features(x, self.noise.input_dropout)
        drops_weights = self.noise.weight_dropout and self.training
        if not drops_weights or isinstance(self.reader.rnn, mufuru.MuFuRU):
            output, state = self.reader(x, state)
        else:
            output, state = functional_call(
                self.reader, dropped_weights(self.reader, self.noise.weight_dropout), (x, state)
            )
        return output, state

    def predict(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> Predictions:
        """The loss of the targets, laid out as the tokens: each is predicted from the tokens up to its own place."""
        if not torch.is_grad_enabled() and not self.training:
            logs, state = self.log_probabilities(tokens, targets, state)
            return Predictions(-logs.sum(dtype=torch.float64), state, None)
        outputs, state = self(tokens, state)
        dropped = drop_features(outputs, self.noise.output_dropout) if self.training else outputs
        loss = loss_sum(dropped.flatten(0, 1), self.output.weight, self.output.bias, targets.flatten())
        return Predictions(loss, state, self.noise.penalty(outputs, dropped) if self.training else None)

    def log_probabilities(self, tokens: Tensor, targets: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The logarithm of each target's probability, laid out as the targets, and the state."""
        outputs, state = self(tokens, state)
        logs = log_probabilities_by(self.output, outputs.flatten(0, 1), targets.flatten())
        return logs.view(targets.shape), state

    @classmethod
    def restored(cls, config: LMConfig, weights: Mapping[str, Tensor]) -> Self:
        """A model that fits the weights, made without the text that they were trained on."""
        return cls(config, Vocabulary.from_json(carried_by(weights)))

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Tokens, and states inside of their range."""
        generator, cell = torch.Generator().manual_seed(seed), self.config.cell
        tokens = torch.randint(len(self.vocabulary), (steps, batch), generator=generator)
        sizes = [cell.hidden_size, *([] if cell.controller_size is None else [cell.controller_size])]
        sizes += [cell.hidden_size] if cell.cell == "lstm" else []
        return (tokens, *(torch.rand(cell.num_layers, batch, size, generator=generator) - 0.5 for size in sizes))

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        return next_tokens(self, *arguments)

    def graph(self) -> Graph:
        """It takes and gives its state, so that a text can be read in pieces."""
        states = ("h",) if self.config.cell.controller_size is None else ("h", "k")
        open_sizes: tuple[dict[int, Any], ...] = ({0: Dim.AUTO, 1: Dim.AUTO}, *({1: Dim.AUTO} for _ in states))
        outputs = ("logits", *(f"{name}_n" for name in states))
        return Graph(NextTokens(exportable(self)), ("tokens", *states), outputs, open_sizes)


class NextTokens(nn.Module):
    """A language model as a function of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, h: Tensor, k: Tensor | None = None) -> Tensors:
        return next_tokens(self.model, tokens, h, *(() if k is None else (k,)))


def next_tokens(model: Any, tokens: Tensor, *states: Tensor) -> Tensors:
    """tokens (steps, batch) and a state to logits of the next tokens (steps, batch, vocabulary) and the new state."""
    hidden, state = model(tokens, states[0] if len(states) == 1 else states)
    return (model.output(hidden), *((state,) if isinstance(state, Tensor) else state))


def dropped_weights(reader: SequenceLayer, probability: float) -> dict[str, Tensor]:
    """The recurrent weights after dropout, by their names in the layer."""
    named: Any = reader.named_parameters()
    return {name: dropout(weight, probability) for name, weight in named if name.startswith("rnn.weight_hh")}


def drop_words(x: Tensor, tokens: Tensor, vocabulary: int, probability: float) -> Tensor:
    """Set the rows of `x` (steps, batch, features) that belong to dropped words to 0, and scale the others."""
    if not probability:
        return x
    # the same as dropping rows of the embedding matrix, without a copy of it
    return x * dropout(x.new_ones(vocabulary), probability)[tokens].unsqueeze(-1)


def drop_features(x: Tensor, probability: float) -> Tensor:
    """Variational dropout of `x` (steps, batch, features): a mask is the same at every step."""
    return x * dropout(x.new_ones(x.shape[1:]), probability) if probability else x
