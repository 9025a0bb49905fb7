"""Read UTF-8 text line by line, also packed with gzip, single files of zip archives and numbers; errors say exactly
what is wrong."""

import codecs
import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile

from mufuru.experiments.data import DataError

T = TypeVar("T")
BOM = codecs.BOM_UTF8
GZIP = b"\x1f\x8b"
"""First bytes of a file packed with gzip."""
LARGEST = 3.4028234663852886e38
"""Largest number of float32."""


def read_lines(path: Path, once: bool = False) -> Iterator[str]:
    """Yield the lines of a file, each with its end as a newline; the last may have none. A byte order mark is cut, and
    what gzip packed is unpacked. Only with `once` may it be a pipe or a device."""
    with opened(path, "a text file"):
        if not once and path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path} is a pipe or a device: expected a file, which is read more than once. Write what "
                            "comes from it into a file first")  # fmt: skip
    with opened(path, "a text file"), open(path, "rb") as file:
        if file.peek(len(GZIP)).startswith(GZIP):
            with gzip.open(file) as unpacked:
                yield from decoded(unpacked, path)
        else:
            yield from decoded(file, path)


def ending(path: Path) -> str:
    """Return the ending of a file's name in lower case, that before .gz if it is packed."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def read_input(file: Path | None) -> tuple[Iterator[str], Path]:
    """Return the lines of a file or, without one, of standard input, and the name that errors give it."""
    if file is not None:
        return read_lines(file, once=True), file
    place = Path("standard input")
    return decoded(sys.stdin.buffer, place), place


def read_each(file: Path | None, read: Callable[[str], T]) -> Iterator[T]:
    """Yield the function's result for every line of a file or of standard input; an error names its line."""
    lines, place = read_input(file)
    for number, line in enumerate(lines, 1):
        try:
            yield read(line.removesuffix("\n"))
        except DataError as error:
            raise DataError(f"{place}, line {number}: {error}") from None


def decoded(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """Yield the lines of an open file, or of one in an archive; errors name the path."""
    offset = 0
    for number, line in enumerate(lines, 1):
        start = len(BOM) if number == 1 and line.startswith(BOM) else 0
        try:
            text, wrong = line[start:].decode(), line.find(b"\0")
        except UnicodeDecodeError as error:
            text, wrong = "", start + error.start
        if wrong >= 0:
            encoding = "UTF-16" if b"\0" in line else "ISO-8859-1"
            raise DataError(f"{path}, line {number}: expected UTF-8, got the byte 0x{line[wrong]:02x} at offset "
                            f"{offset + wrong}. The file may be {encoding}: if it is, convert it with `iconv -f "
                            f"{encoding} -t UTF-8`; if it is binary, give another file")  # fmt: skip
        offset += len(line)
        if "\r" in text:
            # str.splitlines would also cut at form feeds and the like, which end no line of a file
            yield from re.findall(r"[^\n]*\n|[^\n]+", text.replace("\r\n", "\n").replace("\r", "\n"))
        elif text:
            yield text


def zip_names(archive: Path) -> list[str]:
    with opened(archive, "a zip archive"), ZipFile(archive) as content:
        return [member.filename for member in content.infolist() if not member.is_dir()]


def zip_contents(archive: Path, wanted: Sequence[str], limit: int) -> list[bytes]:
    """Return files by their paths in the archive, each of at most `limit` bytes; no path of it is written to."""
    with opened(archive, "a zip archive"), ZipFile(archive) as content:
        if missing := [name for name in wanted if name not in content.NameToInfo]:
            raise DataError(f"{archive} has no {' and no '.join(missing)}: it is not the archive that was expected")
        for name in wanted:
            # zipfile refuses a file that is longer than this says
            if (size := content.getinfo(name).file_size) > limit:
                raise DataError(f"{name} in {archive} is a file of {size:,} bytes, expected {limit:,} at most")
        return [content.read(name) for name in wanted]


@contextmanager
def opened(path: Path, expected: str) -> Iterator[None]:
    """Turn errors while a file is read into sentences; `expected` is what the file should be."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check its name and folder") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: expected {expected}, such as one of {path}/*.txt") from None
    # zipfile knows a password as a RuntimeError, an unknown way of packing as a NotImplementedError, which is one too
    except (BadZipFile, EOFError, zlib.error, RuntimeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path} cannot be read as {expected} ({reason}): check it, or get it again") from None


def is_number(field: Any) -> bool:
    """Return whether a field holds a number, NaN among them."""
    try:
        float(field)
    except (TypeError, ValueError):
        return False
    return True


def is_finite(field: Any) -> bool:
    """Return whether a field holds a number that float32 can hold."""
    return is_number(field) and abs(float(field)) <= LARGEST
