"""The model and its batches: words embedded or numbers as they are, a recurrent layer, a linear classifier.

Sequences are encoded once, then taken by index, those of similar length together. They are packed, so that no step is
spent on padding and no result can depend on it; yet a batch takes as many steps as its longest sequence has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.data.text import tokeniser
from mufuru.experiments.data.vocabulary import UNKNOWN
from mufuru.experiments.draws import permutation
from mufuru.experiments.tasks.cells import SequenceLayer, State, per_step
from mufuru.experiments.tasks.classify.config import ClassifyConfig, PoolingName
from mufuru.experiments.tasks.models import CFile, Metadata, SequenceModel, StepState, Tensors, layer_states
from mufuru.experiments.tasks.words import Meaning, class_logits, embedding

LOWEST = torch.finfo(torch.float32).min
"""Below all outputs and scores, and a number that JSON and C can write."""


class LabelledModel(SequenceModel):
    """A model with one vector per sequence, pooled from the outputs of a recurrent layer, and a linear layer above it
    with `outputs` features: shared by the tasks classify, regress and tag."""

    kind: ClassVar[str]
    """Name of the program that answers raw data."""
    meaning: Meaning

    def __init__(self, config: Any, meaning: Meaning, fingerprint: str, outputs: int) -> None:
        super().__init__()
        self.config, self.meaning = config, meaning
        self.carried = Metadata(meaning.to_json(), fingerprint)
        words = meaning.vocabulary
        size = config.embedding_size if words else meaning.channels
        self.embedding: nn.Module = embedding(len(words), config) if words else Standardise(size)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.reader = SequenceLayer(config.cell, size)
        self.pooling = Pooling(config.pooling, self.reader.output_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(self.reader.output_size, outputs)

    def forward(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return (batch, outputs) of sequences packed in their own order, the longest first, or padded."""
        return self.logits(self.pooled(inputs, lengths))

    def pooled(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return one vector per sequence."""
        outputs, state = self.outputs(inputs, lengths)
        pooled: Tensor = self.pooling(outputs, self.reader.last(state), lengths)
        return pooled

    def outputs(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> tuple[Any, State]:
        """Return outputs and final state of the recurrent layer."""
        x = per_step(lambda steps: self.embedding_dropout(self.embedding(steps)), inputs)
        outputs: tuple[Any, State] = self.reader(x, None, lengths)
        return outputs

    def logits(self, pooled: Tensor) -> Tensor:
        """Return the model's outputs from one vector per sequence."""
        logits: Tensor = self.output(self.output_dropout(pooled))
        return logits

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        if self.meaning.vocabulary is None:
            return torch.randn(steps, batch, self.meaning.channels, generator=generator)
        return torch.randint(len(self.meaning.vocabulary), (steps, batch), generator=generator)

    def raw(self) -> dict[str, Any]:
        """Return the meaning of the model's numbers, and the way to cut a text."""
        config, cut = self.config, None
        if self.meaning.vocabulary is not None:
            cut = {**tokeniser(config.data.cut), "lowercase": config.lowercase}
        return {"kind": self.kind, **self.meaning.to_json(), "tokeniser": cut, "max_length": config.max_length}

    def step_states(self) -> tuple[StepState, ...] | None:
        """Return the states of layer and pooling; None for a model that reads in both directions."""
        if self.config.cell.bidirectional:
            return None
        return layer_states(self.config.cell) + self.pooling.states(self.reader.output_size)

    def one_step(self, input: Tensor, *states: Tensor) -> Tensors:
        """Read inputs (batch,) or (batch, channels); the states of the layer come before those of the pooling."""
        layers = len(layer_states(self.config.cell))
        hidden, pooled = states[:layers], states[layers:]
        outputs, state = self.reader(self.embedding(input).unsqueeze(0), hidden[0] if layers == 1 else hidden)
        vector, pooled = self.pooling.step(outputs.squeeze(0), pooled)
        return (self.logits(vector), *((state,) if isinstance(state, Tensor) else state), *pooled)


class Classifier(LabelledModel):
    """Classifier of sequences: two classes have one logit, the second's, as in the paper; more have one each."""

    settings, metadata, kind = ClassifyConfig, Meaning, "classifier"
    temperature: Tensor

    def __init__(self, config: ClassifyConfig, meaning: Meaning, fingerprint: str = "") -> None:
        classes = len(meaning.labels)
        super().__init__(config, meaning, fingerprint, 1 if classes == 2 else classes)
        if config.calibrate:
            self.register_buffer("temperature", torch.ones(()))

    def logits(self, pooled: Tensor) -> Tensor:
        """Return (batch, classes) logits from one vector per sequence."""
        logits = class_logits(super().logits(pooled))
        return logits if self.training or not self.config.calibrate else logits / self.temperature

    def c_file(self) -> CFile | None:
        return CFile(self.meaning.labels, self.meaning.vocabulary, self.config.data.cut)


class Standardise(nn.Module):
    """Standardisation of each channel by its mean and deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def measure(self, values: Tensor) -> None:
        """Measure mean and deviation of all steps, (steps, channels); a channel that never changes becomes 0."""
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
        """Return (batch, features) of packed outputs, or of padded ones, (steps, batch, features), and lengths."""
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
        """Pool padded outputs, which are zero past the end of a sequence."""
        beyond = (torch.arange(outputs.size(0)).unsqueeze(1) >= lengths).unsqueeze(-1)
        if self.name == "max":
            return outputs.masked_fill(beyond, -torch.inf).amax(0)
        if self.query is None:
            return outputs.sum(0) / lengths.unsqueeze(-1)
        scores = (outputs @ self.query).unsqueeze(-1).masked_fill(beyond, -torch.inf)
        return (scores.softmax(0) * outputs).sum(0)

    def states(self, features: int) -> tuple[StepState, ...]:
        """Return what `step` carries."""
        vector, number = (None, features), (None, 1)
        return {
            "last": (),
            "max": (StepState("best", vector, LOWEST),),
            "mean": (StepState("total", vector), StepState("count", number)),
            "attention": (StepState("top", number, LOWEST), StepState("weight", number), StepState("total", vector)),
        }[self.name]

    def step(self, output: Tensor, states: Tensors) -> tuple[Tensor, Tensors]:
        """Return the vector of all outputs so far, (batch, features), and the new states."""
        if self.name == "last":
            return output, ()
        if self.name == "max":
            best = torch.maximum(states[0], output)
            return best, (best,)
        if self.query is None:
            total, count = states[0] + output, states[1] + 1
            return total / count, (total, count)
        # the largest score so far is subtracted, so that no exponential overflows
        top, weight, total = states
        score = (output @ self.query).unsqueeze(-1)
        highest = torch.maximum(top, score)
        shrink, new = (top - highest).exp(), (score - highest).exp()
        weight, total = shrink * weight + new, shrink * total + new * output
        return total / weight, (highest, weight, total)


def owner(batch_sizes: Tensor) -> Tensor:
    """Return (rows,): the sequence that each packed row belongs to."""
    present = torch.arange(int(batch_sizes[0])) < batch_sizes.unsqueeze(1)
    return present.nonzero()[:, 1]


def attention(scores: Tensor, owners: Tensor, count: int) -> Tensor:
    """Return (rows,): the softmax of the scores within each sequence."""
    # the largest is subtracted as a constant, so that no exponential overflows
    largest = _max(scores.detach().unsqueeze(1), owners, count).squeeze(1)
    weights = (scores - largest[owners]).exp()
    return weights / _sum(weights.unsqueeze(1), owners, count).squeeze(1)[owners]


def _sum(rows: Tensor, owners: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, rows.size(1)).index_add(0, owners, rows)


def _max(rows: Tensor, owners: Tensor, count: int) -> Tensor:
    lowest = rows.new_full((count, rows.size(1)), -torch.inf)
    return lowest.scatter_reduce(0, owners.unsqueeze(1).expand_as(rows), rows, "amax", include_self=False)


POOL = 50
"""Batches' worth of shuffled sequences that are sorted by length: fewer mix lengths more, more save more steps."""


class Batch(NamedTuple):
    """Some sequences, the longest first."""

    inputs: PackedSequence
    """Ids of words, or (steps, channels) of numbers."""
    targets: Tensor
    """(batch,): the ids of the labels; or (batch, labels), their shares."""
    which: Tensor
    """(batch,): the indices of the sequences in the data."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Sequences, one after the other."""

    steps: Tensor
    """(steps of all sequences,) of words or (steps of all sequences, channels) of numbers."""
    lengths: Tensor
    """(sequences,): each at least 1."""
    targets: Tensor
    """(sequences,): the ids of the labels; or (sequences, labels), their shares."""

    @cached_property
    def starts(self) -> Tensor:
        """(sequences,): the first step of each."""
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, which: Tensor) -> Batch:
        """Return the sequences of these indices. The order inside a batch does not matter, so packing chooses it."""
        which = which[self.lengths[which].argsort(descending=True, stable=True)]
        lengths = self.lengths[which]
        step = torch.arange(int(lengths[0])).unsqueeze(1)
        present = step < lengths
        places = (self.starts[which] + step)[present]
        return Batch(PackedSequence(self.steps[places], present.sum(1)), self.targets[which], which)


