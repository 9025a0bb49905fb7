"""Locks: one process at a time, free again with the end of the process, however that came."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from mufuru import lock
from mufuru.lock import locked

fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
HOLD = """
import sys; from pathlib import Path; from mufuru.lock import locked
with locked(Path(sys.argv[1])) as alone:
    print(alone, flush=True); sys.stdin.read()
"""


@pytest.fixture(params=["file", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "lock" if request.param == "file" else tmp_path


def test_another_process_waits_or_is_told(place: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with locked(place, timeout=0) as alone:
            assert not alone
        with locked(place, timeout=0.1) as alone:
            assert not alone
        other.kill()
        with locked(place) as alone:
            assert alone


def test_free_again_after_an_error(place: Path) -> None:
    with pytest.raises(KeyError), locked(place):
        raise KeyError
    with locked(place, timeout=0) as alone:
        assert alone


def test_a_file_system_without_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(place, timeout=0) as alone:
        assert alone


def test_a_system_without_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with locked(place, timeout=0) as one, locked(place, timeout=0) as two:
        assert one
        assert two
