"""Which column of a table has the texts, which the labels, and which says the part of each example.

A column that is not named is guessed: by its name, if it is one of those below, or else by what it holds. The text is
then what is longest, the label what repeats most. A guess is said wherever the data is described.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.tables import Row, Table, with_names

TEXT = (
    *("text", "sentence", "review", "content", "comment", "message", "tweet", "body", "document", "phrase"),
    *("question", "title", "tokens", "words", "values", "sequence", "series", "input"),
)
LABEL = (
    *("label", "labels", "class", "sentiment", "category", "target", "polarity", "rating", "stars", "topic"),
    *("intent", "y", "output"),
)
SPLIT = ("split",)
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "development"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What a part may be called in a column, in upper or lower case."""


@dataclass(frozen=True)
class Columns:
    """The columns that matter, by name."""

    text: str
    label: str
    split: str | None
    guessed: tuple[str, ...] = ()
    """Which of "text", "label" and "split" nobody named."""

    def __str__(self) -> str:
        parts = (("text", self.text), ("label", self.label), ("split", self.split))
        return ", ".join(f"{what} in column {name!r}{' (guessed)' if what in self.guessed else ''}"
                         for what, name in parts if name is not None)  # fmt: skip


def choose(table: Table, text: str | None, label: str | None, split: str | None) -> Columns:
    """The columns that are named, or meant by their places, and guesses for the others."""
    text, label, split = (None if name is None else table.name(name) for name in (text, label, split))
    named = {"text": text, "label": label, "split": split}
    for (one, column), (other, same) in combinations(named.items(), 2):
        if column is not None and column == same:
            raise DataError(f"{table.path}: the column {column!r} cannot be both {one} and {other}: name another one")
    guessed = [what for what, name in (("text", text), ("label", label)) if name is None]
    if split is None and (split := _known(table.columns, SPLIT, (text, label))) is not None:
        # another thing may be called so: it is taken for what it says only if it says so everywhere
        split = split if all(str(value).strip().casefold() in PARTS for value in table.column(split)) else None
        guessed += ["split"] if split is not None else []
    label = label or _known(table.columns, LABEL, (text, split))
    text = text or _known(table.columns, TEXT, (label, split)) or _longest(table, (label, split))
    label = label or _most_repeated(table, (text, split))
    return Columns(text, label, split, tuple(guessed))


def has_header(path: Path, rows: Sequence[Row], named: Sequence[str]) -> bool:
    """Whether the first row of a file has the names of its columns.

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


def _plain(value: Any) -> str:
    return str(value).strip().casefold()


def _known(columns: Sequence[str], names: Sequence[str], taken: Sequence[str | None]) -> str | None:
    """The column with the first of the usual names."""
    there = {_plain(column): column for column in columns if column not in taken}
    return next((there[name] for name in names if name in there), None)


def _longest(table: Table, taken: Sequence[str | None]) -> str:
    """The column of the longest values on the whole."""
    left = _left(table, taken)
    chosen = max(left, key=lambda name: sum(len(str(value)) for value in table.column(name)))
    if all(is_number(value) for value in table.column(chosen)):
        raise DataError(f"{table.path} seems to have no texts: the column {chosen!r} holds numbers. Name the column of "
                        "texts; or, if each row is a sequence of numbers, say that the format is numeric")  # fmt: skip
    return chosen


def _most_repeated(table: Table, taken: Sequence[str | None]) -> str:
    """The column of the fewest different values."""
    left = _left(table, taken)
    kinds = {name: len({str(value) for value in table.column(name)}) for name in left}
    chosen = min(left, key=kinds.__getitem__)
    if kinds[chosen] == len(table.rows) > 1:
        raise DataError(f"{table.path} has no column whose values repeat, so that they could be labels: name it; there "
                        f"are {', '.join(left)}")  # fmt: skip
    return chosen


def _left(table: Table, taken: Sequence[str | None]) -> list[str]:
    left = [name for name in table.columns if name not in taken]
    if not left:
        raise DataError(f"{table.path} should have a column of texts and one of labels, got only "
                        f"{', '.join(table.columns)}")  # fmt: skip
    return left


def is_number(value: Any) -> bool:
    """Whether a cell holds a number, NaN among them."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
