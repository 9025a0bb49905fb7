"""Files written whole, and locks: one process at a time, free again with the end of the process."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mufuru import disk
from mufuru.disk import locked, remove_leftovers, write_atomically

fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
HOLD = """
import sys; from pathlib import Path; from mufuru.disk import locked
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
    monkeypatch.setattr(disk, "fcntl", None)
    with locked(place, timeout=0) as one, locked(place, timeout=0) as two:
        assert one
        assert two


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two", keep=path.with_name("before"))
    assert (path.read_bytes(), path.with_name("before").read_bytes()) == (b"two", b"one")
    assert sorted(place.name for place in path.parent.iterdir()) == ["before", "file"]


@pytest.mark.parametrize("failing", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert [place.name for place in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(("private", "expected"), [(False, 0o664), (True, 0o600)])
def test_the_mode_follows_the_mask_unless_private(tmp_path: Path, private: bool, expected: int) -> None:
    mask = os.umask(0o002)
    try:
        write_atomically(tmp_path / "file", b"", private=private)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


def test_leftovers_of_a_killed_process_go(tmp_path: Path) -> None:
    (tmp_path / ".file.abc.tmp").write_bytes(b"half")
    (tmp_path / ".other.abc.tmp").write_bytes(b"half")
    remove_leftovers(tmp_path / "file")
    assert [place.name for place in tmp_path.iterdir()] == [".other.abc.tmp"]
