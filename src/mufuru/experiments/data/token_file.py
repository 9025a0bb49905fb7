"""The tokens of a large text in one file, mapped into memory instead of read.

    4096 bytes      a line `mufuru tokens 1 SHA256`, then JSON, blanks up to the end; the sum is that of what follows it
    tokens          of all parts, 2 or 4 bytes each, little-endian
    vocabulary      JSON

Header, length and the CRC-32 of all that follows the header are checked whenever a file is opened.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import TokenError
from mufuru.experiments.data.bpe import AnyVocabulary
from mufuru.experiments.data.text import digest
from mufuru.experiments.data.vocabulary import Vocabulary

FORMAT = "mufuru tokens 1"
HEADER = 4096
BLOCK = 1 << 22
"""Bytes read at a time."""


@dataclass(frozen=True)
class TokenFile:
    """A token file that was checked."""

    path: Path
    dtype: str
    parts: dict[str, tuple[int, int]]
    """First token of each part, and the one after its last."""
    vocabulary: Vocabulary
    fingerprint: str

    def part(self, name: str) -> Tensor:
        """Return the tokens of a part, (tokens,) uint16 or int32, which the system reads when they are used."""
        start, stop = self.parts[name]
        # private: a program that writes to them changes its own copy
        tokens = np.memmap(self.path, self.dtype, "c", HEADER, (max(stop for _, stop in self.parts.values()),))
        return torch.from_numpy(tokens)[start:stop]


def type_of(vocabulary: Vocabulary) -> str:
    """Return the smallest type that holds all ids."""
    return "<u2" if len(vocabulary) <= 1 << 16 else "<i4"


def complete(path: Path, count: int, crc: int, vocabulary: Vocabulary, parts: dict[str, tuple[int, int]]) -> None:
    """Add vocabulary and header to a file of `count` tokens after an empty header."""
    dtype, words = type_of(vocabulary), json.dumps(vocabulary.to_json()).encode()
    with open(path, "r+b") as file:
        file.seek(HEADER + count * np.dtype(dtype).itemsize)
        file.write(words)
        sums = digest(vocabulary, {part: (stop - start, _ids(file, dtype, start, stop)) for part, (start, stop)
                                   in parts.items()})  # fmt: skip
        header = {"dtype": dtype, "parts": parts, "tokens": count, "vocabulary": len(words),
                  "crc32": zlib.crc32(words, crc), "fingerprint": sums}  # fmt: skip
        first = len(FORMAT) + 66
        content = json.dumps(header).encode().ljust(HEADER - first)
        file.seek(0)
        file.write(f"{FORMAT} {hashlib.sha256(content).hexdigest()}\n".encode() + content)
        file.flush()
        os.fsync(file.fileno())


def _ids(file: BinaryIO, dtype: str, start: int, stop: int) -> Iterator[Any]:
    """Yield the tokens from `start` to `stop` in blocks."""
    size = np.dtype(dtype).itemsize
    for place in range(start, stop, BLOCK):
        file.seek(HEADER + place * size)
        yield np.frombuffer(file.read(min(BLOCK, stop - place) * size), dtype)


def read(path: Path) -> TokenFile:
    """Check a token file and return it."""
    try:
        with open(path, "rb") as file:
            header = _header(file.read(HEADER), path)
            words = _checked(file, header, path)
    except OSError as error:
        raise TokenError(f"{path} cannot be read as a token file ({error.strerror}): {AGAIN}") from None
    parts = {part: (int(start), int(stop)) for part, (start, stop) in header["parts"].items()}
    return TokenFile(path, header["dtype"], parts, AnyVocabulary.from_json(json.loads(words)), header["fingerprint"])


AGAIN = "delete it and start again, and it is made anew from the text"


def _header(data: bytes, path: Path) -> dict[str, Any]:
    line, _, content = data.partition(b"\n")
    kind, _, expected = line.rpartition(b" ")
    if len(data) < HEADER or not kind.startswith(FORMAT.rpartition(" ")[0].encode()):
        raise TokenError(f"{path} is damaged: expected a token file, its first bytes are {data[:16]!r}: {AGAIN}")
    if kind != FORMAT.encode():
        raise TokenError(f"{path} is of another version of mufuru, {kind.decode(errors='replace')}, expected {FORMAT}: "
                         f"{AGAIN}")  # fmt: skip
    if hashlib.sha256(content).hexdigest().encode() != expected:
        raise TokenError(f"{path} is damaged: its header has another checksum than it says: {AGAIN}")
    header: dict[str, Any] = json.loads(content)
    return header


def _checked(file: BinaryIO, header: dict[str, Any], path: Path) -> bytes:
    """Compare length and checksum, and return the vocabulary."""
    body = header["tokens"] * np.dtype(header["dtype"]).itemsize
    expected, size = HEADER + body + header["vocabulary"], os.fstat(file.fileno()).st_size
    if size != expected:
        raise TokenError(f"{path} has {size:,} bytes, and its header says {expected:,}: {AGAIN}")
    crc = 0
    for place in range(0, body, BLOCK):
        crc = zlib.crc32(file.read(min(BLOCK, body - place)), crc)
    words = file.read()
    if zlib.crc32(words, crc) != header["crc32"]:
        raise TokenError(f"{path} is damaged: its tokens have another checksum than its header says: {AGAIN}")
    return words
