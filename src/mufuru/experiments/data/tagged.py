"""Sentences with a label for each token: CoNLL columns, CoNLL-U or JSON lines.

In CoNLL columns each line is a token and an empty line ends a sentence; tabs or blanks separate the columns, whichever
the first line has. Lines that begin with -DOCSTART- are skipped. CoNLL-U has comments, ids and ten columns; parts of
words and empty nodes are skipped. In JSON lines each is an object with two lists of the same length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import torch

from mufuru.experiments.data import DataError, tables
from mufuru.experiments.data.examples import Examples, Labelled, Parts, counted, files_of
from mufuru.experiments.data.lines import ending, read_lines
from mufuru.experiments.data.targets import drawn_parts

Format = Literal["conll", "conllu", "jsonl"]
ENDINGS: dict[str, Format] = {".conllu": "conllu", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
"""Endings of names; files of other names are CoNLL columns."""
TOKENS = ("tokens", "words", "text", "sentence", "forms")
LABELS = ("labels", "tags", "ner_tags", "ner", "pos", "pos_tags", "upos", "label", "tag")
"""Names of lists in JSON lines, the likeliest first."""
DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """Tokens, and a label for each."""

    tokens: list[str]
    labels: list[str]


@dataclass(frozen=True, eq=False)
class Tagged(Examples):
    """Sentences; `targets` has the labels of all their tokens, one sentence after the other."""

    def __len__(self) -> int:
        return len(self.sequences)


def load(
    path: str | Path,
    *,
    token: str | None = None,
    label: str | None = None,
    format: Format | None = None,
    **given: Unpack[Parts],
) -> Labelled:
    """Read sentences, with `valid` and `test` from files of their own or held out, drawn by `seed`.

    `token` and `label` are the columns' numbers, from 1, or the names of the lists in JSON lines. Labels are those of
    all parts, in the order of the alphabet.
    """
    paths = files_of(path, given)
    form = format or guess_format(paths["train"])
    rows, drawn = drawn_parts({part: read(file, form, token, label) for part, file in paths.items()}, given)
    labels = tuple(sorted({name for some in rows.values() for row in some for name in row.labels}))
    if len(labels) < 2:
        raise DataError(f"{path}: all tokens have the label {labels[0]!r}, expected two labels or more: is it the "
                        "right column? Name another with --label-column")  # fmt: skip
    parts = {part: encoded(some, labels, paths["train"]) for part, some in rows.items()}
    guessed = "" if format else " (guessed)"
    tokens = sum(len(part.targets) for part in parts.values())
    description = (f"{paths['train'].name}: {form}{guessed}, {tokens:,} tokens, {len(labels)} labels; {counted(parts)} "
                   f"sentences{drawn}")  # fmt: skip
    return Labelled("text", labels, parts["train"], parts["valid"], parts["test"], description)


def encoded(sentences: Sequence[Sentence], labels: Sequence[str], path: Path) -> Tagged:
    """Return sentences with the ids of their labels; one that is not known is refused."""
    ids = {name: number for number, name in enumerate(labels)}
    if new := [name for row in sentences for name in row.labels if name not in ids]:
        raise DataError(f"{path}: the label {new[0]!r} was never in training, which has {', '.join(labels[:10])}. "
                        "Correct it, or leave the sentence out")  # fmt: skip
    targets = torch.tensor([ids[name] for row in sentences for name in row.labels])
    return Tagged(targets, [row.tokens for row in sentences])


def guess_format(path: Path) -> Format:
    return ENDINGS.get(ending(path), "conll")


def read(path: Path, format: Format, token: str | None, label: str | None) -> list[Sentence]:
    """Return all sentences of a file."""
    if format == "jsonl":
        return _read_objects(path, token, label)
    sentences = list(_read_columns(path, format, token, label))
    if not sentences:
        raise DataError(f"{path} is empty: expected a token and its label in each line, and an empty line after each "
                        "sentence")  # fmt: skip
    return sentences


def _read_columns(path: Path, format: Format, token: str | None, label: str | None) -> Iterator[Sentence]:
    conllu = format == "conllu"
    places = [_place(token, "token", "2" if conllu else "1"), _place(label, "label", "4" if conllu else None)]
    separator, width = None, 0
    sentence = Sentence([], [])
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip("\n")
        if not line.strip() or line.startswith(DOCUMENT):
            if sentence.tokens:
                yield sentence
            sentence = Sentence([], [])
            continue
        if conllu and line.startswith("#"):
            continue
        if not width:
            separator = "\t" if "\t" in line else None
        fields = line.split(separator)
        width = width or len(fields)
        if len(fields) != width or width < 2 or max(place or 0 for place in places) > width:
            wanted = max(width, 2, *(place or 0 for place in places))
            raise DataError(f"{path}, line {number}: expected {wanted} columns, a token and its label among them, got "
                            f"{len(fields)}: {line[:40]!r}")  # fmt: skip
        if conllu and not fields[0].isdecimal():
            continue
        word, name = (fields[(place or width) - 1].strip() for place in places)
        if not word or not name:
            raise DataError(f"{path}, line {number}: expected a token and its label, got {line[:40]!r}")
        sentence.tokens.append(word)
        sentence.labels.append(name)
    if sentence.tokens:
        yield sentence


def _place(given: str | None, what: str, default: str | None) -> int | None:
    """Return the place of a column, from 1; None for the last."""
    chosen = given or default
    if chosen is None:
        return None
    if not chosen.isdecimal() or not int(chosen):
        raise DataError(f"the {what} column of CoNLL columns is a number from 1, got {chosen!r}")
    return int(chosen)


def _read_objects(path: Path, token: str | None, label: str | None) -> list[Sentence]:
    table = tables.read_objects(path)
    tokens = table.columns[_list(table, token, TOKENS, "tokens", "--token-column")]
    labels = table.columns[_list(table, label, LABELS, "labels", "--label-column")]
    rows = zip(table.lines, tokens, labels, strict=True)
    return [_sentence(words, names, f"{path}, line {line}") for line, words, names in rows]


def _list(table: tables.Table, given: str | None, usual: Sequence[str], what: str, option: str) -> str:
    if given is not None:
        return table.find(given)
    if known := [name for name in usual if name in table.columns]:
        return known[0]
    raise DataError(f"{table.path} has no list of {what}: name it with {option}; there are {', '.join(table.columns)}")


def _sentence(words: Any, names: Any, where: str) -> Sentence:
    if isinstance(words, list) and isinstance(names, list) and len(words) == len(names) > 0:
        plain = all(isinstance(name, str | int) and not isinstance(name, bool) and str(name) for name in names)
        if plain and all(isinstance(word, str) and word for word in words):
            return Sentence(words, list(map(str, names)))
    counts = [len(value) if isinstance(value, list) else type(value).__name__ for value in (words, names)]
    raise DataError(f"{where}: expected a list of tokens and one of as many labels, neither empty, got {counts[0]} and "
                    f"{counts[1]}")  # fmt: skip
