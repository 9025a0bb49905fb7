"""Large texts in pieces of a few megabytes: found without reading the files, each read by itself.

A piece ends where a line ends; where a line is longer than `WINDOW`, before a blank; and where there is no blank
either, between two characters.
"""

import os
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from mufuru.experiments.data import DataError, TokenError
from mufuru.experiments.data.lines import GZIP, opened, read_lines

PIECE = 8 << 20
"""Bytes of a piece; the memory that its tokens need is many times as large."""
WINDOW = 1 << 16
"""Bytes before the planned end of a piece that are searched for a place to cut."""


@dataclass(frozen=True)
class Piece:
    """A range of bytes of a file."""

    path: str
    start: int
    stop: int
    last: bool
    """Whether the file ends here."""

    def text(self) -> str:
        """Return the text, with a newline as the end of each line."""
        with opened(Path(self.path), "a text file"), open(self.path, "rb") as file:
            file.seek(self.start)
            data = file.read(self.stop - self.start)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text or len(data) < self.stop - self.start:
            # from the beginning, so that the error names the line
            for _ in read_lines(Path(self.path)):
                pass
            raise TokenError(f"{self.path} changed while it was read: nothing is kept of it. Start again")
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

    def lines(self) -> list[str]:
        """Return the lines, each with its newline."""
        *whole, end = self.text().split("\n")
        return [line + "\n" for line in whole] + ([end] if end else [])


def plan(files: Sequence[str | Path], *, in_words: bool, shares: Sequence[float] = ()) -> tuple[list[Piece], list[int]]:
    """Return the pieces of files, and where the shares of their bytes end, as numbers of pieces.

    `in_words` never cuts inside a word.
    """
    sizes = [_size(path) for path in files]
    starts = [0, *accumulate(sizes)]
    ends = [int(share * starts[-1]) for share in shares]
    pieces: list[Piece] = []
    stops: list[int] = []
    for path, start, size in zip(files, starts, sizes, strict=False):
        own = [end - start for end in ends if start < end < start + size]
        own_pieces = _pieces(Path(path), size, own, in_words)
        pieces += own_pieces
        stops += [start + piece.stop for piece in own_pieces]
    return pieces, [bisect_right(stops, end) for end in ends]


def _size(path: str | Path) -> int:
    with opened(Path(path), "a text file"), open(path, "rb") as file:
        if file.read(len(GZIP)) == GZIP:
            raise TokenError(f"{path} is packed with gzip, which a text that is kept in a token file cannot be: unpack "
                             f"it first, with `gunzip -k {path}`")  # fmt: skip
        return os.fstat(file.fileno()).st_size


def _pieces(path: Path, size: int, ends: Sequence[int], in_words: bool) -> list[Piece]:
    """Return the pieces of a file; one of them ends at, or a little before, each of `ends`."""
    pieces, wanted = [], list(ends)
    with opened(path, "a text file"), open(path, "rb") as file:
        start = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        if size <= start:
            raise DataError(f"{path} is empty: expected text. Leave it out, or give another file")
        while start < size:
            target = min([start + PIECE, size, *wanted[:1]])
            stop = size if target == size else _place(file, start, target, in_words)
            if stop > start:
                pieces.append(Piece(str(path), start, stop, stop == size))
            elif target not in wanted:
                raise TokenError(f"{path} has a word of more than {WINDOW:,} bytes at offset {start}: expected words "
                                 "with blanks between them. Use --tokenizer characters or bpe")  # fmt: skip
            wanted, start = [end for end in wanted if end > target], stop
    return pieces


def _place(file: BinaryIO, start: int, target: int, in_words: bool) -> int:
    """Return the last place up to `target` where the text can be cut; `start` if there is none."""
    first = max(start, target - WINDOW)
    file.seek(first)
    window = file.read(target - first + 1)
    inside = window[:-1]
    if (line := inside.rfind(b"\n")) >= 0:
        return first + line + 1
    if (blank := inside.rfind(b" ")) > 0 or in_words:
        return first + blank if blank > 0 else start
    place = len(inside)
    # neither inside of a character nor between the two bytes of a line's end
    while place and (window[place] & 0xC0 == 0x80 or window[place - 1 : place] == b"\r"):
        place -= 1
    return first + place
