"""A user's own labelled sequences: texts in CSV, TSV or JSON lines, or numbers.

By its name's ending a file is `csv`, `tsv` or `jsonl`, unless the format is given. Where a .csv, .tsv or .txt file has
nothing but numbers after its first column it is `numeric`, the layout of the UCR archive. In JSON lines a text may also
be a list of tokens, or a list of numbers, or of lists of them for several channels.

All examples are kept as they are, in the order of the file: no text is cut short, however long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from mufuru.experiments.data.columns import is_number
from mufuru.experiments.data.corpus import PARTS
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.examples import Examples, Kind, Labelled
from mufuru.experiments.data.reading import Example, Format, Reader, guess_format, values
from mufuru.experiments.data.splits import stratified
from mufuru.experiments.data.tokens import Cut

__all__ = ["Examples", "Format", "Labelled", "load", "values"]


def load(
    path: Path,
    *,
    valid: Path | None = None,
    test: Path | None = None,
    text: str | None = None,
    label: str | None = None,
    split: str | None = None,
    format: Format | None = None,
    cut: Cut = "words",
    lower: bool = True,
    held_out: tuple[float, float] = (0.1, 0.1),
    seed: int = 0,
) -> Labelled:
    """Labelled sequences from a file, with `valid` and `test` from files of their own, by a column, or held out.

    `text`, `label` and `split` name columns, by their places, "1", "2" and so on, in a file without names; what is not
    named is guessed, and `description` says so. A part that neither a file nor the column gives is held out of
    training: its fraction of `held_out`, drawn by `seed`, every class in proportion. Labels are those of training, in
    the order of the alphabet, or of their size if all are numbers; one that another part has alone is refused.
    """
    paths = {"train": Path(path)} | {part: Path(file) for part, file in (("valid", valid), ("test", test)) if file}
    _check_apart(paths)
    found_format = format or guess_format(paths["train"], named=any((text, label, split)))
    reader = Reader(found_format, cut, lower, text, label, split)
    found = _parts({part: reader.read(file) for part, file in paths.items()}, paths["train"])
    _check_alike(found)
    labels = _labels(found["train"])
    parts = {part: _examples(rows, labels, part) for part, rows in found.items()}
    held = _hold_out(parts, dict(zip(("valid", "test"), held_out, strict=True)), seed)
    description = _description(paths["train"], reader, format is None, labels, parts, held, seed)
    kind: Kind = "numeric" if parts["train"].values else "text"
    return Labelled(kind, labels, parts["train"], parts["valid"], parts["test"], description)


def _parts(files: dict[str, list[Example]], path: Path) -> dict[str, list[Example]]:
    """The examples of each part: those of its own file, or those of the training file that its column gives it."""
    found: dict[str, list[Example]] = {}
    for example in files["train"]:
        found.setdefault(example.part or "train", []).append(example)
    if "train" not in found:
        raise DataError(f"{path}: no example is for training, all are for {' or '.join(PARTS[part] for part in found)}")
    for part in ("valid", "test"):
        if part in files and part in found:
            raise DataError(f"the {PARTS[part]} part has a file of its own, and {path} has examples for it too, as in "
                            f"line {found[part][0].line}: give one of them")  # fmt: skip
        found |= {part: files[part]} if part in files else {}
    return found


def _labels(train: Sequence[Example]) -> tuple[str, ...]:
    labels = list({example.label for example in train})
    if len(labels) < 2:
        some = f"all {len(train)} training examples have" if len(train) > 1 else "the only training example has"
        raise DataError(f"{train[0].path}: {some} the label {labels[0]!r}, expected two labels or more")
    by_size = all(map(is_number, labels)) and all(abs(float(label)) < float("inf") for label in labels)
    return tuple(sorted(labels, key=(lambda label: (float(label), label)) if by_size else None))


def _examples(rows: Sequence[Example], labels: Sequence[str], part: str) -> Examples:
    numbers = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.label not in numbers:
            known = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
            raise DataError(f"{row.path}, line {row.line}: the label {row.label!r} is in the {PARTS[part]} part and "
                            f"never in training, which has {known}. Correct it, or leave the line out")  # fmt: skip
    targets = torch.tensor([numbers[row.label] for row in rows], dtype=torch.int64)
    tokens = [row.sequence for row in rows if isinstance(row.sequence, list)]
    return Examples(targets, tokens, [row.sequence for row in rows if isinstance(row.sequence, torch.Tensor)])


def _hold_out(parts: dict[str, Examples], held_out: dict[str, float], seed: int) -> list[str]:
    """Take what is missing out of training; returned are the names of those parts."""
    missing = [part for part in held_out if part not in parts]
    if missing:
        train = parts["train"]
        rows = stratified(train.targets, [held_out[part] for part in missing], seed)
        parts |= {part: train.take(taken) for part, taken in zip(("train", *missing), rows, strict=True)}
    return missing


def _description(
    path: Path,
    reader: Reader,
    guessed: bool,
    labels: Sequence[str],
    parts: dict[str, Examples],
    held: Sequence[str],
    seed: int,
) -> str:
    said = f"{reader}{' (guessed)' if guessed and reader.format == 'numeric' else ''}"
    counts = ", ".join(f"{len(parts[part]):,} {word}" for part, word in PARTS.items())
    drawn = f"; {' and '.join(PARTS[part] for part in held)} held out of training with seed {seed}" if held else ""
    return f"{path.name}: {said}; {len(labels)} labels; {counts} examples{drawn}"


def _check_alike(found: dict[str, list[Example]]) -> None:
    """Refuse texts among numbers, and numbers of other channels."""
    first = found["train"][0]
    for example in (example for rows in found.values() for example in rows):
        if example.channels != first.channels:
            kinds = [f"{row.channels} numbers a step" if row.channels else "text" for row in (first, example)]
            raise DataError(f"{example.path}, line {example.line}: expected {kinds[0]}, as in line {first.line} of "
                            f"{first.path.name}, got {kinds[1]}")  # fmt: skip


def _check_apart(paths: dict[str, Path]) -> None:
    """Refuse a file that is two parts: what a model was trained on cannot measure it."""
    seen: dict[str, str] = {}
    for part, path in paths.items():
        before = seen.setdefault(os.path.realpath(path), part)
        if before != part:
            raise DataError(
                f"{path} is given for {PARTS[before]} and for {PARTS[part]}: a file can be in one part only"
            )
