"""A user's own text: small files written here, every token of which is known, and everything that can be wrong."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commands import assert_refused, command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mufuru.experiments.cli import doctor
from mufuru.experiments.data import DataError, text
from mufuru.experiments.data.lines import read_input, read_lines
from mufuru.experiments.data.text import Corpus, Level, Request

SMALL = b"the cat sat\non  the\tmat\n\nthe end"
WORDS = ["the", "cat", "sat", "<eos>", "on", "the", "mat", "<eos>", "<eos>", "the", "end", "<eos>"]


def tokens(path: Path, level: Level) -> Iterator[str]:
    return text.tokens_of(read_lines(path), level, path)


def write(folder: Path, data: bytes, name: str = "text.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def load(*request: Any, **more: Any) -> Corpus:
    return text.load(Request(*request, **more))


def words(corpus: Corpus, part: str) -> str:
    return " ".join(corpus.vocabulary.decode(getattr(corpus, part)))


def test_words_and_lines(tmp_path: Path) -> None:
    assert list(tokens(write(tmp_path, SMALL), "word")) == WORDS


def test_characters(tmp_path: Path) -> None:
    assert list(tokens(write(tmp_path, "né\n\nz".encode()), "char")) == ["n", "é", "\n", "\n", "z"]


@pytest.mark.parametrize(
    "data",
    [b"a b\nc\n", b"a b\r\nc\r\n", b"a b\rc\r", b"\xef\xbb\xbfa b\nc\n", b"\xef\xbb\xbfa b\r\nc\r\n"],
    ids=["plain", "windows", "old mac", "byte order mark", "both"],
)
def test_the_same_text_from_every_system(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    assert list(tokens(path, "word")) == ["a", "b", "<eos>", "c", "<eos>"]
    assert "".join(tokens(path, "char")) == "a b\nc\n"


@given(st.text(st.sampled_from("ab \t\r\n\f\x1c\u2028\u00a0\ufeffé€😀"), max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_are_those_of_python(tmp_path: Path, content: str) -> None:
    """Python's own text files agree on what ends a line and on the byte order mark."""
    path = write(tmp_path, content.encode())
    with open(path, encoding="utf-8-sig") as file:
        assert list(read_lines(path)) == list(file)


