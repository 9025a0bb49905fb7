"""Tables in files, and which column has the texts, which the labels, and which the part of each example.

CSV is what spreadsheets write: a comma, or a semicolon where the first line has no comma, and quotation marks around
values that hold one. TSV has no quotation marks. In JSON lines each is an object. Empty lines are skipped.

A column that is not named is guessed: by its name, if it is one of those below, or else by its values. The text is then
the longest column, the label the one that repeats most. Descriptions of the data say what was guessed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_lines
from mufuru.ops import did_you_mean

TEXT = (
    *("text", "sentence", "review", "content", "comment", "message", "tweet", "body", "document", "phrase"),
    *("question", "title", "tokens", "words", "values", "sequence", "series", "input"),
)
LABEL = (
    *("label", "labels", "class", "sentiment", "category", "target", "polarity", "rating", "stars", "topic"),
    *("intent", "y", "output"),
)
SPLIT = ("split",)
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "development"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of the parts in a column, in upper or lower case."""


class Row(NamedTuple):
    """The values of a line, or of the lines that a value covers."""

    line: int
    """The first line, counted from 1."""
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """Rows, and the names of their columns."""

    path: Path
    columns: tuple[str, ...]
    rows: list[Row]

    def __post_init__(self) -> None:
        if not self.rows:
            raise DataError(f"{self.path} has the names of columns and no rows: expected examples below them")

    def place(self, name: str) -> int:
        """Return the index of a column in a row; one that is not there is refused, with the nearest."""
        if name not in self.columns:
            raise DataError(f"{self.path} has no column {name!r}: {did_you_mean(name, self.columns)}")
        return self.columns.index(name)

    def name(self, given: str) -> str:
        """Return the column of this name or, if there is none, at this place, counted from 1."""
        if given not in self.columns and given.isdecimal() and 1 <= int(given) <= len(self.columns):
            return self.columns[int(given) - 1]
        return self.columns[self.place(given)]

    def column(self, name: str) -> list[Any]:
        """Return all values of a column."""
        place = self.place(name)
        return [row.values[place] for row in self.rows]


@dataclass(frozen=True)
class Columns:
    """The columns that matter, by name."""

    text: str
    label: str
    split: str | None
    guessed: tuple[str, ...] = ()
    """Those of "text", "label" and "split" that nobody named."""

    def __str__(self) -> str:
        parts = (("text", self.text), ("label", self.label), ("split", self.split))
        return ", ".join(f"{what} in column {name!r}{' (guessed)' if what in self.guessed else ''}"
                         for what, name in parts if name is not None)  # fmt: skip


def read_cells(path: Path, format: str) -> list[Row]:
    """Return the rows of a CSV or TSV file, its first too, all of the same number of values."""
    with _long_fields():
        rows = list(_records(path, format))
    if not rows:
        raise DataError(f"{path} is empty: expected a table of texts and labels")
    for row in rows:
        if len(row.values) != len(rows[0].values):
            quote = "; a value that holds one has to be in quotation marks" if format == "csv" else ""
            raise DataError(
                f"{path}, line {row.line}: expected {len(rows[0].values)} values as in line {rows[0].line}, "
                f"got {len(row.values)}{quote}"
            )
    return rows


def _records(path: Path, format: str) -> Iterator[Row]:
    lines = read_lines(path)
    first = next(lines, "")
    rest = chain([first], lines)
    if format == "tsv":
        reader = csv.reader(rest, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(rest, delimiter=";" if "," not in first and ";" in first else ",", strict=True)
    start = 1
    try:
        for values in reader:
            if any(value.strip() for value in values):
                yield Row(start, tuple(values))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {start}: expected values with quotation marks around those that hold a "
                        f"separator or quotation marks, got other ones ({error})") from None  # fmt: skip


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the csv module's limit, which is far below a long text."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def with_names(path: Path, rows: list[Row], header: bool) -> Table:
    """Return rows as a table: the first has the names of the columns, or they are called 1, 2, 3 and so on."""
    if not header:
        return Table(path, tuple(str(place + 1) for place in range(len(rows[0].values))), rows)
    names = tuple(str(name).strip() for name in rows[0].values)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}, line {rows[0].line}: the column {twice!r} is there more than once. Rename one")
    return Table(path, names, rows[1:])


