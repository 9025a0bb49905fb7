"""The web server: the page's files, the list of runs, and answers, one model pass at a time.

Only its own page may drive it. A foreign web page can make a browser send requests to 127.0.0.1, under its own name if
it rebinds that name to this address: the first kind has a foreign `Origin` or `Sec-Fetch-Site`, the second a foreign
`Host`.
"""

import asyncio
import errno
import ipaddress
import json
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
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

from mufuru.experiments.explorer.learn import Action, Learning
from mufuru.experiments.explorer.runs import BODY, CHARACTERS, ExploredRun, Place, Refused, View, parse
from mufuru.ops import did_you_mean

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TAKEN = (errno.EADDRINUSE, errno.EACCES)
"""Errors after which another port may do."""
PATIENCE = 10.0
"""Seconds in which a request, headers and body, has to arrive."""
LESSONS = 4
"""Models of lessons that stay on the page."""
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

    def __init__(self, runs: Sequence[ExploredRun], learning: Learning | None = None) -> None:
        self.runs = {run.name: run for run in runs}
        self.learning, self.lessons = learning, deque[str]()
        # read once: no request ever names a path
        self.files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.suffix in TYPES}
        self.turn = anyio.CapacityLimiter(1)

    async def file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self.files:
            raise Refused(404, "there is no such file")
        return Response(self.files[name], media_type=TYPES[Path(name).suffix])

    async def list_runs(self, request: Request) -> Response:
        listed, limits = [run.info() for run in self.runs.values()], {"characters": CHARACTERS}
        return reply({"runs": listed, "limits": limits, "learns": self.learning is not None})

    async def read(self, request: Request) -> Response:
        view = parse(await body(request), View, "run and text")
        return await self.answered(view.run, lambda run: run.answer(view))

    async def alike(self, request: Request) -> Response:
        place = parse(await body(request), Place, "run, text and token")
        return await self.answered(place.run, lambda run: run.alike(place))

    async def answered(self, name: str, ask: Callable[[ExploredRun], dict[str, Any]]) -> Response:
        """Answer a request about a run, one at a time."""
        if name not in self.runs:
            raise Refused(404, f"unknown run {name[:60]!r}: {did_you_mean(name[:60], list(self.runs))}")
        return await anyio.to_thread.run_sync(lambda: reply(ask(self.runs[name])), limiter=self.turn)

    async def learn(self, request: Request) -> Response:
        """Return the state of the lesson; a POST changes it first."""
        if self.learning is None:
            raise Refused(404, "nothing can be trained here")
        if request.method != "POST":
            return reply(self.learning.info())
        action = parse(await body(request), Action, "do")
        self.learning.handle(action)
        name = await self.keep(self.learning) if action.do == "explore" else ""
        return reply(self.learning.info() | {"name": name})

    async def keep(self, learning: Learning) -> str:
        """Add the lesson's model, as it is now, to the runs; of several lessons the last ones stay."""
        run = await anyio.to_thread.run_sync(learning.explored, limiter=self.turn)
        if run.name not in self.runs:
            self.lessons.append(run.name)
        self.runs[run.name] = run
        while len(self.lessons) > LESSONS:
            del self.runs[self.lessons.popleft()]
        return run.name


