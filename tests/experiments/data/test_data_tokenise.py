"""A text in a token file has the tokens that it has in memory, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mufuru.experiments.data import DataError, TokenError, pieces, tally, text, token_file, tokenise
from mufuru.experiments.data.text import Request


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of some bytes, in this process."""
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pieces, "PIECE", 300)
    monkeypatch.setattr(pieces, "WINDOW", 100)
    monkeypatch.setattr(tokenise, "MOST_PROCESSES", 1)


def written(path: Path, lines: int = 60, end: str = "\n", seed: int = 0) -> str:
    draw = random.Random(seed)
    words = [f"w{draw.randrange(40)}" for _ in range(lines)] + ["ünï", "<unk>", "<eos>", "N", "漢字", "a\u3000b"]
    text = end.join(" ".join(draw.choices(words, k=draw.randrange(12))) for _ in range(lines))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    return str(path)


def request(*files: str, level: text.Level = "word", **changes: Any) -> Request:
    return Request(files, level, **changes)


def assert_same(one: text.Corpus, other: text.Corpus) -> None:
    assert one.vocabulary == other.vocabulary
    for part in ("train", "valid", "test"):
        assert torch.equal(getattr(one, part).long(), getattr(other, part).long()), part
    assert (one.fingerprint, one.name) == (other.fingerprint, other.name)


def token_path(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "data" / "tokens").glob("*.tokens")
    return path


@pytest.mark.parametrize("level", ["words", "word", "char"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", " "], ids=["lf", "crlf", "cr", "one line"])
@pytest.mark.parametrize("changes", [{}, {"vocabulary_size": 17, "held_out": (0.3, 0.05)}, {"min_count": 9}], ids=str)
def test_tokens_are_those_in_memory(tmp_path: Path, level: text.Level, end: str, changes: dict[str, Any]) -> None:
    wanted = request(
        written(tmp_path / "a.txt", end=end), written(tmp_path / "b.txt", 30, end, 1), level=level, **changes
    )
    made = tokenise.load(wanted)
    assert made.train.dtype == torch.uint16
    assert_same(made, text.load(wanted))
    assert_same(tokenise.load(wanted), made)


def test_parts_with_files_of_their_own(tmp_path: Path) -> None:
    own = {"valid_files": (written(tmp_path / "v.txt", 20, seed=2),)}
    for more in ({}, {"test_files": (written(tmp_path / "t.txt", 9, seed=3),)}):
        wanted = request(written(tmp_path / "a.txt"), **own, **more)
        assert_same(tokenise.load(wanted), text.load(wanted))


def test_counts_that_outgrow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "IN_MEMORY", 5)
    wanted = request(written(tmp_path / "a.txt"), vocabulary_size=20, min_count=2)
    assert_same(tokenise.load(wanted), text.load(wanted))
    monkeypatch.setattr(tally, "MOST", 7)
    with pytest.raises(TokenError, match="more than 7 different words"):
        tokenise.load(replace(wanted, vocabulary_size=None))


@pytest.mark.parametrize("remembered", [1, 7])
def test_ids_that_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    monkeypatch.setattr(tokenise, "REMEMBERED", remembered)
    monkeypatch.setattr(pieces, "PIECE", 1 << 20)
    wanted = request(written(tmp_path / "a.txt"), level="words")
    assert_same(tokenise.load(wanted), text.load(wanted))
    vocabulary = text.load(wanted).vocabulary
    ids = tokenise.Ids("words", vocabulary)
    (piece,), _ = pieces.plan(wanted.files, in_words=True)
    tokenise.ids_of(piece, ids)
    assert len(ids) <= remembered


def test_ids_of_four_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(" ".join(f"w{number}" for number in range(70_000)) + "\n" * 30)
    wanted = request(str(path), level="words", held_out=(0.0, 0.001), valid_files=(written(tmp_path / "v.txt"),))
    made = tokenise.load(wanted)
    assert made.train.dtype == torch.int32
    assert_same(made, text.load(wanted))


def test_processes_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenise, "MOST_PROCESSES", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    planned, _ = pieces.plan([written(tmp_path / "a.txt")], in_words=True)
    assert len(planned) > 2
    alone = [tokenise.counts_of(piece, "word") for piece in planned]
    assert list(tokenise.in_order(tokenise.counts_of, planned, "word")) == alone
    monkeypatch.setattr(tokenise, "CONTEXT", None)
    assert list(tokenise.in_order(tokenise.counts_of, planned[:1], "word")) == alone[:1], "not worth a process"


@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("what", ["counts_of", "ids_of"])
def test_a_stopped_start_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, after: int) -> None:
    wanted, original, calls = request(written(tmp_path / "a.txt")), getattr(tokenise, what), []

    def failing(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == after + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments)

    monkeypatch.setattr(tokenise, what, failing)
    with pytest.raises(TokenError, match=r"No space left on device\): what is done so far is kept. Make room"):
        tokenise.load(wanted)
    # tokens that no row tells of, as a power failure leaves them
    (work,) = (tmp_path / "data" / "tokens").glob("*.part")
    if (work / "tokens").exists():
        with open(work / "tokens", "ab") as file:
            file.write(b"[1")
    assert_same(tokenise.load(wanted), text.load(wanted))
    pieces_there = len(pieces.plan(wanted.files, in_words=True)[0])
    assert len(calls) == pieces_there + 1, "no piece is made twice, but the one that failed"
    assert sorted(path.suffix for path in (tmp_path / "data" / "tokens").iterdir()) == [".lock", ".tokens"]


