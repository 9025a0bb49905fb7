"""Files that survive a crash and other processes: written whole or not at all, and locked by one process at a time."""

import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: Path, data: bytes, keep: Path | None = None, private: bool = False) -> None:
    """Write beside the file, flush to the disk, read back, then rename. On any failure the old file stands untouched.

    With `keep` the old file lives on under that name; at no moment is there neither. A `private` file is readable and
    writable by its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if Path(name).read_bytes() != data:
            raise OSError(f"{path} does not read back as it was written")
        if not private:
            os.chmod(name, 0o666 & ~_umask())
        if keep and path.exists():
            _give_second_name(path, keep)
        os.replace(name, path)
        _flush_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def beside(folder: Path, ending: str) -> Path:
    """Return a path next to a folder, named after it; the name of "." is looked up."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(named.name + ending)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of a killed process; call it only when no other is writing the file."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _give_second_name(path: Path, name: Path) -> None:
    """Link, or copy where the file system has no links; a file that had the name before is replaced at once."""
    temporary = name.with_name(f".{name.name}.link.tmp")
    temporary.unlink(missing_ok=True)
    try:
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
        os.replace(temporary, name)
    finally:
        # renaming one name of a file to another name of the same file leaves both
        temporary.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Make a rename survive a power cut; not every system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """Return the process's mask: a temporary file is private, the file it becomes should be like any other."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def locked(path: Path, timeout: float = math.inf) -> Iterator[bool]:
    """Hold a lock of the operating system on a file or a folder, and yield whether it was acquired within `timeout`.

    The lock ends with its process, however that ends. A missing file is created. Where the system or the file system
    has no locks, the lock counts as acquired.
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