@given(st.text(st.sampled_from("ab \n"), min_size=1, max_size=40), st.sampled_from(["word", "char"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_tokens_are_those_of_the_plainest_way(tmp_path: Path, content: str, level: text.Level) -> None:
    path = write(tmp_path, content.encode())
    expected = list(content)
    if level == "word":
        lines = content.removesuffix("\n").split("\n")
        expected = list(itertools.chain.from_iterable([*line.split(), "<eos>"] for line in lines))
        if not content.split():
            with pytest.raises(DataError, match="has no words"):
                tokens(path, level)
            return
    assert list(tokens(path, level)) == expected


def test_held_out_tails(tmp_path: Path) -> None:
    """The last 5 of 20 tokens are the test, the 4 before them validation; the vocabulary has none of their words."""
    path = write(tmp_path, b" ".join(b"%c" % letter for letter in b"abcdefghijkaklmnopa"))
    corpus = load([path], held_out=(0.2, 0.25))
    assert words(corpus, "train") == "a b c d e f g h i j k"
    assert words(corpus, "valid") == "a k <unk> <unk>"
    assert words(corpus, "test") == "<unk> <unk> <unk> a <eos>"
    assert corpus.vocabulary.words == (*"abcdefghijk", "<eos>", "<unk>")
    assert corpus.name == "text.txt"


def test_own_files(tmp_path: Path) -> None:
    first, second = write(tmp_path, b"a a\nb", "1"), write(tmp_path, b"c a", "2")
    valid, test = write(tmp_path, b"a z", "3"), write(tmp_path, b"b z b", "4")
    corpus = load([first, second], valid_files=[valid], test_files=[test])
    assert words(corpus, "train") == "a a <eos> b <eos> c a <eos>"
    assert words(corpus, "valid") == "a <unk> <eos>"
    assert words(corpus, "test") == "b <unk> b <eos>"
    assert corpus.vocabulary.words == ("a", "<eos>", "b", "c", "<unk>")
    assert corpus.name == "1, 2"


def test_own_files_for_one_part(tmp_path: Path) -> None:
    """The other is held out, and the training text keeps the rest."""
    train, valid = write(tmp_path, b"a b c d e f g h i", "1"), write(tmp_path, b"a z", "2")
    corpus = load([train], valid_files=[valid], held_out=(0.4, 0.25))
    assert words(corpus, "train") == "a b c d e f g h"
    assert words(corpus, "valid") == "a <unk> <eos>"
    assert words(corpus, "test") == "<unk> <eos>"


def test_rare_words_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, b"a b a c\nb d a b\na a b b\n")
    corpus = load([path], min_count=2, held_out=(0.14, 0.14))
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>")
    assert words(corpus, "train") == "a b a <unk> <eos> b <unk> a b <eos> a"
    assert words(load([path], vocabulary_size=3, held_out=(0.14, 0.14)), "train") == (
        "a <unk> a <unk> <eos> <unk> <unk> a <unk> <eos> a"
    )


def test_special_words_in_a_text_are_the_special_words(tmp_path: Path) -> None:
    """As in the Penn Treebank, whose rare words were replaced by whoever made it."""
    train, other = write(tmp_path, b"a <unk> b <eos> c", "1"), write(tmp_path, b"<unk> z <eos>", "2")
    corpus = load([train], valid_files=[other], test_files=[write(tmp_path, b"c", "3")])
    assert corpus.vocabulary.words == ("<eos>", "a", "<unk>", "b", "c")
    assert corpus.train.tolist() == [1, 2, 3, 0, 4, 0]
    assert corpus.valid.tolist() == [2, 2, 0, 0]


def test_special_words_by_characters_are_characters(tmp_path: Path) -> None:
    corpus = load([write(tmp_path, b"<unk>" * 4)], "char")
    assert corpus.vocabulary.words == (*"<unk>", "<unk>")
    assert "".join(corpus.vocabulary.decode(corpus.train)) == ("<unk>" * 4)[:16]


def test_a_corpus_knows_the_same_data_again(tmp_path: Path) -> None:
    here, there = write(tmp_path, SMALL * 5, "1"), write(tmp_path, (SMALL * 5).replace(b"\n", b"\r\n"), "2")
    other = write(tmp_path, SMALL * 6, "3")
    assert load([here]).fingerprint == load([there]).fingerprint
    assert len({load([path], level).fingerprint for path in (here, other) for level in ("word", "char")}) == 4


BAD = {
    "empty": (b"", "is empty: expected text"),
    "a mark alone": (b"\xef\xbb\xbf", "is empty: expected text"),
    "white space": (b" \n\t\n", "has no words: expected text"),
    "latin-1": (
        "é\n".encode() + b"na\xefve\n",
        "line 2: expected UTF-8, got the byte 0xef at offset 5. .*iconv -f ISO-8859-1 -t",
    ),
    "after a mark": (b"\xef\xbb\xbfab\xff", "line 1: expected UTF-8, got the byte 0xff at offset 5"),
    "a cut character": ("ab\né".encode()[:-1], "line 2: expected UTF-8, got the byte 0xc3 at offset 3"),
    "utf-16": ("hello\n".encode("utf-16"), "line 1: expected UTF-8, got the byte 0xff at offset 0. .*iconv -f UTF-16"),
    "utf-16 without a mark": (
        "hi\n".encode("utf-16-le"),
        "line 1: expected UTF-8, got the byte 0x00 at offset 1. .*may be UTF-16",
    ),
    "binary": (
        b"\x7fELF\n\x02\x01\0\0",
        "line 2: expected UTF-8, got the byte 0x00 at offset 7. .*if it is binary, give",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_no_text(tmp_path: Path, name: str) -> None:
    data, message = BAD[name]
    path = write(tmp_path, data)
    good = write(tmp_path, SMALL * 10, "good.txt")
    message = f"{re.escape(str(path))}.*{message}"
    with pytest.raises(DataError, match=message):
        load([good, path])
    with pytest.raises(DataError, match=message):
        load([good], valid_files=[path])
    with pytest.raises(DataError, match=message):
        load([good], test_files=[path])


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.txt: there is no such file. Check its name and folder"):
        load([tmp_path / "none.txt"])


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder: expected a text file, such as one of .*/\*.txt"):
        load([tmp_path])


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DataError, match=r"text.txt cannot be read as a text file \(Permission denied\)"):
        list(read_lines(tmp_path / "text.txt"))


def test_one_token(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"the training part of text.txt has 1 token, expected at least 2: .* more text"
    ):
        load([write(tmp_path, b"a")], "char")


def test_too_short_to_hold_out(tmp_path: Path) -> None:
    path = write(tmp_path, b"a b c d e f g h i j k l")
    with pytest.raises(DataError, match=r"the validation part of text.txt has 1 token, .* or hold out another share"):
        load([path])
    with pytest.raises(DataError, match=r"the test part of text.txt has 0 tokens, expected at least 2"):
        load([path], held_out=(0.2, 0.05))


def test_a_validation_file_of_one_token(tmp_path: Path) -> None:
    one = write(tmp_path, b"a", "one.txt")
    with pytest.raises(DataError, match=r"the validation part of text.txt has 1 token, expected at least 2"):
        load([write(tmp_path, SMALL)], "char", valid_files=[one])


def test_too_short_for_what_it_is_for(tmp_path: Path) -> None:
    corpus = load([write(tmp_path, SMALL * 5)])
    corpus.require("train", len(corpus.train), "a window")
    with pytest.raises(DataError, match=r"the training part of text.txt has 42 tokens, expected at least 43: a window"):
        corpus.require("train", 43, "a window")


def test_a_vocabulary_of_only_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL * 5)
    with pytest.raises(DataError, match="only <eos> and <unk>: no word occurs 99 times"):
        load([path], min_count=99)
    with pytest.raises(DataError, match="only <unk>: a vocabulary_size of 1 has no place"):
        load([path], "char", vocabulary_size=1)


def test_a_file_in_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"text.txt is given for training and for test: a file can be in one part"):
        load([path], test_files=[Path("text.txt")])


def test_the_command_line_says_it_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "main", lambda _: len(load([tmp_path / "none.txt"]).train))
    assert_refused(command(capsys, "doctor"), 2, "none.txt: there is no such file")


