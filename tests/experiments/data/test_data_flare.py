"""The way of FLaRe into the program, with a few strings and a server on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from file_server import file_server

from mufuru.experiments.data import DataError, flare
from mufuru.experiments.data.download import DownloadError

FILES = {
    "parity/main.tok": b"1 0 1\n\n0 1\n",
    "parity/labels.txt": b"0\n0\n1\n",
    "parity/datasets/validation-long/main.tok": b"1\n0\n",
    "parity/datasets/validation-long/labels.txt": b"1\n0\n",
    "parity/datasets/test/main.tok": b"1 1 1 1 1\n",
    "parity/datasets/test/labels.txt": b"1\n",
}
STRINGS = {
    "train": [(("1", "0", "1"), False), ((), False), (("0", "1"), True)],
    "valid": [(("1",), True), (("0",), False)],
    "test": [(("1",) * 5, True)],
}


@pytest.fixture(autouse=True)
def sums(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {path: f"sha256:{hashlib.sha256(content).hexdigest()}" for path, content in FILES.items()}
    monkeypatch.setattr(flare, "checksums", lambda: known)


def write(folder: Path) -> Path:
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize("inside", ["", "flare"])
def test_a_folder_of_the_users(tmp_path: Path, inside: str) -> None:
    write(tmp_path / inside)
    assert flare.load("parity", tmp_path) == STRINGS


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not be writable where the files are there."""
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path))
    write(tmp_path / "flare")
    assert flare.load("parity") == STRINGS


def test_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path))
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    with file_server() as server:
        addresses = {path: server.serve(path, content) for path, content in FILES.items()}
        monkeypatch.setattr(flare, "ADDRESS", addresses["parity/main.tok"].removesuffix("parity/main.tok"))
        assert flare.load("parity") == STRINGS
        (tmp_path / "flare" / "parity" / "labels.txt").write_bytes(b"1\n1\n1\n")
        server.serve("parity/labels.txt", b"1\n1\n1\n")
        with pytest.raises(DownloadError, match=r"labels\.txt"):
            flare.load("parity")


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no parity/main\.tok: expected the files of FLaRe there"):
        flare.load("parity", tmp_path)
    (write(tmp_path) / "parity" / "labels.txt").write_bytes(b"1\n1\n1\n")
    with pytest.raises(DataError, match=r"labels\.txt is not that file of FLaRe: its sha256 is"):
        flare.load("parity", tmp_path)


def test_every_file_has_a_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    paths = {
        f"{language}/{place}{name}"
        for language in flare.LANGUAGES
        for place in flare.FOLDERS.values()
        for name in flare.FILES
    }
    assert flare.checksums().keys() == paths
    assert len(set(flare.checksums().values())) == len(paths)
    assert all(len(value) == len("sha256:") + 64 for value in flare.checksums().values())
