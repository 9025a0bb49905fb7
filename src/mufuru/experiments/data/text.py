"""A user's own text, by words or by characters.

Files are UTF-8. By words, a line is its words, separated by any white space, and `<eos>`; so an empty line is one
`<eos>`. By characters, every character counts, the end of a line as one of them, and there is no `<eos>`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from mufuru.experiments.data import PARTS, DataError
from mufuru.experiments.data.lines import read_lines
from mufuru.experiments.data.vocabulary import END, Numbering, Numbers, Vocabulary

Level = Literal["word", "char"]
LEVELS: dict[str, tuple[str, ...]] = {"word": (END,), "char": ()}
"""The special words of each level beside the unknown one."""


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


def load(
    files: Sequence[Path],
    level: Level = "word",
    *,
    vocabulary_size: int | None = None,
    min_count: int = 1,
    valid_files: Sequence[Path] = (),
    test_files: Sequence[Path] = (),
    held_out: tuple[float, float] = (0.1, 0.1),
) -> Corpus:
    """Read files, one after the other, as one text, with the vocabulary of its training part.

    Validation and test have files of their own or are held out: the fractions of `held_out` are cut off the text's
    end, validation before test. A word of theirs that the vocabulary lacks is `<unk>`. `vocabulary_size` keeps the most
    frequent words, `<unk>` and `<eos>` included, `min_count` those that occur that often; both may be given. Without
    either no word of training is `<unk>`, so a model cannot learn where to expect it.
    """
    check_apart(dict(zip(PARTS, (files, valid_files, test_files), strict=True)))
    numbering = Numbering()
    text, valid, test = (_read(numbering, part, level) for part in (files, valid_files, test_files))
    for part, paths in ((text, files), (valid, valid_files), (test, test_files)):
        if paths and len(part) < 2:
            raise DataError(f"{_names(paths)} holds one token: there is nothing to predict. Give more text")
    fractions = 0.0 if valid_files else held_out[0], 0.0 if test_files else held_out[1]
    train, tail, end = _split(text, fractions)
    valid, test = valid if valid_files else tail, test if test_files else end
    vocabulary = Vocabulary.from_counts(numbering.counts(train), vocabulary_size, min_count, LEVELS[level])
    train_ids, valid_ids, test_ids = (numbering.encode(part, vocabulary) for part in (train, valid, test))
    return Corpus(train_ids, valid_ids, test_ids, vocabulary, _names(files))


def tokens(path: Path, level: Level) -> Iterator[str]:
    """Yield the words or characters of a file; one without any is refused."""
    return tokens_of(read_lines(path), level, path)


def tokens_of(lines: Iterator[str], level: Level, path: Path) -> Iterator[str]:
    """Yield those of a text that is open already; errors call it by the path."""
    # by words, lines of white space alone are an empty text: there would be nothing but <eos>
    empty: list[str] = []
    for line in lines:
        if level == "char" or not line.isspace():
            return cut(chain(empty, [line], lines), level)
        empty.append(line)
    what = "is empty: expected text" if level == "char" or not empty else "has no words: expected text"
    raise DataError(f"{path} {what}. Leave it out, or give another file")


def cut(lines: Iterable[str], level: Level) -> Iterator[str]:
    """Yield the words or characters of lines."""
    if level == "char":
        return chain.from_iterable(lines)
    return chain.from_iterable([*line.split(), END] for line in lines)


def _read(numbering: Numbering, files: Sequence[Path], level: Level) -> Numbers:
    return numbering.read(chain.from_iterable(tokens(Path(path), level) for path in files))


def _split(text: Numbers, fractions: tuple[float, float]) -> tuple[Numbers, Numbers, Numbers]:
    """Return training, validation and test, in the order of the text."""
    valid, test = (int(len(text) * fraction) for fraction in fractions)
    for part, count, fraction in (("valid", valid, fractions[0]), ("test", test, fractions[1])):
        if fraction and count < 2:
            raise DataError(
                f"the {PARTS[part]} part would have {count} of the text's {len(text)} tokens, expected at least 2. "
                f"Give more text, hold out more than {fraction:g}, or give {PARTS[part]} files"
            )
    train, valid_part, test_part = np.split(text, [len(text) - valid - test, len(text) - test])
    return train, valid_part, test_part


def _names(files: Sequence[Path]) -> str:
    """Return the files' names without their folders, which are nobody else's business."""
    names = [Path(path).name for path in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
