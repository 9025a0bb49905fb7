"""Word vectors, from text files as GloVe, word2vec and fastText write them: a word and its numbers in each line.

GloVe's, made from six billion words of English or from 840 billion of the web, are in the public domain (PDDL 1.0) and
can be downloaded. Only the words that are asked for are kept, and only their numbers are read, so that a file of
400,000 words takes a second or two.

A first line of two whole numbers, the second of which is the dimension, as word2vec has it ("400000 100"), is a header,
and the file has to hold as many words as it says. A word may hold blanks, as a few of GloVe's do: the numbers are the
last fields of its line. If a word comes twice, the first line counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.download import Remote, data_folder, fetch
from mufuru.experiments.data.lines import opened, zip_names
from mufuru.experiments.settings import SettingError, choose

LARGEST = float(np.finfo(np.float32).max)
BLOCK = 1 << 22
"""Bytes that are read at a time."""


@dataclass(frozen=True)
class Source:
    """An archive with a file of vectors for each dimension."""

    archive: Remote
    dimensions: tuple[int, ...]

    def member(self, dimension: int) -> str:
        """Return the name of the file of a dimension."""
        return f"{'.'.join(self.archive.name.split('.')[:2])}.{dimension}d.txt"


SOURCES = {
    "6B": Source(
        Remote(
            "glove.6B.zip",
            "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            (
                "https://nlp.stanford.edu/data/glove.6B.zip",
                "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip",
            ),
            862_182_613,
        ),
        (50, 100, 200, 300),
    ),
    "840B": Source(
        Remote(
            "glove.840B.300d.zip",
            "sha256:c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
            ("https://nlp.stanford.edu/data/glove.840B.300d.zip",),
            2_176_768_927,
        ),
        (300,),
    ),
}
"""GloVe's vectors by the number of words they were made from."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of those words that a file has."""

    found: tuple[str, ...]
    """The words, in the order in which they were asked for."""
    matrix: Tensor
    """(words, dimension): float32."""

    @property
    def dimension(self) -> int:
        return self.matrix.size(1)


def load(
    words: Iterable[str],
    folder: Path | None = None,
    *,
    name: str = "6B",
    dimension: int = 100,
    download: bool = True,
) -> Vectors:
    """Read the vectors of some words from a file or folder, or from the data folder, to which they are downloaded.

    A folder has the file, such as `glove.6B.100d.txt`, or the archive, in itself or in its folder `glove`; the file may
    be a part of it with a longer name, such as `glove.6B.100d.short.txt`. Such a file is taken from the data folder
    too. It is not compared with a checksum, so it can be any vectors in that format that have the dimension.
    """
    source = choose("set of vectors", name, SOURCES)
    if dimension not in source.dimensions:
        there = " or ".join(map(str, source.dimensions))
        raise SettingError(f"GloVe {name} has vectors of dimension {there}, got {dimension}")
    if folder is not None:
        path = _given(Path(folder), source, dimension)
    else:
        own = data_folder() / "glove"
        path = _file(own, source.member(dimension)) or fetch(source.archive, own, download)
    # in an archive of one file it does not matter what its name is
    member = source.member(dimension) if path.suffix == ".zip" and len(source.dimensions) > 1 else None
    return read(path, words, dimension, member=member)


def _given(folder: Path, source: Source, dimension: int) -> Path:
    """Return the file or archive that a user means."""
    if folder.is_file():
        return folder
    name = source.member(dimension)
    wanted = f"expected {name} or {source.archive.name} there. Leave the folder out to have it downloaded"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such file or folder, {wanted}")
    for place in (folder, folder / "glove"):
        archive = place / source.archive.name
        if path := _file(place, name) or (archive if archive.is_file() else None):
            return path
    raise DataError(f"{folder} has no {name}: {wanted}")


def _file(place: Path, name: str) -> Path | None:
    """Return the file of that name in a folder, or a part of it with a longer name."""
    if (place / name).is_file():
        return place / name
    parts = sorted(place.glob(f"{name.removesuffix('.txt')}.*.txt"))
    if len(parts) > 1:
        raise DataError(f"{place} has {' and '.join(path.name for path in parts)}: give one of them as the file")
    return parts[0] if parts else None


