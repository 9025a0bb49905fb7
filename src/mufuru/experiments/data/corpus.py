"""A text as numbers, in three parts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.vocabulary import Vocabulary

PARTS = {"train": "training", "valid": "validation", "test": "test"}
"""The parts of a corpus, and how sentences call them."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of training, validation and test, each (tokens,) int64 in the order of the text."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: Vocabulary
    name: str
    """What people call the text."""

    def __post_init__(self) -> None:
        for part, word in PARTS.items():
            tokens: Tensor = getattr(self, part)
            if tokens.dim() != 1 or tokens.dtype != torch.int64:
                raise DataError(f"the {word} tokens should be one row of int64, got {tuple(tokens.shape)} "
                                f"of {tokens.dtype}")  # fmt: skip
            self.require(part, 2, "one to read and one to predict")
            if int(tokens.min()) < 0 or int(tokens.max()) >= len(self.vocabulary):
                raise DataError(f"the {word} tokens should be from 0 to {len(self.vocabulary) - 1}, "
                                f"got {int(tokens.min())} to {int(tokens.max())}")  # fmt: skip

    def require(self, part: str, tokens: int, why: str) -> None:
        """Refuse a part with fewer tokens than are needed; `why` says for what."""
        found = len(getattr(self, part))
        if found < tokens:
            raise DataError(
                f"the {PARTS[part]} part of {self.name} has {found} token{'' if found == 1 else 's'}, "
                f"expected at least {tokens}: {why}"
            )

    @property
    def fingerprint(self) -> str:
        """The sha256 of all tokens and words: the same for the same data, wherever it was read from."""
        digest = hashlib.sha256(json.dumps(self.vocabulary.to_json()).encode())
        for part in PARTS:
            tokens: Tensor = getattr(self, part)
            # as a big-endian machine would write it too
            digest.update(len(tokens).to_bytes(8, "little") + tokens.numpy().astype("<i8").tobytes())
        return digest.hexdigest()
