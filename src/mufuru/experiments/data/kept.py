"""A file in the data folder: there already, or downloaded."""

from __future__ import annotations

from pathlib import Path

from mufuru.experiments.data.download import Remote, fetch, mismatch
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.progress import Progress, progress_for


def kept(remote: Remote, folder: Path, download: bool = True, progress: Progress | None = None) -> Path:
    """The file with the right checksum, whether it may be downloaded or not."""
    if download:
        return fetch(remote, folder, progress or progress_for())
    path = folder / remote.name
    if not path.is_file() or mismatch(path, remote.checksum):
        sums = remote.checksum.replace(":", " ")
        raise DataError(f"{path} is not there or damaged, and downloading is turned off: turn it on, or put the file "
                        f"with the {sums} there")  # fmt: skip
    return path
