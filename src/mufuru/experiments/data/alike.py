"""New files, read as the training file was: with labels or without, in the same layout or as bare lines.

A file with the ending of the training file has its format; of any other it follows from ending or content. A
model of text also reads a text a line, a model of series their numbers a line. Whether rows have labels follows from
the names of their columns; without names, from the number of values, or else from the labels: if all rows begin with a
label of training, they have labels. A file of the other kind, text for numbers or numbers for text, is refused.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from mufuru.experiments.data import DataError, numeric, tables
from mufuru.experiments.data.layout import Format, Layout
from mufuru.experiments.data.lines import ending, is_number, read_input, read_lines
from mufuru.experiments.data.readers import (
    ENDINGS,
    FASTTEXT,
    TABLES,
    Example,
    Named,
    Reader,
    guess_format,
    kind_of,
    sequence,
    split_label,
    values,
)
from mufuru.experiments.data.tables import Columns, Table
from mufuru.experiments.data.text import CUTS, Cut

Labels = Literal["guess", "yes", "no"]
LINES = "bare lines"
NOTHING: Named = (None, None, None)


@dataclass(frozen=True)
class Known:
    """A model's input: text or series, the layout it was trained on, and its labels."""

    layout: Layout
    channels: int
    """Numbers in a step; 0 for text."""
    labels: Sequence[str] = ()
    cut: Cut = "words"
    knows: Callable[[str], bool] = lambda word: True
    """Whether a word is in the vocabulary."""


@dataclass(frozen=True)
class New:
    """The sequences of a new file."""

    examples: Iterator[Example]
    note: str = ""
    """How they were read, if that was guessed; for the user."""


def read(
    file: Path | None, known: Known, *, labels: Labels = "guess", format: Format | None = None, text: str | None = None
) -> New:
    """Return the sequences of a file, of a folder or, without one, of the standard input, one after the other.

    `labels` is whether they have labels, `format` and `text`, the column of texts, override the layout of training.
    """
    if file is None and (format or text):
        name = "--format" if format else "--text-column"
        raise DataError(f"{name} is for a file: name one, or write it to a file first")
    if file is None:
        return New(checked(_lines(*read_input(None), known, labels), known))
    form = format or format_of(file, known)
    if form in TABLES:
        return _table(file, form, known, labels == "yes", (text, None, None))
    _check_no_column(text, file, "lines" if form == LINES else form)
    if form in ("numeric", "wide"):
        return _numeric(file, known, labels, form)
    if form not in ("ts", "folder"):
        layout = known.layout if form == LINES else replace(known.layout, format=form)
        return _bare(file, replace(known, layout=layout), labels)
    if form == "folder" and known.channels:
        raise DataError(f"{file} is a folder of texts, and the model reads {kind_of(known.channels)}: give a file of "
                        "them")  # fmt: skip
    reader = Reader(form, known.cut, NOTHING, labelled=False)
    return New(checked(reader.from_folder(file) if form == "folder" else reader.read(file), known))


def format_of(file: Path, known: Known) -> Any:
    """Return the format of a new file: that of training if the name has the same ending, else guessed from the name."""
    layout, kind = known.layout, ending(file)
    if file.is_dir():
        return "folder"
    if layout.format is not None and kind == layout.ending and layout.format != "folder":
        return layout.format
    if kind in (".jsonl", ".ndjson", ".json", ".ts"):
        return ENDINGS[kind]
    if known.channels:
        return layout.format if layout.format in ("numeric", "wide") else "wide" if known.channels > 1 else "numeric"
    if kind in ENDINGS:
        return ENDINGS[kind]
    return LINES


def labelled(file: Path, known: Known, format: Format | None = None, named: Named = NOTHING) -> New:
    """Return the examples of a file that has labels, read as the training file was."""
    layout = known.layout
    chosen: Any = format or format_of(file, known)
    if chosen == LINES:
        chosen = guess_format(file, any(named))
    if chosen in TABLES:
        return _table(file, chosen, known, True, named)
    _check_no_column(named[0], file, chosen)
    label = layout.label if layout.format == chosen else None
    if chosen == "numeric":
        label = _label_column(layout, numeric.fields_of(next(read_lines(file), "")))
    reader = Reader(chosen, known.cut, (None, named[1] or label, None))
    examples = reader.read(file)
    if chosen == "numeric" and reader.columns:
        _check_columns(file, reader.columns.width - 1, reader.channels, layout)
    return New(checked(examples, known), f"{file.name}: {reader.read_as}")


