"""Readers of files of labelled sequences, a format each.

Unless the format is given, the file name's ending decides between `csv`, `tsv`, `jsonl` and `ts`. A .csv, .tsv or .txt
file with nothing but numbers beside its labels is `numeric`, the layout of the UCR archive; `wide` is the same with
several channels, named by the columns. Lines that begin with `__label__` are `fasttext`, other lines of a label and a
text are `lines`. A folder has a folder of text files for each class, possibly within folders train and
test. In JSON lines a text may also be a list of tokens, or a list of numbers, or of lists of them for several
channels. A column whose texts are all rows of numbers, or such lists, holds series, unless the way to cut texts is
given.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data import DataError, numeric, tables, ts
from mufuru.experiments.data.layout import FORMATS, Format, Layout
from mufuru.experiments.data.lines import LARGEST, ending, is_number, read_lines
from mufuru.experiments.data.tables import Columns, Table
from mufuru.experiments.data.text import CUTS, Cut

ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".ts": "ts",
}  # fmt: skip
TABLES = ("csv", "tsv", "jsonl")
FASTTEXT = "__label__"
UNLABELLED = "unsup"
"""Folder of the IMDB reviews without a label, which is left out."""
SAMPLE = 2000
"""Lines that are read to guess the format "label text"."""
Named = tuple[str | None, str | None, str | None]
"""Columns of text, label and split as a user named them."""


class Example(NamedTuple):
    """A sequence and its place in its file."""

    path: Path
    line: int
    label: str
    """Empty if there is no label."""
    sequence: list[str] | Tensor
    part: str | None
    """The part that the column of splits, or a folder, names."""

    @property
    def channels(self) -> int:
        """Numbers in a step; 0 for text."""
        return self.sequence.size(1) if isinstance(self.sequence, Tensor) else 0


def kind_of(channels: int) -> str:
    """Write what a sequence is."""
    return f"series of {channels} number{'' if channels == 1 else 's'} a step" if channels else "text"


def guess_format(path: Path, named: bool, label: str | None = None) -> Format:
    """Return the format by the name's ending, or by the content where nobody named columns beside that of the label."""
    if path.is_dir():
        return "folder"
    kind = ending(path)
    if not named and kind in (".csv", ".tsv", ".tab", ".txt", "") and numeric.looks_numeric(path, label):
        # with the label in the first column the user is asked
        return "wide" if label is None and numeric.looks_wide(path) else "numeric"
    if kind in ENDINGS:
        return ENDINGS[kind]
    first = [line for line in islice(read_lines(path), SAMPLE) if line.strip()]
    if first and first[0].startswith(FASTTEXT):
        return "fasttext"
    if not named and label is None and labels_first(first):
        return "lines"
    raise DataError(f"{path}: expected a name that ends with one of {', '.join(ENDINGS)}, lines that begin with "
                    f"{FASTTEXT} or with labels that repeat, or that the format is given: {FORMATS}")  # fmt: skip


def labels_first(lines: list[str]) -> bool:
    """Return whether the first words of lines look like labels: there are few, and hardly one that comes only once."""
    counts = Counter(line.split(maxsplit=1)[0] for line in lines)
    alone = sum(count == 1 for count in counts.values())
    return 2 <= len(counts) <= len(lines) / 2 and alone <= len(counts) / 10


