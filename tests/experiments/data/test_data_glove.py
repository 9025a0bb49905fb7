"""Vectors for words: small files beside a plain reader, every format there is, and everything that can be wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from file_server import FileServer, file_server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mufuru.experiments.data import DataError, glove
from mufuru.experiments.data.download import Remote
from mufuru.experiments.data.glove import Vectors
from mufuru.experiments.settings import SettingError

SMALL = "the 0.5 -1 2e-1\nof 1 2 3\nnaïve -0.25 0 1e3\n. 7 8 9\n"


def write(folder: Path, content: str | bytes, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(vectors: Vectors) -> dict[str, list[float]]:
    assert vectors.matrix.dtype == torch.float32
    assert len(vectors.matrix) == len(vectors.words)
    return dict(zip(vectors.words, vectors.matrix.tolist(), strict=True))


def plain(content: str, words: Sequence[str]) -> dict[str, list[float]]:
    """All lines of a well-behaved file, each number by NumPy, then those that are wanted."""
    found: dict[str, list[float]] = {}
    for line in content.splitlines():
        word, *numbers = line.split(" ")
        found.setdefault(word, np.array(numbers, np.float64).astype(np.float32).tolist())
    return {word: found[word] for word in dict.fromkeys(words) if word in found}


def test_the_words_that_are_asked_for(tmp_path: Path) -> None:
    vectors = glove.read(write(tmp_path, SMALL), ["naïve", "nonesuch", "the", "the", "."], 3)
    assert vectors.words == ("naïve", "the", ".")
    assert rows(vectors) == plain(SMALL, ["naïve", "the", "."])
    assert vectors.matrix.shape == (3, 3)


def test_none_of_the_words(tmp_path: Path) -> None:
    vectors = glove.read(write(tmp_path, SMALL), ["nonesuch", "lone \udce9"], 3)
    assert vectors.words == ()
    assert vectors.matrix.shape == (0, 3)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_plain_reader_agrees(tmp_path: Path, data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 4))
    word = st.text(st.sampled_from("ab1.é€😀\u00a0"), min_size=1, max_size=3)
    number = st.floats(width=32, allow_nan=False, allow_infinity=False).map(str)
    line = st.tuples(word, st.lists(number, min_size=dimension, max_size=dimension))
    lines = data.draw(st.lists(line, min_size=1, max_size=8))
    content = "\n".join(" ".join([word, *numbers]) for word, numbers in lines)
    wanted = data.draw(st.lists(word | st.sampled_from([word for word, _ in lines]), max_size=6))
    assert rows(glove.read(write(tmp_path, content), wanted, dimension)) == plain(content, wanted)


@pytest.mark.parametrize(
    "content",
    [SMALL.rstrip("\n"), SMALL.replace("\n", "\r\n"), SMALL.replace("\n", " \n"), f"4 3\n{SMALL}"],
    ids=["no last end", "windows", "blank at the end", "header"],
)
def test_every_format_that_is_around(tmp_path: Path, content: str) -> None:
    words = ["the", "of", "naïve", ".", "4"]
    assert rows(glove.read(write(tmp_path, content), words, 3)) == plain(SMALL, words)


def test_words_with_blanks(tmp_path: Path) -> None:
    """As GloVe's 840B has them; the first line may be one."""
    content = ". . . 1 2\nat name@domain.com 3 4\nat 5 6\n. 7 8\nnew york 9 10\n"
    found = rows(glove.read(write(tmp_path, content), ["at", ". . .", ".", "at name@domain.com", "name@domain.com"], 2))
    assert found == {"at": [5, 6], ". . .": [1, 2], ".": [7, 8], "at name@domain.com": [3, 4]}


def test_words_that_are_numbers(tmp_path: Path) -> None:
    """A first line of two numbers is a header only if the others agree."""
    assert rows(glove.read(write(tmp_path, "1 2\n3 4\n5 6\n"), ["1", "5"], 1)) == {"1": [2], "5": [6]}
    assert rows(glove.read(write(tmp_path, "2 1\n3 4\n5 6\n"), ["2", "5"], 1)) == {"5": [6]}
    assert rows(glove.read(write(tmp_path, "1 2 3\n3 4 5\n"), ["1"], 2)) == {"1": [2, 3]}


