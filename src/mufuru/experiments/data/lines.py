"""Read a UTF-8 text file line by line, or say exactly what is wrong with it."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mufuru.experiments.data.errors import DataError

BOM = codecs.BOM_UTF8


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file, each with its end as a newline; the last may have none. A byte order mark is left out."""
    try:
        with open(path, "rb") as file:
            yield from decoded(file, path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check its name and folder") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: expected a text file, such as one of {path}/*.txt") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): expected a text file") from None


def read_input(file: Path | None) -> tuple[Iterator[str], Path]:
    """The lines of a file or, without one, of standard input, and what errors call it."""
    if file is not None:
        return read_lines(file), file
    place = Path("standard input")
    return decoded(sys.stdin.buffer, place), place


def decoded(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """The lines of a file that is open already, or of one inside of an archive; errors call it by the path."""
    offset = 0
    for number, line in enumerate(lines, 1):
        start = len(BOM) if number == 1 and line.startswith(BOM) else 0
        if (place := line.find(b"\0")) >= 0 and not _utf16(line, number):
            raise _binary(path, number, offset + place)
        try:
            text = line[start:].decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, offset + start + error.start, line, start + error.start) from None
        offset += len(line)
        if "\r" in text:
            # str.splitlines would also cut at form feeds and the like, which end no line of a file
            yield from re.findall(r"[^\n]*\n|[^\n]+", text.replace("\r\n", "\n").replace("\r", "\n"))
        elif text:
            yield text


def _utf16(line: bytes, number: int) -> bool:
    return number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _not_utf8(path: Path, number: int, offset: int, line: bytes, place: int) -> DataError:
    """Name the place, and the encoding that the file seems to have."""
    encoding, seems = ("UTF-16", "begins like") if _utf16(line, number) else ("ISO-8859-1", "may be")
    return DataError(
        f"{path}, line {number}: expected UTF-8, got the byte 0x{line[place]:02x} at offset {offset}. The file {seems} "
        f"{encoding}: if it is, convert it with `iconv -f {encoding} -t UTF-8`"
    )


def _binary(path: Path, number: int, offset: int) -> DataError:
    return DataError(
        f"{path}, line {number}: expected text, got a NUL byte at offset {offset}. The file is binary, or text in "
        "another encoding such as UTF-16: convert it to UTF-8, or give another file"
    )
