"""Files from the internet, kept in the data folder.

pooch retries and renames a file only when its checksum is right. Added here are several addresses for a file, a part
file that the next attempt continues, a lock for two processes at once, and errors of one sentence.
"""

import hashlib
import io
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mufuru
from mufuru.disk import locked
from mufuru.experiments.data import DataError
from mufuru.kernels.library import default_cache

RETRIES = 3
"""Further attempts at an address after the first."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as cut."""
PIECE = 1 << 16


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded."""

    name: str
    """The file's name in its folder."""
    checksum: str
    """`sha256:` or `md5:` and the sum in hexadecimal."""
    addresses: tuple[str, ...]
    """Tried in this order."""
    size: int | None = None
    """Size in bytes, where it is known: an address that announces another size is refused."""


class DownloadError(DataError):
    """A download that failed at every address; `reasons` has a phrase for each."""

    def __init__(self, what: str, reasons: Sequence[str], advice: str) -> None:
        super().__init__(f"cannot download {what}: {'; '.join(reasons)}. {advice}")
        self.reasons = list(reasons)


def data_folder() -> Path:
    """Return $MUFURU_DATA, or `data` in mufuru's folder of the user's cache."""
    chosen = os.environ.get("MUFURU_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else default_cache() / "data"


def mismatch(data: Path | bytes, checksum: str) -> str | None:
    """Return a phrase about a wrong checksum of a file or of its content; None if it is right."""
    kind, _, expected = checksum.partition(":")
    with io.BytesIO(data) if isinstance(data, bytes) else open(data, "rb") as file:
        # some systems allow md5 only outside of security
        actual = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    return None if actual == expected else f"its {kind} is {actual}, expected {expected}"


def first_file(place: Path, names: Sequence[str]) -> Path | None:
    """Return the first file of a folder that has one of these names, or patterns of names; None without any."""
    for name in names:
        found = [path for path in sorted(place.glob(name)) if path.is_file()]
        if len(found) > 1:
            raise DataError(f"{place} has {' and '.join(path.name for path in found)}: give one of them as the file")
        if found:
            return found[0]
    return None


def own_file(folder: Path, inside: Sequence[str], names: Sequence[str], wanted: str) -> Path:
    """Return a file of a user's folder, or of its folders `inside`, by its names or patterns of names."""
    for place in (folder, *(folder / name for name in inside)):
        if path := first_file(place, names):
            return path
    problem = f" has no {names[0]}:" if folder.exists() else ": there is no such file or folder,"
    raise DataError(f"{folder}{problem} {wanted}")


def check_published(data: Path | bytes, checksum: str, path: Path, source: str, otherwise: str = "") -> None:
    """Refuse a file of a user's folder that is not the published one."""
    if wrong := mismatch(data, checksum):
        raise DataError(f"{path} is not that file of {source}: {wrong}. Leave the folder out to have the right one "
                        f"downloaded{otherwise}")  # fmt: skip


def fetch(remote: Remote, folder: Path) -> Path:
    """Return the file in the folder, downloaded if it is not there or damaged."""
    path = folder / remote.name
    try:
        if path.is_file() and not mismatch(path, remote.checksum):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{remote.name}.lock"):
            _fetch(remote, path)
    except OSError as error:
        place = error.filename or folder
        raise DataError(f"cannot write {remote.name} into the data folder ({place}: {error.strerror or error}). Make "
                        "room, or set MUFURU_DATA to another folder") from error  # fmt: skip
    return path


def _fetch(remote: Remote, path: Path) -> None:
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    reasons = []
    if path.exists() and (wrong := mismatch(path, remote.checksum)):
        reasons.append(f"the file of this name in {path.parent} is another one, {wrong}")
    for address in remote.addresses:
        files = pooch.create(
            path.parent, "", registry={path.name: remote.checksum}, urls={path.name: address}, retry_if_failed=RETRIES
        )
        try:
            files.fetch(path.name, downloader=_downloader(remote, part_of(path)))
            return
        except RequestException as error:
            reasons.append(f"{address}: {_why(error)}")
        except _Refused as error:
            reasons.append(f"{address}: {error}")
    kept = "The part that came is kept, and the next attempt continues it. " if part_of(path).exists() else ""
    by_hand = f"put the file with the {remote.checksum.replace(':', ' ')} into {path.parent} by hand"
    raise DownloadError(remote.name, reasons, f"{kept}Try again later, or {by_hand}")


def part_of(path: Path) -> Path:
    """Return the name of a file until it is complete."""
    return path.with_name(f"{path.name}.part")


class _Refused(Exception):
    """An address does not have the file: a retry is pointless."""


def _downloader(remote: Remote, part: Path) -> Callable[[str, str, Any], None]:
    """Return a downloader for pooch that continues the part file of an earlier attempt."""
    import requests

    def download(address: str, output: str, _: Any) -> None:
        begun = part.stat().st_size if part.exists() else 0
        headers = {"User-Agent": f"mufuru/{mufuru.__version__}", "Accept-Encoding": "identity"}
        headers |= {"Range": f"bytes={begun}-"} if begun else {}
        with requests.get(address, headers=headers, stream=True, timeout=TIMEOUT) as response:
            # 416: nothing is left to send
            if not (begun and response.status_code == 416):
                _receive(response, remote, part, begun)
        if not begun and part.stat().st_size < (remote.size or 0):
            raise requests.ConnectionError("the connection was cut")
        if wrong := mismatch(part, remote.checksum):
            part.unlink()
            if not begun:
                raise _Refused(f"sends another file: {wrong}")
            # the part may have been the beginning of another file
            download(address, output, _)
        else:
            os.replace(part, output)

    return download


def _receive(response: Any, remote: Remote, part: Path, begun: int) -> None:
    """Append the server's answer to the part file."""
    if response.status_code not in (408, 429) and response.status_code < 500 and not response.ok:
        raise _Refused(f"HTTP {response.status_code} {response.reason}")
    response.raise_for_status()
    # a server that knows no ranges sends everything again
    done = begun if response.status_code == 206 else 0
    length = response.headers.get("Content-Length", "")
    total = done + int(length) if length.isdecimal() else None
    if remote.size is not None and total not in (None, remote.size) and not done:
        raise _Refused(f"sends another file, of {total:,} bytes instead of {remote.size:,}")
    with open(part, "ab" if done else "wb") as file:
        for piece in _shown(response.iter_content(PIECE), remote.name, done, total or remote.size):
            file.write(piece)


def _shown(pieces: Iterable[bytes], name: str, done: int, total: int | None) -> Iterator[bytes]:
    """Yield the pieces, and show a bar on a terminal or a line elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    title = f"{'continuing' if done else 'downloading'} {name}"
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        print(title if total is None else f"{title} ({total / 1e6:.1f} MB)", file=sys.stderr, flush=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=total, completed=done)
        for piece in pieces:
            yield piece
            bar.advance(task, len(piece))


def _why(error: Exception) -> str:
    """Return the reason at the bottom of an error of requests, which wraps those of urllib3 and the system."""
    root: BaseException = error
    while root.__context__ is not None:
        root = root.__context__
    if isinstance(root, socket.gaierror):
        return f"cannot find the server ({root.strerror}; is this machine online?)"
    if isinstance(root, TimeoutError) or "timed out" in str(root):
        return f"no answer within {TIMEOUT:g} seconds"
    if "IncompleteRead" in str(root):
        return f"the connection was cut ({root})"
    return (root.strerror if isinstance(root, OSError) and root.strerror else str(root)) or type(root).__name__
