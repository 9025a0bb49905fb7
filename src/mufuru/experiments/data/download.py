"""Files from the internet: resumable, from one of several addresses, and never under their name before they are right.

This is the standard library rather than pooch, which begins a cut download anew, has one address for a file, and does
not keep two processes apart.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mufuru.disk import locked
from mufuru.experiments.data.connection import Cut, Refused, ask, pieces
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.progress import Progress

ATTEMPTS = 4
"""How often an address is tried; each attempt goes on where the one before was cut."""
PAUSE = 0.5
"""Seconds before the second attempt, and twice as many before each one after."""


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded."""

    name: str
    """Of the file in its folder."""
    checksum: str
    """`sha256:` or `md5:` and the sum in hexadecimal."""
    addresses: tuple[str, ...]
    """Where it is, tried in this order."""
    size: int | None = None
    """In bytes, where it is known: an address that sends more is not listened to for longer."""


class DownloadError(DataError):
    """No address gave the file; `reasons` has a phrase for each."""

    def __init__(self, what: str, reasons: Sequence[str], advice: str) -> None:
        super().__init__(f"cannot download {what}: {'; '.join(reasons)}. {advice}")
        self.reasons = list(reasons)


def fetch(remote: Remote, folder: Path, progress: Progress) -> Path:
    """The file in the folder: downloaded if it is not there or is another one."""
    path = folder / remote.name
    try:
        if path.exists() and not mismatch(path, remote.checksum):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{remote.name}.lock"):
            return _fetch(remote, path, progress)
    except OSError as error:
        place = error.filename or folder
        raise DataError(f"cannot write {remote.name} into the data folder ({place}: {error.strerror or error}). Make "
                        "room, or set MUFURU_DATA to another folder") from error  # fmt: skip


def part_of(path: Path) -> Path:
    """What a file is called until it is complete and right."""
    return path.with_name(f"{path.name}.part")


def mismatch(data: Path | bytes, checksum: str) -> str | None:
    """What is wrong with the checksum of a file or of what it would hold; None if it is right."""
    kind, _, expected = checksum.partition(":")
    with io.BytesIO(data) if isinstance(data, bytes) else open(data, "rb") as file:
        # some systems forbid md5 unless told that it guards nothing
        found = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    return None if found == expected else f"its {kind} is {found}, expected {expected}"


def _fetch(remote: Remote, path: Path, progress: Progress) -> Path:
    reasons = []
    if path.exists():
        # another process may have brought it while this one waited
        wrong = mismatch(path, remote.checksum)
        if not wrong:
            return path
        reasons.append(f"the file of this name in {path.parent} is another one, {wrong}")
    part = part_of(path)
    for address in remote.addresses:
        try:
            _download(address, remote, part, progress)
        except Refused as error:
            reasons.append(f"{address}: {error}")
            continue
        os.replace(part, path)
        return path
    kept = "What came is kept, and the next attempt goes on from there. " if part.exists() else ""
    by_hand = f"put the file with the {remote.checksum.replace(':', ' ')} into {path.parent} by hand"
    raise DownloadError(remote.name, reasons, f"{kept}Try again later, or {by_hand}")


def _download(address: str, remote: Remote, part: Path, progress: Progress) -> None:
    """Bring the part file to its end from one address; a wrong one is removed."""
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            resumed = _go_on(address, remote, part, progress)
        except Cut as error:
            reason = str(error)
            continue
        wrong = mismatch(part, remote.checksum)
        if not wrong:
            return
        part.unlink()
        reason = f"sends another file, {wrong}"
        # the beginning may have come from elsewhere: without it the file may be right
        if not resumed:
            break
    raise Refused(reason)


def _go_on(address: str, remote: Remote, part: Path, progress: Progress) -> bool:
    """Download what is missing to the end; whether there was a beginning."""
    begun = part.stat().st_size if part.exists() else 0
    response = ask(address, begun)
    if response is None:
        return True
    with response:
        # a server that knows no ranges sends everything again
        resumed: bool = response.status == 206
        done = begun if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else remote.size
        with open(part, "ab" if resumed else "wb") as file:
            done = _receive(response, file, remote, done, total, progress)
    if done < min(total or 0, remote.size or total or 0):
        raise Cut(f"the connection was cut after {done:,} of {total:,} bytes")
    return resumed


def _receive(response: Any, file: Any, remote: Remote, done: int, total: int | None, progress: Progress) -> int:
    """Write what comes; returned is the size of the file then. Whatever goes wrong, what came is on the disk."""
    progress.start(remote.name, done, total)
    try:
        for piece in pieces(response):
            file.write(piece)
            done += len(piece)
            progress.step(done)
            # some Pythons would wait for the server to hang up
            if done == total or done > (remote.size or done):
                break
    finally:
        progress.stop()
        file.flush()
        os.fsync(file.fileno())
    return done
