"""Downloads from a server that cuts, stalls, lies and refuses: the right file or a sentence, and nothing in between."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, file_server

from mufuru.experiments.data import DataError, download
from mufuru.experiments.data.download import DownloadError, Remote, fetch

DATA = random.Random(1).randbytes(300_000)
WRONG = random.Random(2).randbytes(300_000)
SUM = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    monkeypatch.setattr(download, "PIECE", 1000)
    with file_server() as server:
        yield server


def remote(*addresses: str, size: int | None = len(DATA), checksum: str = f"sha256:{SUM}") -> Remote:
    return Remote("file.bin", checksum, addresses, size)


def assert_right(folder: Path) -> None:
    """The file is there and right, and no part of one is left."""
    assert (folder / "file.bin").read_bytes() == DATA
    assert sorted(path.name for path in folder.iterdir()) == [".file.bin.lock", "file.bin"]


def assert_refused(wanted: Remote, folder: Path, *words: str) -> None:
    """A sentence with these words, and no file of the name."""
    with pytest.raises(DownloadError) as caught:
        fetch(wanted, folder)
    for word in ("cannot download file.bin", SUM, str(folder), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "file.bin").exists()


@pytest.mark.parametrize("size", [len(DATA), None])
@pytest.mark.parametrize("says_length", [True, False])
def test_a_good_file(server: FileServer, tmp_path: Path, size: int | None, says_length: bool) -> None:
    address = server.serve("a", DATA, says_length=says_length)
    assert fetch(remote(address, size=size), tmp_path / "deep" / "er") == tmp_path / "deep/er/file.bin"
    assert_right(tmp_path / "deep" / "er")
    assert server.asked == [("a", None)]


def test_an_md5(server: FileServer, tmp_path: Path) -> None:
    fetch(remote(server.serve("a", DATA), checksum=f"md5:{hashlib.md5(DATA).hexdigest()}"), tmp_path)
    assert_right(tmp_path)


def test_a_file_that_is_there_is_not_downloaded(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(DATA)
    fetch(remote(server.serve("a", WRONG)), tmp_path)
    assert server.asked == []


def test_a_damaged_file_is_replaced(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(WRONG)
    fetch(remote(server.serve("a", DATA)), tmp_path)
    assert_right(tmp_path)


def test_a_damaged_file_is_told_of_when_there_is_no_other(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(WRONG)
    with pytest.raises(DownloadError, match=f"another one, its sha256 is {hashlib.sha256(WRONG).hexdigest()}"):
        fetch(remote(server.serve("a", DATA, status=[404])), tmp_path)


@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_cut_connection_goes_on(server: FileServer, tmp_path: Path, size: int | None) -> None:
    address = server.serve("a", DATA, cuts=[100_000, 0, 50_000])
    fetch(remote(address, size=size), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None), ("a", "bytes=100000-"), ("a", "bytes=100000-"), ("a", "bytes=150000-")]


def test_a_cut_without_a_length_is_seen_by_the_size(server: FileServer, tmp_path: Path) -> None:
    fetch(remote(server.serve("a", DATA, cuts=[10], says_length=False)), tmp_path)
    assert_right(tmp_path)


def test_the_next_call_goes_on(server: FileServer, tmp_path: Path) -> None:
    address = server.serve("a", DATA, cuts=[1000, 1000, 1000, 1000])
    assert_refused(remote(address), tmp_path, "the connection was cut", "The part that came is kept")
    assert (tmp_path / "file.bin.part").read_bytes() == DATA[:4000]
    fetch(remote(address), tmp_path)
    assert_right(tmp_path)
    assert server.asked[-1] == ("a", "bytes=4000-")


def test_a_kill_after_the_last_byte(server: FileServer, tmp_path: Path) -> None:
    """The whole part is there: the server has no more than that."""
    (tmp_path / "file.bin.part").write_bytes(DATA)
    fetch(remote(server.serve("a", DATA)), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", "bytes=300000-")]


@pytest.mark.parametrize("junk", [WRONG[:1000], WRONG, WRONG + b"more"], ids=["short", "as long", "longer"])
def test_a_beginning_of_another_file(server: FileServer, tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(junk)
    fetch(remote(server.serve("a", DATA)), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", f"bytes={len(junk)}-"), ("a", None)]


def test_a_server_without_ranges(server: FileServer, tmp_path: Path) -> None:
    fetch(remote(server.serve("a", DATA, cuts=[1000], ranges=False)), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None), ("a", "bytes=1000-")]


def test_a_server_that_sends_another_range(server: FileServer, tmp_path: Path) -> None:
    """The checksum finds out, and all is asked for again."""
    fetch(remote(server.serve("a", DATA, cuts=[1000], shift=7)), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None), ("a", "bytes=1000-"), ("a", None)]


def test_a_wrong_checksum(server: FileServer, tmp_path: Path) -> None:
    """Refused at once: the server has another file."""
    wrong, right = hashlib.sha256(WRONG).hexdigest(), hashlib.sha256(DATA).hexdigest()
    expected = f"sends another file: its sha256 is {wrong}, expected {right}"
    assert_refused(remote(server.serve("a", WRONG)), tmp_path, expected)
    assert [path.name for path in tmp_path.iterdir()] == [".file.bin.lock"]
    assert server.asked == [("a", None)]


@pytest.mark.parametrize("length", [10, 400_000])
def test_another_size(server: FileServer, tmp_path: Path, length: int) -> None:
    """No byte of it is read."""
    expected = f"sends another file, of {length:,} bytes instead of 300,000"
    assert_refused(remote(server.serve("a", bytes(length), stalls=[0])), tmp_path, expected)
    assert not (tmp_path / "file.bin.part").exists()
    assert len(server.asked) == 1


def test_the_next_address_after_a_wrong_checksum_or_404(server: FileServer, tmp_path: Path) -> None:
    addresses = server.serve("a", WRONG), server.serve("b", DATA, status=[404]), server.serve("c", DATA)
    fetch(remote(*addresses), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None), ("b", None), ("c", None)]


def test_the_next_address_goes_on_after_a_cut(server: FileServer, tmp_path: Path) -> None:
    addresses = server.serve("a", DATA, cuts=[1000, 0, 0, 0]), server.serve("b", DATA)
    fetch(remote(*addresses), tmp_path)
    assert_right(tmp_path)
    assert server.asked[-1] == ("b", "bytes=1000-")


def test_every_address_has_its_reason(server: FileServer, tmp_path: Path) -> None:
    missing, wrong = server.serve("a", DATA, status=[404]), server.serve("b", WRONG)
    words = (
        f"{missing}: HTTP 404 Not Found; {wrong}: sends another file: its sha256 is",
        "Try again later, or put the file",
        "by hand",
    )
    assert_refused(remote(missing, wrong), tmp_path, *words)


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_a_server_in_trouble_is_asked_again(server: FileServer, tmp_path: Path, code: int) -> None:
    fetch(remote(server.serve("a", DATA, status=[code, code])), tmp_path)
    assert_right(tmp_path)


def test_a_slow_server(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before the silence is kept."""
    monkeypatch.setattr(download, "TIMEOUT", 1.0)
    fetch(remote(server.serve("a", DATA, stalls=[1000])), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None), ("a", "bytes=1000-")]


