"""Texts as tokens: a user's own text for language models, and the ways to cut a text to classify.

Files are UTF-8. By words, a line is its words and `<eos>`; so an empty line is one `<eos>`. Punctuation is apart from
the words, or words are what white space separates. By characters, every character counts, the end of a line as one of
them, and there is no `<eos>`. Texts that are too large for memory, and byte-pair encoding, are in `tokenise`.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from mufuru.experiments.data import PARTS, DataError
from mufuru.experiments.data.lines import opened, read_lines
from mufuru.experiments.data.vocabulary import END, UNKNOWN, Numbering, Vocabulary

Level = Literal["words", "blanks", "characters", "bpe", "word", "char"]
"""Tokens of a language model; the last two are how runs keep blanks and characters."""
LEVELS: dict[str, tuple[str, ...]] = {"words": (END,), "word": (END,), "char": ()}
"""The special words of each level beside `<unk>`."""
IN_WORDS = ("words", "word")


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of training, validation and test, each (tokens,) in the order of the text: int64, or of a smaller type
    if they are in a token file, mapped into memory."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: Vocabulary
    name: str
    """Name of the text in messages."""
    stored_fingerprint: str = ""
    """The fingerprint, where a token file has it."""

    def __post_init__(self) -> None:
        for part in PARTS:
            self.require(part, 2, "one to read and one to predict. Give more text, or hold out another share")

    def require(self, part: str, tokens: int, why: str) -> None:
        """Refuse a part with too few tokens; `why` is the reason for the minimum."""
        count = len(getattr(self, part))
        if count < tokens:
            raise DataError(f"the {PARTS[part]} part of {self.name} has {count} token{'' if count == 1 else 's'}, "
                            f"expected at least {tokens}: {why}")  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """The sha256 of all tokens and words: the same for the same data, wherever it was read from."""
        parts: dict[str, Tensor] = {part: getattr(self, part) for part in PARTS}
        return self.stored_fingerprint or digest(
            self.vocabulary, {part: (len(tokens), [tokens.numpy()]) for part, tokens in parts.items()}
        )


def digest(vocabulary: Vocabulary, parts: Mapping[str, tuple[int, Iterable[Any]]]) -> str:
    """Return the sha256 of the words and of each part's number of tokens and tokens, given as arrays."""
    total = hashlib.sha256(json.dumps(vocabulary.to_json()).encode())
    for part in PARTS:
        count, arrays = parts[part]
        total.update(count.to_bytes(8, "little"))
        for array in arrays:
            # as a big-endian machine would write it too
            total.update(array.astype("<i8").tobytes())
    return total.hexdigest()


def check_apart(files: Mapping[str, Sequence[str | Path]]) -> None:
    """Refuse a file that is in two parts: a model cannot be measured on what it was trained on."""
    seen: dict[str, str] = {}
    for part, paths in files.items():
        for path in paths:
            before = seen.setdefault(os.path.realpath(path), part)
            if before != part:
                raise DataError(f"{path} is given for {PARTS[before]} and for {PARTS[part]}: a file can be in one part "
                                "only")  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A text and the way to tokenise it."""

    files: Sequence[str | Path]
    level: Level = "word"
    vocabulary_size: int | None = None
    """Keep the most frequent words, `<unk>` and `<eos>` included."""
    min_count: int = 1
    """Keep words that occur that often. If neither leaves out a word, none of training is `<unk>`, so a model cannot
    learn where to expect it."""
    valid_files: Sequence[str | Path] = ()
    """Files of validation; without any it is held out. A word that the vocabulary lacks is `<unk>`."""
    test_files: Sequence[str | Path] = ()
    held_out: tuple[float, float] = (0.1, 0.1)
    """Fractions that are cut off the text's end, validation before test."""

    @property
    def parts(self) -> dict[str, Sequence[str | Path]]:
        return dict(zip(PARTS, (self.files, self.valid_files, self.test_files), strict=True))

    @property
    def held_out_shares(self) -> tuple[float, float]:
        """The fractions of validation and test, 0 for one with files of its own."""
        valid, test = self.held_out
        return 0 if self.valid_files else valid, 0 if self.test_files else test

    def bytes(self) -> int:
        return sum(size for _, size, _ in self.state())

    def state(self) -> list[tuple[str, int, int]]:
        """Return path, size and time of change of every file."""
        files = []
        for path in chain(*self.parts.values()):
            with opened(Path(path), "a text file"):
                there = os.stat(path)
            files.append((os.path.realpath(path), there.st_size, there.st_mtime_ns))
        return files