def _check_no_column(text: str | None, file: Path, format: str) -> None:
    if text is not None:
        raise DataError(f"{file} is read as {format}, which has no column of texts, and --text-column names {text!r}: "
                        "leave it out, or give --format csv, tsv or jsonl")  # fmt: skip


def checked(examples: Iterable[Example], known: Known) -> Iterator[Example]:
    """Yield examples; refuse one of another kind, and numbers that are not words of the model."""
    for example in examples:
        where = f"{example.path}, line {example.line}"
        if example.channels != known.channels:
            wanted, came = (kind_of(channels) for channels in (known.channels, example.channels))
            raise DataError(f"{where}: the model reads {wanted}, got {came}. Give a file of that kind, or a run that "
                            "was trained on this one")  # fmt: skip
        if isinstance(example.sequence, list):
            _check_words(example.sequence, known, where)
        yield example


def _check_words(words: list[str], known: Known, where: str) -> None:
    """Refuse a text of numbers that the model does not know: a series for a model of text."""
    some = [word for word in words if any(character.isalnum() for character in word)]
    if len(some) > 2 and all(map(is_number, some)) and 2 * sum(map(known.knows, some)) < len(some):
        raise DataError(f"{where}: the model reads text, got the numbers {' '.join(words)[:40]!r}. Give a file of "
                        "texts, or a run that was trained on series")  # fmt: skip


def _bare(file: Path, known: Known, labels: Labels) -> New:
    """Read one text per line; drop the labels where every line begins with one of training."""
    if labels == "guess" and not known.channels:
        first = {line.split(maxsplit=1)[0] for line in read_lines(file) if line.strip()}
        # a text may begin with a word that is a label, several hardly do with different ones
        enough = 1 if known.layout.format in ("lines", "fasttext") else 2
        labels = "yes" if enough <= len(first) and first <= set(known.labels) else "no"
    note = f"{file.name}: a label and a text in each line; labels are left out" if labels == "yes" else ""
    return New(checked(_lines(read_lines(file), file, known, labels), known), note)


def _lines(lines: Iterable[str], place: Path, known: Known, labels: Labels) -> Iterator[Example]:
    """Read line by line, so that an answer can be given before the next line comes."""
    for number, line in enumerate(lines, 1):
        where = f"{place}, line {number}"
        if number == 1 and labels == "guess" and known.channels:
            labels = "yes" if begins_with_label(numeric.fields_of(line), known) else "no"
        try:
            yield Example(place, number, "", _of_line(line.removesuffix("\n"), known, labels), None)
        except DataError as error:
            message = str(error)
            raise DataError(message if message.startswith(str(place)) else f"{where}: {error}") from None


def _of_line(line: str, known: Known, labels: Labels) -> list[str] | Tensor:
    if line.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError, RecursionError):
            value = _value(json.loads(line), known.layout.text)
            return sequence(value, known.cut, "the object", bool(known.channels))
    if not known.channels:
        if line.startswith(FASTTEXT):
            line = split_label(line, "fasttext", "the line")[1]
        elif labels == "yes":
            line = split_label(line, "lines", "the line")[1]
        return CUTS[known.cut](line)
    if labels != "yes" or not line.strip() or line.lstrip().startswith("["):
        return values(line)
    label, *fields = numeric.fields_of(line)
    if numeric.label_of(label) not in known.labels:
        raise DataError(f"expected a label of the model in the first column, as in the lines before, got {label!r}. If "
                        "the lines have no labels, give --labels no")  # fmt: skip
    return values("\t".join(fields))


def _value(value: dict[str, Any], column: str | None) -> Any:
    name = column if column in value else next((name for name in value if name.casefold() in tables.TEXT), None)
    if name is None:
        wanted = f"a key {column!r}" if column else "a key such as 'text' or 'values'"
        raise DataError(f"expected an object with {wanted}, got {', '.join(value) or 'none'}")
    return value[name]


def begins_with_label(fields: Sequence[str], known: Known) -> bool:
    """Return whether a row of numbers has a label before its values."""
    if known.layout.length and len(fields) == known.layout.length:
        return False
    return len(fields) > 1 and numeric.label_of(fields[0]) in known.labels


