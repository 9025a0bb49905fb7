"""Watch it learn: one training at a time in a process of its own, paused, resumed, looked into, and gone at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explored_runs import FORMULA, shipped_runs
from starlette.testclient import TestClient

from mufuru.experiments.cli.explore import load
from mufuru.experiments.explorer import learn, server
from mufuru.experiments.explorer.learn import Learning

PATIENCE = 90.0
"""Seconds for a process to start, on a busy machine."""


@pytest.fixture
def learning() -> Iterator[Learning]:
    found = Learning(lambda folder: load([folder])[0])
    yield found
    found.close()


@pytest.fixture
def client(learning: Learning) -> Iterator[TestClient]:
    with TestClient(server.app(shipped_runs(), learning=learning), base_url="http://127.0.0.1:8765") as found:
        yield found


def until(client: TestClient, *states: str, updates: int = 0) -> Any:
    """The lesson, once it is in one of these states and has seen so many updates."""
    deadline = time.monotonic() + PATIENCE
    while True:
        lesson = client.get("/api/learn").json()
        if lesson["state"] in states and (lesson["update"] or [0])[-1] >= updates:
            return lesson
        assert lesson["state"] != "failed", lesson["reason"]
        assert time.monotonic() < deadline, lesson
        time.sleep(0.05)


def wish(client: TestClient, do: str, status: int = 200, **settings: Any) -> Any:
    response = client.post("/api/learn", json={"do": do, **settings})
    assert response.status_code == status, response.text
    return response.json()


def test_a_lesson_from_its_start_to_its_end(
    client: TestClient, learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn, "UPDATES", 60)
    assert client.get("/api/learn").json()["state"] == "none"
    wish(client, "start", units=3, seed=7, ops=["keep", "replace", "max"])
    assert "one model is trained at a time" in wish(client, "start", 409)["error"]
    assert "cannot explore now, as the training is running" in wish(client, "explore", 409)["error"]
    assert learning.lesson is not None
    place = Path(learning.lesson.place.name)
    until(client, "running", "finished", updates=10)
    # on a fast machine it may have come to its end
    if client.post("/api/learn", json={"do": "pause"}).status_code == 200 and until(client, "paused", "finished"):
        wish(client, "resume", 200 if client.get("/api/learn").json()["state"] == "paused" else 409)
    lesson = until(client, "finished")
    assert lesson["update"] == [10, 20, 30, 40, 50, 60]
    assert 0 <= lesson["test"] <= 1
    for use in zip(*lesson["use"].values(), strict=True):
        # three numbers, each told in four places
        assert sum(use) == pytest.approx(1, abs=2e-4)
    assert lesson["command"].startswith(
        "mufuru train logic --preset solved --hidden-size 3 --ops keep replace max --seed 7"
    )
    name = wish(client, "explore")["name"]
    assert name == "lesson-1-update-60"
    run = next(run for run in client.get("/api/runs").json()["runs"] if run["name"] == name)
    assert (run["units"], [op["name"] for op in run["ops"]]) == (3, ["keep", "replace", "max"])
    assert client.post("/api/read", json={"run": name, "text": FORMULA}).status_code == 200
    assert place.exists()
    wish(client, "stop")
    assert client.get("/api/learn").json()["state"] == "none"
    assert not place.exists()


def test_time_is_limited_and_an_end_leaves_nothing(
    client: TestClient, learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn, "SECONDS", 0.1)
    wish(client, "start")
    assert learning.lesson is not None
    process, place = learning.lesson.process, Path(learning.lesson.place.name)
    until(client, "paused")
    assert "paused before it had learned anything" in wish(client, "explore", 409)["error"]
    monkeypatch.setattr(learn, "SECONDS", 60.0)
    wish(client, "resume")
    resumed = learning.lesson.process
    learning.close()
    assert process.poll() is not None
    assert resumed.poll() is not None
    assert not place.exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"units": 0}, "units should be from 1 to 32, got 0"),
        ({"units": 33}, "units should be from 1 to 32, got 33"),
        ({"seed": -1}, "seed should be from 0"),
        ({"ops": ["keep", "maximum"]}, "Did you mean 'max'?"),
        ({"ops": []}, "operation"),
    ],
)
def test_settings_are_checked(client: TestClient, settings: dict[str, Any], words: str) -> None:
    assert words in wish(client, "start", 422, **settings)["error"]
    assert client.get("/api/learn").json()["state"] == "none"


def test_only_the_page_may_ask(client: TestClient) -> None:
    start = {"do": "start"}
    assert client.post("/api/learn", json=start, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api/learn", json=start, headers={"host": "evil.example"}).status_code == 421
    assert client.post("/api/learn", content="do=start").status_code == 415
    assert "do" in wish(client, "dance", 400)["error"]
    assert "cannot pause now, as the training is none" in wish(client, "pause", 409)["error"]
    with TestClient(server.app(shipped_runs()), base_url="http://127.0.0.1:8765") as other:
        assert other.get("/api/learn").status_code == 404
        assert other.get("/api/runs").json()["learns"] is False
