"""Formats beside tables of texts: .ts, wide tables, lines of fastText and others, folders, gzip; numbers as labels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mufuru.experiments.data import DataError, labelled, ts
from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.lines import ending
from mufuru.experiments.data.readers import labels_first

PAIRS = [(f"this is text number {row}", ("bad", "good")[row % 2]) for row in range(20)]
SERIES = [([row / 2, -1.0 * row, 3.0], [1.0, 1.0 * row, 0.25], "12"[row % 2]) for row in range(20)]
HEAD = "#comment\n@problemName Two\n@timeStamps false\n@classLabel true 1 2\n@data\n"


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def texts(folder: Path, how: str) -> Path:
    """Write the pairs in one of the ways to keep texts."""
    if how == "folder":
        for row, (text, label) in enumerate(PAIRS):
            write(folder / "all" / label / f"{row:02}.txt", text)
        write(folder / "all" / "README", "what this is")
        return folder / "all"
    if how == "gzip":
        path = folder / "texts.csv.gz"
        path.write_bytes(gzip.compress(("text,label\n" + "".join(f"{a},{b}\n" for a, b in PAIRS)).encode()))
        return path
    mark = "__label__" if how == "fasttext" else ""
    return write(folder / "texts.txt", "".join(f"{mark}{label} {text}\n\n" for text, label in PAIRS))


@pytest.mark.parametrize("how", ["fasttext", "lines", "folder", "gzip"])
def test_texts(tmp_path: Path, how: str) -> None:
    found = labelled.load(texts(tmp_path, how))
    assert (found.kind, found.labels) == ("text", ("bad", "good"))
    parts = (found.train, found.valid, found.test)
    pairs = [
        (" ".join(words), found.labels[target])
        for part in parts
        for words, target in zip(part.sequences, part.targets.tolist(), strict=True)
    ]
    assert sorted(pairs) == sorted(PAIRS)
    assert found.layout is not None
    assert found.layout.format == {"gzip": "csv"}.get(how, how)


@pytest.mark.parametrize(("format", "wanted"), [("lines", "a b "), ("fasttext", " a b")])
def test_the_characters_of_a_text(tmp_path: Path, format: Format, wanted: str) -> None:
    """By characters blanks count: without them it would be other data than a run was trained on."""
    mark = "__label__" if format == "fasttext" else ""
    path = write(tmp_path / "a.txt", "".join(f"{mark}{label}  a b \n" for label in ("x\u00a0y", "z") * 5))
    found = labelled.load(path, format=format, cut="characters")
    assert {"".join(text) for text in found.train.sequences} >= {wanted}
    assert found.labels == (("x\u00a0y", "z") if format == "fasttext" else ("x", "z"))


def test_folders_of_parts(tmp_path: Path) -> None:
    """As the IMDB reviews come: their folder without labels is left out."""
    for row, (text, label) in enumerate(PAIRS):
        write(tmp_path / ("test" if row < 4 else "train") / label / f"{row}.txt", text)
    write(tmp_path / "train" / "unsup" / "0.txt", "no label")
    found = labelled.load(tmp_path)
    assert (len(found.test), len(found.train) + len(found.valid), found.labels) == (4, 16, ("bad", "good"))
    with pytest.raises(DataError, match="expected a folder of text files for each label"):
        labelled.load(tmp_path / "train" / "bad")


def series(folder: Path, how: str) -> Path:
    """Write the series of two channels in one of the ways to keep them."""
    if how == "ts":
        rows = (f"{','.join(map(str, x))}:{','.join(map(str, y))}:{label}\n" for x, y, label in SERIES)
        return write(folder / "two.ts", HEAD + "".join(rows))
    if how == "jsonl":
        rows = (json.dumps({"values": list(zip(x, y, strict=True)), "label": label}) + "\n" for x, y, label in SERIES)
        return write(folder / "two.jsonl", "".join(rows))
    # the steps of a channel need not stand in their order
    rows = (f"{x[2]},{x[0]},{x[1]},{label},{','.join(map(str, y))}\n" for x, y, label in SERIES)
    return write(folder / "two.csv", "x_3,x_1,x_2,activity,y_1,y_2,y_3\n" + "".join(rows))


@pytest.mark.parametrize("how", ["ts", "jsonl", "wide"])
def test_several_channels(tmp_path: Path, how: str) -> None:
    found = labelled.load(series(tmp_path, how))
    assert (found.kind, found.channels, found.labels) == ("numeric", 2, ("1", "2"))
    assert "series of 2 channels" in found.description
    assert "text" not in found.description
    assert found.layout is not None
    assert (found.layout.format, found.layout.length) == (how, 3)
    got = {
        json.dumps(values.T.tolist()) for part in (found.train, found.valid, found.test) for values in part.sequences
    }
    assert got == {json.dumps([x, y]) for x, y, _ in SERIES}


def test_channels_are_not_guessed_in_silence(tmp_path: Path) -> None:
    """With the label first the columns were always one channel: a new run has to say which is meant."""
    path = write(tmp_path / "a.csv", "label,x_0,x_1,y_0,y_1\n" + "0,1,2,3,4\n1,5,6,7,8\n" * 10)
    found = labelled.load(path)
    assert found.channels == 1
    assert "give --format wide to read them so, or --format numeric" in found.doubts[0]
    assert labelled.load(path, format="numeric").doubts == ()
    assert labelled.load(path, format="wide").channels == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD, "has no series"),
        ("1,2:3,4:1\n", "line 1: expected a line that begins with @"),
        (HEAD.replace("stamps false", "stamps true").replace("Stamps false", "Stamps true"), "time stamps"),
        (HEAD + "1,2:3:1\n", "line 6: expected as many values in every channel, got 2 and 1"),
        (HEAD + "1,?,2:3,4,5:1\n", "expected a number for step 2 of channel 1, got '?'"),
        (HEAD + "1,2:3,4:\n", "expected values, a colon and a label"),
        (HEAD.replace("true", "false") + "1,2:3,4\n", "expected a line @classLabel true"),
    ],
)
def test_ts_files_that_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        labelled.load(write(tmp_path / "wrong.ts", content))


def test_ends_of_ts_series(tmp_path: Path) -> None:
    found = ts.read(write(tmp_path / "a.ts", HEAD + "1,2,?:3,4,NaN:one\n"))
    assert [(label, values.tolist()) for _, label, values in found.rows] == [("one", [[1, 3], [2, 4]])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("__label__a __label__b text\n", "line 1: expected one label, got several"),
        ("__label__a text\ntext\n", "line 2: expected __label__ and a label, then a text"),
        ("__label__a\n", "line 1: expected a text, got an empty one"),
        ("all of these\nlines begin\nwith another word\n", "or that the format is given: csv, tsv, jsonl"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        labelled.load(write(tmp_path / "wrong.txt", content))


def test_first_words_that_are_labels() -> None:
    assert labels_first(["DESC:manner How ?", "NUM:date When ?"] * 3)
    assert not labels_first(["the same always"] * 9)
    assert not labels_first(
        [f"{word} begins a line" for word in ("the", "the", "a", "a", "one", "two", "three", "four")]
    )


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = texts(tmp_path, "gzip")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be read as a text file"):
        labelled.load(path)
    assert [ending(Path(name)) for name in ("a.CSV", "a.csv.gz", "a.gz", "a")] == [".csv", ".csv", "", ""]


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        ([str(row / 7) for row in range(60)], True),
        ([str(row * row % 97) for row in range(200)], True),
        ([str(row) for row in range(2, 90)] * 2, True),
        ([str(1 + row % 52) for row in range(104)], False),
        ([str(row % 10) for row in range(60)], False),
        ([f"{row % 10 / 2}" for row in range(60)], False),
        ([str(1900 + row % 60) for row in range(3000)], False),
        (["a", "1.5"] * 30, False),
        (["1", "2"], False),
    ],
    ids=["fractions", "whole", "ages", "classes", "digits", "stars", "many each", "names", "two"],
)
def test_numbers_to_predict_are_no_classes(labels: list[str], refused: bool) -> None:
    found = labelled.quantity(labels, Path("data.csv"))
    assert ("`mufuru train regress --data data.csv`" in found) == refused
    assert bool(found) == refused


def test_numbers_to_predict_are_the_reason_that_is_told(tmp_path: Path) -> None:
    """Not that they are too few to hold out some of each, nor that the test part has others."""
    rows = [f"text {row},{row * 1.37:.3f}\n" for row in range(40)]
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(rows[:30]))
    test = write(tmp_path / "b.csv", "text,label\n" + "".join(rows[30:]))
    for more in ({}, {"test": test}):
        with pytest.raises(DataError, match="look like numbers to predict"):
            labelled.load(path, **more)


@pytest.mark.parametrize("mark", ["", "__label__"])
def test_the_end_of_a_line_is_no_character(tmp_path: Path, mark: str) -> None:
    """It would be a token in training that no text has in predictions."""
    path = write(tmp_path / "a.txt", f"{mark}a xy\n{mark}b z\n" * 10)
    found = labelled.load(path, cut="characters")
    assert {"".join(text) for text in found.train.sequences} == {"xy", "z"}
