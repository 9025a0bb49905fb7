"""Sequences of numbers in the layout of the UCR archive."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mufuru.experiments.data import DataError, labelled, numeric, readers


def write(folder: Path, content: str, name: str = "Series_TRAIN.tsv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def series(path: Path) -> list[tuple[str, list[float]]]:
    found = numeric.read_rows(path).series
    assert all(values.shape == (len(values), 1) and values.dtype == torch.float32 for _, _, values in found)
    return [(label, values.flatten().tolist()) for _, label, values in found]


@pytest.mark.parametrize(
    "content",
    [
        "1\t0.5\t-1\t2\n-1\t4\t5\t6\n",
        "1,0.5,-1,2\n-1,4,5,6\n",
        "1 0.5 -1 2\n-1 4 5 6",
        "  1.0000000e+00  5.0e-01 -1.0e+00   2.0e+00 \n\n -1.0000000e+00  4  5  6 \n",
        "label\tfirst\tsecond\tthird\n1\t0.5\t-1\t2\n-1\t4\t5\t6\n",
        "\ufeff1, 0.5, -1, 2\r\n-1, 4, 5, 6\r\n",
    ],
    ids=["tabs", "commas", "blanks", "old archive", "names", "windows"],
)
def test_the_layouts_that_are_around(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content)
    assert series(path) == [("1", [0.5, -1, 2]), ("-1", [4, 5, 6])]
    assert numeric.looks_numeric(path)


def test_missing_values_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a\t1\t2\tNaN\tnan\nb\t1\t?\t\t\nb\t1\t2\t3\t4\na\t5\n")
    assert series(path) == [("a", [1, 2]), ("b", [1]), ("b", [1, 2, 3, 4]), ("a", [5])]


@given(st.data(), st.sampled_from(["\t", ",", " "]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_round_trip(tmp_path: Path, data: st.DataObject, separator: str) -> None:
    number = st.floats(width=32, allow_nan=False, allow_infinity=False)
    row = st.tuples(st.sampled_from(["1", "2", "-1", "0.5", "up"]), st.lists(number, min_size=1, max_size=6))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    content = "\n".join(separator.join([label, *map(repr, values)]) for label, values in rows)
    assert series(write(tmp_path, content)) == rows


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\t2\tNaN\t3", "expected a number for step 2, got 'NaN'. Only the last values of a sequence may be missing"),
        ("1\t2\t\t3", "expected a number for step 2, got nothing"),
        ("1\t2\tx\t3", "expected a number for step 2, got 'x'"),
        ("1\t2\tinf", "expected a number for step 2, got 'inf'"),
        ("1\t1e39", "expected a number for step 1, got '1e39'"),
        ("1\tNaN\tNaN", "expected the values of its steps, got none"),
        ("1", "expected the values of its steps, got none"),
        ("\t1\t2", "expected a label in the first place, got none"),
        ("NaN\t1\t2", "expected a label in the first place, got none"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, f"1\t1\t2\n\n{line}\n")
    with pytest.raises(DataError, match=re.escape(f"{path}, line 3: {message}")):
        numeric.read_rows(path)


def test_no_sequences(tmp_path: Path) -> None:
    for content in ("", "\n\n", "label\ta\tb\n"):
        with pytest.raises(DataError, match="is empty: expected a label and the values of a sequence"):
            numeric.read_rows(write(tmp_path, content))
    with pytest.raises(DataError, match="line 2: expected a number for step 1, got 'c'"):
        numeric.read_rows(write(tmp_path, "label\ta\tb\n0\tc\td\n1\t2\t3\n"))


@pytest.mark.parametrize(
    "content", ["", "text,label\ngood,1\n", "1,2\n", "good film\t1\n", "label,text\n1,2 3\n", "text,label,n\na,1,2\n"]
)
def test_what_is_not_numbers(tmp_path: Path, content: str) -> None:
    assert not numeric.looks_numeric(write(tmp_path, content))


def test_a_data_set(tmp_path: Path) -> None:
    """As of the archive: training and test; what is missing is held out of training."""
    train = write(tmp_path, "".join(f"{1 + row % 2}\t{row}\t{row + 0.5}\n" for row in range(20)))
    test = write(tmp_path, "2\t7\t8\t9\n1\t5\n", "Series_TEST.tsv")
    found = labelled.load(train, test=test, held_out=(0.2, 0.1))
    assert (found.kind, found.labels, found.channels) == ("numeric", ("1", "2"), 1)
    assert [len(part) for part in (found.train, found.valid, found.test)] == [16, 4, 2]
    assert [values.flatten().tolist() for values in found.test.sequences] == [[7, 8, 9], [5]]
    assert found.test.targets.tolist() == [1, 0]
    for values, target in zip(found.train.sequences, found.train.targets.tolist(), strict=True):
        assert int(values[0]) % 2 == target
        assert float(values[1] - values[0]) == 0.5
    assert found.description == (
        "Series_TRAIN.tsv: sequences of numbers, the label in the first column (guessed); 2 labels; 16 training, "
        "4 validation, 2 test examples; validation held out of training with seed 0"
    )


def test_a_line_as_a_user_writes_it() -> None:
    for line in ("1, 2.5,3\n", "1\t2.5\t3", " 1 2.5 3 ", "[1, 2.5, 3]", "[[1], [2.5], [3]]"):
        assert torch.equal(readers.values(line), torch.tensor([[1], [2.5], [3]]))
    assert readers.values("[[1, 2], [3, 4]]").tolist() == [[1, 2], [3, 4]]
    for line in ("", "1 two", "[1", "[]", '[1, "a"]', "[[1], [2, 3]]", "[1, NaN]", "[null]"):
        with pytest.raises(DataError, match="expected"):
            readers.values(line)


def test_numbered_columns_are_steps_in_their_order(tmp_path: Path) -> None:
    """The alphabet puts x_10 before x_2."""
    file = write(tmp_path, "label,x_1,x_10,x_2\na,1,10,2\nb,1,10,2\n")
    with pytest.raises(DataError, match="'x_2' comes after 'x_10'"):
        numeric.read_rows(file)
    rows = numeric.read_rows(file, wide=True).series
    assert [values.flatten().tolist() for _, _, values in rows] == [[1, 2, 10]] * 2
    in_order = write(tmp_path, "label,x_1,x_2,x_10\na,1,2,10\n")
    assert numeric.read_rows(in_order).series[0][2].flatten().tolist() == [1, 2, 10]