def load(request: Request) -> Corpus:
    """Read files, one after the other, as one text, with the vocabulary of its training part."""
    check_apart(request.parts)
    numbering = Numbering()
    level = request.level
    text, valid, test = (
        numbering.read(chain.from_iterable(tokens_of(read_lines(path), level, path) for path in map(Path, files)))
        for files in request.parts.values()
    )
    valid_share, test_share = request.held_out_shares
    test_start = len(text) - int(len(text) * test_share)
    valid_start = test_start - int(len(text) * valid_share)
    train, tail, end = np.split(text, [valid_start, test_start])
    valid, test = valid if request.valid_files else tail, test if request.test_files else end
    sizes = request.vocabulary_size, request.min_count
    vocabulary = Vocabulary.from_counts(numbering.counts(train), *sizes, LEVELS[level])
    train_ids, valid_ids, test_ids = (numbering.encode(part, vocabulary) for part in (train, valid, test))
    return Corpus(train_ids, valid_ids, test_ids, vocabulary, name_of(request.files))


def name_of(files: Sequence[str | Path]) -> str:
    """Return the name of a text in messages: its files, without folders, which are private."""
    names = [Path(path).name for path in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def tokens_of(lines: Iterator[str], level: Level, path: Path) -> Iterator[str]:
    """Yield the words or characters of lines; a text without any is refused, with the path in the error."""
    return cut(with_text(lines, level, path), level)


def with_text(lines: Iterator[str], level: Level, path: Path) -> Iterator[str]:
    """Return the lines of a text; one without any token is refused, with the path in the error."""
    # by words, lines of white space alone are an empty text: there would be nothing but <eos>
    empty: list[str] = []
    for line in lines:
        if level not in IN_WORDS or not line.isspace():
            return chain(empty, [line], lines)
        empty.append(line)
    what = "is empty: expected text" if level not in IN_WORDS or not empty else "has no words: expected text"
    raise DataError(f"{path} {what}. Leave it out, or give another file")


def cut(lines: Iterable[str], level: Level) -> Iterator[str]:
    """Yield the words or characters of lines."""
    if level == "char":
        return chain.from_iterable(lines)
    return chain.from_iterable([*(line.split() if level == "word" else apart(line)), END] for line in lines)


def apart(line: str) -> list[str]:
    """Return the words of a line with punctuation apart; the special words stay whole."""
    if line.isalnum():
        return [line]
    if "<" not in line:
        return words(line)
    return [word for part in line.split() for word in ([part] if part in (UNKNOWN, END) else words(part))]


Cut = Literal["words", "blanks", "characters"]


def words(text: str) -> list[str]:
    """Cut English and its like as the treebanks and GloVe do, so that words match theirs.

    - A word is letters, digits and the marks on them; it may have hyphens, slashes and apostrophes inside, as
      `well-made`, `and/or` and `o'clock` do. `'s 'm 'd 're 've 'll` and `n't` are words too: `it 's`, `do n't`.
    - A number may have points, commas and colons inside: `3.5`, `1,000`, `10:30`.
    - Any other character is a token, or several of it in a row are one: `...`, `--`, `!!!`.

    Nothing but white space is lost; a typographic apostrophe becomes a plain one.

    >>> words("It's a well-made film... isn't it?")
    ['It', "'s", 'a', 'well-made', 'film', '...', 'is', "n't", 'it', '?']
    """
    return [match[0] for match in _pattern().finditer(text.replace("\u2019", "'"))]


CUTS: dict[Cut, Callable[[str], list[str]]] = {"words": words, "blanks": str.split, "characters": list}
"""The ways to cut a text to classify: into words; at white space only, for texts that are in tokens already; or into
characters, for languages that write no blanks."""


def tokeniser(cut: str) -> dict[str, Any]:
    """Return a way to cut a text, ready for JSON: after the replacements, all matches of a pattern of Python's `re`."""
    patterns = {"words": _pattern().pattern, "blanks": r"\S+", "characters": r"(?s:.)"}
    return {"pattern": patterns[cut], "replace": {"\u2019": "'"} if cut == "words" else {}}


@cache
def _pattern() -> re.Pattern[str]:
    marks = _marks()
    letter = rf"[\w{marks}]"
    ending = rf"(?:[sSmMdD]|[rR][eE]|[vV][eE]|[lL][lL])(?!{letter})"
    negation = rf"[nN]'[tT](?!{letter})"
    inside = rf"(?:[-/]|'(?!{ending}))"
    return re.compile(
        # the second alternative matches most words, several times as fast as those behind it
        rf"\d+(?:[.,:]\d+)+|\w++(?!['/{marks}-])|{negation}|'{ending}"
        rf"|{letter}+(?:{inside}{letter}+)*?(?={negation})|{letter}+(?:{inside}{letter}+)*|(\S)\1*"
    )


def _marks() -> str:
    """Return the characters of words beside Python's letters: vowel signs, accents on their own, and joiners."""
    marks = (chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M"))
    return "".join(marks) + "\u200c\u200d"