def _numeric(file: Path, known: Known, labels: Labels, format: Format) -> New:
    """Read rows of numbers: by the names of the columns, or by what all rows begin with."""
    layout = known.layout
    rows = [numeric.fields_of(line) for line in read_lines(file) if line.strip() and not line.lstrip().startswith("[")]
    if not rows:
        return _bare(file, known, "no")
    named = len(rows) > 1 and _are_names(rows[0])
    if labels == "guess" and named:
        usual = _label_column(layout, rows[0]) or any(name.casefold() in tables.LABEL for name in rows[0])
        # a name without a number among those of steps is that of the label
        labels = "yes" if usual or sum(not numeric.STEP.fullmatch(name) for name in rows[0]) == 1 else "no"
    elif labels == "guess":
        labels = "yes" if all(begins_with_label(row, known) for row in rows) else "no"
    if not named and format != "wide" and labels == "no":
        return _bare(file, known, "no")
    reader = Reader(format, known.cut, (None, _label_column(layout, rows[0]), None), labels == "yes")
    examples = reader.read(file)
    if format != "wide" and reader.columns:
        _check_columns(file, reader.columns.width - reader.labelled, reader.channels, layout)
    note = f"{file.name}: {reader.read_as}, which is left out" if reader.labelled else ""
    return New(checked(examples, known), note)


def _are_names(fields: Sequence[str]) -> bool:
    return len(fields) > 1 and not any(map(is_number, fields[1:]))


def _label_column(layout: Layout, first: Sequence[str]) -> str | None:
    """Return the column of labels in training, if a file with this first line has one of that name or place."""
    return layout.label if (layout.label in first if _are_names(first) else not layout.header) else None


def _check_columns(file: Path, width: int, channels: Sequence[str], layout: Layout) -> None:
    """Refuse the rows of another table: names of columns say how many values there are, and of how many channels."""
    better = "Give a table like that of training, or rows without names"
    if width > 0 and layout.length and width != layout.length:
        raise DataError(f"{file}: expected {layout.length} values in each row, as in training, got columns for "
                        f"{width}. {better}")  # fmt: skip
    if len(channels) > 1:
        raise DataError(f"{file}: the model reads one number a step, got columns of {len(channels)} channels, "
                        f"{', '.join(channels[:4])}. {better}")  # fmt: skip


def _table(file: Path, format: Format, known: Known, labelled: bool, named: Named) -> New:
    """Read a table by the columns of training, or by guesses where training knows none; the label may be missing."""
    layout, (text, label, _) = known.layout, named
    table = _named(file, format, known, [name for name in (text, label) if name])
    there = text or layout.text or ""
    if text is None and there not in table.columns:
        there = _text_column(table, layout)
    column, label_column = table.find(there), label or layout.label or ""
    if labelled and label_column not in table.columns and not label:
        label_column = tables.choose(table, column, None, None).label
    reader = Reader(format, known.cut, named, labelled)
    reader.columns, reader.numbers = Columns(column, label_column, None), bool(known.channels)
    guessed = "" if text or column == layout.text else " (guessed)"
    what = "text" if not known.channels else "series"
    return New(checked(reader.from_table(table), known), f"{file.name}: {what} in column {column!r}{guessed}")


def _named(file: Path, format: str, known: Known, named: list[str]) -> Table:
    if format == "jsonl":
        return tables.read_objects(file)
    layout, cells = known.layout, tables.read_cells(file, format)
    first = [name.strip() for name in cells[0][1]]
    bare = layout.format == format and not layout.header and not named
    if bare and not any(name.casefold() in (*tables.TEXT, *tables.LABEL) for name in first):
        if len(first) not in (1, layout.width):
            raise DataError(f"{file}: expected {layout.width} columns, as in training, or the texts alone, got "
                            f"{len(first)}. Name the column of texts with --text-column, such as 1")  # fmt: skip
        place = int(layout.label or 1) - 1
        labels = [row[place] in known.labels for _, row in cells] if place < len(first) else [True]
        # a first row without a label above labels has names
        return tables.with_names(file, cells, header=not labels[0] and len(labels) > 1 and all(labels[1:]))
    header = layout.text in first or tables.has_header(file, cells, named)
    return tables.with_names(file, cells, header)


def _text_column(table: Table, layout: Layout) -> str:
    """Return the column of texts of a table whose layout is not that of training."""
    names = list(table.columns)
    if len(names) == 1:
        return names[0]
    if layout.format in TABLES and layout.text and layout.header:
        raise DataError(f"{table.path}: expected a column {layout.text!r}, as in training, got {', '.join(names[:8])}. "
                        "Name the column of texts with --text-column, or its place, such as 1")  # fmt: skip
    return tables.text_column(table)
