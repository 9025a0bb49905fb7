"""A user's own labelled sequences: texts in CSV, TSV or JSON lines, or numbers.

By its name's ending a file is `csv`, `tsv` or `jsonl`, unless the format is given. Where a .csv, .tsv or .txt file has
nothing but numbers after its first column it is `numeric`, the layout of the UCR archive. In JSON lines a text may also
be a list of tokens, or a list of numbers, or of lists of them for several channels.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import PARTS, DataError, numeric, tables
from mufuru.experiments.data.examples import Examples, Kind, Labelled, stratified
from mufuru.experiments.data.lines import LARGEST, is_finite
from mufuru.experiments.data.tables import Columns, Table
from mufuru.experiments.data.text import CUTS, Cut, check_apart

Format = Literal["csv", "tsv", "jsonl", "numeric"]
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


def load(
    path: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    text: str | None = None,
    label: str | None = None,
    split: str | None = None,
    format: Format | None = None,
    cut: Cut = "words",
    held_out: tuple[float, float] = (0.1, 0.1),
    seed: int = 0,
) -> Labelled:
    """Read labelled sequences from a file, with `valid` and `test` from files of their own, by a column, or held out.

    `text`, `label` and `split` name columns, by their places, "1", "2" and so on, in a file without names; what is not
    named is guessed, and `description` says so. A part that neither a file nor the column gives is held out of
    training: its fraction of `held_out`, drawn by `seed`, every class in proportion. Labels are those of training, in
    the order of the alphabet, or of their size if all are numbers; one that another part has alone is refused.
    """
    paths = {"train": Path(path)} | {part: Path(file) for part, file in (("valid", valid), ("test", test)) if file}
    check_apart({part: [file] for part, file in paths.items()})
    reader = Reader(format or guess_format(paths["train"], any((text, label, split))), cut, (text, label, split))
    rows = _parts({part: reader.read(file) for part, file in paths.items()}, paths["train"])
    _check_alike(rows)
    labels = _labels(rows["train"])
    parts = {part: _examples(part_rows, labels, part) for part, part_rows in rows.items()}
    held = [part for part in ("valid", "test") if part not in parts]
    if held:
        fractions = dict(zip(("valid", "test"), held_out, strict=True))
        train, chosen = parts["train"], stratified(parts["train"].targets, [fractions[part] for part in held], seed)
        parts |= {part: train.take(taken) for part, taken in zip(("train", *held), chosen, strict=True)}
    guessed = " (guessed)" if format is None and reader.format == "numeric" else ""
    counts = ", ".join(f"{len(parts[part]):,} {word}" for part, word in PARTS.items())
    drawn = f"; {' and '.join(PARTS[part] for part in held)} held out of training with seed {seed}" if held else ""
    description = f"{paths['train'].name}: {reader}{guessed}; {len(labels)} labels; {counts} examples{drawn}"
    kind: Kind = "numeric" if rows["train"][0].channels else "text"
    return Labelled(kind, labels, parts["train"], parts["valid"], parts["test"], description)


class Example(NamedTuple):
    """A labelled sequence, and where it stands."""

    path: Path
    line: int
    label: str
    sequence: list[str] | Tensor
    part: str | None
    """The part that the column of splits names."""

    @property
    def channels(self) -> int:
        """Numbers in a step; 0 for text."""
        return self.sequence.size(1) if isinstance(self.sequence, Tensor) else 0


def guess_format(path: Path, named: bool) -> Format:
    """Return the format by the name's ending, or numeric if there are numbers only and nobody named columns."""
    ending = path.suffix.lower()
    if not named and ending in (".csv", ".tsv", ".tab", ".txt", "") and numeric.looks_numeric(path):
        return "numeric"
    if ending not in ENDINGS:
        raise DataError(f"{path}: expected a name that ends with one of {', '.join(ENDINGS)}, or that the format is "
                        "given: csv, tsv, jsonl or numeric")  # fmt: skip
    return ENDINGS[ending]


