"""The web server: the page's files, the list of runs, and answers, one model pass at a time."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mufuru.experiments.explorer import limits, requests, security
from mufuru.experiments.explorer.limits import Bucket, Refused
from mufuru.experiments.explorer.runs import ExploredRun
from mufuru.ops import did_you_mean

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TAKEN = (errno.EADDRINUSE, errno.EACCES)
"""Why another port may do."""


class Explorer:
    """What the routes share: the runs by name, the files by name, and who may come in."""

    def __init__(self, runs: Sequence[ExploredRun], bucket: Bucket | None = None) -> None:
        self.runs = {run.name: run for run in runs}
        self.bucket = Bucket() if bucket is None else bucket
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
        return reply({"runs": [run.info() for run in self.runs.values()], "limits": {"characters": limits.CHARACTERS}})

    async def read(self, request: Request) -> Response:
        if not self.bucket.take():
            raise Refused(429, f"more than {limits.RATE:.0f} requests a second: wait a moment")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "the request should be JSON: send it with Content-Type: application/json")
        view = requests.parse(await body(request))
        if view.run not in self.runs:
            raise Refused(404, f"unknown run {view.run[:60]!r}: {did_you_mean(view.run[:60], list(self.runs))}")
        if self.turn.statistics().tasks_waiting >= limits.WAITING:
            raise Refused(503, "too many requests are waiting: try again in a moment")
        answer = await anyio.to_thread.run_sync(_written, self.runs[view.run], view, limiter=self.turn)
        return Response(answer, media_type="application/json")


def app(runs: Sequence[ExploredRun], host: str = "127.0.0.1", bucket: Bucket | None = None) -> ASGIApp:
    """The application; `host` is the address that it is served on."""
    explorer = Explorer(runs, bucket)
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
    """Lets through what `security.check` does not refuse, and puts the headers on every answer."""

    def __init__(self, inner: ASGIApp, host: str) -> None:
        self.inner, self.host = inner, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in security.HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            security.check(Request(scope).headers, self.host)
        except Refused as error:
            await reply({"error": error.sentence}, error.status)(scope, receive, send_with_headers)
        else:
            await self.inner(scope, receive, send_with_headers)


def _written(run: ExploredRun, view: requests.View) -> bytes:
    return json.dumps(run.answer(view), separators=(",", ":"), allow_nan=False).encode()


async def body(request: Request) -> bytes:
    """The whole of a request, or a refusal as soon as it is too large."""
    length = request.headers.get("content-length", "0")
    found = bytearray()
    if length.isdecimal() and int(length[:20]) <= limits.BODY:
        try:
            async for chunk in request.stream():
                found += chunk
                if len(found) > limits.BODY:
                    break
            else:
                return bytes(found)
        except ClientDisconnect:
            raise Refused(400, "the request ended early") from None
    raise Refused(413, f"the request should have at most {limits.BODY:,} bytes: shorten the text")


def reply(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


async def refused(request: Request, error: Any) -> Response:
    response = reply({"error": error.sentence}, error.status)
    if error.status in (429, 503):
        response.headers["retry-after"] = "1"
    return response


async def no_such(request: Request, error: Any) -> Response:
    """What Starlette itself refuses: a path or a method that does not exist."""
    path = request.url.path[:100]
    sentence = {
        404: f"there is nothing at {path!r}: the page is at /",
        405: f"{request.method} is not possible at {path!r}",
    }.get(error.status_code, str(error.detail))
    response = reply({"error": sentence}, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def failed(request: Request, error: Exception) -> Response:
    """A bug. The traceback goes to the terminal, as Starlette raises it on."""
    return reply({"error": f"the explorer failed ({type(error).__name__}): the terminal says where"}, 500)


def listen(host: str, port: int, tries: int = 20) -> socket.socket:
    """A socket on the port, or on the next one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, min(port + tries, 65536)):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
        except OSError as error:
            found.close()
            if isinstance(error, socket.gaierror) or error.errno not in TAKEN:
                raise OSError(f"cannot listen on {host}, port {number}: {error.strerror or error}") from None
        else:
            return found
    raise OSError(f"the ports {port} to {number} of {host} are all taken: choose another with --port")


def serve(runs: Sequence[ExploredRun], listening: socket.socket, host: str) -> None:
    """Answer until Ctrl-C, which is how it is meant to end."""
    config = uvicorn.Config(
        app(runs, host), log_level="warning", access_log=False, server_header=False, date_header=False, ws="none",
        limit_concurrency=256, timeout_keep_alive=30, h11_max_incomplete_event_size=16 * 1024,
    )  # fmt: skip
    # uvicorn raises the signal again when it has ended, or not, as the moment has it
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
