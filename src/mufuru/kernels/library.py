"""Find the native kernel's library: in the installed package, else in the cache, else build it there.

Nothing happens at import, only at the first `load`. Whatever goes wrong, `load` returns `None` and `status` says why.
"""

import ctypes
import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch

from mufuru.disk import locked, write_atomically
from mufuru.kernels import build
from mufuru.kernels.build import BuildError

try:
    import grp
    import pwd
except ImportError:  # Windows
    grp = pwd = None  # type: ignore[assignment]

ABI = 7
"""Required result of the library's `mufuru_abi()`: raised with every change of its functions."""
PACKAGE = Path(__file__).parent
LOCK_TIMEOUT = build.TIMEOUT + 30.0
"""Seconds to wait for another process that is building the same library."""
State: TypeAlias = Literal["wheel", "cache", "built", "unavailable"]


class MuFuRUKernelWarning(RuntimeWarning):
    """The native kernel is missing; the reference kernel does its work, more slowly."""


@dataclass(frozen=True)
class Status:
    """Which library is live and why."""

    state: State
    path: Path | None = None
    """Path of the library; no longer there if it was built for this process alone."""
    reason: str = ""
    """Everything that went wrong, and what to do about it; empty if nothing did."""
    compiler: str | None = None
    seconds: float = 0.0
    """Time it took to find or build."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Every kernel by name, with one line on whether it can run; filled by `mufuru.kernel_status`."""


class Found(NamedTuple):
    library: ctypes.CDLL | None
    status: Status


_guard = threading.Lock()
_found: Found | None = None
_warned = False


def load() -> ctypes.CDLL | None:
    """Return the native library, or `None` after one warning that says why there is none."""
    global _warned
    outcome = _find_once()
    if outcome.library is None and not _warned:
        _warned = True
        message = f"the native kernel is not available, the slower reference kernel runs: {outcome.status.reason}"
        warnings.warn(message, MuFuRUKernelWarning, stacklevel=2)
    return outcome.library


def status() -> Status:
    """Return which library `load` gives and why; searches for it at the first call, and never warns."""
    return _find_once().status


def reset() -> None:
    """Forget the library and the warning: the next `load` searches again."""
    global _guard, _found, _warned
    _guard, _found, _warned = threading.Lock(), None, False


def _find_once() -> Found:
    global _found
    if _found is None:
        with _guard:
            if _found is None:
                _found = find()
    return _found


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    # a thread of the parent may hold the lock while it builds; that thread does not exist in the child
    os.register_at_fork(after_in_child=_new_guard)


def find(package_dir: Path = PACKAGE, source_dir: Path = PACKAGE / "csrc", cache_dir: Path | None = None) -> Found:
    """Search everywhere, and build if necessary. Failures are reported in the status, not raised."""
    start = time.monotonic()
    notes: list[str] = []
    command: list[str] = []
    try:
        library, state, path = _from_package(package_dir, notes) or _from_cache(source_dir, cache_dir, command, notes)
    except (BuildError, OSError) as error:
        notes.append(str(error))
        library, state, path = None, "unavailable", None
    seconds = time.monotonic() - start
    return Found(library, Status(state, path, "; ".join(dict.fromkeys(notes)), " ".join(command) or None, seconds))


_Loaded: TypeAlias = tuple[ctypes.CDLL, State, Path]


def _from_package(package_dir: Path, notes: list[str]) -> _Loaded | None:
    for path in sorted(package_dir.glob("_native*.so")):
        try:
            return _open(path), "wheel", path
        except OSError as error:
            notes.append(f"the library of the installed package does not load ({error})")
    return None


def _from_cache(source_dir: Path, cache_dir: Path | None, command: list[str], notes: list[str]) -> _Loaded:
    """Return the cached library, or a new one; `command` receives the compiler's."""
    folder = (cache_dir or default_cache()) / "kernels"
    if folder.is_absolute():
        folder = Path(os.path.realpath(folder))
    key = _source_key(source_dir)
    try:
        if os.environ.get("MUFURU_BUILD") == "0":
            raise BuildError("MUFURU_BUILD=0 forbids building it; unset MUFURU_BUILD")
        command += build.find_compiler()
        exact = f"{key}-{_digest(command, build.compiler_version(command))}"
    except BuildError:
        # a library built by whatever compiler was there before is better than none
        if loaded := _cached(folder, key, notes):
            return loaded
        raise
    return _cached(folder, exact, notes) or _built(source_dir, folder, exact, command, notes)


