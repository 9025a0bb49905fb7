"""The progress of many runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mufuru.experiments.engine import progress as module
from mufuru.experiments.engine.progress import Overall


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    with Overall(10.0, done=1, runs=4) as progress:
        progress.refresh(0.0)
        progress.refresh(2.0)
        progress.settle(5.0, failed=False)
        progress.settle(5.0, failed=True)
        progress.say("[a] note")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 4 runs, just begun"
    assert lines[1].startswith("1 of 4 runs, about ")
    assert lines[2:] == ["[a] note", "2 of 4 runs, 1 failed"]


def test_time_left() -> None:
    progress = Overall(10.0, done=0, runs=4)
    assert progress.left(5.0, 30.0) == "about 30 s left"
    assert progress.left(1.0, 60.0) == "about 9 min left"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    with Overall(10.0, done=1, runs=4) as progress:
        progress.refresh(5.0)
    assert "1 of 4 runs" in screen.getvalue()
    assert "50%" in screen.getvalue()
