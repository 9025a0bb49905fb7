"""A text as token ids, in three parts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.vocabulary import Vocabulary

PARTS = {"train": "training", "valid": "validation", "test": "test"}
"""The parts of a data set, and how sentences call them."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of training, validation and test, each (tokens,) int64 in the order of the text."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: Vocabulary
    name: str
    """The text's name for people."""

    def __post_init__(self) -> None:
        for part in PARTS:
            self.require(part, 2, "one to read and one to predict")

    def require(self, part: str, tokens: int, why: str) -> None:
        """Refuse a part with fewer tokens than are needed; `why` says for what."""
        count = len(getattr(self, part))
        if count < tokens:
            raise DataError(
                f"the {PARTS[part]} part of {self.name} has {count} token{'' if count == 1 else 's'}, "
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


def check_apart(files: Mapping[str, Sequence[Path]]) -> None:
    """Refuse a file that is in two parts: a model cannot be measured on what it was trained on."""
    seen: dict[str, str] = {}
    for part, paths in files.items():
        for path in paths:
            before = seen.setdefault(os.path.realpath(path), part)
            if before != part:
                raise DataError(
                    f"{path} is given for {PARTS[before]} and for {PARTS[part]}: a file can be in one part only"
                )
