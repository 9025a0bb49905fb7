"""The model and its batches: a recurrent layer or a transformer reads a string, its last state is judged."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from mufuru.experiments.tasks.cells import SequenceLayer, per_step
from mufuru.experiments.tasks.languages.config import LanguagesConfig, ReaderConfig

MOST_HEADS = 8
WIDER = 4
"""Size of a transformer's inner layers, in multiples of its units, unless a number of parameters is wanted."""


class Batch(NamedTuple):
    """Some strings, the longest first."""

    tokens: PackedSequence | None
    """Symbols of the strings that have any; None if none has."""
    targets: Tensor
    """(strings,): the class of each."""


class Recogniser(nn.Module):
    """Model of a language: returns (strings, outputs), the logits of all classes or, of two, of the second."""

    def __init__(self, config: LanguagesConfig, symbols: int, classes: int) -> None:
        super().__init__()
        units = config.cell.hidden_size
        outputs = 1 if classes == 2 else classes
        free = free_size(config, symbols, outputs)
        self.embedding = nn.Embedding(symbols, units if config.cell.cell == "transformer" else free)
        self.reader = reader(config, free)
        self.output = nn.Linear(units, outputs)
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.embedding, self.output):
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -config.cell.initial_scale, config.cell.initial_scale)

    def forward(self, batch: Batch) -> Tensor:
        x = None if batch.tokens is None else per_step(self.embed, batch.tokens)
        last: Tensor = self.reader(x, len(batch.targets))
        logits: Tensor = self.output(self.dropout(last))
        return logits

    def embed(self, tokens: Tensor) -> Tensor:
        # a transformer drops symbols together with their positions
        x: Tensor = self.embedding(tokens)
        return x if isinstance(self.reader, CausalTransformer) else self.dropout(x)


class StringReader(nn.Module):
    """Recurrent layers with a learned initial state, which is also the last one of the empty string."""

    def __init__(self, config: ReaderConfig, features: int, dropout: float) -> None:
        super().__init__()
        self.layer = SequenceLayer(config, features)
        # torch's layers and MuFuRU read it in every call; with one layer it has no place
        self.layer.rnn.dropout = dropout if config.num_layers > 1 else 0.0  # type: ignore[assignment]
        self.initial = nn.Parameter(torch.empty(config.num_layers, 1, config.hidden_size))
        nn.init.uniform_(self.initial, -config.initial_scale, config.initial_scale)

    def forward(self, x: PackedSequence | None, strings: int) -> Tensor:
        """Return (strings, units): the final state of the top layer."""
        if x is None:
            return self.initial[-1].expand(strings, -1)
        first = self.initial.expand(-1, int(x.batch_sizes[0]), -1).contiguous()
        state = (first, torch.zeros_like(first)) if self.layer.config.cell == "lstm" else first
        last = self.layer.last(self.layer(x, state)[1])
        return torch.cat((last, self.initial[-1].expand(strings - len(last), -1))) if strings > len(last) else last


class CausalTransformer(nn.Module):
    """Pre-norm transformer layers with sinusoidal positions and a start symbol."""

    def __init__(self, config: ReaderConfig, inner: int, dropout: float) -> None:
        super().__init__()
        units = config.hidden_size
        layer = nn.TransformerEncoderLayer(
            units, math.gcd(MOST_HEADS, units), inner, dropout, batch_first=True, norm_first=True
        )
        # nested tensors are for layers that normalise last
        self.layers = nn.TransformerEncoder(layer, config.num_layers, nn.LayerNorm(units), enable_nested_tensor=False)
        self.begin = nn.Parameter(torch.empty(units))
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.begin, -config.initial_scale, config.initial_scale)
        for name, parameter in self.layers.named_parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            elif "norm" not in name:
                nn.init.zeros_(parameter)

    def forward(self, x: PackedSequence | None, strings: int) -> Tensor:
        """Return (strings, units): the output at the last symbol."""
        rows = self.begin.expand(strings, 1, -1)
        last = torch.zeros(strings, dtype=torch.int64)
        if x is not None:
            padded, lengths = pad_packed_sequence(x, batch_first=True)
            last[: len(lengths)] = lengths
            empty = padded.new_zeros(strings - len(padded), *padded.shape[1:])
            rows = torch.cat((rows, torch.cat((padded, empty))), 1)
        steps, units = rows.shape[1:]
        rows = self.dropout(rows * math.sqrt(units) + positions(steps, units))
        mask = nn.Transformer.generate_square_subsequent_mask(steps)
        outputs: Tensor = self.layers(rows, mask, is_causal=True)
        return outputs[torch.arange(strings), last]


def positions(steps: int, units: int) -> Tensor:
    """Return (steps, units): sines and cosines of wavelengths from 2π to 20,000π, as in Vaswani et al. (2017)."""
    waves = torch.exp(torch.arange(0, units, 2) * (-math.log(10_000.0) / units))
    angles = torch.arange(steps).unsqueeze(1) * waves
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :units]


def reader(config: LanguagesConfig, size: int) -> StringReader | CausalTransformer:
    """Return the layers; `size` is that of the symbols' embedding, for a transformer that of its inner layers."""
    kind: Any = CausalTransformer if config.cell.cell == "transformer" else StringReader
    made: StringReader | CausalTransformer = kind(config.cell, size, config.dropout)
    return made


def free_size(config: LanguagesConfig, symbols: int, outputs: int) -> int:
    """Return the size of the embedding, for a transformer of its inner layers; with a number of parameters to reach,
    the closest one."""
    units, wanted = config.cell.hidden_size, config.parameters
    fixed = config.cell.cell == "transformer"
    if wanted is None:
        return WIDER * units if fixed else config.embedding_size or units
    with torch.random.fork_rng(devices=[]):
        one, two = (size_of(reader(config, size)) for size in (1, 2))
    slope = two - one
    rest = one - slope + (units + 1) * outputs + (symbols * units if fixed else 0)
    return max(1, round((wanted - rest) / (slope if fixed else slope + symbols)))


def size_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class Encoded:
    """Strings as one row of numbers, encoded once and then indexed."""

    def __init__(self, strings: Iterable[Sequence[int]], targets: Sequence[int]) -> None:
        rows = [torch.tensor(string, dtype=torch.int64) for string in strings]
        self.lengths = torch.tensor([len(row) for row in rows])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.symbols = torch.cat(rows)
        self.targets = torch.tensor(targets)

    def batch(self, rows: Tensor) -> Batch:
        """Return some strings."""
        rows = rows[self.lengths[rows].argsort(descending=True, stable=True)]
        steps = torch.arange(int(self.lengths[rows[0]])).unsqueeze(1)
        present = steps < self.lengths[rows]
        data = self.symbols[(self.starts[rows] + steps)[present]]
        tokens = PackedSequence(data, present.sum(1)) if len(data) else None
        return Batch(tokens, self.targets[rows])

    def sizes(self, tokens: int) -> list[int]:
        """Return the sizes of batches of strings in order of their length: each has at most this number of symbols,
        padding included, and at least one string."""
        sizes = [0]
        for length in self.lengths.sort().values.tolist():
            if sizes[-1] and (sizes[-1] + 1) * length > tokens:
                sizes.append(0)
            sizes[-1] += 1
        return sizes
