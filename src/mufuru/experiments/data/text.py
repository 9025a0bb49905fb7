"""A user's own text, by words or by characters.

Files are UTF-8. By words, a line is its words, separated by any white space, and `<eos>`; so an empty line is one
`<eos>`. By characters, every character counts, the end of a line as one of them, and there is no `<eos>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from mufuru.experiments.data.corpus import PARTS, Corpus, check_apart
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.lines import read_lines
from mufuru.experiments.data.vocabulary import END, Numbering, Numbers, Vocabulary

Level = Literal["word", "char"]
LEVELS: dict[str, tuple[str, ...]] = {"word": (END,), "char": ()}
"""The special words of each level beside the unknown one."""


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
