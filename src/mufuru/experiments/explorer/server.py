"""The web server: the page's files, the list of runs, and answers, one model pass at a time.

Only its own page may drive it. A foreign web page can make a browser send requests to 127.0.0.1, under its own name if
it rebinds that name to this address: the first kind has a foreign `Origin` or `Sec-Fetch-Site`, the second a foreign
`Host`.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mufuru.experiments.explorer import requests
from mufuru.experiments.explorer.requests import Refused
from mufuru.experiments.explorer.runs import ExploredRun
from mufuru.ops import did_you_mean

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TAKEN = (errno.EADDRINUSE, errno.EACCES)
"""Errors after which another port may do."""
PATIENCE = 10.0
"""Seconds in which a request, headers and body, has to arrive."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Explorer:
    """The routes, with the runs and the page's files by name."""

    def __init__(self, runs: Sequence[ExploredRun]) -> None:
        self.runs = {run.name: run for run in runs}
        # read once: no request ever names a path
        self.files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.suffix in TYPES}
        self.turn = anyio.CapacityLimiter(1)

    async def page(self, request: Request) -> Response:
        return Response(self.files["index.html"], media_type=TYPES[".html"])

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            raise Refused(404, "there is no such file")
        return Response(self.files[name], media_type=TYPES[Path(name).suffix])

    async def list_runs(self, request: Request) -> Response:
        limits = {"characters": requests.CHARACTERS}
        return reply({"runs": [run.info() for run in self.runs.values()], "limits": limits})

    async def read(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "the request should be JSON: send it with Content-Type: application/json")
        view = requests.parse(await body(request))
        if view.run not in self.runs:
            raise Refused(404, f"unknown run {view.run[:60]!r}: {did_you_mean(view.run[:60], list(self.runs))}")
        answer = await anyio.to_thread.run_sync(_written, self.runs[view.run], view, limiter=self.turn)
        return Response(answer, media_type="application/json")


def app(runs: Sequence[ExploredRun], host: str = "127.0.0.1") -> ASGIApp:
    """Return the application; `host` is the address that it is served on."""
    explorer = Explorer(runs)
    routes = [
        Route("/", explorer.page),
        Route("/static/{name}", explorer.file),
        Route("/api/runs", explorer.list_runs),
        Route("/api/read", explorer.read, methods=["POST"]),
    ]
    handlers: Any = {Refused: refused, HTTPException: no_such, Exception: failed}
    inner = Starlette(routes=routes, exception_handlers=handlers)
    # a path is right or wrong
    inner.router.redirect_slashes = False
    return Guarded(inner, host)


class Guarded:
    """Passes on requests of its own page, and puts `HEADERS` on every answer."""

    def __init__(self, inner: ASGIApp, host: str) -> None:
        self.inner, self.host = inner, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            check_page(Request(scope).headers, self.host)
        except Refused as error:
            await reply({"error": error.sentence}, error.status)(scope, receive, send_with_headers)
        else:
            await self.inner(scope, receive, send_with_headers)


def check_page(headers: Mapping[str, str], served: str) -> None:
    """Refuse a request that another page could have made; `served` is the address that the server listens on."""
    host = headers.get("host", "")
    if not allowed(host, served):
        raise Refused(421, f"this server answers to its own address alone, got the Host {host[:100]!r}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        raise Refused(403, f"this server answers to its own page alone, got the Origin {origin[:100]!r}")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "this server answers to its own page alone: open its address instead of following a link")


def allowed(host: str, served: str) -> bool:
    """Return whether a server that listens on `served` answers to a Host header. One that listens everywhere answers to
    every plain address, since only names can be rebound, and to the machine's own name.
    """
    name, _, port = host.lower().rpartition(":")
    name = (name if name and port.isdecimal() else host.lower()).strip("[]")
    if name in LOOPBACK or name == served.lower():
        return True
    everywhere = _is_address(served) and ipaddress.ip_address(served).is_unspecified
    return everywhere and (_is_address(name) or name == socket.gethostname().lower())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _written(run: ExploredRun, view: requests.View) -> bytes:
    return json.dumps(run.answer(view), separators=(",", ":"), allow_nan=False).encode()


async def body(request: Request) -> bytes:
    """Return the whole body of a request, or refuse it as soon as it is too large."""
    length = request.headers.get("content-length", "0")
    content = bytearray()
    if length.isdecimal() and int(length[:20]) <= requests.BODY:
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > requests.BODY:
                    break
            else:
                return bytes(content)
        except ClientDisconnect:
            raise Refused(400, "the request ended early") from None
    raise Refused(413, f"the request should have at most {requests.BODY:,} bytes: shorten the text")


def reply(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


async def refused(request: Request, error: Any) -> Response:
    return reply({"error": error.sentence}, error.status)


async def no_such(request: Request, error: Any) -> Response:
    """Answer a path or a method that does not exist."""
    path = request.url.path[:100]
    sentence = {
        404: f"there is nothing at {path!r}: the page is at /",
        405: f"{request.method} is not possible at {path!r}",
    }.get(error.status_code, str(error.detail))
    response = reply({"error": sentence}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def failed(request: Request, error: Exception) -> Response:
    """Answer after a bug. The traceback goes to the terminal, as Starlette raises it again."""
    return reply({"error": f"the explorer failed ({type(error).__name__}): the terminal says where"}, 500)


class Impatient(H11Protocol):
    """Closes a connection whose request does not arrive within `PATIENCE`: half-sent ones must not pile up."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        """Start the clock when a request is due, and stop it when the request is complete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(PATIENCE, self.transport.close)

    def _stop(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def listen(host: str, port: int, tries: int = 20) -> socket.socket:
    """Return a socket on the port, or on the next one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, min(port + tries, 65536)):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(128)
        except OSError as error:
            listening.close()
            if isinstance(error, socket.gaierror) or error.errno not in TAKEN:
                raise OSError(f"cannot listen on {host}, port {number}: {error.strerror or error}") from None
        else:
            return listening
    raise OSError(f"the ports {port} to {number} of {host} are all taken: choose another with --port")


def server(runs: Sequence[ExploredRun], host: str) -> uvicorn.Server:
    """Return the server of these runs; `host` is the address that it is served on."""
    config = uvicorn.Config(
        app(runs, host), http=Impatient, log_level="warning", access_log=False, server_header=False, date_header=False,
        ws="none", timeout_keep_alive=30, h11_max_incomplete_event_size=16 * 1024,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(runs: Sequence[ExploredRun], listening: socket.socket, host: str) -> None:
    """Answer until Ctrl-C, which is how it is meant to end."""
    # uvicorn raises the signal again when it has ended, or not, as the moment has it
    with suppress(KeyboardInterrupt):
        server(runs, host).run(sockets=[listening])
