"""Word vectors, from text files as GloVe, word2vec and fastText write them: a word and its numbers in each line.

GloVe's, made from six billion words of English or from 840 billion of the web, are in the public domain (PDDL 1.0) and
can be downloaded. Only the requested words are kept, and only their numbers are read, so that a file of
400,000 words takes a second or two.

A first line of two whole numbers, the second of which is the dimension, as word2vec has it ("400000 100"), is a header,
and the file has to hold that many words. A word may hold blanks, as a few of GloVe's do: the numbers are the last
fields of its line. If a word comes twice, the first line counts.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.download import Remote, data_folder, fetch, first_file, own_file
from mufuru.experiments.data.lines import LARGEST, is_finite, is_number, opened, zip_names
from mufuru.experiments.settings import SettingError, choose


@dataclass(frozen=True)
class Source:
    """An archive with a file of vectors for each dimension."""

    archive: Remote
    dimensions: tuple[int, ...]

    def member(self, dimension: int) -> str:
        return f"{'.'.join(self.archive.name.split('.')[:2])}.{dimension}d.txt"


_STANFORD = "https://nlp.stanford.edu/data/"
SOURCES = {
    "6B": Source(
        Remote(
            "glove.6B.zip",
            "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            (f"{_STANFORD}glove.6B.zip", "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip"),
            862_182_613,
        ),
        (50, 100, 200, 300),
    ),
    "840B": Source(
        Remote(
            "glove.840B.300d.zip",
            "sha256:c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
            (f"{_STANFORD}glove.840B.300d.zip",),
            2_176_768_927,
        ),
        (300,),
    ),
}
"""GloVe's vectors by the number of words they were made from."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of those words that a file has."""

    words: tuple[str, ...]
    """The words, in the order of the request."""
    matrix: Tensor
    """(words, dimension): float32."""


def load(words: Iterable[str], folder: str | Path | None = None, *, name: str = "6B", dimension: int = 100) -> Vectors:
    """Read the vectors of some words from a file or folder, or from the data folder, to which they are downloaded.

    A folder has the file, such as `glove.6B.100d.txt`, or the archive, in itself or in its folder `glove`; the file may
    be a part of it with a longer name, such as `glove.6B.100d.short.txt`. Such a file is taken from the data folder
    too. It is not compared with a checksum, so it can be any vectors in that format that have the dimension.
    """
    source = choose("set of vectors", name, SOURCES)
    if dimension not in source.dimensions:
        there = " or ".join(map(str, source.dimensions))
        raise SettingError(f"GloVe {name} has vectors of dimension {there}, got {dimension}")
    member, archive = source.member(dimension), source.archive
    # a file, a part of it with a longer name
    names = [member, f"{member.removesuffix('.txt')}.*.txt"]
    if folder is None:
        own = data_folder() / "glove"
        path = first_file(own, names) or fetch(archive, own)
    elif not (path := Path(folder)).is_file():
        wanted = f"expected {member} or {archive.name} there. Leave the folder out to have it downloaded"
        path = own_file(path, ["glove"], [*names, archive.name], wanted)
    # in an archive of one file it does not matter what its name is
    alone = path.suffix != ".zip" or len(source.dimensions) == 1
    return read(path, words, dimension, member=None if alone else member)


def read(path: Path, words: Iterable[str], dimension: int, *, member: str | None = None) -> Vectors:
    """Read the vectors of some words. In a zip archive the file is `member`, or the only one that there is."""
    if path.suffix != ".zip":
        return _read(_lines(path, None), path, words, dimension)
    there = zip_names(path)
    if member is None and len(there) == 1:
        member = there[0]
    if member is None or member not in there:
        problem = "holds several files, expected one" if member is None else f"has no {member}"
        raise DataError(f"{path} {problem}: there are {', '.join(there) or 'none'}. Unpack it, and give one of them")
    return _read(_lines(path, member), path / member, words, dimension)


