"""The server against what a user, a mistake or another web page may send: a 4xx with a sentence, and it lives on."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from explored_runs import FORMULA, shipped_runs
from starlette.testclient import TestClient

from mufuru.experiments import explorer
from mufuru.experiments.explorer import server
from mufuru.experiments.explorer.runs import View

ADDRESS = "http://127.0.0.1:8765"
GOOD = {"run": "mufuru-8", "text": FORMULA}
JSON = {"content-type": "application/json"}


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(server.app(shipped_runs()), base_url=ADDRESS) as found:
        yield found


def assert_refused(response: Any, status: int, *words: str) -> None:
    """JSON with one sentence, and the headers that every answer has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    content = response.json()
    assert list(content) == ["error"]
    assert len(content["error"]) < 500
    for word in words:
        assert word in content["error"]
    assert response.headers["content-security-policy"] == server.POLICY


def assert_alive(client: TestClient) -> None:
    response = client.post("/api/read", json=GOOD)
    assert response.status_code == 200
    assert response.json()["predictions"][-1]["top"][0][0] == "true"


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in sorted(server.STATIC.iterdir()):
        response = client.get(f"/static/{path.name}")
        assert response.content == path.read_bytes()
        assert response.headers["content-type"].startswith(server.TYPES[path.suffix])
        for name, value in server.HEADERS.items():
            assert response.headers[name] == value
    assert client.head("/").status_code == 200


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in sorted(server.STATIC.iterdir()):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert "http" not in text.replace("httpx", ""), path
        assert "//" not in [line.strip()[:2] for line in text.splitlines() if "src=" in line]
    page = (server.STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page
    assert "onclick" not in page
    assert "unsafe" not in server.POLICY


def test_runs_are_listed(client: TestClient) -> None:
    runs = client.get("/api/runs").json()["runs"]
    assert [run["name"] for run in runs] == ["mufuru-8", "gru-8"]
    assert runs[0]["cell"] == "mufuru"
    assert (runs[0]["units"], runs[0]["layers"], runs[0]["directions"], runs[0]["kind"]) == (8, 1, 1, "logic")


def test_an_answer_is_that_of_the_run(client: TestClient) -> None:
    asked = {**GOOD, "unit": 3, "forbid": ["max"], "force": None}
    assert client.post("/api/read", json=asked).json() == json.loads(
        json.dumps(shipped_runs()[0].answer(View(**{**asked, "forbid": ("max",)})))
    )


BODIES: dict[str, tuple[bytes, int, str]] = {
    "1 MB of text": (json.dumps({**GOOD, "text": "1 0 AND " * 131_072}).encode(), 413, "at most 65,536 bytes"),
    "a long text": (json.dumps({**GOOD, "text": "1" * 9_000}).encode(), 413, "at most 8,000"),
    "binary": (bytes(range(256)), 400, "not text"),
    "zeros": (bytes(1000), 400, "JSON"),
    "nothing": (b"", 400, "JSON"),
    "half": (b'{"run": "mufuru-8", "te', 400, "JSON"),
    "a number": (b"1", 400, "JSON object"),
    "deep": (b"[" * 60_000, 400, "JSON"),
    "many digits": (b'{"run": "mufuru-8", "text": "1", "unit": ' + b"9" * 50_000 + b"}", 400, "JSON"),
    "a large unit": (b'{"run": "mufuru-8", "text": "1", "unit": 99999999999999999999}', 422, "unit should be"),
    "no number": (b'{"run": "mufuru-8", "text": "1", "unit": NaN}', 400, "expected int, got nan"),
    "a truth value": (b'{"run": "mufuru-8", "text": "1", "unit": true}', 400, "expected int, got True"),
    "no text": (b'{"run": "mufuru-8"}', 400, "field missing @ settings.text"),
    "a list for text": (b'{"run": "mufuru-8", "text": ["1"]}', 400, "expected str, got ['1']"),
    "half a character": (b'{"run": "mufuru-8", "text": "\\ud800"}', 400, "not text"),
    "an unknown run": (b'{"run": "mufuru-9", "text": "1"}', 404, "Did you mean 'mufuru-8'?"),
    "a path for a run": (b'{"run": "../../etc/passwd", "text": "1"}', 404, "unknown run"),
    "an unknown field": (b'{"run": "mufuru-8", "text": "1", "units": 1}', 400, "extra fields found (units)"),
    "words for forbid": (b'{"run": "mufuru-8", "text": "1", "forbid": "max"}', 422, "no operation 'm'"),
    "numbers for forbid": (b'{"run": "mufuru-8", "text": "1", "forbid": [1]}', 400, "expected str, got 1"),
    "no formula": (b'{"run": "mufuru-8", "text": "<script>alert(1)</script>"}', 422, "unknown '<'"),
    "control characters": (b'{"run": "mufuru-8", "text": "\\u0000\\u0007"}', 422, "unknown"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bad_bodies(client: TestClient, name: str) -> None:
    body, status, words = BODIES[name]
    assert_refused(client.post("/api/read", content=body, headers=JSON), status, words)
    assert_alive(client)


def test_a_body_of_unknown_length_is_cut_off(client: TestClient) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b"1 0 AND " * 1024

    assert_refused(client.post("/api/read", content=pieces(), headers=JSON), 413, "at most")
    assert_alive(client)


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", "9" * 400, ""], ids=ascii)
def test_a_length_that_is_no_number_is_refused(client: TestClient, length: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", length.encode())]
    response = client.post("/api/read", content=b"{}", headers=headers)
    assert response.status_code in (400, 413)
    assert_alive(client)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""])
def test_what_a_form_of_another_page_could_send_is_refused(client: TestClient, kind: str) -> None:
    response = client.post("/api/read", content=json.dumps(GOOD), headers={"content-type": kind})
    assert_refused(response, 415, "application/json")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/read"), ("PUT", "/api/read"), ("DELETE", "/"), ("POST", "/"), ("OPTIONS", "/api/read")],
)
def test_wrong_methods(client: TestClient, method: str, path: str) -> None:
    assert_refused(client.request(method, path), 405, method)
    assert_alive(client)


TRICKS = (
    *(
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e%2f%2e%2e%2frecord.py",
    ),
    *(
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/style.css%00.html",
        "/static/",
        "/static",
        "/etc/passwd",
    ),
    *("/static/..\\server.py", "/api", "/api/read/", "/api/runs/mufuru-8", "/%ff%fe"),
)


@pytest.mark.parametrize("path", TRICKS)
def test_path_tricks(client: TestClient, path: str) -> None:
    assert_refused(client.get(path, follow_redirects=False), 404)
    assert_alive(client)


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"host": "evil.example"}, 421, "Host"),
        ({"host": "evil.example:8765"}, 421, "Host"),
        ({"host": "127.0.0.1.evil.example:8765"}, 421, "Host"),
        ({"host": "192.168.0.7:8765"}, 421, "Host"),
        ({"host": ""}, 421, "Host"),
        ({"origin": "http://evil.example"}, 403, "Origin"),
        ({"origin": "https://127.0.0.1:8765"}, 403, "Origin"),
        ({"origin": "http://127.0.0.1:9999"}, 403, "Origin"),
        ({"origin": "http://localhost:8765"}, 403, "Origin"),
        ({"origin": "null"}, 403, "Origin"),
        ({"sec-fetch-site": "cross-site"}, 403, "own page"),
        ({"sec-fetch-site": "same-site"}, 403, "own page"),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/read", "/static/main.js"])
