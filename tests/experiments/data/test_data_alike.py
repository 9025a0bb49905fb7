"""New files, read as the training file was: with and without labels, in every format; the wrong kind is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from mufuru.experiments.data import DataError, alike, labelled
from mufuru.experiments.data.alike import Known
from mufuru.experiments.data.layout import Layout

TEXTS = [(f"a text, number {row}", ("bad", "good")[row % 2]) for row in range(20)]
SERIES = [([row / 2, -1.0 * row, 3.5], "12"[row % 2]) for row in range(20)]
VALUES = [json.dumps([[value] for value in values]) for values, _ in SERIES]


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def known(path: Path, **more: Any) -> Known:
    """What a run that was trained on a file knows; the layout goes through the run folder."""
    found = labelled.load(path, **more)
    assert found.layout is not None
    layout = Layout.from_json(json.loads(json.dumps(found.layout.to_json())) | {"newer": 1})
    words = (
        {word for part in (found.train, found.valid) for text in part.sequences for word in text}
        if (found.kind == "text")
        else set()
    )
    return Known(layout, found.channels, found.labels, knows=words.__contains__)


def text_files(folder: Path) -> dict[str, Path]:
    """The texts with their labels in every format, and without in some."""
    for row, (text, label) in enumerate(TEXTS):
        (folder / "classes" / label).mkdir(parents=True, exist_ok=True)
        write(folder / "classes" / label / f"{row:02}.txt", text)
    quoted = [f'"{text}"' for text, _ in TEXTS]
    contents = {
        "csv": "id,review,verdict\n"
        + "".join(f"{n},{q},{b}\n" for n, (q, (_, b)) in enumerate(zip(quoted, TEXTS, strict=True))),
        "tsv": "".join(f"{b}\t{a}\n" for a, b in TEXTS),
        "jsonl": "".join(json.dumps({"review": a, "verdict": b}) + "\n" for a, b in TEXTS),
        "fasttext.txt": "".join(f"__label__{b} {a}\n" for a, b in TEXTS),
        "lines.txt": "".join(f"{b} {a}\n" for a, b in TEXTS),
        "bare.txt": "".join(f"{a}\n" for a, _ in TEXTS),
        "bare.csv": "review\n" + "\n".join(quoted),
        "bare.jsonl": "".join(json.dumps({"review": a}) + "\n" for a, _ in TEXTS),
    }
    return {name: write(folder / f"texts.{name}", text) for name, text in contents.items()} | {
        "folder": folder / "classes"
    }


def sequences(found: alike.New) -> list[str]:
    return [" ".join(example.sequence) if isinstance(example.sequence, list) else json.dumps(example.sequence.tolist())
            for example in found.examples]  # fmt: skip


EXPECTED = [text.replace(",", " ,") for text, _ in TEXTS]
TRAINED = ["csv", "tsv", "jsonl", "fasttext.txt", "lines.txt", "folder"]


@pytest.mark.parametrize("trained", TRAINED)
def test_texts_of_any_format(tmp_path: Path, trained: str) -> None:
    files = text_files(tmp_path)
    model = known(files[trained])
    for name in dict.fromkeys([trained, "jsonl", "fasttext.txt", "lines.txt", "bare.txt", "bare.csv", "bare.jsonl"]):
        assert sorted(sequences(alike.read(files[name], model))) == sorted(EXPECTED), name
    for name in dict.fromkeys([trained, "jsonl", "fasttext.txt", "folder"]):
        found = [(" ".join(row.sequence), row.label) for row in alike.labelled(files[name], model).examples]
        assert sorted(found) == sorted((text.replace(",", " ,"), label) for text, label in TEXTS), name


def test_names_of_columns_that_training_had_not(tmp_path: Path) -> None:
    """They are no example: labels stand below them, or the file is of another format."""
    model = known(text_files(tmp_path)["tsv"])
    for name, separator in (("new.tsv", "\t"), ("new.csv", ";")):
        rows = [("verdict", "said"), ("bad", "a dull film"), ("good", "a fine film"), ("bad", "a dull plot")]
        new = write(tmp_path / name, "".join(f"{separator.join(row)}\n" for row in rows))
        assert sequences(alike.read(new, model)) == ["a dull film", "a fine film", "a dull plot"]


def series_files(folder: Path) -> dict[str, Path]:
    contents = {
        "tsv": "".join("\t".join(map(str, [b, *a])) + "\n" for a, b in SERIES),
        "named.csv": "a_1,a_2,a_3,kind\n" + "".join(",".join(map(str, [*a, b])) + "\n" for a, b in SERIES),
        "ts": "@classLabel true 1 2\n@data\n" + "".join(f"{','.join(map(str, a))}:{b}\n" for a, b in SERIES),
        "jsonl": "".join(json.dumps({"values": a, "label": b}) + "\n" for a, b in SERIES),
        "bare.tsv": "".join("\t".join(map(str, a)) + "\n" for a, _ in SERIES),
        "bare.csv": "a_1,a_2,a_3\n" + "".join(",".join(map(str, a)) + "\n" for a, _ in SERIES),
        "bare.ts": "@classLabel false\n@data\n" + "".join(f"{','.join(map(str, a))}\n" for a, _ in SERIES),
        "lists.txt": "".join(f"{a}\n" for a, _ in SERIES),
        "cells.csv": "values,label\n" + "".join(f"{' '.join(map(str, a))},{b}\n" for a, b in SERIES),
        "cells.tsv": "values\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in SERIES),
    }
    return {name: write(folder / f"series.{name}", text) for name, text in contents.items()}


@pytest.mark.parametrize("trained", ["tsv", "named.csv", "ts", "jsonl", "cells.csv", "cells.tsv"])
def test_series_of_any_format(tmp_path: Path, trained: str) -> None:
    files = series_files(tmp_path)
    model = known(files[trained])
    rows = [] if "cells" in trained else ["tsv", "named.csv"]
    others = ["ts", "jsonl", "bare.ts", "lists.txt", *rows, *(["bare.tsv", "bare.csv"] if rows else [])]
    for name in dict.fromkeys([trained, *others]):
        assert sequences(alike.read(files[name], model)) == VALUES, name
    for name in (trained, "ts", "jsonl", *rows):
        found = alike.labelled(files[name], model).examples
        assert [row.label for row in found] == [label for _, label in SERIES]


@pytest.mark.parametrize("name", ["tsv", "bare.tsv", "jsonl", "lists.txt"])
def test_series_of_the_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    files = series_files(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(files[name].read_bytes())))
    assert sequences(alike.read(None, known(files["tsv"]))) == VALUES


def test_labels_where_lengths_differ(tmp_path: Path) -> None:
    """Rows that all begin with a label have labels; the user may say otherwise."""
    path = write(tmp_path / "a.tsv", "".join(f"{1 + n % 2}\t2\t3{n % 2 * chr(9)}{n % 2 * '4'}\n" for n in range(20)))
    model = known(path)
    assert model.layout.length is None
    assert sequences(alike.read(path, model))[0] == "[[2.0], [3.0]]"
    assert sequences(alike.read(path, model, labels="no"))[0] == "[[1.0], [2.0], [3.0]]"
    other = write(tmp_path / "b.tsv", "1\t2\t3\n0.5\t2\t3\n")
    assert sequences(alike.read(other, model))[0] == "[[1.0], [2.0], [3.0]]"
    with pytest.raises(DataError, match=r"got '0\.5'"):
        sequences(alike.read(write(tmp_path / "c.txt", other.read_text()), model, labels="yes", format="lines"))


@pytest.mark.parametrize(
    ("trained", "name", "message"),
    [
        ("csv", "tsv", r"expected a column 'review', as in training, got 1, 2"),
        ("tsv", "wide", "expected 2 columns, as in training, or the texts alone, got 4"),
        ("csv", "ts", "the model reads text, got series of 1 number a step"),
        ("csv", "numbers.txt", "line 1: the model reads text, got the numbers '0.0 - 0.0 3.5'"),
        ("jsonl", "numbers.jsonl", "the model reads text, got series of 1 number"),
    ],
)
def test_files_of_the_wrong_kind_for_text(tmp_path: Path, trained: str, name: str, message: str) -> None:
    files = text_files(tmp_path)
    others = {
        "wide": write(tmp_path / "wide.tsv", "a\tb\tc\td\n" * 3),
        "ts": series_files(tmp_path)["ts"],
        "numbers.txt": write(tmp_path / "n.txt", "".join(" ".join(map(str, a)) + "\n" for a, _ in SERIES)),
        "numbers.jsonl": write(tmp_path / "n.jsonl", '{"review": [1, 2, 3.5]}\n'),
    }
    with pytest.raises(DataError, match=message):
        sequences(alike.read((files | others)[name], known(files[trained])))


@pytest.mark.parametrize(("name", "message"), [
    ("csv", "expected a number for step"), ("bare.txt", "expected a number for step"), ("folder", "a folder of texts"),
    ("two.jsonl", "the model reads series of 1 number a step, got series of 2 numbers a step"),
    ("words.jsonl", "the model reads series of 1 number a step, got text"),
])  # fmt: skip
def test_files_of_the_wrong_kind_for_series(tmp_path: Path, name: str, message: str) -> None:
    files = text_files(tmp_path) | {
        "two.jsonl": write(tmp_path / "two.jsonl", '{"values": [[1, 2], [3, 4]]}\n'),
        "words.jsonl": write(tmp_path / "words.jsonl", '{"values": "some words"}\n'),
    }
    with pytest.raises(DataError, match=message):
        sequences(alike.read(files[name], known(series_files(tmp_path)["jsonl"])))


def test_numbers_that_the_model_knows_are_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "1 2 3 4,up\n4 3 2 1,down\n" * 10)
    model = known(path, cut="blanks")
    assert (model.channels, model.layout.text) == (0, "text")
    assert sequences(alike.read(write(tmp_path / "b.txt", "1 2 3 4\n"), model)) == ["1 2 3 4"]


def test_rows_of_numbers_in_a_column_are_series(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "1 2 3 4,up\n4 3 nan,down\n" * 10)
    found = labelled.load(path)
    assert (found.kind, found.channels) == ("numeric", 1)
    assert "series of 1 channel in column 'text' (guessed), label in column 'label' (guessed)" in found.description
    assert "its rows of numbers are words with --cut blanks" in found.description
    model = known(path)
    for text, message in (("hello world", "the model reads series of 1 number a step, got text"),
                          ("1 ? 3", "expected a number for step 2, got '\\?'")):  # fmt: skip
        with pytest.raises(DataError, match=message):
            sequences(alike.read(write(tmp_path / "b.csv", f"text,label\n{text},up\n"), model))
    with pytest.raises(DataError, match="expected a number for step 1, got 'hello'"):
        sequences(alike.read(write(tmp_path / "b.txt", "hello world\n"), model))
    # one text that is none, and all are texts; single numbers are no series
    assert labelled.load(write(tmp_path / "c.csv", path.read_text() + "a 1,up\n")).kind == "text"
    years = "".join(f"{1990 + row},{'ab'[row % 2]}\n" for row in range(20))
    assert labelled.load(write(tmp_path / "d.csv", "text,label\n" + years), text="text").kind == "text"


def test_a_run_without_a_layout(tmp_path: Path) -> None:
    """Older than layouts, or not trained on a file: files are read by their names and first lines."""
    files, model = text_files(tmp_path), Known(Layout(), 0, ("bad", "good"))
    for name in ("csv", "bare.csv", "jsonl", "bare.txt"):
        assert sequences(alike.read(files[name], model)) == EXPECTED
    assert "(guessed)" in alike.read(files["csv"], model).note
    series, model = series_files(tmp_path), Known(Layout(), 1, ("1", "2"))
    for name in ("tsv", "bare.ts", "lists.txt"):
        assert sequences(alike.read(series[name], model)) == VALUES


def test_a_column_where_there_is_none(tmp_path: Path) -> None:
    """It is not left out in silence."""
    texts, series = text_files(tmp_path), series_files(tmp_path)
    for file, model in ((series["tsv"], known(series["tsv"])), (texts["bare.txt"], known(texts["csv"])),
                        (texts["folder"], known(texts["folder"]))):  # fmt: skip
        with pytest.raises(DataError, match="which has no column of texts, and --text-column names 'x': leave it out"):
            alike.read(file, model, text="x")
    with pytest.raises(DataError, match="which has no column of texts"):
        alike.labelled(series["tsv"], known(series["tsv"]), named=("x", None, None))
    with pytest.raises(DataError, match="--text-column is for a file"):
        alike.read(None, known(texts["csv"]), text="x")


def test_empty_texts(tmp_path: Path) -> None:
    """One answer a row: an empty text is no reason to have none."""
    path = text_files(tmp_path)["csv"]
    new = write(tmp_path / "new.csv", 'id,review,verdict\n1,"",\n2,fine,\n')
    assert sequences(alike.read(new, known(path))) == ["", "fine"]
    with pytest.raises(DataError, match="line 2: expected a text, got an empty one"):
        list(alike.labelled(new, known(path)).examples)


@pytest.mark.parametrize(
    ("names", "lengths", "message"),
    [
        ("class,a,b", (3, 3), "expected 3 values in each row, as in training, got columns for 2"),
        ("class,x_0,x_1,y_0,y_1", (3, 3), "expected 3 values in each row, as in training, got columns for 4"),
        ("class,x_0,x_1,y_0,y_1", (3, 4), "the model reads one number a step, got columns of 2 channels, x, y"),
    ],
)
def test_names_of_another_table_are_refused(tmp_path: Path, names: str, lengths: tuple[int, int], message: str) -> None:
    """Numbers of another table would be read as series; names of columns tell."""
    rows = [f"{1 + row % 2}," + ",".join(["0.5"] * lengths[row % 2]) for row in range(20)]
    model = known(write(tmp_path / "trained.csv", "\n".join(rows) + "\n"))
    row = ",".join(["1"] * (names.count(",") + 1))
    file = write(tmp_path / "other.csv", f"{names}\n{row}\n{row}\n")
    with pytest.raises(DataError, match=message):
        [*alike.read(file, model).examples]
    with pytest.raises(DataError, match=message):
        [*alike.labelled(file, model).examples]
    same = write(tmp_path / "same.csv", "class,first,second,third\n1,0.5,1,2\n2,1,1,1\n")
    assert [len(example.sequence) for example in alike.read(same, model).examples] == [3, 3]


def test_examples_before_a_fault(tmp_path: Path) -> None:
    """A table and a folder are read as far as they are asked for."""
    files = text_files(tmp_path)
    model = known(files["jsonl"])
    table = write(tmp_path / "late.jsonl", '{"review": "a text"}\n{"review": []}\n')
    (tmp_path / "late").mkdir()
    write(tmp_path / "late" / "0.txt", "a text")
    (tmp_path / "late" / "1.txt").write_bytes(b"\xff")
    for path, message in ((table, "line 2: expected a text"), (tmp_path / "late", "1.txt, line 1: expected UTF-8")):
        examples = iter(alike.read(path, model).examples)
        assert next(examples).sequence == ["a", "text"]
        with pytest.raises(DataError, match=message):
            next(examples)


def test_a_series_without_values(tmp_path: Path) -> None:
    model = known(write(tmp_path / "a.csv", "values,label\n" + "1 2 3,up\n4 3,down\n" * 10))
    with pytest.raises(DataError, match="line 3: expected a text, got an empty one"):
        sequences(alike.read(write(tmp_path / "b.csv", 'values,label\n1 2,up\n"",up\n'), model))


def test_an_empty_line_among_labelled_ones(tmp_path: Path) -> None:
    files = text_files(tmp_path)
    new = write(tmp_path / "new.txt", "good a text\n\nbad b\n")
    assert sequences(alike.read(new, known(files["lines.txt"]), labels="yes", format="lines")) == ["a text", "", "b"]
