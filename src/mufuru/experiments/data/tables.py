"""Tables in files: CSV, TSV and JSON lines, as rows that know their line.

CSV is what spreadsheets write: a comma, or a semicolon where the first line has no comma, and quotation marks around
what holds one. TSV has no quotation marks: what stands between two tabs is the value. Of JSON lines, each is an object.
Empty lines are passed over.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.lines import read_lines
from mufuru.ops import did_you_mean

LONGEST = 2**31 - 1
"""Characters in a field; the csv module's own limit is far below a long text."""


class Row(NamedTuple):
    """The values of a line, or of the lines that a value covers."""

    line: int
    """The first one, from 1."""
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
        """Where a column's values are in a row; one that is not there is refused, with the nearest."""
        if name not in self.columns:
            raise DataError(f"{self.path} has no column {name!r}: {did_you_mean(name, self.columns)}")
        return self.columns.index(name)

    def name(self, given: str) -> str:
        """The column of this name or, if there is none, at this place, from 1."""
        if given not in self.columns and given.isdecimal() and 1 <= int(given) <= len(self.columns):
            return self.columns[int(given) - 1]
        return self.columns[self.place(given)]

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        place = self.place(name)
        return [row.values[place] for row in self.rows]


def read_cells(path: Path, format: str) -> list[Row]:
    """The rows of a CSV or TSV file, its first too, all of the same number of values."""
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


def with_names(path: Path, rows: list[Row], header: bool) -> Table:
    """Rows as a table: the first has the names of the columns, or they are called 1, 2, 3 and so on."""
    if not header:
        return Table(path, tuple(str(place + 1) for place in range(len(rows[0].values))), rows)
    names = tuple(str(name).strip() for name in rows[0].values)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}, line {rows[0].line}: the column {twice!r} is there more than once. Rename one")
    return Table(path, names, rows[1:])


def read_objects(path: Path) -> Table:
    """JSON lines as a table of all keys there are; where an object lacks one its value is None."""
    objects = [(number, _object(path, number, line)) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not objects:
        raise DataError(f"{path} is empty: expected a JSON object in each line")
    columns = tuple(dict.fromkeys(key for _, item in objects for key in item))
    return Table(path, columns, [Row(number, tuple(map(item.get, columns))) for number, item in objects])


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line.rstrip("\n"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {number}, column {error.colno}: expected a JSON object, "
                        f"got {line.strip()[:40]!r} ({error.msg})") from None  # fmt: skip
    except RecursionError:
        raise DataError(f"{path}, line {number}: the JSON object is too deep") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}, line {number}: expected a JSON object, such as {{\"text\": ..., \"label\": ...}}, "
                        f"got {line.strip()[:40]!r}")  # fmt: skip
    return found


def _records(path: Path, format: str) -> Iterator[Row]:
    lines = read_lines(path)
    first = next(lines, "")
    rest = chain([first], lines)
    if format == "tsv":
        reader = csv.reader(rest, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(rest, delimiter=";" if "," not in first and ";" in first else ",", strict=True)
    while True:
        start = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}, line {start}: expected values with quotation marks around those that hold a "
                            f"separator or quotation marks, got other ones ({error})") from None  # fmt: skip
        if any(value.strip() for value in values):
            yield Row(start, tuple(values))


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)
