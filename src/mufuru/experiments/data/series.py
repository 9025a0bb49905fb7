"""Series to forecast: columns of a table, groups of its rows, or JSON lines.

In a table each row is a moment. Every column of numbers is a series, but for covariates and for a column that only
counts the moments, such as a year; or, with a column of names, the rows of each name are one. In JSON lines each object
is a series: a list of values, lists of covariates of the same length, and perhaps a name. The first and the last values
of a series may be missing, not those between.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import DataError, tables
from mufuru.experiments.data.lines import LARGEST, ending, is_finite, is_number
from mufuru.experiments.data.tables import Table

Format = Literal["csv", "tsv", "jsonl"]
ENDINGS: dict[str, Format] = {".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
"""Endings of names; files of other names are CSV."""
MISSING = ("", "?", "nan", "na")
FEWEST = 3
"""Rows of one name, on average, that are taken for a series."""
VALUES = ("values", "target", "series", "y", "value")
NAMES = ("name", "id", "item_id", "series_id")
"""Names in JSON lines, the likeliest first."""


@dataclass(frozen=True, eq=False)
class Series:
    """A series and its covariates."""

    name: str
    values: Tensor
    """(steps, 1 + covariates) float32: the value to forecast is the first."""


@dataclass(frozen=True)
class Columns:
    """Columns as a user names them, each by name or place."""

    values: tuple[str, ...] = ()
    """Series, or the values of all series where `name` is given; empty to guess them."""
    covariates: tuple[str, ...] = ()
    name: str | None = None


class Loaded(NamedTuple):
    """The series of a file."""

    series: list[Series]
    columns: tuple[str, ...]
    """The columns that have their values, guesses included."""
    description: str


def load(path: str | Path, columns: Columns, format: Format | None = None) -> Loaded:
    """Return all series of a file."""
    path = Path(path)
    form = format or ENDINGS.get(ending(path), "csv")
    if form == "jsonl":
        return _objects(tables.read_objects(path), columns)
    cells = tables.read_cells(path, form)
    table = tables.with_names(path, cells, _has_header(cells))
    covariates = [table.find(name) for name in columns.covariates]
    given = [table.find(name) for name in columns.values]
    if columns.name is not None:
        return _grouped(table, given, covariates, table.find(columns.name))
    if not given:
        _check_names(table, covariates)
    values = given or _guess(table, covariates)
    series = [_series(table, name, covariates, range(len(table.lines)), name) for name in values]
    description = f"{path.name}: {_listed(values)}{'' if given else ' (guessed)'}{_beside(covariates)}"
    return Loaded(series, tuple(values), description)


def _is_value(field: str) -> bool:
    return field.strip().casefold() in MISSING or is_number(field)


def _has_header(cells: tables.Cells) -> bool:
    """Return whether the first row has names: a word above a column of numbers, or nothing above one that counts rows,
    as pandas writes its index."""
    (_, first), *rows = cells
    columns = [[row[place] for _, row in rows] for place in range(len(first))]
    return any((not _is_value(name) and all(map(_is_value, column))) or (not name.strip() and _counts(column))
               for name, column in zip(first, columns, strict=True))  # fmt: skip


def _guess(table: Table, taken: Sequence[str]) -> list[str]:
    """Return the columns of numbers, without those that count the rows."""
    left = {name: values for name, values in table.columns.items() if name not in taken}
    numeric = [name for name, values in left.items() if all(map(_is_value, values)) and any(map(is_number, values))]
    # numbers of rows alone are no series, such as the ids of texts
    chosen = [name for name in numeric if not _counts(left[name])] if len(left) > 1 else numeric
    if not chosen:
        raise DataError(f"{table.path} has no column of numbers to forecast: expected one, or several, and there are "
                        f"{', '.join(table.columns)}. Name one with --value-columns to see what is wrong")  # fmt: skip
    return chosen


def _check_names(table: Table, taken: Sequence[str]) -> None:
    """Refuse rows of several series below each other: they would be read as one."""
    for column, names in table.columns.items():
        blocks = [name for name, _ in groupby(names)]
        together = 1 < len(blocks) == len(set(blocks)) <= len(names) / FEWEST
        if together and column not in taken and not any(map(_is_value, names)):
            raise DataError(f"{table.path}: the column {column!r} has {blocks[0]!r} in one row after the other, then "
                            f"{blocks[1]!r}. If rows of several series stand below each other, name it with "
                            "--series-column; if not, name the series with --value-columns")  # fmt: skip


def _counts(values: Sequence[Any]) -> bool:
    """Return whether three numbers or more rise by the same step, as those of years do."""
    if len(values) < 3 or not all(map(is_number, values)):
        return False
    steps = {float(after) - float(before) for before, after in pairwise(values)}
    return len(steps) == 1 and steps.pop() > 0


def _grouped(table: Table, given: list[str], covariates: list[str], name: str) -> Loaded:
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(table.columns[name]):
        rows.setdefault(str(label), []).append(row)
    values = given or _guess(table, [name, *covariates])
    if len(values) > 1 and not given:
        # what counts the moments begins again with each series
        names = list(rows.values())
        values = [
            one for one in values if not all(_counts([table.columns[one][row] for row in some]) for some in names)
        ]
    if len(values) != 1:
        raise DataError(f"{table.path}: with a column of the series' names there is one of values, and these are "
                        f"{', '.join(values)}: name it with --value-columns")  # fmt: skip
    series = [_series(table, values[0], covariates, some, label) for label, some in rows.items()]
    description = (f"{table.path.name}: {len(series)} series by column {name!r}, values in column {values[0]!r}"
                   f"{'' if given else ' (guessed)'}{_beside(covariates)}")  # fmt: skip
    return Loaded(series, tuple(values), description)


def _series(table: Table, value: str, covariates: Sequence[str], rows: Sequence[int], name: str) -> Series:
    """Return the rows in which the value is there, from the first to the last of them."""
    there = [row for row in rows if str(table.columns[value][row]).strip().casefold() not in MISSING]
    if not there:
        raise DataError(f"{table.path}: the series {name!r} has no values")
    inside = [row for row in rows if there[0] <= row <= there[-1]]
    for row in inside:
        for column in (value, *covariates):
            if not is_finite(field := table.columns[column][row]):
                raise DataError(f"{table.path}, line {table.lines[row]}: expected a number in column {column!r}, got "
                                f"{str(field)!r}. Only the first and last values of a series may be missing: fill it "
                                "in, by interpolation for example")  # fmt: skip
    numbers = [[float(table.columns[column][row]) for column in (value, *covariates)] for row in inside]
    return Series(name, torch.tensor(numbers, dtype=torch.float32))


def _objects(table: Table, columns: Columns) -> Loaded:
    usual = [name for name in VALUES if name in table.columns]
    if len(columns.values) > 1 or not (columns.values or usual):
        raise DataError(f"{table.path}: expected a list of values in each object; name it with --value-columns; there "
                        f"are {', '.join(table.columns)}")  # fmt: skip
    value = table.find(columns.values[0]) if columns.values else usual[0]
    covariates = [table.find(name) for name in columns.covariates]
    known = next((name for name in NAMES if name in table.columns), None)
    label = table.find(columns.name) if columns.name is not None else known
    series = []
    for row, line in enumerate(table.lines):
        name = str(row + 1) if label is None else str(table.columns[label][row])
        where = f"{table.path}, line {line}"
        lists = [_list(table.columns[column][row], column, where) for column in (value, *covariates)]
        if len({len(values) for values in lists}) > 1:
            raise DataError(f"{where}: expected as many covariates as values, got "
                            f"{' and '.join(str(len(values)) for values in lists)}")  # fmt: skip
        series.append(Series(name, torch.tensor(np.stack(lists, 1), dtype=torch.float32)))
    guessed = "" if columns.values else " (guessed)"
    description = f"{table.path.name}: {len(series)} series, values in {value!r}{guessed}{_beside(covariates)}"
    return Loaded(series, (value,), description)


def _list(value: Any, name: str, where: str) -> Any:
    plain = isinstance(value, list) and value and all(type(number) in (int, float) for number in value)
    if not plain or not all(math.isfinite(number) and abs(number) <= LARGEST for number in value):
        raise DataError(f"{where}: expected a list of finite numbers as {name!r}, got {repr(value)[:60]}")
    return np.array(value, np.float64)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"series in column{'' if len(names) == 1 else 's'} {shown}"


def _beside(covariates: Sequence[str]) -> str:
    return f", covariates {', '.join(covariates)}" if covariates else ""
