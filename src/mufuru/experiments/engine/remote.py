"""Run folders behind a URL: a worker trains in a local folder and copies each checkpoint to the URL.

While a run is under way, the URL holds its config.json and one archive with all of its files, replaced as a whole: no
moment mixes two checkpoints. A finished run is an ordinary run folder.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mufuru.disk import write_atomically
from mufuru.experiments.engine.errors import Failure, PlaceError
from mufuru.experiments.record import RunFolder

T = TypeVar("T")
UNFINISHED = "unfinished.zip"
"""Archive of a run that is under way."""
ATTEMPTS = 3
"""Times that a file is copied before the run gives up: networks fail for a moment."""


class Remote:
    """A folder behind a URL of fsspec."""

    def __init__(self, url: str) -> None:
        self.url, protocol = url.rstrip("/"), url.partition("://")[0]
        try:
            import fsspec

            self.files, self.path = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            raise PlaceError(f"{protocol}:// needs a package that is not installed here: {error}") from None
        except ValueError as error:
            raise PlaceError(f"cannot open {url}: {error}. Expected a URL such as s3://bucket/folder") from None

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return bool(self._try(lambda: self.files.exists(f"{self.path}/{name}")))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        content: bytes = self._try(lambda: self.files.cat_file(f"{self.path}/{name}"))
        return content

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file, which holds an object."""
        try:
            content = json.loads(self.read(name))
        except ValueError as error:
            raise Failure(f"{self.url}/{name} is damaged: {error}") from None
        if not isinstance(content, dict):
            raise Failure(f"{self.url}/{name} is damaged: expected an object, got {type(content).__name__}")
        return content

    def write(self, name: str, content: bytes | Path) -> None:
        """Write a file, or copy one of this machine, whole or not at all: under another name first."""

        def attempt() -> None:
            self.files.makedirs(self.path, exist_ok=True)
            temporary = f"{self.path}/.{name}.{uuid.uuid4().hex}.tmp"
            try:
                if isinstance(content, Path):
                    # piece by piece: runs may be large
                    self.files.put_file(str(content), temporary)
                else:
                    self.files.pipe_file(temporary, content)
                self.files.mv(temporary, f"{self.path}/{name}")
            except BaseException:
                if self.files.exists(temporary):
                    self.files.rm_file(temporary)
                raise

        self._try(attempt)

    def remove(self, name: str) -> None:
        """Remove a file; a missing one is fine."""
        if self.has(name):
            self._try(lambda: self.files.rm_file(f"{self.path}/{name}"))

    def _try(self, action: Callable[[], T]) -> T:
        """Try an action several times; each file system of fsspec raises different errors."""
        for attempt in range(ATTEMPTS):
            try:
                self.files.invalidate_cache()
                return action()
            except Exception as error:
                if attempt + 1 == ATTEMPTS:
                    reason = f"{type(error).__name__}: {error}"
                    raise Failure(f"cannot use {self.url} ({reason}): what it holds is untouched") from error
                time.sleep(2**attempt / 2)
        raise AssertionError


class Mirror:
    """The run folder on this machine of a run that lives behind a URL, restored from there if it has begun."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        self.remote, self.files = remote, RunFolder(folder)
        if remote.has(UNFINISHED):
            zipfile.ZipFile(io.BytesIO(remote.read(UNFINISHED))).extractall(folder)
        self.saved = self._last()

    def step(self) -> None:
        """Copy the run if it has a new checkpoint."""
        if self._last() != self.saved:
            self.push()

    def push(self) -> None:
        """Copy the run to the URL, as an archive until it is finished."""
        if not self.files.config.exists():
            return
        self.saved = self._last()
        self.remote.write(self.files.config.name, self.files.config)
        paths = [path for path in sorted(self.files.path.iterdir()) if path.is_file() and path.suffix != ".tmp"]
        if self.files.finished:
            # the result comes last: where it is, the run is finished and whole
            for path in sorted(paths, key=lambda path: path == self.files.result):
                self.remote.write(path.name, path)
            self.remote.remove(UNFINISHED)
        else:
            whole = self.files.path.with_name(UNFINISHED)
            with zipfile.ZipFile(whole, "w") as archive:
                for path in paths:
                    archive.write(path, path.name)
            self.remote.write(UNFINISHED, whole)

    def _last(self) -> tuple[int, int] | None:
        """Return an identifier of the last checkpoint."""
        try:
            status = self.files.last.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


@contextmanager
def mirrored(remote: Remote) -> Iterator[Mirror]:
    """Restore a run from its URL into a temporary folder, and copy it back whatever happens."""
    with tempfile.TemporaryDirectory(prefix="mufuru-") as place:
        mirror = Mirror(remote, Path(place) / "run")
        try:
            yield mirror
        finally:
            mirror.push()


def fetch_records(remote: Remote, folder: RunFolder) -> None:
    """Copy the small files of a finished run to this machine: all that reports read."""
    for path in (folder.environment, folder.metrics, folder.config, folder.result):
        write_atomically(path, remote.read(path.name))


def fetch_weights(remote: Remote, folder: RunFolder) -> None:
    """Copy the weights of a finished run to this machine, and how its data was read."""
    for path in (folder.best, *([folder.layout] if remote.has(folder.layout.name) else [])):
        write_atomically(path, remote.read(path.name))