class Reader:
    """Reads the files of one data set; the first file decides which columns all of them are read by.

    Files that are not `labelled` may have labels, in a column of their own or as folders: they are left out.
    """

    def __init__(self, format: Format, cut: Cut, named: Named, labelled: bool = True) -> None:
        self.format, self.cut, self.named, self.labelled = format, cut, named, labelled
        self.columns: Columns | None = None
        self.header: bool | None = None
        self.layout: Layout | None = None
        self.numbers: bool | None = None
        """Whether the texts of a table are rows of numbers."""
        self.read_as = ""
        """The layout in words."""
        self.answer = "label"
        """Name of the labels in a description."""
        self.channels: list[str] = []
        """Channels in the names of the columns."""

    def read(self, path: Path) -> list[Example]:
        """Return the examples of a file or folder."""
        examples = READERS[self.format](self, path)
        if self.layout is None:
            self.layout = self._layout(path, examples)
        return examples

    def _layout(self, path: Path, examples: list[Example]) -> Layout:
        lengths = {len(example.sequence) for example in examples if example.channels}
        layout = Layout(self.format, ending(path), length=lengths.pop() if len(lengths) == 1 else None)
        if self.columns is None:
            return layout
        text, label, split, width = self.columns.text, self.columns.label, self.columns.split, self.columns.width
        return replace(layout, text=text, label=label, split=split, header=self.header is not False, width=width)

    def rows(self, path: Path) -> list[Example]:
        """Read rows of numbers."""
        table = numeric.read_rows(path, self.named[1], labelled=self.labelled, wide=self.format == "wide")
        self.channels = self.channels or table.channels
        if self.columns is None:
            label = table.names[table.label or 0] if table.names else str(1 + (table.label or 0))
            self.columns, self.header = Columns("", label, None, width=len(table.names)), bool(table.names)
            place = f"column {label!r}" if table.label else "the first column"
            several = f"{len(self.channels)} channel{'' if len(self.channels) == 1 else 's'}"
            many = f"series of {several}" if self.format == "wide" else "sequences of numbers"
            self.read_as = f"{many}, the {self.answer} in {place}"
        return [Example(path, line, label, values, None) for line, label, values in table.series]

    def series(self, path: Path) -> list[Example]:
        """Read the format .ts."""
        table = ts.read(path)
        if self.labelled and table.last == "nothing":
            raise DataError(f"{path}: expected a line @classLabel true and a label behind every series, got none")
        channels = table.rows[0][2].size(1)
        self.read_as = f"series of {channels} channel{'' if channels == 1 else 's'}"
        return [Example(path, line, label, values, None) for line, label, values in table.rows]

    def tagged(self, path: Path) -> list[Example]:
        """Read lines of a label and a text."""
        self.read_as = "a label and a text in each line"
        examples = []
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                where = f"{path}, line {number}"
                label, text = split_label(line, self.format, where)
                examples.append(Example(path, number, label, self._sequence(text, where), None))
        if not examples:
            raise DataError(f"{path} is empty: expected a label and a text in each line")
        return examples

    def folder(self, path: Path) -> list[Example]:
        """Read a folder of text files for each class."""
        self.read_as = "a folder of text files for each label"
        return list(self.from_folder(path))

    def from_folder(self, path: Path) -> Iterator[Example]:
        """Return the examples of a folder of text files for each class, each read when its turn comes; without labels,
        its own files too."""
        files = list(files_by_class(path))
        if not self.labelled:
            files += [(None, "", file) for file in files_in(path)]
        if not files:
            each = f" for each label, such as {path}/good and {path}/bad" if self.labelled else ""
            raise DataError(f"{path}: expected a folder of text files{each}, got none")
        return (
            Example(file, 1, label, self._sequence("".join(read_lines(file)), str(file)), part)
            for part, label, file in files
        )

    def table(self, path: Path) -> list[Example]:
        """Read a table, or JSON lines."""
        table = self._table(path)
        self.columns = self.columns or tables.choose(table, *self.named)
        if self.numbers is None:
            self.numbers = self.cut == "words" and are_series(table.columns[table.find(self.columns.text)])
        examples = list(self.from_table(table))
        channels = examples[0].channels
        many = f"series of {channels} channel{'' if channels == 1 else 's'}" if channels else "text"
        self.read_as = self.columns.described(many, self.answer)
        if self.numbers:
            self.read_as += "; its rows of numbers are words with --cut blanks"
        return examples

    def from_table(self, table: Table) -> Iterator[Example]:
        """Yield the examples in the chosen columns of a table."""
        assert self.columns is not None
        texts = table.columns[table.find(self.columns.text)]
        labels = table.columns[table.find(self.columns.label)] if self.labelled else None
        splits = table.columns.get(self.columns.split or "")
        for row, line in enumerate(table.lines):
            where = f"{table.path}, line {line}"
            text = self._sequence(texts[row], where)
            label = "" if labels is None else label_of(labels[row], where)
            part = None if splits is None else _part(splits[row], where)
            yield Example(table.path, line, label, text, part)

    def _table(self, path: Path) -> Table:
        if self.format == "jsonl":
            return tables.read_objects(path)
        cells = tables.read_cells(path, self.format)
        if self.header is None:
            self.header = tables.has_header(path, cells, [name for name in self.named if name is not None])
        return tables.with_names(path, cells, self.header)

    def _sequence(self, value: Any, where: str) -> list[str] | Tensor:
        return sequence(value, self.cut, where, bool(self.numbers), empty=not (self.labelled or self.numbers))


READERS = {
    **dict.fromkeys(TABLES, Reader.table),
    **dict.fromkeys(("numeric", "wide"), Reader.rows),
    **dict.fromkeys(("fasttext", "lines"), Reader.tagged),
    "ts": Reader.series,
    "folder": Reader.folder,
}


def split_label(line: str, format: str, where: str) -> tuple[str, str]:
    """Return label and text of a line."""
    label, _, text = line.strip().partition(" ") if format == "fasttext" else _first_word(line)
    if format == "fasttext":
        if not label.startswith(FASTTEXT) or label == FASTTEXT:
            raise DataError(f"{where}: expected {FASTTEXT} and a label, then a text, got {line.strip()[:40]!r}")
        if text.lstrip().startswith(FASTTEXT):
            raise DataError(f"{where}: expected one label, got several. Keep one, or leave the line out")
    return label.removeprefix(FASTTEXT), text


def _first_word(line: str) -> tuple[str, str, str]:
    # by characters all blanks of a text count, the end of its line does not
    label, *rest = line.removesuffix("\n").split(maxsplit=1) or [""]
    return label, "", rest[0] if rest else ""


def files_by_class(path: Path) -> Iterator[tuple[str | None, str, Path]]:
    """Yield part, label and path of every file of a folder, in the order of their names."""
    try:
        classes = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not folder.name.startswith(".")]
        parts = [tables.SPLITS.get(folder.name.casefold()) for folder in classes]
        if classes and all(parts):
            for part, folder in zip(parts, classes, strict=True):
                yield from ((part, label, file) for _, label, file in files_by_class(folder))
            return
        for folder in classes:
            if folder.name != UNLABELLED:
                yield from ((None, folder.name, file) for file in files_in(folder))
    except OSError as error:
        raise DataError(f"{path} cannot be read as a folder of text files ({error.strerror}): check it") from None


def files_in(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]


def are_series(texts: Sequence[Any]) -> bool:
    """Return whether all texts are rows of numbers, at least one of them with two or more."""
    try:
        return all(isinstance(text, str) for text in texts) and max(len(values(text)) for text in texts) > 1
    except DataError:
        return False


def sequence(value: Any, cut: Cut, where: str, numbers: bool = False, empty: bool = False) -> list[str] | Tensor:
    """Return the tokens of a text or of a list of them, or (steps, channels) of a list of numbers; with `numbers` of a
    text that begins with one too. Only with `empty` may a text have no tokens."""
    if numbers and isinstance(value, str) and is_number(value.lstrip("[ ").replace(",", " ").partition(" ")[0]):
        try:
            return values(value)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    if isinstance(value, str):
        if (tokens := CUTS[cut](value)) or empty:
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


def label_of(value: Any, where: str) -> str:
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