def test_other_pages_cannot_drive_it(
    client: TestClient, path: str, headers: dict[str, str], status: int, words: str
) -> None:
    method = "POST" if path == "/api/read" else "GET"
    assert_refused(client.request(method, path, headers={**JSON, **headers}, content=json.dumps(GOOD)), status, words)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:8765", "origin": "http://localhost:8765"},
        {"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"},
        {"host": "[::1]:8765"},
        {"host": "LOCALHOST"},
    ],
    ids=str,
)
def test_its_own_page_can(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/api/read", json=GOOD, headers=headers).status_code == 200


def test_a_link_on_another_page_leads_to_the_page_alone(client: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).headers["content-type"].startswith("text/html")
    for path in ("/api/runs", "/static/main.js"):
        assert_refused(client.get(path, headers=link), 403, "own page")
    assert_refused(client.post("/api/read", json=GOOD, headers=link), 403, "own page")
    # a frame could be clicked without being seen
    assert_refused(client.get("/", headers=link | {"sec-fetch-dest": "iframe"}), 403, "own page")
    assert_refused(client.get("/", headers=link | {"host": "evil.example"}), 421, "Host")


@pytest.mark.parametrize(
    ("host", "served", "expected"),
    [
        ("192.168.0.7:80", "192.168.0.7", True),
        ("192.168.0.8:80", "192.168.0.7", False),
        ("192.168.0.8:80", "0.0.0.0", True),
        ("[fe80::1]:80", "::", True),
        ("evil.example:80", "0.0.0.0", False),
        (f"{socket.gethostname()}:80", "0.0.0.0", True),
        ("box.lan:80", "box.lan", True),
    ],
)
def test_names_of_a_server_for_others(host: str, served: str, expected: bool) -> None:
    assert server.allowed(host, served) == expected


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """The address of a server on a real socket."""
    with server.listen("127.0.0.1", 23_550) as listening:
        made = server.server(shipped_runs(), "127.0.0.1")
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            made.should_exit = True
            thread.join()


def ask(address: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*address, timeout=5)
    try:
        connection.request("POST", "/api/read", json.dumps(GOOD), JSON)
        return connection.getresponse().status
    finally:
        connection.close()


HALVES = {
    "nothing": b"",
    "headers": b"POST /api/read HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "body": b"POST /api/read HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"run',
    "second request": b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /api",
}


def test_half_sent_requests_block_nobody() -> None:
    with serving() as address, ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(socket.create_connection(address, timeout=5))
            connection.sendall(list(HALVES.values())[number % len(HALVES)])
        assert ask(address) == 200


@pytest.mark.parametrize("name", HALVES)
def test_half_sent_requests_are_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often another byte comes."""
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    with serving() as address, socket.create_connection(address, timeout=5) as connection:
        connection.sendall(HALVES[name])
        begun = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() < begun + 5:
                connection.sendall(b"x" if name != "nothing" else b"")
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        break
        assert time.monotonic() < begun + 4
        assert ask(address) == 200


def test_a_bug_is_a_sentence_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = shipped_runs()[0]
    with TestClient(server.app([run]), base_url=ADDRESS, raise_server_exceptions=False) as client:
        with monkeypatch.context() as patch:
            patch.setattr(type(run), "answer", lambda *_: {}["no"])
            assert_refused(client.post("/api/read", json=GOOD), 500, "KeyError")
        assert_alive(client)


def test_the_next_free_port_is_taken() -> None:
    with server.listen("127.0.0.1", 23_450) as one:
        port = one.getsockname()[1]
        with server.listen("127.0.0.1", port) as other:
            assert port < other.getsockname()[1] < port + 20
        with pytest.raises(OSError, match="all taken"):
            server.listen("127.0.0.1", port, tries=1)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {host}"):
        server.listen(host, 8765)


def test_page_and_models_are_package_data() -> None:
    """What the wheel takes along, by the globs of pyproject.toml."""
    root = Path(explorer.__file__).parents[4]
    if not (root / "pyproject.toml").exists():
        pytest.skip("needs the source tree")
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    package = root / "src" / "mufuru"
    globs = settings["tool"]["setuptools"]["package-data"]["mufuru"]
    packed = {path for pattern in globs for path in package.glob(pattern)}
    folder = package / "experiments" / "explorer"
    needed = {path for name in ("static", "models") for path in (folder / name).rglob("*") if path.is_file()}
    assert len(needed) > 15
    assert needed <= packed
