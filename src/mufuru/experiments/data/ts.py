"""Series in the format .ts of the UEA & UCR archives, as sktime and aeon write it.

A head of lines that begin with `@`, then `@data`, then a series a line: its channels separated by colons, the values of
a channel by commas, and at the end, after another colon, the label. A missing value is `?` or `NaN`; at the end of all
channels it means that the series is shorter, elsewhere it is refused. Time stamps are refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from mufuru.experiments.data import DataError, numeric
from mufuru.experiments.data.lines import read_lines


@dataclass(frozen=True)
class Series:
    """The series of a file."""

    rows: list[tuple[int, str, Tensor]]
    """Line, label, empty without one, and values, (steps, channels) float32."""
    last: Literal["label", "number", "nothing"]
    """Entry behind the values: a class, a number to predict, or nothing."""


def read(path: Path) -> Series:
    """Return all series of a file."""
    head: dict[str, str] = {}
    rows: list[tuple[int, str, Tensor]] = []
    last: Literal["label", "number", "nothing"] = "nothing"
    inside = False
    for number, line in enumerate(read_lines(path), 1):
        line = line.strip()
        if not line or line.startswith(("#", "%")):
            continue
        if inside:
            rows.append((number, *_series(line, last != "nothing", f"{path}, line {number}")))
        elif line.casefold().startswith("@data"):
            inside, last = True, _last(head)
        elif line.startswith("@"):
            name, _, value = line[1:].partition(" ")
            head[name.casefold()] = value.strip()
            if name.casefold() == "timestamps" and value.strip().casefold() == "true":
                raise DataError(f"{path}, line {number}: series with time stamps cannot be read: write them without, "
                                "as values at equal distances")  # fmt: skip
        else:
            raise DataError(f"{path}, line {number}: expected a line that begins with @, as a file of the format .ts "
                            f"has before its @data, got {line[:40]!r}")  # fmt: skip
    if not rows:
        raise DataError(f"{path} has no series: expected lines after a line @data")
    return Series(rows, last)


def _last(head: dict[str, str]) -> Literal["label", "number", "nothing"]:
    if head.get("targetlabel", "").casefold().startswith("true"):
        return "number"
    return "label" if head.get("classlabel", "").casefold().startswith("true") else "nothing"


def _series(line: str, labelled: bool, where: str) -> tuple[str, Tensor]:
    *channels, label = line.split(":") if labelled else (*line.split(":"), "")
    if labelled and (not label.strip() or not channels):
        raise DataError(f"{where}: expected values, a colon and a label, got {line[:40]!r}")
    fields = [_without_end([field.strip() for field in channel.split(",")]) for channel in channels]
    lengths = list(map(len, fields))
    if len(set(lengths)) > 1:
        raise DataError(f"{where}: expected as many values in every channel, got {' and '.join(map(str, lengths))}")
    return label.strip(), numeric.of_steps(list(zip(*fields, strict=True)), where)


def _without_end(fields: list[str]) -> list[str]:
    while fields and fields[-1].casefold() in numeric.MISSING:
        fields.pop()
    return fields
