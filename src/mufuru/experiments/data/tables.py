"""Tables in files, and which column has the texts, which the labels, and which the part of each example.

CSV is what spreadsheets write: a comma, or a semicolon where the first line has no comma, and quotation marks around
values that hold one. TSV has no quotation marks. In JSON lines each is an object. Empty lines are skipped.

A column that is not named is guessed: by its name, if it is one of those below, or else by its values. The text is then
the longest column, the label the one that repeats most. Descriptions of the data say what was guessed.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import is_number, read_lines
from mufuru.ops import did_you_mean

# the module's own limit is far below a long text
csv.field_size_limit(2**31 - 1)

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

Cells = list[tuple[int, list[str]]]
"""The line in which each row begins, counted from 1, and its values."""


@dataclass(frozen=True)
class Table:
    """The values of rows by column, and the line in which each row begins."""

    path: Path
    lines: list[int]
    columns: dict[str, Sequence[Any]]

    def find(self, given: str) -> str:
        """Return the column of this name or, if there is none, at this place, counted from 1."""
        names = list(self.columns)
        if given not in names and given.isdecimal() and 1 <= int(given) <= len(names):
            return names[int(given) - 1]
        if given not in names:
            raise DataError(f"{self.path} has no column {given!r}: {did_you_mean(given, names)}")
        return given


@dataclass(frozen=True)
class Columns:
    """The columns that matter, by name."""

    text: str
    label: str
    split: str | None
    guessed: tuple[str, ...] = ()
    """Those of "text", "label" and "split" that were guessed."""
    width: int = 0
    """Columns of the table."""

    def described(self, content: str, answer: str) -> str:
        """Return which column has what; `content` is the first's, such as "text", `answer` the second's, "label"."""
        parts = (("text", content, self.text), ("label", answer, self.label), ("split", "split", self.split))
        return ", ".join(f"{shown} in column {name!r}{' (guessed)' if what in self.guessed else ''}"
                         for what, shown, name in parts if name is not None)  # fmt: skip


def read_cells(path: Path, format: str) -> Cells:
    """Return the rows of a CSV or TSV file, its first too, all of the same number of values."""
    rows = list(_records(path, format))
    if not rows:
        raise DataError(f"{path} is empty: expected a table, a row in each line")
    start, first = rows[0]
    for line, values in rows:
        if len(values) != len(first):
            quote = "; a value that holds one has to be in quotation marks" if format == "csv" else ""
            raise DataError(f"{path}, line {line}: expected {len(first)} values as in line {start}, got "
                            f"{len(values)}{quote}")  # fmt: skip
    return rows


def _records(path: Path, format: str) -> Iterator[tuple[int, list[str]]]:
    lines = read_lines(path)
    first = next(lines, "")
    separator = "\t" if format == "tsv" else ";" if "," not in first and ";" in first else ","
    quoting: Any = csv.QUOTE_NONE if format == "tsv" else csv.QUOTE_MINIMAL
    reader = csv.reader(chain([first], lines), delimiter=separator, quoting=quoting, strict=True)
    start = 1
    try:
        for values in reader:
            if any(value.strip() for value in values):
                yield start, values
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {start}: expected values with quotation marks around those that hold a "
                        f"separator or quotation marks ({error})") from None  # fmt: skip


def with_names(path: Path, cells: Cells, header: bool) -> Table:
    """Return rows as a table: the first has the names of the columns, or they are called 1, 2, 3 and so on."""
    line, first = cells[0]
    names = [name.strip() for name in first] if header else [str(place) for place, _ in enumerate(first, 1)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}, line {line}: the column {twice[0]!r} is there more than once. Rename one")
    rows = cells[1:] if header else cells
    if not rows:
        raise DataError(f"{path} has the names of columns and no rows: expected examples below them")
    values = zip(*(values for _, values in rows), strict=True)
    return Table(path, [line for line, _ in rows], dict(zip(names, values, strict=True)))


def read_objects(path: Path) -> Table:
    """Return JSON lines as a table of all their keys; where an object lacks one its value is None."""
    objects = {number: _object(path, number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()}
    if not objects:
        raise DataError(f"{path} is empty: expected a JSON object in each line")
    keys = dict.fromkeys(key for item in objects.values() for key in item)
    return Table(path, list(objects), {key: [item.get(key) for item in objects.values()] for key in keys})


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    value, problem = None, ""
    try:
        value = json.loads(line.rstrip("\n"))
    except json.JSONDecodeError as error:
        problem = f" ({error.msg} at column {error.colno})"
    except RecursionError:
        problem = " (too deep)"
    if not isinstance(value, dict):
        raise DataError(f"{path}, line {number}: expected a JSON object, such as {{\"text\": ..., \"label\": ...}}, "
                        f"got {line.strip()[:40]!r}{problem}")  # fmt: skip
    return value


def has_header(path: Path, cells: Cells, named: Sequence[str]) -> bool:
    """Return whether the first row of a file has the names of its columns.

    It has if a user named columns; their places, 1, 2 and so on, are no names unless they stand there. Otherwise it
    has if it holds a usual name, or a label, that no other row has in that column.
    """
    (_, first), *rows = cells
    if any(name in first or not name.isdecimal() for name in named):
        return True
    alone = [place for place, value in enumerate(first) if all(values[place] != value for _, values in rows)]
    if any(_plain(first[place]) in (*TEXT, *LABEL, *SPLIT) for place in alone):
        return True
    try:
        # without a usual name in the first row, the label follows from the others
        return bool(rows) and int(choose(with_names(path, rows, header=False)).label) - 1 in alone
    except DataError:
        return False


def choose(table: Table, text: str | None = None, label: str | None = None, split: str | None = None) -> Columns:
    """Return the columns that are given by name or place, and guesses for the others."""
    text, label, split = (None if name is None else table.find(name) for name in (text, label, split))
    named = {"text": text, "label": label, "split": split}
    for (one, column), (other, same) in combinations(named.items(), 2):
        if column is not None and column == same:
            raise DataError(f"{table.path}: the column {column!r} cannot be both {one} and {other}: name another one")
    if split is None and (split := _known(table, SPLIT, text, label)) is not None:
        # the name may mean something else: it counts only if all its values are parts
        split = split if all(_plain(value) in SPLITS for value in table.columns[split]) else None
    label = label or _known(table, LABEL, text, split)
    text = text or _known(table, TEXT, label, split) or _longest(table, label, split)
    label = label or _most_repeated(table, text, split)
    guessed = tuple(what for what, name in named.items() if name is None)
    return Columns(text, label, split, guessed, len(table.columns))


def text_column(table: Table) -> str:
    """Return a guess for the column of texts, where there may be no labels."""
    return _known(table, TEXT) or _longest(table, _known(table, LABEL), _known(table, SPLIT))


def _plain(value: Any) -> str:
    return str(value).strip().casefold()


def _known(table: Table, names: Sequence[str], *taken: str | None) -> str | None:
    """Return the column with the first of the usual names."""
    there = {_plain(column): column for column in table.columns if column not in taken}
    return next((there[name] for name in names if name in there), None)


def _longest(table: Table, *taken: str | None) -> str:
    """Return the column with the most characters."""
    columns = _left(table, taken)
    longest = max(columns, key=lambda name: sum(len(str(value)) for value in columns[name]))
    if all(map(is_number, columns[longest])):
        raise DataError(f"{table.path} seems to have no texts: the column {longest!r} holds numbers. Name the column "
                        "with texts; or, if each row is a sequence of numbers, give the format numeric")  # fmt: skip
    return longest


def _most_repeated(table: Table, *taken: str | None) -> str:
    """Return the column with the fewest different values."""
    kinds = {name: len(set(map(str, values))) for name, values in _left(table, taken).items()}
    fewest = min(kinds, key=kinds.__getitem__)
    if kinds[fewest] == len(table.lines) > 1:
        raise DataError(f"{table.path} has no column whose values repeat, so that they could be labels: name it; there "
                        f"are {', '.join(kinds)}. A number to predict is for `mufuru train regress`")  # fmt: skip
    return fewest


def _left(table: Table, taken: Sequence[str | None]) -> dict[str, Sequence[Any]]:
    left = {name: values for name, values in table.columns.items() if name not in taken}
    if not left:
        raise DataError(f"{table.path} should have a column of texts and one of labels, got only "
                        f"{', '.join(table.columns)}")  # fmt: skip
    return left