@pytest.mark.parametrize(
    ("place", "message"),
    [(0, "expected a token file"), (100, "its header has another checksum"), (5000, "its tokens have another checksum"),
     (14, "of another version of mufuru"), (-1, "its tokens have another checksum")],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, place: int, message: str) -> None:
    wanted = request(written(tmp_path / "a.txt", 600))
    tokenise.load(wanted)
    path = token_path(tmp_path)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(TokenError, match=f"{message}.*delete it and start again"):
        tokenise.load(wanted)
    path.unlink()
    assert_same(tokenise.load(wanted), text.load(wanted))


@pytest.mark.parametrize("length", [0, 10, 4096, -1])
def test_a_cut_file_is_refused(tmp_path: Path, length: int) -> None:
    wanted = request(written(tmp_path / "a.txt"))
    tokenise.load(wanted)
    path = token_path(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(TokenError, match="delete it and start again"):
        tokenise.load(wanted)


def test_a_damaged_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = request(written(tmp_path / "a.txt"))

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as first:
        first.setattr(token_file, "complete", stopped)
        with pytest.raises(KeyboardInterrupt):
            tokenise.load(wanted)
    (kept,) = tmp_path.rglob("done.sqlite")
    kept.write_bytes(b"no database" * 100)
    with pytest.raises(TokenError, match=r"is damaged \(.*delete the folders that end in .part"):
        tokenise.load(wanted)


def test_a_python_without_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    with pytest.raises(TokenError, match="this Python has no sqlite3"):
        tokenise.load(request(written(tmp_path / "a.txt")))


def test_a_text_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = request(written(tmp_path / "a.txt"))
    before = tokenise.load(wanted)
    written(tmp_path / "a.txt", 70, seed=5)
    assert tokenise.load(wanted).fingerprint != before.fingerprint
    written(tmp_path / "a.txt", 50, seed=6)
    original = token_file.complete

    def changing(*arguments: Any) -> None:
        original(*arguments)
        written(tmp_path / "a.txt", 55)

    monkeypatch.setattr(token_file, "complete", changing)
    with pytest.raises(TokenError, match=r"a\.txt changed while it was read"):
        tokenise.load(wanted)


@pytest.mark.parametrize(
    ("content", "level", "message"),
    [(b"", "word", "is empty"), (b"\n \n", "word", "has no words"), (b"a\n" * 400 + b"\xff\n", "word", "line 401: exp"),
     (b"a" * 900, "word", "a word of more than 100 bytes"), (b"\xef\xbb\xbf", "char", "is empty")],
)  # fmt: skip
def test_bad_texts(tmp_path: Path, content: bytes, level: text.Level, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        tokenise.load(request(str(path), level=level))
    with pytest.raises(DataError, match="no such file"):
        tokenise.load(request(str(tmp_path / "missing.txt"), level=level))


def test_a_text_without_blanks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("漢字ab".encode() * 500)
    wanted = request(str(path), level="char")
    assert_same(tokenise.load(wanted), text.load(wanted))
