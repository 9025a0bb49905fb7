"""Take single files out of a tar archive, and nothing else: no path of it is ever written to."""

from __future__ import annotations

import posixpath
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from mufuru.experiments.data.errors import DataError


def read_members(archive: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The contents of some files by their path in the archive; each has to have the size that is expected of it."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if name in sizes and name not in found:
                    found[name] = _read(archive, tar, member, sizes[name])
                if len(found) == len(sizes):
                    break
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} cannot be read as a tar archive ({error}): remove it and try again") from None
    if missing := sorted(set(sizes) - set(found)):
        raise DataError(f"{archive} has no {' and no '.join(missing)}: it is not the archive that was expected")
    return found


def _read(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, size: int) -> bytes:
    file = tar.extractfile(member) if member.isreg() else None
    if file is None or member.size != size:
        what = f"a file of {member.size:,} bytes" if file else "not a file"
        raise DataError(f"{member.name} in {archive} is {what}, expected a file of {size:,} bytes")
    with file:
        return file.read()
