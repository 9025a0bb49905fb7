"""The Sentiment Treebank's way into the program, with a treebank of a few words and a server on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from file_server import FileServer, file_server

from mufuru.experiments.data import DataError, sst
from mufuru.experiments.data.download import DownloadError, Remote
from mufuru.experiments.data.examples import Examples
from mufuru.experiments.data.sst import Tree, Treebank, parse

FILES = {
    "train.txt": b"(3 (2 A) (4 good))\n(2 (2 a) (2 film))\n(0 (1 (1 Bad) (2 film)) (2 .))\n(4 (2 a) (4 good))\n",
    "dev.txt": b"(1 (2 not) (3 good))\n(2 meh)\n",
    "test.txt": b"(4 (2 so) (4 Good))\n(2 meh)\n(1 -LRB-)\n",
}
COUNTS = (4, 2, 3)
REAL = sst.ARCHIVE, sst.CHECKSUMS, sst.SENTENCES


def zipped(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


ARCHIVE = zipped({"../../evil.txt": b"evil", "trees/": b""} | {f"trees/{name}": data for name, data in FILES.items()})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))
    with file_server() as server:
        address = server.serve("small.zip", ARCHIVE)
        monkeypatch.setattr(sst, "ARCHIVE", Remote("small.zip", checksum(ARCHIVE), (address,)))
        yield server


def checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small treebank in the place of the real one."""
    monkeypatch.setattr(sst, "ARCHIVE", Remote("small.zip", checksum(ARCHIVE), ()))
    monkeypatch.setattr(sst, "CHECKSUMS", tuple(map(checksum, FILES.values())))
    monkeypatch.setattr(sst, "SENTENCES", COUNTS)


def put(folder: Path, **changes: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(changes.get(name.split(".")[0], data))
    return folder


def assert_small(treebank: Treebank) -> None:
    parts = (treebank.train, treebank.valid, treebank.test)
    for part, data in zip(parts, FILES.values(), strict=True):
        assert part == [parse(line) for line in data.decode().splitlines()]


def test_downloaded_once_and_kept(server: FileServer, tmp_path: Path) -> None:
    for _ in range(2):
        assert_small(sst.load())
    assert [name for name, _ in server.asked] == ["small.zip"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.name[0] != ".") == ["small.zip"]


def test_no_download(server: FileServer) -> None:
    server.files.clear()
    with pytest.raises(DownloadError, match=r"cannot download small.zip: .*HTTP 404"):
        sst.load()


@pytest.mark.parametrize("inner", ["", "sst", "trees"])
def test_a_folder_of_the_user(tmp_path: Path, inner: str) -> None:
    put(tmp_path / inner)
    assert_small(sst.load(tmp_path))


@pytest.mark.parametrize("place", [".", "sst"])
def test_an_archive_of_the_user(tmp_path: Path, place: str) -> None:
    """Nothing of it is unpacked anywhere."""
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "small.zip").write_bytes(ARCHIVE)
    assert_small(sst.load(tmp_path))
    assert_small(sst.load(tmp_path / place / "small.zip"))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["small.zip"]
    assert not list(tmp_path.parent.rglob("evil*"))


def test_an_archive_beside_another_text(tmp_path: Path) -> None:
    """A folder for several data sets may have a train.txt of another one."""
    (tmp_path / "small.zip").write_bytes(ARCHIVE)
    (tmp_path / "train.txt").write_text("(1 (2 a) (3 b))\n")
    assert_small(sst.load(tmp_path))


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    wanted = "expected train.txt, dev.txt, test.txt or small.zip there. Leave the folder out to have them downloaded"
    with pytest.raises(DataError, match=f"has no train.txt: {wanted}"):
        sst.load(tmp_path)
    with pytest.raises(DataError, match=f"none: there is no such file or folder, {wanted}"):
        sst.load(tmp_path / "none")
    (put(tmp_path) / "dev.txt").unlink()
    with pytest.raises(DataError, match=rf"has no dev.txt: {wanted}"):
        sst.load(tmp_path)


def test_another_file_in_the_folder(tmp_path: Path) -> None:
    put(tmp_path, dev=b"(2 mine)\n")
    with pytest.raises(DataError, match=r"dev.txt is not that file of the Stanford Sentiment Treebank: its sha256 is"):
        sst.load(tmp_path)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (b"no archive", "cannot be read as a zip archive"),
        (ARCHIVE[:-30], "cannot be read as a zip archive"),
        (zipped({"trees/train.txt": b"(2 a)"}), r"has no trees/dev.txt and no trees/test.txt: it is not the archive"),
    ],
    ids=["none", "cut", "other"],
)
def test_another_archive(tmp_path: Path, archive: bytes, message: str) -> None:
    (tmp_path / "small.zip").write_bytes(archive)
    with pytest.raises(DataError, match=message):
        sst.load(tmp_path)


def test_a_damaged_archive(tmp_path: Path) -> None:
    """A byte of the packed data: zip archives know a sum of every file."""
    members = {f"trees/{name}": data for name, data in FILES.items()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    (tmp_path / "small.zip").write_bytes(stream.getvalue().replace(b"good", b"gOod"))
    with pytest.raises(DataError, match=r"cannot be read as a zip archive .*CRC"):
        sst.load(tmp_path)


def test_a_file_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sst, "LARGEST", 20)
    (tmp_path / "small.zip").write_bytes(ARCHIVE)
    with pytest.raises(DataError, match=r"trees/train.txt in .* is a file of 88 bytes, expected 20 at most"):
        sst.load(tmp_path)


