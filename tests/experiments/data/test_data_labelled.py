"""A user's own labelled texts: every format, what is guessed, how they are divided, and all that can be wrong."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mufuru.experiments.data import DataError, labelled, tables
from mufuru.experiments.data.examples import Examples, Labelled

PAIRS = [(f"this is text number {row}", ("bad", "good")[row % 2]) for row in range(20)]
TABLES = {
    "a.csv": "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in PAIRS),
    "b.csv": "Label;Sentence\n" + "".join(f"{label};{text}\n" for text, label in PAIRS),
    "c.tsv": "id\treview\tsentiment\n"
    + "".join(f"{row}\t{text}\t{label}\n" for row, (text, label) in enumerate(PAIRS)),
    "d.jsonl": "".join(json.dumps({"label": label, "text": text}) + "\n" for text, label in PAIRS),
    "e.jsonl": "".join(json.dumps({"tokens": text.split(), "class": label}) + "\n\n" for text, label in PAIRS),
    "f.csv": "".join(f"{label},{text}\n" for text, label in PAIRS),
    "g.csv": "kind,what was said\n" + "".join(f"{label},{text}\n" for text, label in PAIRS),
}
"""The same examples in many ways."""


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs(examples: Examples, labels: Sequence[str]) -> list[tuple[str, str]]:
    targets = [labels[target] for target in examples.targets.tolist()]
    return [(" ".join(words), label) for words, label in zip(examples.sequences, targets, strict=True)]


def everything(found: Labelled) -> list[tuple[str, str]]:
    return [pair for part in (found.train, found.valid, found.test) for pair in pairs(part, found.labels)]


@pytest.mark.parametrize("name", TABLES)
def test_formats(tmp_path: Path, name: str) -> None:
    found = labelled.load(write(tmp_path, TABLES[name], name))
    assert found.kind == "text"
    assert found.labels == ("bad", "good")
    assert [len(part) for part in (found.train, found.valid, found.test)] == [16, 2, 2]
    assert sorted(everything(found)) == sorted(PAIRS)
    for part in (found.valid, found.test):
        assert part.targets.sort().values.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.csv", "text in column 'text' (guessed), label in column 'label' (guessed)"),
        ("b.csv", "text in column 'Sentence' (guessed), label in column 'Label' (guessed)"),
        ("c.tsv", "text in column 'review' (guessed), label in column 'sentiment' (guessed)"),
        ("e.jsonl", "text in column 'tokens' (guessed), label in column 'class' (guessed)"),
        ("f.csv", "text in column '2' (guessed), label in column '1' (guessed)"),
        ("g.csv", "text in column 'what was said' (guessed), label in column 'kind' (guessed)"),
    ],
)
def test_what_is_guessed_is_said(tmp_path: Path, name: str, said: str) -> None:
    found = labelled.load(write(tmp_path, TABLES[name], name))
    assert found.description == (
        f"{name}: {said}; 2 labels; 16 training, 2 validation, 2 test examples; validation and test held out of "
        "training with seed 0"
    )


@pytest.mark.parametrize(
    ("name", "columns", "said"),
    [
        ("c.tsv", {"text": "review", "label": "sentiment"}, "text in column 'review', label in column 'sentiment';"),
        ("f.csv", {"text": "2", "label": "1"}, "text in column '2', label in column '1';"),
        ("a.csv", {"text": "1", "label": "2"}, "text in column 'text', label in column 'label';"),
        ("a.csv", {"text": "text", "label": "2"}, "text in column 'text', label in column 'label';"),
        ("g.csv", {"label": "1"}, "text in column 'what was said' (guessed), label in column 'kind';"),
        ("g.csv", {"label": "kind"}, "text in column 'what was said' (guessed), label in column 'kind';"),
    ],
)
def test_named_columns(tmp_path: Path, name: str, columns: dict[str, str], said: str) -> None:
    found = labelled.load(write(tmp_path, TABLES[name], name), **columns)
    assert said in found.description
    assert sorted(everything(found)) == sorted(PAIRS)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ("satz,wertung,nr", {"text": "satz", "label": "wertung"}),
        ("sentence,label,idx", {}),
        ("sentence,label,idx", {"label": "label"}),
    ],
)
def test_numbers_in_all_columns_but_the_first(tmp_path: Path, names: str, columns: dict[str, str]) -> None:
    """They are not sequences of numbers if the columns have names that say otherwise."""
    rows = "".join(f"{text},{label == 'good':d},{row}\n" for row, (text, label) in enumerate(PAIRS))
    found = labelled.load(write(tmp_path, f"{names}\n{rows}"), **columns)
    assert (found.kind, found.labels) == ("text", ("0", "1"))
    assert sorted(text for text, _ in everything(found)) == sorted(text for text, _ in PAIRS)


def test_one_column_cannot_be_two_things(tmp_path: Path) -> None:
    path = write(tmp_path, TABLES["a.csv"])
    for columns, both in (
        ({"text": "text", "label": "1"}, "text and label"),
        ({"label": "label", "split": "label"}, "label and split"),
    ):
        with pytest.raises(DataError, match=f"cannot be both {both}: name another one"):
            labelled.load(path, **columns)


def test_a_usual_name_that_is_a_label(tmp_path: Path) -> None:
    """A first row that holds what other rows hold too is not a row of names."""
    rows = [("question", f"who is number {row}") if row % 2 else ("answer", f"it is {row}") for row in range(1, 21)]
    found = labelled.load(write(tmp_path, "".join(f"{label},{text}\n" for label, text in rows)))
    assert found.labels == ("answer", "question")
    assert len(everything(found)) == 20


def test_the_format_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, TABLES["c.tsv"], "data.txt")
    with pytest.raises(
        DataError, match=r"data.txt: expected a name that ends with one of .csv, .tsv, .* is given: csv"
    ):
        labelled.load(path)
    assert len(everything(labelled.load(path, format="tsv"))) == 20


@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), st.sampled_from("ab")), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_python_writes_the_same_csv(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    """Quotation marks, commas and ends of lines inside of values."""
    rows = [(re.sub(r"[\x00\ud800-\udfff]", "", text), label) for text, label in rows]
    with open(tmp_path / "data.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text, or so", "label"), *rows])
    found = tables.read_cells(tmp_path / "data.csv", "csv")
    # whatever ends a line in a file ends it as Python's text files say
    expected = [(text.replace("\r\n", "\n").replace("\r", "\n"), label) for text, label in rows]
    assert [tuple(values) for _, values in found] == [("text, or so", "label"), *expected]


def test_lines_of_values_over_several_lines(tmp_path: Path) -> None:
    rows = tables.read_cells(write(tmp_path, 'text,label\n"a\nb",x\n\n"c",y\n'), "csv")
    assert rows == [(1, ["text", "label"]), (2, ["a\nb", "x"]), (5, ["c", "y"])]


def test_tsv_has_no_quotation_marks(tmp_path: Path) -> None:
    """An odd one would swallow the lines after it."""
    rows = tables.read_cells(write(tmp_path, 'text\tlabel\n"so" said\tx\n" a\ty\n'), "tsv")
    assert rows[1:] == [(2, ['"so" said', "x"]), (3, ['" a', "y"])]


def test_tokens(tmp_path: Path) -> None:
    content = "text,label\n\"It's FUN, isn't it?\",1\nno,0\n"
    options: dict[str, Any] = {"valid": write(tmp_path, content, "v.csv"), "test": write(tmp_path, content, "t.csv")}
    path = write(tmp_path, content)
    assert labelled.load(path, **options).train.sequences[0] == ["It", "'s", "FUN", ",", "is", "n't", "it", "?"]
    assert labelled.load(path, cut="blanks", **options).train.sequences[0] == ["It's", "FUN,", "isn't", "it?"]


def test_own_files(tmp_path: Path) -> None:
    """Columns are those of the training file, wherever they stand in the others."""
    train = write(tmp_path, "text,label\na,x\nb,y\n", "train.csv")
    valid, test = write(tmp_path, "label,text\ny,c\n", "v.csv"), write(tmp_path, "text,other,label\nd,0,x\n", "t.csv")
    found = labelled.load(train, valid=valid, test=test)
    assert everything(found) == [("a", "x"), ("b", "y"), ("c", "y"), ("d", "x")]
    assert found.description.endswith("2 labels; 2 training, 1 validation, 1 test examples")


def test_own_files_without_names(tmp_path: Path) -> None:
    train = write(tmp_path, "x\ta a\ny\tb b\nx\tc c\ny\td d\n", "train.tsv")
    found = labelled.load(train, valid=write(tmp_path, "y\ttext\n", "v.tsv"), test=write(tmp_path, "x\tf\n", "t.tsv"))
    assert pairs(found.valid, found.labels) == [("text", "y")]


@pytest.mark.parametrize("own", ["valid", "test"])
def test_one_own_file(tmp_path: Path, own: str) -> None:
    """The other part is held out of training."""
    path = write(tmp_path, TABLES["a.csv"], "a.csv")
    found = labelled.load(path, **{own: write(tmp_path, "text,label\nmine,good\n", "own.csv")})
    assert pairs(getattr(found, own), found.labels) == [("mine", "good")]
    assert len(found.train) == 18


def test_a_column_of_splits(tmp_path: Path) -> None:
    content = "text,label,split\na,x,train\nb,y,Training\nc,x,dev\nd,y,test\ne,x,validation\n"
    found = labelled.load(write(tmp_path, content))
    assert pairs(found.train, found.labels) == [("a", "x"), ("b", "y")]
    assert pairs(found.valid, found.labels) == [("c", "x"), ("e", "x")]
    assert pairs(found.test, found.labels) == [("d", "y")]
    assert "split in column 'split' (guessed); 2 labels" in found.description
    assert "held out" not in found.description


def test_a_column_of_splits_without_validation(tmp_path: Path) -> None:
    content = "text,label,part\n" + "".join(
        f"{t},{label},{'test' if t[-1] == '9' else 'train'}\n" for t, label in PAIRS
    )
    found = labelled.load(write(tmp_path, content), split="part")
    assert [len(part) for part in (found.train, found.valid, found.test)] == [16, 2, 2]
    assert found.description.endswith("validation held out of training with seed 0")


def test_a_column_that_is_only_called_so(tmp_path: Path) -> None:
    content = "text,label,split\n" + "".join(f"{text},{label},banana\n" for text, label in PAIRS)
    assert "column 'split'" not in labelled.load(write(tmp_path, content)).description
    with pytest.raises(
        DataError, match=r"data.csv, line 2: expected one of train, training, .* as the split, got 'ban"
    ):
        labelled.load(write(tmp_path, content), split="split")


def test_the_seed_decides_what_is_held_out(tmp_path: Path) -> None:
    path = write(tmp_path, TABLES["a.csv"])
    one, same, other = (labelled.load(path, seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint
    assert pairs(one.test, one.labels) != pairs(other.test, other.labels)


def test_labels_in_order(tmp_path: Path) -> None:
    """Numbers by their size, words by the alphabet."""
    assert labels_of(tmp_path, ["10", "9", "-1"]) == ("-1", "9", "10")
    assert labels_of(tmp_path, ["b", "10", "9"]) == ("10", "9", "b")
    assert labels_of(tmp_path, [True, False]) == ("false", "true")
    assert labels_of(tmp_path, [3, 1.5, " x "]) == ("1.5", "3", "x")


def labels_of(folder: Path, labels: Sequence[Any]) -> tuple[str, ...]:
    lines = [json.dumps({"text": f"text {row}", "label": labels[row % len(labels)]}) for row in range(30)]
    return labelled.load(write(folder, "\n".join(lines), "data.jsonl")).labels


def test_a_text_of_100000_tokens(tmp_path: Path) -> None:
    """Longer than the csv module takes by default."""
    long = "word " * 99_999 + "end"
    for name, row in (("a.csv", f'"{long}",good\n'), ("b.jsonl", json.dumps({"text": long, "label": "good"}) + "\n")):
        content = TABLES["a.csv"] if name == "a.csv" else TABLES["d.jsonl"]
        found = labelled.load(write(tmp_path, content + row, name))
        lengths = [len(text) for part in (found.train, found.valid, found.test) for text in part.sequences]
        assert max(lengths) == 100_000
        assert len(lengths) == 21


def test_sequences_of_several_channels(tmp_path: Path) -> None:
    rows = [{"values": [[row, 1.5]] * (1 + row % 3), "label": row % 2} for row in range(10)]
    found = labelled.load(write(tmp_path, "\n".join(map(json.dumps, rows)), "data.jsonl"))
    assert (found.kind, found.channels, found.labels) == ("numeric", 2, ("0", "1"))
    assert {tuple(values[0].tolist()) for values in found.train.sequences} <= {(float(row), 1.5) for row in range(10)}
    lists = [{"values": [row, 2], "label": row % 2} for row in range(10)]
    assert labelled.load(write(tmp_path, "\n".join(map(json.dumps, lists)), "data.jsonl")).channels == 1


HEAD = "text,label\nfine,x\nbad,y\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "a.csv is empty: expected a table, a row in each line"),
        ("a.csv", "\n\n", "a.csv is empty: expected a table, a row in each line"),
        ("a.jsonl", "\n", "a.jsonl is empty: expected a JSON object in each line"),
        ("a.csv", "text,label\n", "a.csv has the names of columns and no rows"),
        ("a.csv", "text,label\nfine,x\nwell,x\n", "all 2 training examples have the label 'x', expected two labels"),
        ("a.csv", f"{HEAD}a,b,c\n", "a.csv, line 4: expected 2 values as in line 1, got 3; a value that holds one"),
        ("a.tsv", "text\tlabel\nfine\tx\nbad\n", "a.tsv, line 3: expected 2 values as in line 1, got 1"),
        ("a.csv", f"{HEAD}fine,\n", "a.csv, line 4: expected a label, got none. Add it, or leave the line out"),
        ("a.csv", f"{HEAD}  ,x\n", "a.csv, line 4: expected a text, got an empty one"),
        ("a.csv", f'{HEAD}"fine"ly,x\n', "a.csv, line 4: expected values with quotation marks"),
        ("a.csv", f'{HEAD}"fine,x\n', "a.csv, line 4: expected values with quotation marks"),
        ("a.csv", b"text,label\nfine,x\nna\xefve,y\n", "a.csv, line 3: expected UTF-8, got the byte 0xef"),
        ("a.csv", "text,text,label\na,b,x\n", "a.csv, line 1: the column 'text' is there more than once"),
        ("a.csv", "text\nfine\nbad\n", "should have a column of texts and one of labels, got only text"),
        ("a.csv", "one,other\nfine,x\nbad,y\n", "has no column whose values repeat, so that they could be labels"),
        ("a.csv", "number,label\n1,x\n2,y\n3,x\n", "seems to have no texts: the column 'number' holds numbers"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "'{\"text\"' (Expecting ':' delimiter at column 8)"),
        ("a.jsonl", '["a", 1]\n', "a.jsonl, line 1: expected a JSON object, such as"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2: expected a label, got none"),
        ("a.jsonl", '{"text": "a", "label": [1]}\n', "line 1: expected a label, got [1]"),
        ("a.jsonl", '{"text": 5, "label": 1}\n', "line 1: expected a text, or a list of tokens or numbers, got 5"),
        ("a.jsonl", '{"text": [], "label": 1}\n', "line 1: expected a text, or a list of tokens or numbers, got []"),
        ("a.jsonl", '{"text": [1, "a"], "label": 1}\n', "line 1: expected a list of tokens, of numbers, or of lists"),
        ("a.jsonl", '{"text": [[1], [2, 3]], "label": 1}\n', "line 1: expected a list of tokens, of numbers"),
        ("a.jsonl", '{"text": [1, NaN], "label": 1}\n', "line 1: expected finite numbers, got [1, nan]"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": [1], "label": 0}\n',
            "line 2: expected text, as in line 1 of a.jsonl, got series of 1 number a step",
        ),
        ("a.csv", HEAD, "2 examples are too few to hold out 0.1 of them"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        labelled.load(write(tmp_path, content, name))


def test_missing_columns(tmp_path: Path) -> None:
    path = write(tmp_path, TABLES["c.tsv"], "c.tsv")
    for what in ("text", "label", "split"):
        with pytest.raises(DataError, match=r"c.tsv has no column 'reviews': expected one of id, review, sentiment. "
                           "Did you mean 'review'?"):  # fmt: skip
            labelled.load(path, **{what: "reviews"})
    other = write(tmp_path, "text\tsentiment\na\tgood\n", "other.tsv")
    with pytest.raises(DataError, match=r"other.tsv has no column 'review': expected one of text, sentiment"):
        labelled.load(path, test=other)


def test_a_label_that_training_does_not_have(tmp_path: Path) -> None:
    path, test = write(tmp_path, TABLES["a.csv"]), write(tmp_path, "text,label\nfine,good\nso so,meh\n", "test.csv")
    with pytest.raises(
        DataError,
        match=r"test.csv, line 3: the label 'meh' is in the test part and never in training, which has bad, good",
    ):
        labelled.load(path, test=test)
    content = "text,label,split\na,x,train\nb,y,train\nc,z,valid\n"
    with pytest.raises(DataError, match=r"data.csv, line 4: the label 'z' is in the validation part and never"):
        labelled.load(write(tmp_path, content))


def test_parts_that_contradict_each_other(tmp_path: Path) -> None:
    path = write(tmp_path, "text,label,split\na,x,train\nb,y,train\nc,x,test\n")
    with pytest.raises(DataError, match=r"the test part has a file of its own, and .* has .* too, as in line 4"):
        labelled.load(path, test=write(tmp_path, "text,label\na,x\n", "test.csv"))
    with pytest.raises(DataError, match=r"data.csv is given for training and for test: a file can be in one part"):
        labelled.load(path, test=tmp_path / "." / "data.csv")
    with pytest.raises(DataError, match="no example is for training, all are for test"):
        labelled.load(write(tmp_path, "text,label,split\na,x,test\nb,y,test\n"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("none.csv", "none.jsonl"):
        with pytest.raises(DataError, match="there is no such file"):
            labelled.load(tmp_path / name)


def test_the_fingerprint_is_of_the_data(tmp_path: Path) -> None:
    """The same whatever the file's format; another with any other word or label."""
    first, same, other = (TABLES["a.csv"], TABLES["d.jsonl"], TABLES["a.csv"].replace("number 7", "number 77"))
    prints = [
        labelled.load(write(tmp_path, content, name)).fingerprint
        for content, name in ((first, "a.csv"), (same, "d.jsonl"), (other, "b.csv"))
    ]
    assert prints[0] == prints[1] != prints[2]
