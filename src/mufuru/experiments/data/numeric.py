"""Sequences of numbers in rows: a label and the values of the steps, as in the UCR archive.

Tabs, commas or blanks separate them, whichever the first line has. The label is in the first column, unless another one
is named so in the first line, or by the user. Sequences may differ in length. A missing value is `NaN`, `?` or nothing;
at the end of a sequence it means that it is shorter, elsewhere it is refused. Values are taken as they are: nothing is
scaled. A first line of names is skipped. A label that is a whole number is written as one: `1.0000000e+00` is `1`.

In a wide table the names of the columns say which channel and which step each has, as `x_0, x_1, y_0, y_1` do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import is_finite, is_number, read_lines
from mufuru.experiments.data.tables import LABEL, TEXT
from mufuru.ops import did_you_mean

MISSING = ("", "?", "nan")
STEP = re.compile(r"(.*?)[\s_.\-\[(]*(\d+)[\])]?")
"""Name of a column: a channel and the number of a step."""


@dataclass(frozen=True)
class Rows:
    """The sequences of a file."""

    series: list[tuple[int, str, Tensor]]
    """Line, label, empty without one, and values, (steps, channels) float32."""
    names: tuple[str, ...]
    """Names of the columns; empty if the first line has none."""
    label: int | None
    """Place of the label, from 0; None without one."""

    @property
    def channels(self) -> list[str]:
        """The channels in the names of the columns; empty if there are none."""
        steps = _steps([name for place, name in enumerate(self.names) if place != self.label])
        return list(steps or ())


def looks_numeric(path: Path, label: str | None = None) -> bool:
    """Return whether the first lines of a file are of this layout: three fields or more, all but the label numbers, and
    no usual name of a column of texts."""
    lines = [line for line, _ in zip(read_lines(path), range(2), strict=False) if line.strip()]
    rows = [fields_of(line, lines[0]) for line in lines]
    if not rows or any(name.casefold() in TEXT for name in rows[0]):
        return False
    # the first line may have names; then the second decides
    if label is not None and label not in rows[0] and not label.isdecimal():
        return False
    label_place = _label_place(rows[0]) if label is None else _place(rows[0], label, path)
    return len(rows[-1]) > 2 and all(_is_value(field) for place, field in enumerate(rows[-1]) if place != label_place)


def looks_wide(path: Path) -> bool:
    """Return whether the columns are named after several channels and the label is not the first column."""
    names = fields_of(first := next(read_lines(path), ""), first)
    place = _label_place(names)
    return place > 0 and len(_steps([name for other, name in enumerate(names) if other != place]) or ()) > 1


def read_rows(path: Path, label: str | None = None, *, labelled: bool = True, wide: bool = False) -> Rows:
    """Return all sequences of a file; `label` is the name or the place of the label's column, `labelled` whether there
    is one, and `wide` whether the columns are named after channels."""
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    rows = [(number, fields_of(line, lines[0][1])) for number, line in lines]
    names = rows.pop(0)[1] if rows and len(rows[0][1]) > 1 and not any(map(_is_value, rows[0][1][1:])) else []
    if not rows:
        raise DataError(f"{path} is empty: expected a label and the values of a sequence in each line")
    if names and not names[0] and all(is_number(fields[0]) for _, fields in rows):
        raise DataError(f"{path}: the first column has numbers and no name, as the index that pandas writes, which is "
                        "no step of a sequence. Write the file with index=False, or name the column")  # fmt: skip
    if wide and not names:
        raise DataError(f"{path}: a wide table needs the names of its columns in the first line, such as x_0, x_1, "
                        "y_0, y_1 for two channels")  # fmt: skip
    place = _place(names, label, path) if labelled else None
    order = _order(names, place, path) if wide else None
    if names and not wide:
        _check_order([name for other, name in enumerate(names) if other != place], path)
    series = [(number, *_row(fields, place, order, f"{path}, line {number}")) for number, fields in rows]
    return Rows(series, tuple(names), place)


def _place(names: list[str], label: str | None, path: Path) -> int:
    if label is None:
        return _label_place(names)
    if label not in names and label.isdecimal() and int(label) >= 1:
        return int(label) - 1
    if label not in names:
        hint = did_you_mean(label, names) if names else "its first line has no names, so give its place, such as 1"
        raise DataError(f"{path} has no column {label!r}: {hint}")
    return names.index(label)


def _label_place(names: Sequence[str]) -> int:
    """Return the place of the first column with a usual name for labels; or of the only one whose name has no number at
    its end, as those of steps have; or 0."""
    usual = [place for place, name in enumerate(names) if name.casefold() in LABEL]
    plain = [place for place, name in enumerate(names) if not STEP.fullmatch(name.strip())]
    return usual[0] if usual else plain[0] if len(plain) == 1 else 0


def _check_order(names: list[str], path: Path) -> None:
    """Refuse numbered columns in another order, such as the alphabet's: they would be read as steps in that order."""
    if (steps := _steps(names)) and len(steps) == 1 and (places := next(iter(steps.values()))) != sorted(places):
        wrong = next(place for place in range(1, len(names)) if places.index(place) < places.index(place - 1))
        raise DataError(f"{path}: the columns are numbered and not in the order of their numbers: {names[wrong]!r} "
                        f"comes after {names[wrong - 1]!r}. --format wide reads them by their numbers")  # fmt: skip


