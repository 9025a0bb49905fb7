"""A user's own sequences with a number each: the formats of `labelled`, with a target in the place of the label."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, Unpack

import torch

from mufuru.experiments.data import DataError, tables
from mufuru.experiments.data.examples import Examples, Kind, Labelled, Parts, counted, files_of, missing_parts
from mufuru.experiments.data.labelled import read_parts
from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.lines import is_finite, is_number
from mufuru.experiments.data.readers import TABLES, Example, Reader, guess_format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.draws import permutation

T = TypeVar("T")
USUAL = ("target", "y", "value", "score", "price", "rating", "label", "output")
"""Names of a column of targets, the likeliest first."""


def load(
    path: str | Path,
    *,
    target: str | None = None,
    text: str | None = None,
    split: str | None = None,
    format: Format | None = None,
    cut: Cut = "words",
    **given: Unpack[Parts],
) -> Labelled:
    """Read sequences and their targets, (examples,) float64, as `labelled.load` reads labels.

    A target that is not named is guessed: a column of numbers with a usual name, or the only column of numbers. Parts
    that are held out are drawn by `seed` from all examples alike. `labels` has the name of the target alone.
    """
    paths = files_of(path, given)
    form = format or guess_format(paths["train"], any((text, split)), target)
    column = target if target is not None or form not in TABLES else guess_target(paths["train"], form, (text, split))
    reader = Reader(form, cut, (text, column, split))
    reader.answer = "target"
    rows = read_parts(reader, paths)
    divided, drawn = drawn_parts(rows, given)
    parts = {part: examples(some) for part, some in divided.items()}
    if float(parts["train"].targets.min()) == float(parts["train"].targets.max()):
        raise DataError(f"{path}: all training examples have the target {float(parts['train'].targets[0]):g}: expected "
                        "numbers that differ")  # fmt: skip
    where = reader.read_as
    if form in TABLES and target is None:
        where = where.replace(f"target in column {column!r}", f"target in column {column!r} (guessed)")
    description = f"{paths['train'].name}: {where}; {counted(parts)} examples{drawn}"
    kind: Kind = "numeric" if rows["train"][0].channels else "text"
    name = reader.columns.label if reader.columns and form in TABLES else "target"
    return Labelled(kind, (name,), parts["train"], parts["valid"], parts["test"], description, reader.layout)


def guess_target(path: Path, format: Format, taken: Sequence[str | None]) -> str:
    """Return the column of targets: the usual name among the columns of numbers, or the only one of them."""
    if format == "jsonl":
        table = tables.read_objects(path)
    else:
        cells = tables.read_cells(path, format)
        # a column of numbers has a name above it if its first value is none
        rows = [row for _, row in cells[1:]]
        header = any(not is_number(name) and all(is_number(row[place]) for row in rows)
                     for place, name in enumerate(cells[0][1]))  # fmt: skip
        # without any the message has the names
        header = header or not any(map(is_number, cells[0][1]))
        table = tables.with_names(path, cells, header)
    used = [table.find(name) for name in taken if name is not None]
    numeric = [name for name, values in table.columns.items() if name not in used and all(map(is_number, values))]
    known = [name for usual in USUAL for name in numeric if name.strip().casefold() == usual]
    if not known and len(numeric) != 1:
        reason = f"the columns {', '.join(numeric)} hold numbers" if numeric else "no column holds numbers alone"
        raise DataError(f"{path}: expected one column of numbers as the target, and {reason}: name it with "
                        f"--target-column; there are {', '.join(table.columns)}")  # fmt: skip
    return (known or numeric)[0]


def examples(rows: Sequence[Example]) -> Examples:
    for row in rows:
        if not is_finite(row.label):
            raise DataError(f"{row.path}, line {row.line}: expected a finite number as the target, got {row.label!r}. "
                            "Correct it, or leave it out; for classes there is `mufuru train classify`")  # fmt: skip
    return Examples(
        torch.tensor([float(row.label) for row in rows], dtype=torch.float64), [row.sequence for row in rows]
    )


def hold_out(rows: Sequence[T], shares: Mapping[str, float], seed: int) -> dict[str, list[T]]:
    """Return training without the shares of other parts, and these parts; drawn, all in their first order."""
    order, parts = permutation(len(rows), "split", seed).tolist(), {}
    for part, share in shares.items():
        count = round(len(rows) * share)
        if not count or count >= len(order):
            raise DataError(f"{len(rows)} examples are too few to hold out {share:g} of them: give more, hold out "
                            "more, or give a file for each part")  # fmt: skip
        parts[part], order = order[:count], order[count:]
    return {part: [rows[row] for row in sorted(some)] for part, some in {"train": order, **parts}.items()}


def drawn_parts(rows: dict[str, list[T]], given: Parts) -> tuple[dict[str, list[T]], str]:
    """Return all parts, those without a file held out of training, and a phrase about those."""
    held, seed, words = missing_parts(rows, given)
    return rows | hold_out(rows["train"], held, seed), words
