"""Sequences of numbers in the layout of the UCR archive: in each line a label, then the values of the steps.

Tabs, commas or blanks separate them, whichever the first line has. Sequences may differ in length. A missing value is
`NaN`, `?` or nothing; at the end of a line it means that the sequence is shorter, elsewhere it is refused. Values are
taken as they are: nothing is scaled. A first line of names is skipped. A label that is a whole number is written as
one: `1.0000000e+00` is `1`.
"""

from pathlib import Path

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import is_finite, is_number, read_lines
from mufuru.experiments.data.tables import LABEL, TEXT

MISSING = ("", "?", "nan")


def looks_numeric(path: Path) -> bool:
    """Return whether the first lines of a file are of this layout: three fields or more, all but the first numbers, and
    no usual name of a column of texts, nor one of labels beyond the first place."""
    lines = [line for line, _ in zip(read_lines(path), range(2), strict=False) if line.strip()]
    rows = [_fields(line, lines[0]) for line in lines]
    if not rows:
        return False
    first, *others = (name.casefold() for name in rows[0])
    if any(name in TEXT for name in (first, *others)) or any(name in LABEL for name in others):
        return False
    # the first line may have names; then the second decides
    return len(rows[-1]) > 2 and all(_is_value(field) for field in rows[-1][1:])


def read(path: Path) -> list[tuple[int, str, Tensor]]:
    """Return line, label and values, (steps, 1) float32, of all sequences of a file."""
    first, named = "", False
    series: list[tuple[int, str, Tensor]] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        first = first if series else line
        label, *fields = _fields(line, first)
        if not series and not named and fields and not any(map(_is_value, fields)):
            if misplaced := [name for name in fields if name.casefold() in LABEL]:
                raise DataError(f"{path}, line {number}: the column {misplaced[0]!r} should be the first: a label, "
                                "then the values")  # fmt: skip
            named = True
            continue
        where = f"{path}, line {number}"
        series.append((number, _label(label, where), _values(fields, where)))
    if not series:
        raise DataError(f"{path} is empty: expected a label and the values of a sequence in each line")
    return series


def values(line: str) -> Tensor:
    """Return a sequence without a label, (steps, 1)."""
    return _values(_fields(line, line), "a sequence")


def _fields(line: str, first: str) -> list[str]:
    """Return the fields of a line, separated as in the first."""
    separator = next((mark for mark in ("\t", ",") if mark in first), None)
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
        if not is_finite(field):
            raise DataError(f"{where}: expected a number for step {step}, got {repr(field) if field else 'nothing'}. "
                            "Only the last values of a sequence may be missing")  # fmt: skip
    return torch.tensor([[float(field)] for field in fields], dtype=torch.float32)
