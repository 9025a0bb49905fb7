"""Sequences of numbers in the layout of the UCR archive: in each line a label, then the values of the steps.

Tabs, commas or blanks separate them, whichever the first line has. Sequences may differ in length. A missing value is
`NaN`, `?` or nothing; at the end of a line it means that the sequence is shorter, elsewhere it is refused, since a
program cannot know it. Values are taken as they are: nothing is scaled. A first line of names
is skipped. A label that is a whole number is written as one: `1.0000000e+00` is `1`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_lines
from mufuru.experiments.data.tables import LABEL, TEXT, is_number

MISSING = ("", "?", "nan")
LARGEST = float(np.finfo(np.float32).max)


class Series(NamedTuple):
    """A sequence of numbers and its label."""

    line: int
    label: str
    values: Tensor
    """(steps, 1): float32."""


def looks_numeric(path: Path) -> bool:
    """Return whether the first lines of a file are of this layout: three fields or more, all but the first numbers.

    They are not if the first has the usual name of a column of texts, or that of labels beyond the first place.
    """
    lines = [line for line, _ in zip(read_lines(path), range(2), strict=False) if line.strip()]
    rows = [_fields(line, _separator(lines[0])) for line in lines]
    if not rows:
        return False
    first, *others = (name.casefold() for name in rows[0])
    if any(name in TEXT for name in (first, *others)) or any(name in LABEL for name in others):
        return False
    # the first line may have names; then the second decides
    return len(rows[-1]) > 2 and all(_is_value(field) for field in rows[-1][1:])


def read(path: Path) -> list[Series]:
    """Return all sequences of a file."""
    separator: str | None = None
    named = False
    series: list[Series] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        separator = separator if series else _separator(line)
        label, *fields = _fields(line, separator)
        if not series and not named and fields and not any(map(_is_value, fields)):
            misplaced = next((name for name in fields if name.casefold() in LABEL), None)
            if misplaced is not None:
                raise DataError(f"{path}, line {number}: the column {misplaced!r} should be the first: a label, then "
                                "the values")  # fmt: skip
            named = True
            continue
        where = f"{path}, line {number}"
        series.append(Series(number, _label(label, where), _values(fields, where)))
    if not series:
        raise DataError(f"{path} is empty: expected a label and the values of a sequence in each line")
    return series


def values(line: str) -> Tensor:
    """Return a sequence without a label, (steps, 1)."""
    return _values(_fields(line, _separator(line)), "a sequence")


def _separator(line: str) -> str | None:
    return next((separator for separator in ("\t", ",") if separator in line), None)


def _fields(line: str, separator: str | None) -> list[str]:
    return [field.strip() for field in line.strip("\n").split(separator)] if separator else line.split()


def _is_value(field: str) -> bool:
    return field.casefold() in MISSING or is_number(field)


def _label(field: str, where: str) -> str:
    if field.casefold() in MISSING:
        raise DataError(f"{where}: expected a label in the first place, got none")
    return str(int(float(field))) if is_number(field) and float(field).is_integer() else field


def _values(fields: list[str], where: str) -> Tensor:
    while fields and fields[-1].casefold() in MISSING:
        fields.pop()
    if not fields:
        raise DataError(f"{where}: expected the values of its steps, got none")
    for step, field in enumerate(fields, 1):
        # NaN is not below anything
        if not is_number(field) or not abs(float(field)) <= LARGEST:
            raise DataError(f"{where}: expected a number for step {step}, got {repr(field) if field else 'nothing'}. "
                            "Only the last values of a sequence may be missing")  # fmt: skip
    return torch.from_numpy(np.array(list(map(float, fields)), np.float32)).unsqueeze(1)
