"""Small labelled data and models for the tests of the classification task."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mufuru.experiments.data.examples import Examples, Labelled
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig, CellName
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.task import ClassifyTask

CELLS: tuple[CellName, ...] = ("mufuru", "gru", "lstm", "vanilla")
WORDS = ("good", "bad", "not", "very", "but", "film", "the", "a", "plot", ".", ",", "Story")
LABELS = ("negative", "positive")


def text(chance: random.Random, longest: int = 9) -> list[str]:
    return [chance.choice(WORDS) for _ in range(chance.randint(1, longest))]


def texts(count: int, seed: int, classes: int = 2) -> Examples:
    """Texts whose label is how many good things they say, as far as there are labels."""
    chance = random.Random(seed)
    tokens = [text(chance) for _ in range(count)]
    return Examples(torch.tensor([min(words.count("good"), classes - 1) for words in tokens]), tokens)


def series(count: int, seed: int, channels: int = 2) -> Examples:
    """Numbers whose label is the sign of their sum; far from 0 and of another size in the second channel."""
    generator = torch.Generator().manual_seed(seed)
    shift, scale = torch.tensor([50.0, -3.0])[:channels], torch.tensor([7.0, 1e-3])[:channels]
    values = [torch.randn(3 + number % 7, channels, generator=generator) for number in range(count)]
    targets = torch.tensor([int(value[:, 0].sum() > 0) for value in values])
    return Examples(targets, [shift + scale * value for value in values])


def labelled(kind: str = "text", classes: int = 2) -> Labelled:
    if kind == "numeric":
        return Labelled("numeric", LABELS, series(60, 1), series(20, 2), series(20, 3), "sums")
    names = LABELS if classes == 2 else tuple(map(str, range(classes)))
    train, valid, test = (texts(count, seed, classes) for count, seed in ((103, 1), (31, 2), (29, 3)))
    return Labelled("text", names, train, valid, test, "goodness")


def config(cell: CellName = "mufuru", **changes: Any) -> ClassifyConfig:
    """A small model; settings of the training and the cell are found by name."""
    training = {name: changes.pop(name) for name in list(changes) if hasattr(Training(), name)}
    layer = {name: changes.pop(name) for name in list(changes) if hasattr(CellConfig(), name)}
    base = ClassifyConfig(
        replace(CellConfig(hidden_size=6).for_cell(cell), **layer),
        replace(Training(epochs=2, batch_size=8, learning_rate=0.01), **training),
        embedding_size=5,
    )
    return replace(base, **changes)


def task(cell: CellName = "mufuru", kind: str = "text", classes: int = 2, **changes: Any) -> ClassifyTask:
    return ClassifyTask(config(cell, **changes), labelled(kind, classes))


def write_csv(path: Path, count: int = 120, seed: int = 0) -> Path:
    """A user's file of texts: good ones and others."""
    chance = random.Random(seed)
    rows = [" ".join(text(chance)) for _ in range(count)]
    lines = [f'"{row}",{"yes" if "good" in row else "no"}' for row in rows]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def write_numbers(path: Path, count: int = 60) -> Path:
    """A user's file in UCR's layout, all rows of one length: a bump up or down somewhere."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for number in range(count):
        values: Tensor = 0.1 * torch.randn(12, generator=generator)
        values[int(torch.randint(12, (1,), generator=generator))] += 2.0 if number % 2 else -2.0
        rows.append("\t".join([str(number % 2 + 1), *(f"{value:.4f}" for value in values.tolist())]))
    path.write_text("\n".join(rows) + "\n")
    return path


def write_vectors(path: Path, features: int = 5) -> Path:
    """A file of word vectors: feature k of the n-th of all words but two is n + k / 10."""
    known = [word for word in WORDS if word not in ("plot", "Story")]
    lines = [" ".join([word, *(str(number + k / 10) for k in range(features))]) for number, word in enumerate(known, 1)]
    path.write_text("\n".join([*lines, " ".join(["story", *(["7.5"] * features)])]) + "\n")
    return path
