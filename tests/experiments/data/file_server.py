"""A file server on this machine that can misbehave as the internet does."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """A file and how it is served; lists have an entry for each request, and are good behaviour when they are over."""

    data: bytes
    status: list[int] = field(default_factory=list)
    """Answer with this code instead; 200 for the file."""
    cuts: list[int] = field(default_factory=list)
    """Close the connection after so many bytes of the answer."""
    stalls: list[int] = field(default_factory=list)
    """Send nothing more after so many bytes of the answer, but keep the connection open."""
    ranges: bool = True
    """Whether a part of the file can be asked for."""
    shift: int = 0
    """Answer with a part that begins so many bytes later than asked for."""
    says_length: bool = True
    """Whether the answer says how long it is."""


class FileServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, str | None]] = []
        """The file's name and the range of each request."""
        self.over = threading.Event()

    def serve(self, name: str, data: bytes, **behaviour: Any) -> str:
        """Put up a file; returned is its address."""
        self.files[name] = Served(data, **behaviour)
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name, wanted = self.path.lstrip("/"), self.headers.get("Range")
        self.server.asked.append((name, wanted))
        file = self.server.files.get(name)
        status = 404 if file is None else file.status.pop(0) if file.status else 200
        if file is None or status != 200:
            self.send_error(status)
        else:
            self.send_file(file, wanted)

    def send_file(self, file: Served, wanted: str | None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", wanted or "") if file.ranges else None
        start = int(found[1]) + file.shift if found else 0
        if found and start >= len(file.data):
            self.send_error(416)
            return
        body = file.data[start:]
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start}-{len(file.data) - 1}/{len(file.data)}")
        if file.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if file.cuts:
            body = body[: file.cuts.pop(0)]
        stall = file.stalls.pop(0) if file.stalls else None
        self.wfile.write(body[:stall])
        if stall is not None:
            self.server.over.wait()

    def log_message(self, *_: object) -> None:
        """Tests read `asked`."""


@contextmanager
def file_server() -> Iterator[FileServer]:
    """Runs until the end of the block."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
