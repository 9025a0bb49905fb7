"""The Penn Treebank's way into the program, with a treebank of a few words and a server on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from file_server import FileServer, file_server

from mufuru.experiments.data import DataError, ptb
from mufuru.experiments.data.download import DownloadError, Remote
from mufuru.experiments.data.text import Corpus

FILES = {
    "ptb.train.txt": b" the cat <unk> \n the N <unk> sat \n",
    "ptb.valid.txt": b" the N sat \n",
    "ptb.test.txt": b" cat <unk> \n N \n",
}
INSIDE = "simple-examples/data"


def tgz(members: Mapping[str, bytes]) -> bytes:
    """An archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


ARCHIVE = tgz(
    {"../../evil.txt": b"evil", "./simple-examples/README": b"read me"}
    | {f"./{INSIDE}/{name}": data for name, data in FILES.items()}
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    with file_server() as server:
        files = [
            Remote(name, f"sha256:{hashlib.sha256(data).hexdigest()}", (server.serve(name, data),), len(data))
            for name, data in FILES.items()
        ]
        monkeypatch.setattr(ptb, "FILES", files)
        monkeypatch.setattr(ptb, "COUNTS", (9, 4, 5, 6))
        monkeypatch.setattr(ptb, "ARCHIVE", archive_of(server, ARCHIVE))
        yield server


def archive_of(server: FileServer, content: bytes) -> Remote:
    return Remote("all.tgz", f"md5:{hashlib.md5(content).hexdigest()}", (server.serve("all.tgz", content),))


def put(folder: Path, **changes: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(changes.get(name.split(".")[1], data))
    return folder


def assert_small(corpus: Corpus) -> None:
    """Every number as it follows from the files by hand."""
    assert corpus.vocabulary.words == ("the", "<unk>", "<eos>", "cat", "N", "sat")
    assert corpus.train.tolist() == [0, 3, 1, 2, 0, 4, 1, 5, 2]
    assert corpus.valid.tolist() == [0, 4, 5, 2]
    assert corpus.test.tolist() == [3, 1, 2, 4, 2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_downloaded_once_and_kept(server: FileServer, tmp_path: Path) -> None:
    assert_small(ptb.load())
    assert [name for name, _ in server.asked] == list(FILES)
    assert names(tmp_path / "data" / "ptb") == sorted(FILES)
    assert_small(ptb.load())
    assert len(server.asked) == 3


def test_progress_is_shown_unless_told_otherwise(server: FileServer, capsys: pytest.CaptureFixture[str]) -> None:
    ptb.load()
    assert "downloading ptb.train.txt" in capsys.readouterr().err


def test_the_second_source(server: FileServer, tmp_path: Path) -> None:
    """Nothing but the three files comes out of the archive, and the archive itself does not stay."""
    server.files["ptb.valid.txt"].cuts = [5, 0, 0, 0]
    assert_small(ptb.load())
    assert names(tmp_path / "data" / "ptb") == sorted(FILES)
    assert not list(tmp_path.rglob("*evil*"))


def test_both_sources_fail(server: FileServer, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(DownloadError) as caught:
        ptb.load()
    message = str(caught.value)
    assert message.startswith("cannot download the Penn Treebank: ")
    assert message.count("by hand") == 1
    for file in ptb.FILES:
        assert f"{file.name} ({file.checksum.replace(':', ' ')})" in message
    for address in (*ptb.FILES[0].addresses, *ptb.ARCHIVE.addresses):
        assert f"{address}: HTTP 404 Not Found" in message
    assert f"into {tmp_path / 'data' / 'ptb'} by hand" in message


def test_another_file_in_the_archive(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "ARCHIVE", archive_of(server, tgz({f"{INSIDE}/{name}": b"another" for name in FILES})))
    server.files["ptb.train.txt"].status = [404]
    with pytest.raises(DataError, match=r"ptb.train.txt is not that file of the Penn Treebank"):
        ptb.load()


def test_an_archive_without_the_files(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "ARCHIVE", archive_of(server, tgz({f"./{INSIDE}/ptb.train.txt": FILES["ptb.train.txt"]})))
    server.files["ptb.train.txt"].status = [404]
    with pytest.raises(DataError, match=rf"all.tgz has no {INSIDE}/ptb.valid.txt: it is not the archive that was exp"):
        ptb.load()


@pytest.mark.parametrize("inner", ["", "ptb"])
def test_a_folder_of_the_user(server: FileServer, tmp_path: Path, inner: str) -> None:
    put(tmp_path / "mine" / inner)
    assert_small(ptb.load(tmp_path / "mine"))
    assert server.asked == []


def test_another_file_in_the_folder(server: FileServer, tmp_path: Path) -> None:
    """It is neither used nor touched."""
    folder = put(tmp_path / "mine", test=b" mine \n")
    found, expected = (hashlib.sha256(data).hexdigest() for data in (b" mine \n", FILES["ptb.test.txt"]))
    message = f"ptb.test.txt is not that file .*: its sha256 is {found}, expected {expected}. .* with --text"
    with pytest.raises(DataError, match=message):
        ptb.load(folder)
    assert (folder / "ptb.test.txt").read_bytes() == b" mine \n"


def test_a_folder_without_the_files(server: FileServer, tmp_path: Path) -> None:
    wanted = "expected ptb.train.txt, ptb.valid.txt, ptb.test.txt there. Leave the folder out"
    with pytest.raises(DataError, match=f"has no ptb.train.txt: {wanted}"):
        ptb.load(tmp_path)
    with pytest.raises(DataError, match=f"none: there is no such file or folder, {wanted}"):
        ptb.load(tmp_path / "none")
    (put(tmp_path) / "ptb.valid.txt").unlink()
    with pytest.raises(DataError, match=f"has no ptb.valid.txt: {wanted}"):
        ptb.load(tmp_path)


@pytest.mark.parametrize("counts", [(9, 4, 6, 6), (9, 4, 5, 7)])
def test_the_numbers_are_counted(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]
) -> None:
    monkeypatch.setattr(ptb, "COUNTS", counts)
    with pytest.raises(DataError, match=r"was read as \(9, 4, 5, 6\) tokens .* expected \("):
        ptb.load(put(tmp_path))


def test_the_real_treebank() -> None:
    """What the literature knows of the treebank; that the sums are right shows wherever it is loaded."""
    assert ptb.COUNTS == (929_589, 73_760, 82_430, 10_000)
    assert [file.name for file in ptb.FILES] == list(FILES)
    for file in (*ptb.FILES, ptb.ARCHIVE):
        kind, _, digest = file.checksum.partition(":")
        assert len(digest) == 2 * hashlib.new(kind).digest_size
        assert all(address.startswith("http") for address in file.addresses)