def test_words_without_their_punctuation(tmp_path: Path) -> None:
    """The default for a user's text: no word is unknown because of a comma; special words stay whole."""
    path = tmp_path / "book.txt"
    path.write_text('The king, "my lord", isn\'t <unk> .\n\nking!  <eos>\n', encoding="utf-8")
    wanted = ["The", "king", ",", '"', "my", "lord", '"', ",", "is", "n't", "<unk>", ".", "<eos>", "<eos>", "king", "!"]
    assert list(tokens(path, "words")) == [*wanted, "<eos>", "<eos>"]
    assert "king," in list(tokens(path, "word"))


@pytest.mark.parametrize("cut", text.CUTS)
@given(st.text(alphabet=st.sampled_from("aZ\u00e9\u0301n't\u2019 -/.,:!09\t\n\u3000\x1c\u0939\u093f_<"), max_size=30))
def test_a_pattern_cuts_as_we_do(cut: text.Cut, line: str) -> None:
    """For programs without mufuru."""
    tokeniser = text.tokeniser(cut)
    for old, new in tokeniser["replace"].items():
        line = line.replace(old, new)
    assert [match[0] for match in re.finditer(tokeniser["pattern"], line)] == text.CUTS[cut](line)


@given(
    st.text(max_size=30)
    | st.text(alphabet=st.sampled_from("aZ\u00e9\u0301n't\u2019 -/.,:!09\t\x1c\u00b2\u2167_<uk>"), max_size=30)
)
def test_no_word_reaches_over_a_blank(line: str) -> None:
    """Large texts are cut between blanks, and letters and digits alone are one word without a look at the pattern."""
    line = line.replace("\n", " ")
    assert text.apart(line) == [word for blank in line.split() for word in text.apart(blank)]
    for blank in line.split():
        if blank.isalnum():
            assert text.words(blank) == [blank]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_data_is_no_pipe(tmp_path: Path) -> None:
    """What is read more than once cannot come from a pipe, and nobody should wait for one; input to predict can."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is a pipe or a device: expected a file, which is read more than once"):
        next(read_lines(tmp_path / "pipe"))
    with ThreadPoolExecutor() as pool:
        pool.submit((tmp_path / "pipe").write_text, "one\n")
        assert [*read_input(tmp_path / "pipe")[0]] == ["one\n"]
