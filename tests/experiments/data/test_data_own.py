"""Files of targets, of tagged sentences and of series: what is read, guessed and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from number_data import write_names, write_rooms, write_waves

from mufuru.experiments.data import DataError, series, tagged, targets
from mufuru.experiments.data.series import Columns


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_targets_are_guessed_and_held_out(tmp_path: Path) -> None:
    data = targets.load(write_rooms(tmp_path / "rooms.csv"))
    assert data.description == (
        "rooms.csv: text in column 'description' (guessed), target in column 'price' (guessed); 48 training, "
        "6 validation, 6 test examples; validation and test held out of training with seed 0"
    )
    every = [(text, target) for part in (data.train, data.valid, data.test)
             for text, target in zip(part.sequences, part.targets.tolist(), strict=True)]  # fmt: skip
    assert len(every) == 60
    assert all(target == 100_000 + 100 * text.count("room") for text, target in every)
    assert targets.load(tmp_path / "rooms.csv", seed=1).test.sequences != data.test.sequences


def test_targets_of_series_and_of_json(tmp_path: Path) -> None:
    lines = [f"{number / 8}\t{number}\t{number + 1}" for number in range(20)]
    data = targets.load(write(tmp_path / "rates.tsv", "\n".join(lines)))
    assert (data.kind, data.channels) == ("numeric", 1)
    assert sorted(data.train.targets.tolist() + data.valid.targets.tolist() + data.test.targets.tolist()) == [
        number / 8 for number in range(20)
    ]
    rows = [f'{{"values": [[{n}, 1], [2, 3]], "size": {n / 2}}}' for n in range(20)]
    data = targets.load(write(tmp_path / "rates.jsonl", "\n".join(rows)))
    assert (data.labels, data.channels) == (("size",), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("text,price\na b,3\nc d,cheap\n" + "e,4\n" * 20, "expected one column of numbers as the target, and no"),
        ("text,mood\n" + "a b,good\n" * 20, "name it with --target-column; there are text, mood"),
        (",a,b,target\n" + "0,1,2,3\n1,1,2,4\n" * 9, "no name, as the index that pandas writes"),
        ("text,cost,size\n" + "a b,3,4\n" * 20, "the columns cost, size hold numbers: name it with --target-column"),
        ("text,target\n" + "a b,3\n" * 20, "all training examples have the target 3: expected numbers that differ"),
        ("text,target\na b,nan\n" + "a,3\n" * 20, "line 2: expected a finite number as the target, got 'nan'"),
        ("text,target\na b,3\nc,4\n", "2 examples are too few to hold out 0.1 of them"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_targets_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        targets.load(write(tmp_path / "texts.csv", text))


def test_a_named_column_of_words_is_no_target(tmp_path: Path) -> None:
    file = write(tmp_path / "texts.csv", "text,mood,price\n" + "a b,good,3\nc,bad,4\n" * 10)
    assert targets.load(file, target="price").labels == ("price",)
    with pytest.raises(DataError, match=r"got 'good'.*for classes there is `mufuru train classify`"):
        targets.load(file, target="mood")


def test_sentences_in_columns(tmp_path: Path) -> None:
    data = tagged.load(write_names(tmp_path / "names.conll"))
    assert data.labels == ("B-PER", "I-PER", "O")
    assert "60" not in data.description
    assert [len(part) for part in (data.train, data.valid, data.test)] == [48, 6, 6]
    for part in (data.train, data.valid, data.test):
        words = [word for sentence in part.sequences for word in sentence]
        labels = [data.labels[label] for label in part.targets.tolist()]
        assert [label == "O" for label in labels] == [word[0].islower() for word in words]
    parts = tagged.load(tmp_path / "names.conll", label="2")
    assert parts.labels == ("N", "V")


def test_sentences_in_other_formats(tmp_path: Path) -> None:
    rows = "# zum\n1-2\tzum\t_\t_\n1\tzu\tzu\tADP\n2\tdem\tder\tDET\n2.1\tleer\t_\tX\n\n# next\n1\tHaus\t_\tNOUN\n"
    (one, two) = tagged.read(write(tmp_path / "a.conllu", rows), "conllu", None, None)
    assert (one.tokens, one.labels, two.tokens) == (["zu", "dem"], ["ADP", "DET"], ["Haus"])
    (one,) = tagged.read(write(tmp_path / "a.jsonl", '{"tokens": ["a", "b"], "ner_tags": [0, 3]}'), "jsonl", None, None)
    assert (one.tokens, one.labels) == (["a", "b"], ["0", "3"])
    # a hash is a token of CoNLL columns
    (one,) = tagged.read(write(tmp_path / "a.txt", "# O\n5 B-NUM\n"), "conll", None, None)
    assert one.tokens == ["#", "5"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.conll", "a O\nb\n", "line 2: expected 2 columns, a token and its label among them, got 1: 'b'"),
        ("a.conll", "a\nb\n", "line 1: expected 2 columns"),
        ("a.conll", "\n\n", "is empty: expected a token and its label in each line"),
        ("a.conll", "a\t \n", "line 1: expected a token and its label"),
        ("a.conll", "a O\n\nb O\n\n" * 9, "all tokens have the label 'O', expected two labels or more"),
        ("a.jsonl", '{"tokens": ["a"], "labels": []}', "line 1: expected a list of tokens and one of as many labels"),
        ("a.jsonl", '{"tokens": "a b", "labels": ["O"]}', "neither empty, got str and 1"),
        ("a.jsonl", '{"tokens": ["a"], "kinds": ["O"]}', "has no list of labels: name it with --label-column"),
        ("a.jsonl", "nothing", "expected a JSON object"),
    ],
)
def test_sentences_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        tagged.load(write(tmp_path / name, text))


def test_a_column_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the label column of CoNLL columns is a number from 1, got 'ner'"):
        tagged.load(write_names(tmp_path / "names.conll"), label="ner")
    with pytest.raises(DataError, match="expected 9 columns"):
        tagged.load(tmp_path / "names.conll", label="9")


def test_series_of_a_table(tmp_path: Path) -> None:
    file = write_waves(tmp_path / "waves.csv")
    every, _, said = series.load(file, Columns())
    # years only count
    assert [one.name for one in every] == ["calm", "rising", "warm"]
    assert said == "waves.csv: series in columns 'calm', 'rising', 'warm' (guessed)"
    (one,), names, said = series.load(file, Columns(("rising",), ("warm", "calm")))
    assert (one.values.shape, names) == ((120, 3), ("rising",))
    assert one.values[:3, 1].tolist() == [0, 1, 2]
    assert said == "waves.csv: series in column 'rising', covariates warm, calm"


def test_an_index_without_a_name_has_a_header_beside(tmp_path: Path) -> None:
    """As pandas writes a series whose name is a number."""
    (one,), names, _ = series.load(write(tmp_path / "lynx.csv", ",0\n1821,269\n1822,321\n1823,585\n"), Columns())
    assert (one.values.flatten().tolist(), names) == ([269, 321, 585], ("0",))


def test_series_by_names_and_in_json(tmp_path: Path) -> None:
    rows = "shop,day,sales\n" + "".join(f"{shop},d{day},{day * 2}\n" for day in range(3) for shop in "ab")
    every, _, _ = series.load(write(tmp_path / "shops.csv", rows), Columns(name="shop"))
    assert {one.name: one.values.flatten().tolist() for one in every} == {"a": [0, 2, 4], "b": [0, 2, 4]}
    lines = '{"id": "x", "values": [1, 2], "warm": [3, 4]}\n{"id": "y", "values": [5], "warm": [6]}\n'
    every, _, _ = series.load(write(tmp_path / "shops.jsonl", lines), Columns(covariates=("warm",)))
    assert [(one.name, one.values.tolist()) for one in every] == [("x", [[1, 3], [2, 4]]), ("y", [[5, 6]])]


def test_series_below_each_other_are_not_read_as_one(tmp_path: Path) -> None:
    rows = "id,t,v\n" + "".join(f"{name},{t},{t % 5}\n" for name in "pq" for t in range(9))
    file = write(tmp_path / "long.csv", rows)
    with pytest.raises(DataError, match="the column 'id' has 'p' in one row after the other, then 'q'"):
        series.load(file, Columns())
    # what counts the moments begins again with each
    every, names, _ = series.load(file, Columns(name="id"))
    assert ([one.name for one in every], names) == (["p", "q"], ("v",))
    (one,), _, _ = series.load(file, Columns(("v",)))
    assert len(one.values) == 18
    # one name, or a name for each row, says nothing
    for letters in ("p" * 9, "abcdefghi"):
        text = "id,v\n" + "".join(f"{name},{k % 5}\n" for k, name in enumerate(letters))
        assert len(series.load(write(tmp_path / "one.csv", text), Columns()).series) == 1


def test_ends_may_be_missing(tmp_path: Path) -> None:
    (one, other), _, _ = series.load(write(tmp_path / "a.csv", "a,b\n1,\n2,5\nNaN,6\n"), Columns())
    assert (one.values.flatten().tolist(), other.values.flatten().tolist()) == ([1, 2], [5, 6])
    (one,), _, _ = series.load(write(tmp_path / "a.txt", "1\n4\n2\n"), Columns())
    assert one.values.flatten().tolist() == [1, 4, 2]


@pytest.mark.parametrize(
    ("name", "text", "columns", "words"),
    [
        ("a.csv", "a\n1\n?\n3\n", {}, "line 3: expected a number in column 'a', got '\\?'. Only the first and last"),
        ("a.csv", "day,kind\nmon,x\ntue,y\n", {}, "has no column of numbers to forecast"),
        ("a.csv", "id,text\n1,x\n2,y\n3,z\n", {}, "has no column of numbers to forecast"),
        ("a.csv", "a,b\n1,x\n2,y\n", {"values": ("b",)}, "line 2: expected a number in column 'b', got 'x'"),
        ("a.csv", "a,b\n1,\n2,\n", {"values": ("b",)}, "the series 'b' has no values"),
        ("a.csv", "a,b\n1,2\n5,3\n", {"values": ("c",)}, "has no column 'c'"),
        ("a.csv", "k,a,b\nx,1,2\ny,5,3\n", {"name": "k"}, "there is one of values, and these are a, b"),
        ("a.jsonl", '{"values": [1, "x"]}', {}, "expected a list of finite numbers as 'values'"),
        (
            "a.jsonl",
            '{"values": [1, 2], "w": [1]}',
            {"covariates": ("w",)},
            "as many covariates as values, got 2 and 1",
        ),
        ("a.jsonl", '{"numbers": [1]}', {}, "expected a list of values in each object"),
    ],
)
def test_series_refused(tmp_path: Path, name: str, text: str, columns: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        series.load(write(tmp_path / name, text), Columns(**columns))


def test_names_in_upper_and_lower_case(tmp_path: Path) -> None:
    """Of two columns of a usual name the first is the target, and the lists of JSON are named as they are written."""
    rows = "".join(f"a text,{row},{-row}\n" for row in range(60))
    assert targets.load(write(tmp_path / "a.csv", "text,Y,y\n" + rows)).labels == ("Y",)
    lists = {"tokens": ["a", "b"], "Tokens": ["c", "d"], "tags": ["X", "Y"]}
    sentences = tagged.load(write(tmp_path / "a.jsonl", (json.dumps(lists) + "\n") * 20)).train.sequences
    assert sentences[0] == ["a", "b"]
    object = {"ID": "first", "values": list(range(20))}
    loaded = series.load(write(tmp_path / "b.jsonl", json.dumps(object)), Columns())
    # a run knows its series by these names
    assert [one.name for one in loaded.series] == ["1"]


def test_a_column_with_the_words_of_a_description(tmp_path: Path) -> None:
    rows = "".join(f"a text,{row}\n" for row in range(60))
    found = targets.load(write(tmp_path / "a.csv", "label in,price\n" + rows))
    assert "text in column 'label in' (guessed), target in column 'price' (guessed)" in found.description
