"""Read single files of a zip archive, and nothing else: no path of it is ever written to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from mufuru.experiments.data.errors import DataError

BLOCK = 1 << 22
"""Bytes at a time of a file that is read in pieces."""


def names(archive: Path) -> list[str]:
    """The files of an archive."""
    with _opened(archive) as found:
        return [member.filename for member in found.infolist() if not member.is_dir()]


def read_members(archive: Path, wanted: Sequence[str], limit: int) -> dict[str, bytes]:
    """Files by their path in the archive, each of at most so many bytes."""
    with _opened(archive) as found:
        if missing := [name for name in wanted if name not in found.NameToInfo]:
            raise DataError(f"{archive} has no {' and no '.join(missing)}: it is not the archive that was expected")
        for name in wanted:
            # the archive's own word for it: what comes may not be longer either, or zipfile says so
            if (size := found.getinfo(name).file_size) > limit:
                raise DataError(f"{name} in {archive} is a file of {size:,} bytes, expected {limit:,} at most")
        return {name: found.read(name) for name in wanted}


def blocks(archive: Path, name: str) -> Iterator[bytes]:
    """A file of the archive in pieces; that it is whole and right is known when the last one has come."""
    with _opened(archive) as found, found.open(name) as file:
        while block := file.read(BLOCK):
            yield block


@contextmanager
def _opened(archive: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(archive) as found:
            yield found
    except FileNotFoundError:
        raise DataError(f"{archive}: there is no such file. Check its name and folder") from None
    # a password is a RuntimeError, an unknown way of packing a NotImplementedError, which is one too
    except (BadZipFile, EOFError, zlib.error, OSError, RuntimeError) as error:
        raise DataError(f"{archive} cannot be read as a zip archive ({error}): remove it and get it again") from None