def _order(names: list[str], label: int | None, path: Path) -> list[list[int]]:
    """Return the place of every value in a row, by step and channel."""
    places = [place for place in range(len(names)) if place != label]
    steps = _steps([names[place] for place in places])
    if steps is None:
        raise DataError(f"{path}: expected names of columns that say channel and step, such as x_0, x_1, y_0, y_1, as "
                        f"many steps of each channel, got {', '.join(names[:6])}")  # fmt: skip
    return [[places[place] for place in step] for step in zip(*steps.values(), strict=True)]


def _steps(names: Sequence[str]) -> dict[str, list[int]] | None:
    """Return by channel the places of its steps, in their order; None if the names do not say."""
    by_channel: dict[str, dict[int, int]] = {}
    for place, name in enumerate(names):
        if not (match := STEP.fullmatch(name.strip())):
            return None
        by_channel.setdefault(match[1], {})[int(match[2])] = place
    first = sorted(next(iter(by_channel.values()), {}))
    same = all(sorted(steps) == first for steps in by_channel.values())
    if not first or not same or len(first) * len(by_channel) != len(names):
        return None
    return {channel: [steps[step] for step in first] for channel, steps in by_channel.items()}


def _row(fields: list[str], label: int | None, order: list[list[int]] | None, where: str) -> tuple[str, Tensor]:
    """Return the label and the values of a row."""
    if label is not None and label >= len(fields):
        raise DataError(f"{where}: expected a label in column {label + 1}, got {len(fields)} columns")
    if label is not None and fields[label].casefold() in MISSING:
        raise DataError(f"{where}: expected a label in the first place, got none")
    name = "" if label is None else label_of(fields[label])
    if order is None:
        return name, of_steps([[field] for place, field in enumerate(fields) if place != label], where)
    if max(map(max, order)) >= len(fields):
        raise DataError(f"{where}: expected {1 + max(map(max, order))} columns as in the first line, got {len(fields)}")
    return name, of_steps([[fields[place] for place in step] for step in order], where)


def values(line: str) -> Tensor:
    """Return a sequence without a label, (steps, 1)."""
    return of_steps([[field] for field in fields_of(line)], "a sequence")


def fields_of(line: str, first: str | None = None) -> list[str]:
    """Return the fields of a line, separated as in the first line, or as in itself."""
    separator = next((mark for mark in ("\t", ",") if mark in (first or line)), None)
    return [field.strip() for field in line.strip("\n").split(separator)] if separator else line.split()


def label_of(field: str) -> str:
    """Return a label as it is written in runs."""
    return str(int(float(field))) if is_finite(field) and float(field).is_integer() else field


def _is_value(field: str) -> bool:
    return field.casefold() in MISSING or is_number(field)


def of_steps(steps: list[Sequence[str]], where: str) -> Tensor:
    """Return (steps, channels); the last steps may be missing."""
    while steps and all(field.casefold() in MISSING for field in steps[-1]):
        steps.pop()
    if not steps:
        raise DataError(f"{where}: expected the values of its steps, got none")
    for step, fields in enumerate(steps, 1):
        for channel, field in enumerate(fields, 1):
            if not is_finite(field):
                place = f"step {step} of channel {channel}" if len(fields) > 1 else f"step {step}"
                raise DataError(f"{where}: expected a number for {place}, got {repr(field) if field else 'nothing'}. "
                                "Only the last values of a sequence may be missing")  # fmt: skip
    return torch.tensor([[float(field) for field in fields] for fields in steps], dtype=torch.float32)