def read_objects(path: Path) -> Table:
    """Return JSON lines as a table of all their keys; where an object lacks one its value is None."""
    objects = [(number, _object(path, number, line)) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not objects:
        raise DataError(f"{path} is empty: expected a JSON object in each line")
    columns = tuple(dict.fromkeys(key for _, item in objects for key in item))
    return Table(path, columns, [Row(number, tuple(map(item.get, columns))) for number, item in objects])


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    problem = ""
    try:
        value = json.loads(line.rstrip("\n"))
    except json.JSONDecodeError as error:
        value, problem = None, f" ({error.msg} at column {error.colno})"
    except RecursionError:
        value, problem = None, " (too deep)"
    if not isinstance(value, dict):
        raise DataError(f"{path}, line {number}: expected a JSON object, such as {{\"text\": ..., \"label\": ...}}, "
                        f"got {line.strip()[:40]!r}{problem}")  # fmt: skip
    return value


def has_header(path: Path, rows: Sequence[Row], named: Sequence[str]) -> bool:
    """Return whether the first row of a file has the names of its columns.

    It has if a user named columns; their places, 1, 2 and so on, are no names unless they stand there. Otherwise it
    has if it holds a usual name, or a label, that no other row has in that column.
    """
    first = rows[0].values
    if any(name in first or not name.isdecimal() for name in named):
        return True
    alone = [place for place, value in enumerate(first) if all(row.values[place] != value for row in rows[1:])]
    if any(_plain(first[place]) in (*TEXT, *LABEL, *SPLIT) for place in alone):
        return True
    try:
        # without a usual name in the first row, what is a label follows from the others
        columns = choose(with_names(path, list(rows[1:]), header=False), None, None, None) if rows[1:] else None
    except DataError:
        return False
    return columns is not None and int(columns.label) - 1 in alone


def choose(table: Table, text: str | None, label: str | None, split: str | None) -> Columns:
    """Return the columns that are named, or meant by their places, and guesses for the others."""
    text, label, split = (None if name is None else table.name(name) for name in (text, label, split))
    named = {"text": text, "label": label, "split": split}
    for (one, column), (other, same) in combinations(named.items(), 2):
        if column is not None and column == same:
            raise DataError(f"{table.path}: the column {column!r} cannot be both {one} and {other}: name another one")
    if split is None and (split := _known(table.columns, SPLIT, (text, label))) is not None:
        # another thing may be called so: it counts only if all its values are parts
        split = split if all(_plain(value) in SPLITS for value in table.column(split)) else None
    label = label or _known(table.columns, LABEL, (text, split))
    text = text or _known(table.columns, TEXT, (label, split)) or _longest(table, (label, split))
    label = label or _most_repeated(table, (text, split))
    return Columns(text, label, split, tuple(what for what, name in named.items() if name is None))


def _plain(value: Any) -> str:
    return str(value).strip().casefold()


def _known(columns: Sequence[str], names: Sequence[str], taken: Sequence[str | None]) -> str | None:
    """Return the column with the first of the usual names."""
    there = {_plain(column): column for column in columns if column not in taken}
    return next((there[name] for name in names if name in there), None)


def _longest(table: Table, taken: Sequence[str | None]) -> str:
    """Return the column of the longest values on the whole."""
    longest = max(_left(table, taken), key=lambda name: sum(len(str(value)) for value in table.column(name)))
    if all(is_number(value) for value in table.column(longest)):
        raise DataError(f"{table.path} seems to have no texts: the column {longest!r} holds numbers. Name the column "
                        "with texts; or, if each row is a sequence of numbers, give the format numeric")  # fmt: skip
    return longest


def _most_repeated(table: Table, taken: Sequence[str | None]) -> str:
    """Return the column of the fewest different values."""
    left = _left(table, taken)
    kinds = {name: len({str(value) for value in table.column(name)}) for name in left}
    fewest = min(left, key=kinds.__getitem__)
    if kinds[fewest] == len(table.rows) > 1:
        raise DataError(f"{table.path} has no column whose values repeat, so that they could be labels: name it; there "
                        f"are {', '.join(left)}")  # fmt: skip
    return fewest


def _left(table: Table, taken: Sequence[str | None]) -> list[str]:
    left = [name for name in table.columns if name not in taken]
    if not left:
        raise DataError(f"{table.path} should have a column of texts and one of labels, got only "
                        f"{', '.join(table.columns)}")  # fmt: skip
    return left


def is_number(value: Any) -> bool:
    """Return whether a cell holds a number, NaN among them."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
