"""Vectors for words, from text files as GloVe, word2vec and fastText write them: a word and its numbers in each line.

Only the words that are asked for are kept, and only their numbers are read; of all other lines it is looked at whether
they have as many as they should. So a file of 400,000 words takes a second or two.

How many numbers a line has follows from the file's first lines. A first line of two whole numbers, as word2vec has it
("400000 100"), is a header, and the file has to hold what it says. A word may hold blanks, as a few of GloVe's do: the
numbers are the last fields of its line. Of a word that comes twice the first line counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data import zips
from mufuru.experiments.data.errors import DataError

SAMPLE = 100
"""First lines of a file, from which it is seen how many numbers a line has."""
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of those words that a file has."""

    found: tuple[str, ...]
    """In the order in which they were asked for."""
    matrix: Tensor
    """(words, dimension): float32."""

    @property
    def dimension(self) -> int:
        return self.matrix.size(1)


def read(path: Path, words: Iterable[str], *, member: str | None = None) -> Vectors:
    """The vectors of some words. In a zip archive the file is `member`, or the only one that there is."""
    if path.suffix != ".zip":
        return _read(_blocks(path), path, words)
    there = zips.names(path)
    if member is None and len(there) == 1:
        member = there[0]
    if member is None or member not in there:
        problem = "holds several files, expected one" if member is None else f"has no {member}"
        raise DataError(f"{path} {problem}: there are {', '.join(there) or 'none'}. Unpack it, and give one of them")
    return _read(zips.blocks(path, member), path / member, words)


def _read(blocks: Iterator[bytes], path: Path, words: Iterable[str]) -> Vectors:
    wanted = {word.encode("utf-8", "surrogatepass"): word for word in words}
    lines = _lines(blocks)
    sample = list(islice(lines, SAMPLE))
    if not sample:
        raise DataError(f"{path} is empty: expected a word and its numbers in each line")
    promised = _header(sample)
    body = sample if promised is None else sample[1:]
    table = _Table(path, first=1 if promised is None else 2, dimension=_usual(body))
    rows = table.rows(chain(body, lines), wanted)
    if promised is not None and promised != table.count:
        raise DataError(f"{path} has {table.count:,} words, and its first line says {promised:,}: it is not whole")
    found = [word for word in wanted if word in rows]
    matrix = np.stack([rows[word] for word in found]) if found else np.empty((0, table.dimension), np.float32)
    return Vectors(tuple(wanted[word] for word in found), torch.from_numpy(matrix))


class _Table:
    """Lines that should all have the same number of values."""

    def __init__(self, path: Path, first: int, dimension: int) -> None:
        self.path, self.first, self.dimension = path, first, dimension
        self.count = 0

    def rows(self, lines: Iterable[bytes], wanted: Collection[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        """The numbers of the wanted words; every line is counted."""
        rows: dict[bytes, npt.NDArray[np.float32]] = {}
        blanks = self.dimension
        number = self.first - 1
        for number, line in enumerate(lines, self.first):
            # most lines get no further than the test in the middle
            word = line[: line.find(b" ")] if line.count(b" ") == blanks > 0 else self._word(line, number)
            if word in wanted and word not in rows:
                rows[word] = self._numbers(line, number)
            elif not word:
                raise self._error(number, f"a blank in front of {_shown(line)}")
        self.count = number - self.first + 1
        return rows

    def _word(self, line: bytes, number: int) -> bytes:
        """A word with blanks in it; a line that has too few or too many numbers is refused."""
        values = _values(line)
        before = line.split(b" ")[: -self.dimension] if self.dimension else [b""]
        # numbers before the numbers are too many of them, or another line without an end between the two
        numbers = sum(map(_is_number, before[1:]))
        if values < self.dimension or b"" in before or 2 * numbers >= len(before[1:]):
            raise self._error(number, f"{values} in {_shown(line)}")
        return b" ".join(before)

    def _numbers(self, line: bytes, number: int) -> npt.NDArray[np.float32]:
        fields = line.rsplit(b" ", self.dimension)[1:]
        try:
            values = list(map(float, fields))
        except ValueError:
            values = [np.nan]
        # NaN is not below anything
        if not all(abs(value) <= LARGEST for value in values):
            wrong = next(field for field in fields if not _is_number(field) or not abs(float(field)) <= LARGEST)
            raise self._error(number, f"{wrong.decode(errors='replace')!r} among them in {_shown(line)}")
        return np.array(values, np.float32)

    def _error(self, number: int, got: str) -> DataError:
        wanted = f"{self.dimension} numbers" if self.dimension else "its numbers"
        return DataError(f"{self.path}, line {number}: expected a word and {wanted}, with single blanks between them, "
                         f"got {got}")  # fmt: skip


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while block := file.read(zips.BLOCK):
                yield block
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check its name and folder") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): expected a file of vectors") from None


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Without their ends; word2vec has a blank there too."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.rstrip(b" \r")
    if rest:
        yield rest.rstrip(b" \r")


def _header(sample: Sequence[bytes]) -> int | None:
    """How many words the first line says there are; None if it is a line as the others."""
    fields = sample[0].split(b" ")
    if len(sample) == 1 or len(fields) != 2 or not all(map(bytes.isdigit, fields)):
        return None
    return int(fields[0]) if int(fields[1]) == _usual(sample[1:]) else None


def _usual(lines: Sequence[bytes]) -> int:
    """How many numbers most lines have; of two answers that are as frequent, the one that comes first."""
    return Counter(map(_values, lines)).most_common(1)[0][0]


def _values(line: bytes) -> int:
    """How many numbers a line ends with; its first field is a part of the word, even if it is one."""
    fields = line.split(b" ")[1:]
    return next((place for place, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(line: bytes) -> str:
    """The beginning of a line."""
    text = line[:40].decode(errors="replace")
    return repr(text if len(line) <= 40 else f"{text}…") if line else "an empty line"