def read(path: Path, words: Iterable[str], dimension: int, *, member: str | None = None) -> Vectors:
    """Read the vectors of some words. In a zip archive the file is `member`, or the only one that there is."""
    if path.suffix != ".zip":
        return _read(_lines(_blocks(path)), path, words, dimension)
    there = zip_names(path)
    if member is None and len(there) == 1:
        member = there[0]
    if member is None or member not in there:
        problem = "holds several files, expected one" if member is None else f"has no {member}"
        raise DataError(f"{path} {problem}: there are {', '.join(there) or 'none'}. Unpack it, and give one of them")
    return _read(_lines(_blocks(path, member)), path / member, words, dimension)


def _read(lines: Iterator[bytes], path: Path, words: Iterable[str], dimension: int) -> Vectors:
    wanted = {word.encode("utf-8", "surrogatepass"): word for word in words}
    sample = list(islice(lines, 2))
    if not sample:
        raise DataError(f"{path} is empty: expected a word and its numbers in each line")
    header = sample[0].split(b" ")
    promised = len(sample) == 2 and len(header) == 2 and all(map(bytes.isdigit, header)) and int(header[1]) == dimension
    table = _Table(path, 2 if promised else 1, dimension)
    rows = table.rows(chain(sample[promised:], lines), wanted)
    if promised and int(header[0]) != table.count:
        raise DataError(
            f"{path} has {table.count:,} words, and its first line says {int(header[0]):,}: it is not whole"
        )
    known = [word for word in wanted if word in rows]
    matrix = np.stack([rows[word] for word in known]) if known else np.empty((0, dimension), np.float32)
    return Vectors(tuple(wanted[word] for word in known), torch.from_numpy(matrix))


class _Table:
    """Lines that should all have the same number of values."""

    def __init__(self, path: Path, first: int, dimension: int) -> None:
        self.path, self.first, self.dimension = path, first, dimension
        self.count = 0

    def rows(self, lines: Iterable[bytes], wanted: Collection[bytes]) -> dict[bytes, npt.NDArray[np.float32]]:
        """Return the numbers of the wanted words; every line is counted."""
        rows: dict[bytes, npt.NDArray[np.float32]] = {}
        for number, line in enumerate(lines, self.first):
            # most lines get no further than the test in the middle
            word = line[: line.find(b" ")] if line.count(b" ") == self.dimension else self._word(line, number)
            if word in wanted and word not in rows:
                rows[word] = self._numbers(line, number)
            elif not word:
                raise self._error(number, f"a blank in front of {_shown(line)}")
            self.count += 1
        return rows

    def _word(self, line: bytes, number: int) -> bytes:
        """Return a word with blanks in it; a line that has too few or too many numbers is refused."""
        fields = line.split(b" ")[1:]
        values = next((place for place, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))
        before = line.split(b" ")[: -self.dimension]
        # numbers before the numbers are too many of them, or another line without an end between the two
        numbers = sum(map(_is_number, before[1:]))
        if values < self.dimension or b"" in before or 2 * numbers >= len(before[1:]):
            if number == self.first and values > 1:
                raise DataError(f"{self.path} has vectors of {values} features, expected {self.dimension}: give "
                                f"another file, or an embedding_size of {values}")  # fmt: skip
            raise self._error(number, f"{values} in {_shown(line)}")
        return b" ".join(before)

    def _numbers(self, line: bytes, number: int) -> npt.NDArray[np.float32]:
        fields = line.rsplit(b" ", self.dimension)[1:]
        for field in fields:
            # NaN is not below anything
            if not _is_number(field) or not abs(float(field)) <= LARGEST:
                raise self._error(number, f"{field.decode(errors='replace')!r} among them in {_shown(line)}")
        return np.array(list(map(float, fields)), np.float32)

    def _error(self, number: int, got: str) -> DataError:
        return DataError(f"{self.path}, line {number}: expected a word and {self.dimension} numbers, with single "
                         f"blanks between them, got {got}")  # fmt: skip


def _blocks(path: Path, member: str | None = None) -> Iterator[bytes]:
    """Yield a file, or one in an archive, in pieces; zipfile knows after the last one whether it is whole."""
    if member is None:
        with opened(path, "a file of vectors"), open(path, "rb") as file:
            yield from iter(lambda: file.read(BLOCK), b"")
    else:
        with opened(path, "a zip archive"), ZipFile(path) as archive, archive.open(member) as packed:
            yield from iter(lambda: packed.read(BLOCK), b"")


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends; word2vec has a blank there too."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.rstrip(b" \r")
    if rest:
        yield rest.rstrip(b" \r")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(line: bytes) -> str:
    """Return the beginning of a line."""
    text = line[:40].decode(errors="replace")
    return repr(text if len(line) <= 40 else f"{text}…") if line else "an empty line"