def test_a_server_that_does_not_hang_up(server: FileServer, tmp_path: Path) -> None:
    """It said how long the file is: nothing more is waited for."""
    fetch(remote(server.serve("a", DATA, stalls=[len(DATA)])), tmp_path)
    assert_right(tmp_path)
    assert server.asked == [("a", None)]


def test_a_silent_server(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    assert_refused(remote(server.serve("a", DATA, stalls=[0] * 9)), tmp_path, "no answer within 0.05 seconds")


def test_nobody_there(server: FileServer, tmp_path: Path) -> None:
    with file_server() as gone:
        address = gone.serve("a", DATA)
    assert_refused(remote(address), tmp_path, f"{address}: ", "refused")


def test_an_interrupted_download_keeps_what_came(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pieces: Iterator[bytes], *_: object) -> Iterator[bytes]:
        yield next(pieces)
        raise KeyboardInterrupt

    wanted = remote(server.serve("a", DATA))
    with monkeypatch.context() as patch:
        patch.setattr(download, "_shown", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(wanted, tmp_path)
    kept = (tmp_path / "file.bin.part").stat().st_size
    assert 0 < kept < len(DATA)
    fetch(wanted, tmp_path)
    assert_right(tmp_path)
    assert server.asked[-1] == ("a", f"bytes={kept}-")


def test_a_full_disk_is_not_tried_again(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Iterator[bytes]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download, "_shown", full)
    with pytest.raises(DataError, match=r"No space left on device.* set MUFURU_DATA to another folder"):
        fetch(remote(server.serve("a", DATA)), tmp_path)
    assert len(server.asked) == 1


def test_a_folder_that_cannot_be_made(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write file.bin into the data folder"):
        fetch(remote(server.serve("a", DATA)), tmp_path / "file" / "data")


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such locks")
def test_two_at_once_download_once(server: FileServer, tmp_path: Path) -> None:
    wanted = remote(server.serve("a", DATA))
    threads = [threading.Thread(target=fetch, args=(wanted, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_right(tmp_path)
    assert server.asked == [("a", None)]


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MUFURU_CACHE", str(tmp_path))
    monkeypatch.delenv("MUFURU_DATA", raising=False)
    assert download.data_folder() == tmp_path / "data"
    monkeypatch.setenv("MUFURU_DATA", "~/texts")
    assert download.data_folder() == Path.home() / "texts"


def test_plain_lines(server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch(remote(server.serve("a", DATA, cuts=[100_000])), tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        "downloading file.bin (0.3 MB)",
        "continuing file.bin (0.3 MB)",
    ]


def test_a_bar_on_a_terminal(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    fetch(remote(server.serve("a", DATA)), tmp_path)
    shown = capsys.readouterr().err
    assert "downloading file.bin" in shown
    assert "300.0/300.0 kB" in shown
    assert shown.rstrip().endswith("\x1b[?25h"), "the cursor is back"