def shuffled(lengths: Tensor, batch_size: int, *name: str | int, pool: int = POOL) -> list[Tensor]:
    """Return groups of similar length in random order, drawn by a name such as ("classify", seed, epoch).

    They are cut from pools of shuffled sequences, each sorted by length. All groups are full but one, of the last pool.
    With a pool of one batch lengths do not matter.
    """
    order = permutation(len(lengths), *name, "sequences")
    pools = (some[lengths[some].argsort(stable=True)] for some in order.split(pool * batch_size))
    groups = [group for some in pools for group in some.split(batch_size)]
    return [groups[place] for place in permutation(len(groups), *name, "batches").tolist()]


def encode(sequences: Sequence[Any], targets: Tensor, meaning: Meaning, config: Any) -> Encoded:
    """Encode texts as the ids of their words, one without words as an unknown word; numbers stay as they are."""
    cut = [sequence[: config.max_length] for sequence in sequences]
    if meaning.vocabulary is None:
        steps = torch.cat(cut)
    else:
        cut = [text or [UNKNOWN] for text in cut]
        steps = meaning.vocabulary.encode(config.forms(chain.from_iterable(cut), meaning.vocabulary))
    return Encoded(steps, torch.tensor(list(map(len, cut)), dtype=torch.int64), targets)