def test_the_first_of_two_lines_counts(tmp_path: Path) -> None:
    assert rows(glove.read(write(tmp_path, "a 1\nb 2\na 3\n"), ["a"], 1)) == {"a": [1]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat 1 2", "expected a word and 3 numbers, .* got 2 in 'cat 1 2'"),
        ("cat 1 2 3 4", "expected a word and 3 numbers, .* got 4 in 'cat 1 2 3 4'"),
        ("cat 1 2 3 of 1 2 3", "got 3 in 'cat 1 2 3 of 1 2 3'"),
        ("cat", "got 0 in 'cat'"),
        ("", "got 0 in an empty line"),
        ("cat  1 2 3", "with single blanks between them"),
        (" 1 2 3", "expected a word and 3 numbers, .* got a blank in front of ' 1 2 3'"),
        ("wanted 1 two 3", "'two' among them in 'wanted 1 two 3'"),
        ("wanted 1 nan 3", "'nan' among them in 'wanted 1 nan 3'"),
        ("wanted 1 2 -inf", "'-inf' among them"),
        ("wanted 1 2 1e39", "'1e39' among them"),
        ("wanted\t1\t2\t3", r"got 0 in 'wanted\\t1\\t2\\t3'"),
    ],
)
def test_malformed_lines(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, f"{SMALL}{line}\nto 1 2 3\n")
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}, line 5: .*{message}"):
        glove.read(path, ["wanted", "to"], 3)


def test_numbers_of_other_words_are_not_read(tmp_path: Path) -> None:
    """Only how many there are: that is what makes it fast."""
    path = write(tmp_path, f"{SMALL}cat 1 two 3\nto 1 2 3\n")
    assert rows(glove.read(path, ["to"], 3)) == {"to": [1, 2, 3]}


def test_no_vectors_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"vectors.txt is empty: expected a word and its numbers"):
        glove.read(write(tmp_path, ""), ["a"], 3)
    with pytest.raises(DataError, match=r"is no file of vectors: .* 4 numbers .* got no numbers") as caught:
        glove.read(write(tmp_path, "root:secret:1:0\nthere was\n"), ["a"], 4)
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="there is no such file"):
        glove.read(tmp_path / "none.txt", ["a"], 3)
    with pytest.raises(DataError, match="is a folder: expected a file of vectors"):
        glove.read(tmp_path, ["a"], 3)