def _read(lines: Iterator[bytes], file: Path, words: Iterable[str], dimension: int) -> Vectors:
    sample = list(islice(lines, 2))
    if not sample:
        raise DataError(f"{file} is empty: expected a word and its numbers in each line")
    header = sample[0].split(b" ")
    promised = len(sample) == 2 and len(header) == 2 and all(map(bytes.isdigit, header)) and int(header[1]) == dimension
    wanted = {word.encode("utf-8", "surrogatepass"): word for word in words}
    rows: dict[bytes, npt.NDArray[np.float32]] = {}
    number = first = 2 if promised else 1
    for number, line in enumerate(chain(sample[promised:], lines), first):
        try:
            # most lines get no further than this
            word = line[: line.find(b" ")] if line.count(b" ") == dimension else _word(line, dimension)
            if word in wanted and word not in rows:
                rows[word] = _numbers(line, dimension)
            elif not word:
                raise ValueError("a blank in front of")
        except ValueError as got:
            if number == first and (values := _values(line)) not in (0, 1, dimension):
                raise DataError(f"{file} has vectors of {values} features, expected {dimension}: give another file, or "
                                f"an embedding_size of {values}") from None  # fmt: skip
            if number == first and line and not _values(line):
                # settings of someone else may name any file: the message quotes nothing of it
                raise DataError(f"{file} is no file of vectors: expected a word and {dimension} numbers in each line, "
                                "got no numbers in the first. Give another file as vectors") from None  # fmt: skip
            text = line[:40].decode(errors="replace") + ("…" if len(line) > 40 else "")
            raise DataError(f"{file}, line {number}: expected a word and {dimension} numbers, with single blanks "
                            f"between them, got {got} {repr(text) if text else 'an empty line'}") from None  # fmt: skip
    if promised and int(header[0]) != (count := number - first + 1):
        raise DataError(f"{file} has {count:,} words, and its first line says {int(header[0]):,}: it is incomplete")
    known = [word for word in wanted if word in rows]
    matrix = np.stack([rows[word] for word in known]) if known else np.empty((0, dimension), np.float32)
    return Vectors(tuple(wanted[word] for word in known), torch.from_numpy(matrix))


def _values(line: bytes) -> int:
    """Return the number of numbers at the end of a line."""
    fields = line.split(b" ")[:0:-1]
    return next((place for place, field in enumerate(fields) if not is_number(field)), len(fields))


def _word(line: bytes, dimension: int) -> bytes:
    """Return a word with blanks in it; a line that has too few or too many numbers is refused."""
    first, *rest = line.split(b" ")[:-dimension] or [b""]
    # numbers in front are too many of them, or another line without an end between the two
    if (values := _values(line)) < dimension or b"" in (first, *rest) or 2 * sum(map(is_number, rest)) >= len(rest):
        raise ValueError(f"{values} in")
    return b" ".join((first, *rest))


def _numbers(line: bytes, dimension: int) -> npt.NDArray[np.float32]:
    fields = line.rsplit(b" ", dimension)[1:]
    with suppress(ValueError):
        values = np.array(list(map(float, fields)))
        if (np.abs(values) <= LARGEST).all():
            return values.astype(np.float32)
    wrong = next(field for field in fields if not is_finite(field))
    raise ValueError(f"{wrong.decode(errors='replace')!r} among them in")


def _lines(path: Path, member: str | None) -> Iterator[bytes]:
    """Yield the lines of a file, or of one in an archive, without their ends; word2vec has a blank there too."""
    if member is None:
        with opened(path, "a file of vectors"), open(path, "rb") as file:
            yield from (line.rstrip(b" \r\n") for line in file)
    else:
        with opened(path, "a zip archive"), ZipFile(path) as archive, archive.open(member) as packed:
            source: Any = packed
            # without a buffer a packed file is slow line by line
            yield from (line.rstrip(b" \r\n") for line in BufferedReader(source, 1 << 20))
