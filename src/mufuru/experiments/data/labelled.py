"""A user's own labelled sequences in three parts, from files in any of the formats of `readers`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import torch

from mufuru.experiments.data import PARTS, DataError
from mufuru.experiments.data.examples import Examples, Labelled, Parts, counted, files_of, missing_parts, stratified
from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.lines import is_finite
from mufuru.experiments.data.readers import Example, Reader, guess_format, kind_of
from mufuru.experiments.data.text import Cut

FEW_FRACTIONS, FEW_NUMBERS, MANY_EACH = 10, 20, 20
"""Numbers are classes if there are few of them, or many examples of each."""


def load(
    path: str | Path,
    *,
    text: str | None = None,
    label: str | None = None,
    split: str | None = None,
    format: Format | None = None,
    cut: Cut = "words",
    **given: Unpack[Parts],
) -> Labelled:
    """Read labelled sequences from a file, with `valid` and `test` from separate files, by a column, or held out.

    `text`, `label` and `split` name columns, by their places, "1", "2" and so on, in a file without names; what is not
    named is guessed, and `description` says so. A part that neither a file nor the column gives is held out of
    training: its fraction of `held_out`, drawn by `seed`, every class in proportion. Labels are those of training, in
    the order of the alphabet, or of their size if all are numbers; one that another part has alone is refused.
    """
    paths = files_of(path, given)
    guessed_format = format or guess_format(paths["train"], any((text, split)), label)
    reader = Reader(guessed_format, cut, (text, label, split))
    rows = read_parts(reader, paths)
    labels, doubts = _labels(rows["train"]), [quantity([row.label for row in rows["train"]], paths["train"])]
    if format is None and reader.format == "numeric" and len(reader.channels) > 1:
        doubts.append(f"{paths['train']}: the names of the columns look like {len(reader.channels)} channels, such as "
                      f"{', '.join(reader.channels[:3])}: give --format wide to read them so, or --format numeric for "
                      "a single long one")  # fmt: skip
    held, seed, drawn = missing_parts(rows, given)
    try:
        parts = {part: examples_of(part_rows, labels, f"the {PARTS[part]} part") for part, part_rows in rows.items()}
        if held:
            train, chosen = parts["train"], stratified(parts["train"].targets, list(held.values()), seed)
            parts |= {part: train.take(taken) for part, taken in zip(("train", *held), chosen, strict=True)}
    except DataError as error:
        # numbers to predict have no label twice: that is the reason to tell
        raise DataError(doubts[0] or str(error)) from None
    guessed = " (guessed)" if format is None and reader.format in ("numeric", "wide", "lines", "fasttext") else ""
    description = (
        f"{paths['train'].name}: {reader.read_as}{guessed}; {len(labels)} labels; {counted(parts)} examples{drawn}"
    )
    numeric = bool(rows["train"][0].channels)
    sets = parts["train"], parts["valid"], parts["test"]
    doubts = [doubt for doubt in doubts if doubt]
    return Labelled("numeric" if numeric else "text", labels, *sets, description, reader.layout, tuple(doubts))


def quantity(labels: Sequence[str], path: Path) -> str:
    """Return a sentence if labels look like numbers to predict rather than classes; else nothing.

    Classes are few numbers, or 0, 1, 2 and so on, or 1, 2, 3, or numbers with many examples each.
    """
    counts = Counter(labels)
    if not all(map(is_finite, counts)):
        return ""
    numbers = sorted(map(float, counts))
    whole = all(number.is_integer() for number in numbers)
    in_a_row = whole and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1
    few = len(counts) <= (FEW_NUMBERS if whole else FEW_FRACTIONS) and len(counts) < max(len(labels), 3)
    if few or in_a_row or len(labels) >= MANY_EACH * len(counts):
        return ""
    return (f"{path}: the labels look like numbers to predict, not like classes: {len(counts)} different ones, from "
            f"{numbers[0]:g} to {numbers[-1]:g}, in {len(labels)} examples. Predict numbers with `mufuru train regress "
            f"--data {path}`; if they are classes after all, give --numeric-classes")  # fmt: skip


def read_parts(reader: Reader, paths: Mapping[str, Path]) -> dict[str, list[Example]]:
    """Return the examples of each part, from its own file or by the column of the training file."""
    path, parts = paths["train"], dict[str, list[Example]]()
    files = {part: reader.read(file) for part, file in paths.items()}
    for example in files["train"]:
        parts.setdefault(example.part or "train", []).append(example)
    if "train" not in parts:
        raise DataError(f"{path}: no example is for training, all are for {' or '.join(PARTS[part] for part in parts)}")
    for part in ("valid", "test"):
        if part in files and part in parts:
            raise DataError(f"the {PARTS[part]} part has a file of its own, and {path} has examples for it too, as in "
                            f"line {parts[part][0].line}: give one of them")  # fmt: skip
        parts |= {part: files[part]} if part in files else {}
    first = parts["train"][0]
    for example in (example for rows in parts.values() for example in rows):
        if example.channels != first.channels:
            wanted, came = kind_of(first.channels), kind_of(example.channels)
            raise DataError(f"{example.path}, line {example.line}: expected {wanted}, as in line {first.line} of "
                            f"{first.path.name}, got {came}")  # fmt: skip
    return parts


def _labels(train: Sequence[Example]) -> tuple[str, ...]:
    labels = list({example.label for example in train})
    if len(labels) < 2:
        some = f"all {len(train)} training examples have" if len(train) > 1 else "the only training example has"
        raise DataError(f"{train[0].path}: {some} the label {labels[0]!r}, expected two labels or more")
    by_size = all(map(is_finite, labels))
    return tuple(sorted(labels, key=(lambda label: (float(label), label)) if by_size else None))


def examples_of(rows: Sequence[Example], labels: Sequence[str], where: str = "this file") -> Examples:
    """Return examples with the ids of their labels; one that is not in training is refused."""
    ids = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.label not in ids:
            known = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
            raise DataError(f"{row.path}, line {row.line}: the label {row.label!r} is in {where} and never in "
                            f"training, which has {known}. Correct it, or leave the line out")  # fmt: skip
    targets = torch.tensor([ids[row.label] for row in rows], dtype=torch.int64)
    return Examples(targets, [row.sequence for row in rows])