class Reader:
    """Reads the files of one data set; the first file decides which columns all of them are read by."""

    def __init__(self, format: Format, cut: Cut, named: tuple[str | None, str | None, str | None]) -> None:
        self.format, self.cut, self.named = format, cut, named
        self.columns: Columns | None = None
        self.header: bool | None = None

    def __str__(self) -> str:
        return str(self.columns) if self.columns else "sequences of numbers, the label in the first column"

    def read(self, path: Path) -> list[Example]:
        if self.format == "numeric":
            return [Example(path, line, label, values, None) for line, label, values in numeric.read(path)]
        table = self._table(path)
        self.columns = self.columns or tables.choose(table, *self.named)
        texts, labels = (table.columns[table.find(name)] for name in (self.columns.text, self.columns.label))
        splits = table.columns.get(self.columns.split or "")
        examples = []
        for row, line in enumerate(table.lines):
            where = f"{path}, line {line}"
            part = None if splits is None else _part(splits[row], where)
            label, sequence = _label(labels[row], where), self._sequence(texts[row], where)
            examples.append(Example(path, line, label, sequence, part))
        return examples

    def _table(self, path: Path) -> Table:
        if self.format == "jsonl":
            return tables.read_objects(path)
        cells = tables.read_cells(path, self.format)
        if self.header is None:
            self.header = tables.has_header(path, cells, [name for name in self.named if name is not None])
        return tables.with_names(path, cells, self.header)

    def _sequence(self, value: Any, where: str) -> list[str] | Tensor:
        if isinstance(value, str):
            if tokens := CUTS[self.cut](value):
                return tokens
            raise DataError(f"{where}: expected a text, got an empty one. Leave the line out")
        if not isinstance(value, list) or not value:
            raise DataError(f"{where}: expected a text, or a list of tokens or numbers, got {_shown(value)}")
        if all(isinstance(token, str) and token for token in value):
            return value
        return _numbers(value, where)


def values(line: str) -> Tensor:
    """Return (steps, channels): the numbers of a line, separated as in `numeric.py`, or a JSON list."""
    if not line.lstrip().startswith("["):
        return numeric.values(line)
    try:
        numbers = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"expected a sequence of numbers, got {_shown(line.strip())} ({error})") from None
    return _numbers(numbers, "a sequence")


def _part(value: Any, where: str) -> str:
    part = tables.SPLITS.get(str(value).strip().casefold())
    if part is None:
        raise DataError(f"{where}: expected one of {', '.join(tables.SPLITS)} as the split, got {_shown(value)}")
    return part


def _label(value: Any, where: str) -> str:
    """Return a label as it is written; JSON has numbers and truth values too."""
    if isinstance(value, bool):
        return str(value).lower()
    label = str(value).strip() if isinstance(value, str | int | float) else ""
    if not label or (isinstance(value, float) and math.isnan(value)):
        problem = "none" if value is None or value == "" else _shown(value)
        raise DataError(f"{where}: expected a label, got {problem}. Add it, or leave the line out")
    return label


def _numbers(value: list[Any], where: str) -> Tensor:
    """Return (steps, channels): a list of numbers has one channel."""
    try:
        numbers = np.array(value, np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise DataError(f"{where}: expected a list of tokens, of numbers, or of lists of as many numbers each, "
                        f"got {_shown(value)}")  # fmt: skip
    if not (np.abs(numbers) <= LARGEST).all():
        raise DataError(f"{where}: expected finite numbers, got {_shown(value)}")
    return torch.from_numpy(numbers.astype(np.float32).reshape(len(numbers), -1))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _parts(files: dict[str, list[Example]], path: Path) -> dict[str, list[Example]]:
    """Return the examples of each part, from its own file or as the column of the training file says."""
    parts: dict[str, list[Example]] = {}
    for example in files["train"]:
        parts.setdefault(example.part or "train", []).append(example)
    if "train" not in parts:
        raise DataError(f"{path}: no example is for training, all are for {' or '.join(PARTS[part] for part in parts)}")
    for part in ("valid", "test"):
        if part in files and part in parts:
            raise DataError(f"the {PARTS[part]} part has a file of its own, and {path} has examples for it too, as in "
                            f"line {parts[part][0].line}: give one of them")  # fmt: skip
        parts |= {part: files[part]} if part in files else {}
    return parts


def _check_alike(parts: dict[str, list[Example]]) -> None:
    """Refuse texts among numbers, and numbers of other channels."""
    first = parts["train"][0]
    for example in (example for rows in parts.values() for example in rows):
        if example.channels != first.channels:
            kinds = [f"{row.channels} numbers a step" if row.channels else "text" for row in (first, example)]
            raise DataError(f"{example.path}, line {example.line}: expected {kinds[0]}, as in line {first.line} of "
                            f"{first.path.name}, got {kinds[1]}")  # fmt: skip


def _labels(train: Sequence[Example]) -> tuple[str, ...]:
    labels = list({example.label for example in train})
    if len(labels) < 2:
        some = f"all {len(train)} training examples have" if len(train) > 1 else "the only training example has"
        raise DataError(f"{train[0].path}: {some} the label {labels[0]!r}, expected two labels or more")
    by_size = all(map(is_finite, labels))
    return tuple(sorted(labels, key=(lambda label: (float(label), label)) if by_size else None))


def _examples(rows: Sequence[Example], labels: Sequence[str], part: str) -> Examples:
    ids = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.label not in ids:
            known = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
            raise DataError(f"{row.path}, line {row.line}: the label {row.label!r} is in the {PARTS[part]} part and "
                            f"never in training, which has {known}. Correct it, or leave the line out")  # fmt: skip
    targets = torch.tensor([ids[row.label] for row in rows], dtype=torch.int64)
    return Examples(targets, [row.sequence for row in rows])
