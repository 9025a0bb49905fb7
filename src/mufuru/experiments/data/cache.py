"""Where downloaded data is kept, and one process at a time there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mufuru.kernels.library import default_cache

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def data_folder() -> Path:
    """$MUFURU_DATA, or `data` in mufuru's folder of the user's cache."""
    chosen = os.environ.get("MUFURU_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else default_cache() / "data"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is inside. Where there are no locks two may be: checksums refuse what comes of it."""
    with open(path, "ab") as file:
        with suppress(OSError):
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # closing is not enough: a forked child may have the file open as well
            with suppress(OSError):
                if fcntl:
                    fcntl.flock(file, fcntl.LOCK_UN)
