"""Models of tasks as plain functions of tensors, for files that other programs run: padded inputs, open batch and time.

A language model takes and gives its state, so that a text can be read in pieces. The others take lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import mufuru
from mufuru.experiments.engine import RunError
from mufuru.experiments.tasks.cells import SequenceLayer, State
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.classify.pooling import Pooling
from mufuru.experiments.tasks.lm.model import LanguageModel
from mufuru.experiments.tasks.logic.model import FormulaReader
from mufuru.experiments.tasks.trees.model import TreeClassifier

Tensors = tuple[Tensor, ...]


class Portable(NamedTuple):
    """A module whose arguments and results are tensors, and their names."""

    module: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def open_sizes(self) -> tuple[dict[int, Any], ...]:
        """Which dimensions of each input are open: batch and time, and not the number of layers."""
        places = {"lengths": (0,), "h": (1,), "k": (1,)}
        return tuple(dict.fromkeys(places.get(name, (0, 1)), Dim.AUTO) for name in self.inputs)


class PortableLM(nn.Module):
    """tokens (steps, batch) and a state to logits of the next tokens (steps, batch, vocabulary) and the new state."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.embedding, self.rnn, self.output = model.embedding, exportable(model.reader), model.output

    def forward(self, tokens: Tensor, h: Tensor, k: Tensor | None = None) -> Tensors:
        hidden, state = self.rnn(self.embedding(tokens), h if k is None else (h, k))
        logits: Tensor = self.output(hidden)
        return (logits, state) if isinstance(state, Tensor) else (logits, *state)


class PortableClassifier(nn.Module):
    """Padded sequences (steps, batch) of words or (steps, batch, channels), and lengths (batch,), to logits."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.embedding, self.rnn, self.output = model.embedding, exportable(model.reader), model.output
        self.pooling = PaddedPooling(model.pooling)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        outputs, state = self.rnn(self.embedding(inputs), None, lengths)
        logits: Tensor = self.output(self.pooling(outputs, last(self.rnn, state), lengths))
        return logits if logits.size(1) > 1 else torch.cat((torch.zeros_like(logits), logits), 1)


class PortableFormulae(nn.Module):
    """tokens (steps, batch) and lengths (batch,) to the logits of being true (batch,)."""

    one_hot: Tensor

    def __init__(self, model: FormulaReader) -> None:
        super().__init__()
        self.rnn, self.output = exportable(model.reader), model.output
        self.register_buffer("one_hot", model.one_hot)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        _, state = self.rnn(self.one_hot[tokens], None, lengths)
        logits: Tensor = self.output(last(self.rnn, state)).squeeze(-1)
        return logits


class PaddedPooling(nn.Module):
    """`Pooling` of padded outputs, (steps, batch, features), which are zero past the end of a sequence."""

    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.name, self.query = pooling.name, pooling.query

    def forward(self, outputs: Tensor, last: Tensor, lengths: Tensor) -> Tensor:
        if self.name == "last":
            return last
        beyond = (torch.arange(outputs.size(0)).unsqueeze(1) >= lengths).unsqueeze(-1)
        if self.name == "max":
            return outputs.masked_fill(beyond, -torch.inf).amax(0)
        if self.query is None:
            return outputs.sum(0) / lengths.unsqueeze(-1)
        scores = (outputs @ self.query).unsqueeze(-1).masked_fill(beyond, -torch.inf)
        return (scores.softmax(0) * outputs).sum(0)


def exportable(reader: SequenceLayer) -> mufuru.MuFuRU:
    """The recurrent layer as a MuFuRU, which can be exported with open length; a GRU is one by its weights."""
    if isinstance(reader.rnn, mufuru.MuFuRU):
        return reader.rnn
    if isinstance(reader.rnn, nn.GRU):
        return mufuru.MuFuRU.from_gru(reader.rnn)
    raise RunError(
        f"a run of the cell {reader.config.cell} cannot be written with open batch and time, only those of mufuru and "
        "gru: export it with --to safetensors"
    )


def last(rnn: mufuru.MuFuRU, state: State) -> Tensor:
    """(batch, features): what the top layer ends with, both directions side by side."""
    hidden = state if isinstance(state, Tensor) else state[0]
    return torch.cat((hidden[-2], hidden[-1]), -1) if rnn.bidirectional else hidden[-1]


def portable(model: nn.Module) -> Portable:
    """The model of a run as a module for export."""
    if isinstance(model, LanguageModel):
        states = ("h", "k")[: 1 if model.config.cell.controller_size is None else 2]
        new = tuple(f"{name}_n" for name in states)
        return Portable(PortableLM(model).eval(), ("tokens", *states), ("logits", *new))
    if isinstance(model, Classifier):
        return Portable(PortableClassifier(model).eval(), ("inputs", "lengths"), ("logits",))
    if isinstance(model, FormulaReader):
        return Portable(PortableFormulae(model).eval(), ("tokens", "lengths"), ("logits",))
    raise RunError(f"a {type(model).__name__} cannot be written as a graph: export it with --to safetensors")


def example(model: nn.Module, batch: int, steps: int, seed: int) -> Tensors:
    """Arguments of the portable module, drawn: sequences of different lengths, states inside of their range."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, LanguageModel):
        tokens = torch.randint(len(model.vocabulary), (steps, batch), generator=generator)
        cell = model.config.cell
        sizes = [cell.hidden_size, *([] if cell.controller_size is None else [cell.controller_size])]
        sizes += [cell.hidden_size] if cell.cell == "lstm" else []
        return (tokens, *(torch.rand(cell.num_layers, batch, size, generator=generator) - 0.5 for size in sizes))
    if isinstance(model, TreeClassifier):
        words = torch.randint(len(model.vocabulary), (batch * steps,), generator=generator)
        return words, left_branches(batch, steps)
    lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
    lengths[0] = steps
    if isinstance(model, Classifier) and model.meaning.vocabulary is None:
        return torch.randn(steps, batch, model.meaning.channels, generator=generator), lengths
    if isinstance(model, Classifier):
        known = len(model.meaning.vocabulary or ())
    else:
        known = int(model.get_buffer("one_hot").size(0))
    return torch.randint(known, (steps, batch), generator=generator), lengths


def left_branches(trees: int, leaves: int) -> Tensor:
    """(inner nodes, 2): the children of trees that branch to the left, each of so many leaves."""
    children: list[tuple[int, int]] = []
    for tree in range(trees):
        left = tree * leaves
        for right in range(left + 1, left + leaves):
            children.append((left, right))
            left = trees * leaves + len(children) - 1
    return torch.tensor(children, dtype=torch.int64).view(-1, 2)


@torch.no_grad()
def original(model: nn.Module, arguments: Sequence[Tensor]) -> Tensors:
    """What the model itself says to these arguments, on the way that training and evaluation take."""
    if isinstance(model, LanguageModel):
        tokens, *states = arguments
        hidden, state = model(tokens, states[0] if len(states) == 1 else tuple(states))
        return (model.output(hidden), *((state,) if isinstance(state, Tensor) else state))
    if isinstance(model, TreeClassifier):
        words, children = arguments
        return (model(words, mufuru.Levels.of(children, len(words))),)
    inputs, lengths = arguments
    packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
    order = packed.unsorted_indices
    answers: Tensor = model(PackedSequence(packed.data, packed.batch_sizes))
    return (answers if order is None else answers[order],)