def app(runs: Sequence[ExploredRun], host: str = "127.0.0.1", learning: Learning | None = None) -> ASGIApp:
    """Return the application; `host` is the address that it is served on."""
    explorer = Explorer(runs, learning)
    routes = [
        Route("/", explorer.file),
        Route("/static/{name}", explorer.file),
        Route("/api/runs", explorer.list_runs),
        Route("/api/read", explorer.read, methods=["POST"]),
        Route("/api/alike", explorer.alike, methods=["POST"]),
        Route("/api/learn", explorer.learn, methods=["GET", "POST"]),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if learning:
            # here and not behind the server: after SIGTERM it does not come back
            learning.close()

    handlers: Any = {HTTPException: explain, Exception: explain}
    inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    # a path is right or wrong
    inner.router.redirect_slashes = False
    return guarded(inner, host)


def guarded(inner: ASGIApp, host: str) -> ASGIApp:
    """Pass on requests of the server's own page only, and put `HEADERS` on every answer."""
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        answer = inner
        if scope["type"] == "http":
            try:
                check_page(Request(scope), host)
            except Refused as error:
                answer = reply({"error": error.detail}, error.status_code)
        await answer(scope, receive, send_with_headers)

    return guard


def check_page(request: Request, served: str) -> None:
    """Refuse a request that another page could have made; `served` is the address that the server listens on."""
    headers = request.headers
    host = headers.get("host", "")
    if not allowed(host, served):
        raise Refused(421, f"this server answers to its own address alone, got the Host {host[:100]!r}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        raise Refused(403, f"this server answers to its own page alone, got the Origin {origin[:100]!r}")
    # a link on another page may lead to ours: it reads nothing for that other page
    to_page = request.method == "GET" and request.url.path == "/"
    follows_link = to_page and [headers.get(f"sec-fetch-{what}") for what in ("mode", "dest")] == [
        "navigate",
        "document",
    ]
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not follows_link:
        raise Refused(403, "this server answers to its own page alone: open its address instead of following a link")


def allowed(host: str, served: str) -> bool:
    """Return whether a server that listens on `served` answers to a Host header. One that listens everywhere answers to
    every plain address, since only names can be rebound, and to the machine's own name.
    """
    name, _, port = host.lower().rpartition(":")
    name = (name if name and port.isdecimal() else host.lower()).strip("[]")
    if name in LOOPBACK or name == served.lower():
        return True
    if served not in ("0.0.0.0", "::"):
        return False
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name == socket.gethostname().lower()


async def body(request: Request) -> bytes:
    """Return the whole body of a request of JSON, or refuse it as soon as it is too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the request should be JSON: send it with Content-Type: application/json")
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > BODY:
                raise Refused(413, f"the request should have at most {BODY:,} bytes: shorten the text")
    except ClientDisconnect:
        raise Refused(400, "the request ended early") from None
    return bytes(content)


def reply(content: Any, status: int = 200) -> Response:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


async def explain(request: Request, error: Any) -> Response:
    """Answer an error in a sentence. The traceback of a bug goes to the terminal, as Starlette raises it again."""
    if not isinstance(error, HTTPException):
        return reply({"error": f"the explorer failed ({type(error).__name__}): the terminal shows where"}, 500)
    sentence = error.detail
    if not isinstance(error, Refused):
        sentence = f"{error.detail}: {request.method} {request.url.path[:100]!r}. The page is at /"
    response = reply({"error": sentence}, error.status_code)
    response.headers.update(error.headers or {})
    return response


class Impatient(H11Protocol):
    """Closes a connection whose request does not arrive within `PATIENCE`: half-sent ones must not pile up."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait(False)

    def _wait(self, due: bool) -> None:
        """Start the clock when a request is due, and stop it when the request is complete."""
        if due and self.deadline is None:
            self.deadline = self.loop.call_later(PATIENCE, self.transport.close)
        elif not due and self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def listen(host: str, port: int, tries: int = 20) -> socket.socket:
    """Return a socket on the port, or on the next one that is free."""
    both = ":" in host
    family = socket.AF_INET6 if both else socket.AF_INET
    for number in range(port, min(port + tries, 65536)):
        try:
            return socket.create_server((host, number), family=family, backlog=128, dualstack_ipv6=both)
        except OSError as error:
            if error.errno not in TAKEN:
                raise OSError(f"cannot listen on {host}, port {number}: {error.strerror or error}") from None
    raise OSError(f"the ports {port} to {number} of {host} are all taken: choose another with --port")


def server(runs: Sequence[ExploredRun], host: str, learning: Learning | None = None) -> uvicorn.Server:
    """Return the server of these runs; `host` is the address that it is served on."""
    config = uvicorn.Config(
        app(runs, host, learning), http=Impatient, log_level="warning", access_log=False, server_header=False,
        date_header=False, ws="none", timeout_keep_alive=30, h11_max_incomplete_event_size=16 * 1024,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(
    runs: Sequence[ExploredRun], listening: socket.socket, host: str, load: Callable[[Path], ExploredRun] | None = None
) -> None:
    """Answer requests until Ctrl-C; `load` makes a run to explore of the folder of a lesson, None for no lessons."""
    learning = Learning(load) if load else None

    def hang_up(number: int, _: Any) -> None:
        if learning:
            learning.close()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    # uvicorn ends by SIGINT and SIGTERM alone; under nohup a closed terminal is ignored
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)
    # uvicorn may raise the signal again after it has ended
    with suppress(KeyboardInterrupt):
        server(runs, host, learning).run(sockets=[listening])
