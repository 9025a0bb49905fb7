"""One process at a time: a lock of the operating system on a file or a folder, which ends with its process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(path: Path, timeout: float = math.inf) -> Iterator[bool]:
    """Wait until no other process is inside, at most so many seconds; yields whether that is so.

    A file is made if it is not there. Where the system or the file system knows no locks, it is taken to be so.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _acquire(handle, time.monotonic() + timeout)
    finally:
        # closing is not enough: a forked child may have it open as well
        with suppress(OSError):
            if fcntl:
                fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _acquire(handle: int, deadline: float) -> bool:
    while fcntl:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        except OSError:  # a file system without locks
            break
    return True
