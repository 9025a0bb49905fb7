"""Labelled sequences: what a classifier learns from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mufuru.experiments.data.corpus import PARTS
from mufuru.experiments.data.errors import DataError

Kind = Literal["text", "numeric"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences of one kind, and the number of each one's label, or how much of each label it has."""

    targets: Tensor
    """(examples,): int64; or shares, (examples, labels) float32, each row with a sum of 1."""
    tokens: list[list[str]] = field(default_factory=list)
    """The words of each text."""
    values: list[Tensor] = field(default_factory=list)
    """Or each sequence of numbers, (steps, channels) float32."""

    def __post_init__(self) -> None:
        if (self.targets.dim(), self.targets.dtype) not in ((1, torch.int64), (2, torch.float32)):
            raise DataError("targets should be one row of int64, or rows of shares in float32, got "
                            f"{tuple(self.targets.shape)} of {self.targets.dtype}")  # fmt: skip
        if self.tokens and self.values:
            raise DataError("examples should be texts or sequences of numbers, got both")
        if len(self.sequences) != len(self.targets):
            raise DataError(f"expected a target for each of {len(self.sequences)} sequences, got {len(self.targets)}")
        if not all(map(len, self.sequences)):
            raise DataError("every sequence should have at least one step, got one without any")

    @property
    def sequences(self) -> Sequence[list[str]] | Sequence[Tensor]:
        """Those of the kind that there is."""
        return self.tokens or self.values

    @property
    def lengths(self) -> list[int]:
        """Steps of each sequence."""
        return list(map(len, self.sequences))

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Tensor) -> Examples:
        """Some of the examples, in the order of the rows."""
        chosen = rows.tolist()
        return Examples(
            self.targets[rows],
            [self.tokens[row] for row in chosen] if self.tokens else [],
            [self.values[row] for row in chosen] if self.values else [],
        )


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled sequences in three parts; target k stands for `labels[k]`."""

    kind: Kind
    labels: tuple[str, ...]
    train: Examples
    valid: Examples
    test: Examples
    description: str
    """For people: what the data is, and what of it was guessed."""

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise DataError(f"expected two labels or more, each once, got {', '.join(self.labels) or 'none'}")
        for part, word in PARTS.items():
            examples: Examples = getattr(self, part)
            if not len(examples):
                raise DataError(f"the {word} part has no examples: {self.description}")
            if not (examples.tokens if self.kind == "text" else examples.values):
                raise DataError(f"the {word} part should be of kind {self.kind}, got the other")
            self._check_targets(examples.targets, part)
        self._check_channels()

    def _check_targets(self, targets: Tensor, part: str) -> None:
        if targets.is_floating_point():
            whole = torch.ones(len(targets))
            if (
                part != "train"
                or targets.size(1) != len(self.labels)
                or targets.min() < 0
                or not torch.allclose(targets.sum(1), whole)
            ):
                raise DataError(f"expected a share of each of {len(self.labels)} labels, none below 0 and 1 together, "
                                f"and that in training only, got {tuple(targets.shape)} for {PARTS[part]}")  # fmt: skip
            return
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= len(self.labels):
            raise DataError(f"targets should be from 0 to {len(self.labels) - 1}, got {low} to {high}")

    def _check_channels(self) -> None:
        shapes = {tuple(values.shape[1:]) for part in PARTS for values in getattr(self, part).values}
        if self.kind == "numeric" and (len(shapes) > 1 or len(next(iter(shapes))) != 1):
            raise DataError(
                f"sequences of numbers should be (steps, channels), with one number of channels, got {shapes}"
            )

    @property
    def channels(self) -> int:
        """Numbers in a step; 0 for text."""
        return self.train.values[0].size(1) if self.kind == "numeric" else 0

    @property
    def fingerprint(self) -> str:
        """The sha256 of all sequences and labels: the same for the same data, wherever it was read from."""
        digest = hashlib.sha256(json.dumps([self.kind, self.labels]).encode())
        for part in PARTS:
            examples: Examples = getattr(self, part)
            digest.update(json.dumps([examples.tokens, examples.lengths, examples.targets.tolist()]).encode())
            for values in examples.values:
                # as a big-endian machine would write it too
                digest.update(values.numpy().astype("<f4").tobytes())
        return digest.hexdigest()
