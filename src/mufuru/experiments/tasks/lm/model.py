"""The model: embedding, recurrent layer, softmax over the vocabulary, and the noise of training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.func import functional_call
from torch.nn.functional import cross_entropy, dropout, linear

import mufuru
from mufuru.experiments.data.bpe import AnyVocabulary
from mufuru.experiments.data.text import tokeniser
from mufuru.experiments.data.vocabulary import END, UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import SequenceLayer, State
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.models import (
    CFile,
    Graph,
    Metadata,
    StepState,
    TaskModel,
    Tensors,
    exportable,
    layer_states,
)
from mufuru.experiments.tasks.task import Step
from mufuru.kernels import cross_entropy as native

ROWS = 256
"""Predictions whose logits are in memory at a time in evaluation; no result depends on it but by rounding."""


class LanguageModel(TaskModel):
    """Language model: embedding, recurrent layer, softmax."""

    settings, metadata, step_input = LMConfig, AnyVocabulary, "token"

    def __init__(self, config: LMConfig, vocabulary: Vocabulary, fingerprint: str = "") -> None:
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
        self.carried = Metadata(vocabulary.to_json(), fingerprint)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read tokens (steps, batch); return the layer's outputs (steps, batch, hidden) and its state."""
        x = self.embedding(tokens)
        if self.training:
            x = drop_words(x, tokens, self.embedding.num_embeddings, self.noise.embedding_dropout)
            x = drop_features(x, self.noise.input_dropout)
        if self.training and (p := self.noise.weight_dropout) and not isinstance(self.reader.rnn, mufuru.MuFuRU):
            named = self.reader.named_parameters()
            weights = {name: dropout(weight, p) for name, weight in named if name.startswith("rnn.weight_hh")}
            output, state = functional_call(self.reader, weights, (x, state))
        else:
            output, state = self.reader(x, state)
        return output, state

    def predict(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> Step:
        """Predict the targets, laid out as the tokens, each from the tokens up to it; the state is not detached."""
        if not torch.is_grad_enabled() and not self.training:
            logs, state = self.log_probabilities(tokens, targets, state)
            return Step(-logs.sum(dtype=torch.float64), targets.numel(), state)
        outputs, state = self(tokens, state)
        dropped = drop_features(outputs, self.noise.output_dropout) if self.training else outputs
        loss = loss_sum(dropped.flatten(0, 1), self.output.weight, self.output.bias, targets.flatten())
        penalty = self.noise.penalty(outputs, dropped) if self.training else None
        return Step(loss, targets.numel(), state, penalty=penalty)

    def log_probabilities(self, tokens: Tensor, targets: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Return the logarithm of each target's probability, laid out as the targets, and the state."""
        outputs, state = self(tokens, state)
        logs = log_probabilities(self.output, outputs.flatten(0, 1), targets.flatten())
        return logs.view(targets.shape), state

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Return tokens, and states within their range."""
        generator, cell = torch.Generator().manual_seed(seed), self.config.cell
        tokens = torch.randint(len(self.vocabulary), (steps, batch), generator=generator)
        states = layer_states(cell) * (2 if cell.cell == "lstm" else 1)
        sizes = [[size or batch for size in state.sizes] for state in states]
        return (tokens, *(torch.rand(size, generator=generator) - 0.5 for size in sizes))

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        return next_tokens(self, *arguments)

    def graph(self) -> Graph:
        """Return a graph that takes and gives its state, so that a text can be read in pieces."""
        states = [state.name for state in self.step_states()]
        open_sizes: tuple[dict[int, Any], ...] = ({0: Dim.AUTO, 1: Dim.AUTO}, *({1: Dim.AUTO} for _ in states))
        outputs = ("logits", *(f"{name}_n" for name in states))
        return Graph(NextTokens(exportable(self)), ("tokens", *states), outputs, open_sizes)

    def raw(self) -> dict[str, Any]:
        """Return the way to cut a text and the token before it."""
        cuts = {"words": "words", "word": "blanks", "char": "characters"}
        cut = None
        if (level := self.config.data.tokens) in cuts:
            cut = tokeniser(cuts[level])
            # special words stay whole
            cut["pattern"] = (rf"(?<!\S)(?:{UNKNOWN}|{END})(?!\S)|" if level == "words" else "") + cut["pattern"]
            cut["line_end"] = END if self.vocabulary.end is not None else None
        return {
            "kind": "language model",
            "vocabulary": self.vocabulary.to_json(),
            "tokeniser": cut,
            "first": first_token(self.vocabulary),
        }

    def step_states(self) -> tuple[StepState, ...]:
        return layer_states(self.config.cell)

    def one_step(self, token: Tensor, *states: Tensor) -> Tensors:
        """Map tokens (batch,) and a state to logits (batch, vocabulary) and a new state."""
        logits, *states_n = next_tokens(self, token.unsqueeze(0), *states)
        return (logits.squeeze(0), *states_n)

    def c_file(self) -> CFile:
        words = self.vocabulary
        return CFile(words.labels, words, self.config.data.level, first_token(words))

    @torch.no_grad()
    def by_steps(self, inputs: Tensor) -> list[Tensor]:
        outputs, _ = self(inputs)
        return list(self.output(outputs))


def first_token(vocabulary: Vocabulary) -> int:
    """Return the token before a text: the end of a line, `<eos>` or the character; where there is none, any token."""
    return vocabulary.unknown if vocabulary.line_end is None else vocabulary.line_end


class NextTokens(nn.Module):
    """A language model as a function of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, h: Tensor, k: Tensor | None = None) -> Tensors:
        return next_tokens(self.model, tokens, h, *(() if k is None else (k,)))


def next_tokens(model: Any, tokens: Tensor, *states: Tensor) -> Tensors:
    """Map tokens (steps, batch) and a state to logits of the next tokens (steps, batch, vocabulary) and a new state."""
    hidden, state = model(tokens, states[0] if len(states) == 1 else states)
    return (model.output(hidden), *((state,) if isinstance(state, Tensor) else state))


def drop_words(x: Tensor, tokens: Tensor, vocabulary: int, probability: float) -> Tensor:
    """Set the rows of `x` (steps, batch, features) that belong to dropped words to 0, and scale the others."""
    if not probability:
        return x
    # the same as dropping rows of the embedding matrix, without a copy of it
    return x * dropout(x.new_ones(vocabulary), probability)[tokens].unsqueeze(-1)


def drop_features(x: Tensor, probability: float) -> Tensor:
    """Apply variational dropout to `x` (steps, batch, features): a mask is the same at every step."""
    return x * dropout(x.new_ones(x.shape[1:]), probability) if probability else x


def loss_sum(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the losses, in nats, of predicting `targets` (n,) from `hidden` (n, features).

    With 200 units and 10,000 words the logits are fifty times as large as what they are computed from. The native
    kernel forms the gradients with the loss, so that no logits wait for the backward pass; differentiable once.
    """
    if not native.runs(hidden, weight, bias):
        return cross_entropy(linear(hidden, weight, bias), targets, reduction="sum")
    apply: Any = _LossSum.apply
    total: Tensor = apply(hidden, weight, bias, targets)
    return total


class _LossSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        losses, *gradients = native.losses(*arguments)
        ctx.save_for_backward(*gradients)
        return losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        return *(d_loss * gradient for gradient in ctx.saved_tensors), None


@torch.no_grad()
def log_probabilities(output: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, rows: int = ROWS) -> Tensor:
    """Return (n,): the logarithm of each target's probability; `output` gives the logits."""
    chosen = [hidden.new_empty(0)]
    for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
        logits = output(h)
        chosen.append(logits.gather(1, t.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(chosen)