def test_sentences_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sst, "SENTENCES", (4, 2, 4))
    with pytest.raises(DataError, match=r"was read as \(4, 2, 3\) sentences, expected \(4, 2, 4\): please report this"):
        sst.load(put(tmp_path))


def test_a_treebank_of_ones_own(tmp_path: Path) -> None:
    folder = put(tmp_path / "mine", dev=b"(4 yes)\n(0 no)\n")
    treebank = sst.load_own(folder)
    assert treebank.valid == [Tree(4, "yes"), Tree(0, "no")]
    assert treebank.name == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.zip").write_bytes(ARCHIVE)
    assert_small(sst.load_own(tmp_path / "other"))
    (tmp_path / "other" / "second.zip").write_bytes(ARCHIVE)
    with pytest.raises(DataError, match=r"has mine.zip and second.zip: give one of them"):
        sst.load_own(tmp_path / "other")


def test_errors_in_a_treebank_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test.txt, line 2, column 2: expected a label from 0 to 4, got '7'"):
        sst.load_own(put(tmp_path, test=b"(2 a)\n(7 b)\n"))
    (tmp_path / "bad.zip").write_bytes(zipped({f"trees/{name}": b"(2 a)\n(2 \xff)\n" for name in FILES}))
    with pytest.raises(DataError, match=r"bad.zip/trees/train.txt, line 2: expected UTF-8, got the byte 0xff"):
        sst.load_own(tmp_path / "bad.zip")


def small() -> Treebank:
    train, valid, test = ([parse(line) for line in data.decode().splitlines()] for data in FILES.values())
    return Treebank(train, valid, test, "small")


def texts(examples: Examples) -> list[tuple[str, int]]:
    return [
        (" ".join(words), target) for words, target in zip(examples.sequences, examples.targets.tolist(), strict=True)
    ]


def test_binary_phrases() -> None:
    found = sst.examples(small())
    assert found.kind == "text"
    assert found.labels == ("negative", "positive")
    assert texts(found.train) == [
        ("good", 1),
        ("A good", 1),
        ("Bad", 0),
        ("Bad film", 0),
        ("Bad film .", 0),
        ("good", 1),
        ("a good", 1),
    ]
    assert texts(found.valid) == [("not good", 0)]
    assert texts(found.test) == [("so Good", 1), ("(", 0)]
    assert found.description == (
        "small, 2 classes: 7 phrases to train on, 1 sentences for validation and 2 for the test"
    )


def test_distinct_phrases() -> None:
    """Those that differ in case are two, as in the counts of the literature."""
    found = sst.examples(small(), distinct=True)
    assert texts(found.train) == [
        ("good", 1),
        ("A good", 1),
        ("Bad", 0),
        ("Bad film", 0),
        ("Bad film .", 0),
        ("a good", 1),
    ]


def test_graded_phrases() -> None:
    """All labels of training, as shares of negative and positive; validation and test stay what they are."""
    found, five = sst.examples(small(), graded=True), sst.examples(small(), 5)
    assert found.labels == ("negative", "positive")
    assert found.train.sequences == five.train.sequences
    expected = torch.tensor([[1 - sst.GRADES[label], sst.GRADES[label]] for label in five.train.targets.tolist()])
    assert torch.allclose(found.train.targets, expected)
    assert texts(found.test) == texts(sst.examples(small()).test)
    assert found.description.startswith("small, 2 classes: 14 graded phrases to train on")


def test_sentences() -> None:
    found = sst.examples(small(), phrases=False)
    assert texts(found.train) == [("A good", 1), ("Bad film .", 0), ("a good", 1)]


def test_five_classes() -> None:
    found = sst.examples(small(), 5, phrases=False)
    assert found.labels == ("very negative", "negative", "neutral", "positive", "very positive")
    assert texts(found.train) == [("A good", 3), ("a film", 2), ("Bad film .", 0), ("a good", 4)]
    assert texts(found.valid) == [("not good", 1), ("meh", 2)]
    assert len(sst.examples(small(), 5).train) == 14
    # "a", "good", "film", "a film", "." once each, "A good", "a good", "A" and the three of "Bad"
    assert len(sst.examples(small(), 5, distinct=True).train) == 11


def test_what_cannot_be_asked_for() -> None:
    neutral = dataclasses.replace(small(), valid=[Tree(2, "meh")])
    with pytest.raises(DataError, match="the validation part has no examples"):
        sst.examples(neutral)


def test_the_real_treebank() -> None:
    """What the literature knows of the treebank; that the sums are right shows wherever it is loaded."""
    archive, sums, sentences = REAL
    assert sentences == (8_544, 1_101, 2_210)
    for digest in (archive.checksum, *sums):
        kind, _, digits = digest.partition(":")
        assert kind == "sha256"
        assert len(bytes.fromhex(digits)) == 32
    assert archive.addresses[0].startswith("https://")
