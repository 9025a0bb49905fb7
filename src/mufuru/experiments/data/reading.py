"""Read the examples of one file, whatever its format: each knows its line, so that an error can name it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import columns, numeric, tables
from mufuru.experiments.data.columns import Columns
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.tables import Row, Table
from mufuru.experiments.data.tokens import Cut, tokenise

Format = Literal["csv", "tsv", "jsonl", "numeric"]
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


class Example(NamedTuple):
    """A labelled sequence, and where it was found."""

    path: Path
    line: int
    label: str
    sequence: list[str] | Tensor
    part: str | None
    """What the column of splits says."""

    @property
    def channels(self) -> int:
        """Numbers in a step; 0 for text."""
        return self.sequence.size(1) if isinstance(self.sequence, Tensor) else 0


def guess_format(path: Path, named: bool) -> Format:
    """The format by the name's ending, or numeric if there are numbers only and nobody named columns."""
    ending = path.suffix.lower()
    if not named and ending in (".csv", ".tsv", ".tab", ".txt", "") and numeric.looks_numeric(path):
        return "numeric"
    if ending not in ENDINGS:
        raise DataError(f"{path}: expected a name that ends with one of {', '.join(ENDINGS)}, or that the format is "
                        "given: csv, tsv, jsonl or numeric")  # fmt: skip
    return ENDINGS[ending]


class Reader:
    """Reads the files of one data set; the first file decides which columns they all are read by."""

    def __init__(
        self, format: Format, cut: Cut, lower: bool, text: str | None, label: str | None, split: str | None
    ) -> None:
        self.format, self.cut, self.lower = format, cut, lower
        self.named = text, label, split
        self.columns: Columns | None = None
        self._header: bool | None = None

    def __str__(self) -> str:
        return str(self.columns) if self.columns else "sequences of numbers, the label in the first column"

    def read(self, path: Path) -> list[Example]:
        """All examples of a file."""
        if self.format == "numeric":
            return [Example(path, line, label, values, None) for line, label, values in numeric.read(path)]
        table = self._table(path)
        if self.columns is None:
            self.columns = columns.choose(table, *self.named)
        text, label = (table.place(name) for name in (self.columns.text, self.columns.label))
        split = table.place(self.columns.split) if self.columns.split in table.columns else None
        return [self._example(table.path, row, text, label, split) for row in table.rows]

    def _table(self, path: Path) -> Table:
        if self.format == "jsonl":
            return tables.read_objects(path)
        rows = tables.read_cells(path, self.format)
        if self._header is None:
            self._header = columns.has_header(path, rows, [name for name in self.named if name is not None])
        return tables.with_names(path, rows, self._header)

    def _example(self, path: Path, row: Row, text: int, label: int, split: int | None) -> Example:
        where = f"{path}, line {row.line}"
        part = None if split is None else _part(row.values[split], where)
        return Example(path, row.line, _label(row.values[label], where), self._sequence(row.values[text], where), part)

    def _sequence(self, value: Any, where: str) -> list[str] | Tensor:
        if isinstance(value, str):
            if found := tokenise(value, self.cut, self.lower):
                return found
            raise DataError(f"{where}: expected a text, got an empty one. Leave the line out")
        if not isinstance(value, list) or not value:
            raise DataError(f"{where}: expected a text, or a list of tokens or numbers, got {_shown(value)}")
        if all(isinstance(token, str) and token for token in value):
            return [token.lower() for token in value] if self.lower else value
        return _numbers(value, where)


def values(line: str) -> Tensor:
    """(steps, channels): the numbers of a line, as the values of `numeric.py` or as a list of JSON."""
    if not line.lstrip().startswith("["):
        return numeric.values(line)
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"expected a sequence of numbers, got {_shown(line.strip())} ({error})") from None
    return _numbers(found, "a sequence")


def _part(value: Any, where: str) -> str:
    part = columns.PARTS.get(str(value).strip().casefold())
    if part is None:
        raise DataError(f"{where}: expected one of {', '.join(columns.PARTS)} as the split, got {_shown(value)}")
    return part


def _label(value: Any, where: str) -> str:
    """JSON's numbers and truth values are labels as they are written."""
    if isinstance(value, bool):
        return str(value).lower()
    label = str(value).strip() if isinstance(value, str | int | float) else ""
    if not label or (isinstance(value, float) and math.isnan(value)):
        problem = "none" if value is None or value == "" else _shown(value)
        raise DataError(f"{where}: expected a label, got {problem}. Add it, or leave the line out")
    return label


def _numbers(value: list[Any], where: str) -> Tensor:
    """(steps, channels): a list of numbers has one channel."""
    try:
        found = np.array(value, np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim not in (1, 2) or not found.size:
        raise DataError(f"{where}: expected a list of tokens, of numbers, or of lists of as many numbers each, "
                        f"got {_shown(value)}")  # fmt: skip
    # NaN is not below anything
    if not (np.abs(found) <= numeric.LARGEST).all():
        raise DataError(f"{where}: expected finite numbers, got {_shown(value)}")
    return torch.from_numpy(found.astype(np.float32).reshape(len(found), -1))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