def default_cache() -> Path:
    """$MUFURU_CACHE, or mufuru's folder in the user's cache folder."""
    if chosen := os.environ.get("MUFURU_CACHE"):
        return Path(os.path.expanduser(chosen))
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local")}
    base = xdg if xdg.is_absolute() else Path(os.path.expanduser(places.get(sys.platform, "~/.cache")))
    return base / "mufuru"


def _built(source_dir: Path, folder: Path, key: str, command: list[str], notes: list[str]) -> _Loaded:
    """Build and cache; where the cache cannot be used, build for this process alone."""
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mufuru-", ignore_cleanup_errors=True)))
        output = private / "native.so"
        with suppress(OSError):  # _store meets the same error and reports it
            _make_folder(folder)
            stack.enter_context(locked(folder / f"{key}.lock", LOCK_TIMEOUT))
        if loaded := _cached(folder, key, notes):
            return loaded
        build.compile_library(source_dir, output, command, build.TIMEOUT)
        try:
            path = _store(output, folder, key)
            return _open(path), "built", path
        except OSError as error:
            notes.append(f"built for this process alone, since the cache cannot be used ({error}): set MUFURU_CACHE to "
                         "a folder of yours that no one else can write and whose files may be executed")  # fmt: skip
            # once loaded the file is not needed: the folder goes away here, so nothing is left behind
            return _open(output), "built", output


def _cached(folder: Path, key: str, notes: list[str]) -> _Loaded | None:
    """A library whose name begins with `key` and whose content has the checksum its name ends with."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        try:
            _check_trust(path)
            if not path.stem.endswith(f"-{_file_digest(path)}"):
                raise OSError("it is damaged")
            return _open(path), "cache", path
        except PermissionError as error:
            notes.append(f"passed over {path.name} in the cache ({error})")
        except OSError as error:
            notes.append(f"removed {path.name} from the cache ({error})")
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return None


def _store(built: Path, folder: Path, key: str) -> Path:
    """Copy into the cache under a name that ends with the checksum; it appears there complete or not at all."""
    _make_folder(folder)
    for leftover in folder.glob(f".{key}-*.tmp"):
        leftover.unlink(missing_ok=True)
    path = folder / f"{key}-{_file_digest(built)}.so"
    write_atomically(path, built.read_bytes(), private=True)
    return path


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    abi = library.mufuru_abi() if hasattr(library, "mufuru_abi") else None
    if abi != ABI:
        raise OSError(f"{path.name}: mufuru_abi is {abi}, expected {ABI}")
    return library


def _make_folder(folder: Path) -> None:
    """Make the folder, and those above it that are missing, for the user alone."""
    if not folder.is_absolute():
        raise PermissionError(f"{folder} is not an absolute path")
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
    _check_trust(folder)


def _check_trust(path: Path) -> None:
    """Refuse what another user owns or could replace: neither the file nor any folder above it may be theirs."""
    if not path.is_absolute():
        raise PermissionError(f"{path} is not an absolute path")
    for place in (path, *path.parents) if pwd else ():
        info = place.stat()
        if info.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{place} belongs to another user")
        # in a sticky folder such as /tmp others cannot replace what is ours
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        shared = info.st_mode & stat.S_IWOTH or (info.st_mode & stat.S_IWGRP and not _is_private(info.st_gid))
        if shared and not sticky:
            raise PermissionError(f"{place} can be written by other users")


def _is_private(group: int) -> bool:
    """Return whether the group is that of this user alone, as many systems make one for each user."""
    try:
        user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and members.gr_name == user.pw_name and set(members.gr_mem) <= {user.pw_name}


def _source_key(source_dir: Path) -> str:
    files = sorted(path for path in source_dir.glob("*") if path.is_file())
    contents = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    flags = build.flags_of(source_dir), build.STATIC
    return _digest(ABI, torch.__version__, sys.platform, platform.machine(), flags, contents)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