def test_less_than_the_header_says(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 4 words, and its first line says 5: it is incomplete"):
        glove.read(write(tmp_path, f"5 3\n{SMALL}"), ["the"], 3)


def test_the_line_number_counts_the_header(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 6: expected a word and 3 numbers"):
        glove.read(write(tmp_path, f"5 3\n{SMALL}cat 1 2\n"), ["the"], 3)


def zipped(**members: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.txt", content)
    return stream.getvalue()


def test_archives(tmp_path: Path) -> None:
    assert rows(glove.read(write(tmp_path, zipped(one=SMALL), "one.zip"), ["of"], 3)) == {"of": [1, 2, 3]}
    two = write(tmp_path, zipped(one=SMALL, two="a 1\n"), "two.zip")
    assert rows(glove.read(two, ["a"], 1, member="two.txt")) == {"a": [1]}
    with pytest.raises(DataError, match=r"holds several files, expected one: there are one.txt, two.txt"):
        glove.read(two, ["a"], 1)
    with pytest.raises(DataError, match=r"has no three.txt: there are one.txt, two.txt"):
        glove.read(two, ["a"], 1, member="three.txt")
    with pytest.raises(DataError, match=r"one.zip/one.txt, line 2: expected"):
        glove.read(write(tmp_path, zipped(one="a 1\nb\n"), "one.zip"), ["a"], 1)
    with pytest.raises(DataError, match="cannot be read as a zip archive"):
        glove.read(write(tmp_path, "no archive", "bad.zip"), ["a"], 1)
    with pytest.raises(DataError, match="there is no such file"):
        glove.read(tmp_path / "none.zip", ["a"], 1)


def vectors_of(dimension: int) -> str:
    return f"the {' '.join(['1'] * dimension)}\nof {' '.join(['2'] * dimension)}\n"


ARCHIVE = zipped(**{f"glove.6B.{dimension}d": vectors_of(dimension) for dimension in (50, 100)})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FileServer]:
    """A small archive instead of the real one."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))
    with file_server() as server:
        address = server.serve("glove.6B.zip", ARCHIVE)
        small = Remote("glove.6B.zip", f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}", (address,))
        monkeypatch.setitem(glove.SOURCES, "6B", dataclasses.replace(glove.SOURCES["6B"], archive=small))
        yield server


@pytest.mark.parametrize("dimension", [50, 100])
def test_downloaded_once_and_kept(server: FileServer, dimension: int) -> None:
    for _ in range(2):
        vectors = glove.load(["of", "cat"], dimension=dimension)
        assert rows(vectors) == {"of": [2] * dimension}
    assert len(server.asked) == 1


@pytest.mark.parametrize("place", [".", "glove"])
@pytest.mark.parametrize("name", ["glove.6B.50d.txt", "glove.6B.zip", "glove.6B.50d.mine.txt"])
def test_a_folder_of_the_user(tmp_path: Path, place: str, name: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    path = write(tmp_path / place, ARCHIVE if name.endswith(".zip") else vectors_of(50), name)
    for given_path in (tmp_path, path):
        assert rows(glove.load(["of"], given_path, dimension=50)) == {"of": [2] * 50}


@pytest.mark.parametrize("name", ["glove.6B.50d.txt", "glove.6B.50d.mine.txt"])
def test_a_file_in_the_data_folder_is_not_downloaded(server: FileServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "data" / "glove").mkdir(parents=True)
    write(tmp_path / "data" / "glove", "of" + " 3" * 50 + "\n", name)
    assert rows(glove.load(["of"], dimension=50)) == {"of": [3] * 50}
    assert not server.asked
    assert rows(glove.load(["of"], dimension=100)) == {"of": [2] * 100}


def test_a_folder_without_vectors(tmp_path: Path) -> None:
    wanted = r"expected glove.6B.100d.txt or glove.6B.zip there. Leave the folder out to have it downloaded"
    with pytest.raises(DataError, match=rf"has no glove.6B.100d.txt: {wanted}"):
        glove.load(["of"], tmp_path)
    with pytest.raises(DataError, match=rf"none: there is no such file or folder, {wanted}"):
        glove.load(["of"], tmp_path / "none")
    for name in ("a", "b"):
        write(tmp_path, vectors_of(100), f"glove.6B.100d.{name}.txt")
    with pytest.raises(DataError, match=r"has glove.6B.100d.a.txt and glove.6B.100d.b.txt: give one of them"):
        glove.load(["of"], tmp_path)


def test_another_dimension(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has vectors of 50 features, expected 100: .* an embedding_size of 50"):
        glove.load(["of"], write(tmp_path, vectors_of(50)))
    with pytest.raises(DataError, match=r"has vectors of 100 features, expected 50: .* an embedding_size of 100"):
        glove.load(["of"], write(tmp_path, vectors_of(100)), dimension=50)
    with pytest.raises(SettingError, match="GloVe 6B has vectors of dimension 50 or 100 or 200 or 300, got 64"):
        glove.load(["of"], tmp_path, dimension=64)
    with pytest.raises(SettingError, match=r"unknown set of vectors '84B'.* Did you mean '840B'"):
        glove.load(["of"], tmp_path, name="84B")


def test_the_real_sources() -> None:
    assert glove.SOURCES["6B"].member(100) == "glove.6B.100d.txt"
    assert glove.SOURCES["840B"].member(300) == "glove.840B.300d.txt"
    for source in glove.SOURCES.values():
        kind, _, digits = source.archive.checksum.partition(":")
        assert kind == "sha256"
        assert len(bytes.fromhex(digits)) == 32
        assert all(address.startswith("https://") for address in source.archive.addresses)
