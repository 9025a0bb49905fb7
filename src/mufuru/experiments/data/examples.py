"""Labelled sequences to train a classifier on, and how they are divided into parts."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from mufuru.experiments.data import PARTS, DataError
from mufuru.experiments.data.layout import Layout
from mufuru.experiments.data.text import check_apart
from mufuru.experiments.draws import permutation

Kind = Literal["text", "numeric"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences of one kind, and the id of each one's label, or its share of each label."""

    targets: Tensor
    """(examples,): int64; or shares, (examples, labels) float32, each row with a sum of 1."""
    sequences: list[Any]
    """The words of each text, list[str], or the numbers of each series, (steps, channels) float32."""

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Tensor) -> "Examples":
        return Examples(self.targets[rows], [self.sequences[row] for row in rows.tolist()])


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled sequences in three parts; target k stands for `labels[k]`."""

    kind: Kind
    labels: tuple[str, ...]
    train: Examples
    valid: Examples
    test: Examples
    description: str
    """The data in a sentence, guesses included."""
    layout: Layout | None = None
    """How its file was read; None for data that is in no file of the user's."""
    doubts: tuple[str, ...] = ()
    """Reasons for which a new run should not be trained on it, each with what to do."""

    def __post_init__(self) -> None:
        for part, word in PARTS.items():
            if not len(getattr(self, part)):
                raise DataError(f"the {word} part has no examples: {self.description}")

    @property
    def channels(self) -> int:
        """Numbers in a step; 0 for text."""
        return int(self.train.sequences[0].size(1)) if self.kind == "numeric" else 0

    @property
    def fingerprint(self) -> str:
        """The sha256 of all sequences and labels: the same for the same data, wherever it was read from."""
        digest = hashlib.sha256(json.dumps([self.kind, self.labels]).encode())
        for part in PARTS:
            examples: Examples = getattr(self, part)
            texts, series = (examples.sequences, []) if self.kind == "text" else ([], examples.sequences)
            lengths = list(map(len, examples.sequences))
            digest.update(json.dumps([texts, lengths, examples.targets.tolist()]).encode())
            for values in series:
                # as a big-endian machine would write it too
                digest.update(values.numpy().astype("<f4").tobytes())
        return digest.hexdigest()


class Parts(TypedDict, total=False):
    """Files of validation and test, or the fractions held out of training and their seed."""

    valid: str | Path | None
    test: str | Path | None
    held_out: tuple[float, float]
    seed: int


def files_of(path: str | Path, parts: Parts) -> dict[str, Path]:
    """Return the file of each part that has one; no file can be in two."""
    given = path, parts.get("valid"), parts.get("test")
    files = {part: Path(file) for part, file in zip(PARTS, given, strict=True) if file}
    check_apart({part: [file] for part, file in files.items()})
    return files


def missing_parts(there: Collection[str], parts: Parts) -> tuple[dict[str, float], int, str]:
    """Return the fractions of the parts that have no file, held out of training, the seed, and words for it."""
    held_out, seed = parts.get("held_out", (0.1, 0.1)), parts.get("seed", 0)
    shares = {part: share for part, share in zip(("valid", "test"), held_out, strict=True) if part not in there}
    words = " and ".join(PARTS[part] for part in shares)
    return shares, seed, f"; {words} held out of training with seed {seed}" if shares else ""


def counted(parts: Mapping[str, Sized]) -> str:
    """Write the number of examples of each part."""
    return ", ".join(f"{len(parts[part]):,} {word}" for part, word in PARTS.items())


def stratified(targets: Tensor, held_out: Sequence[float], seed: int) -> list[Tensor]:
    """Return the rows of training, then those of each held-out part, all in their first order.

    Each class gives a part its fraction, rounded up or down such that the part as a whole comes as near to its fraction
    as it can; one example of each class at least stays in training. Which ones is drawn from the seed, the same on
    every platform.
    """
    rows = [torch.nonzero(targets == target).flatten() for target in range(int(targets.max()) + 1)]
    shuffled = [part[permutation(len(part), "split", seed, target)] for target, part in enumerate(rows)]
    # all but one of each class may be held out
    free = [max(len(part) - 1, 0) for part in rows]
    parts = []
    for fraction in held_out:
        shares = _shares([len(part) for part in rows], free, fraction)
        parts.append([part[:share] for part, share in zip(shuffled, shares, strict=True)])
        shuffled = [part[share:] for part, share in zip(shuffled, shares, strict=True)]
        free = [left - share for left, share in zip(free, shares, strict=True)]
        if not sum(shares):
            raise DataError(f"{len(targets)} examples are too few to hold out {fraction:g} of them: give more, hold "
                            "out more, or give a file for each part")  # fmt: skip
    return [torch.cat(part).sort().values for part in (shuffled, *parts)]


def _shares(sizes: Sequence[int], free: Sequence[int], fraction: float) -> list[int]:
    """Return the number held out of each class: its fraction rounded down, plus one for the largest remainders."""
    shares = [min(int(size * fraction), left) for size, left in zip(sizes, free, strict=True)]
    remainders = [size * fraction - share for size, share in zip(sizes, shares, strict=True)]
    missing = max(round(sum(sizes) * fraction) - sum(shares), 0)
    # smaller remainders are errors of rounding
    able = [target for target, rest in enumerate(remainders) if rest > 1e-9 and shares[target] < free[target]]
    for target in sorted(able, key=lambda target: -remainders[target])[:missing]:
        shares[target] += 1
    return shares
