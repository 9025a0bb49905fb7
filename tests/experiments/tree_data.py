"""A small treebank and models for the tests of the task of trees."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from mufuru.experiments.data.sst import ESCAPED, FILES, Tree, Treebank
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.trees.model import TreeCellConfig, TreeCellName, TreesConfig
from mufuru.experiments.tasks.trees.task import TreesTask

CELLS: tuple[TreeCellName, ...] = ("mufuru", "gru", "lstm")
VALUE = {"good": 1, "bad": -1, "film": 0, "the": 0, "Plot": 0, ".": 0, "very": 0}
TURN = "not"
"""It turns what stands to its right around."""


def phrase(chance: random.Random, leaves: int) -> tuple[Tree, int]:
    """A tree and what it says: the sum of its words, with "not" turned around, from -2 to 2."""
    if leaves == 1:
        word = chance.choice(list(VALUE))
        return Tree(2 + VALUE[word], word), VALUE[word]
    if chance.random() < 0.25:
        rest, value = phrase(chance, leaves - 1)
        return Tree(2 - value, None, (Tree(2, TURN), rest)), -value
    first = chance.randint(1, leaves - 1)
    left, one = phrase(chance, first)
    right, other = phrase(chance, leaves - first)
    value = max(-2, min(2, one + other))
    return Tree(2 + value, None, (left, right)), value


def trees(count: int, seed: int, longest: int = 9) -> list[Tree]:
    chance = random.Random(seed)
    return [phrase(chance, chance.randint(1, longest))[0] for _ in range(count)]


def treebank(count: int = 103) -> Treebank:
    return Treebank(trees(count, 1), trees(40, 2), trees(37, 3), "small")


def escape(word: str) -> str:
    """A word as the treebank writes it."""
    for plain, escaped in ESCAPED.items():
        word = word.replace(plain, escaped)
    return word


def render(tree: Tree) -> str:
    """A tree in one line, as the treebank's files have it; of any depth."""
    pieces: list[str] = []
    open_ends: list[Tree | None] = [tree]
    while open_ends:
        node = open_ends.pop()
        if node is None:
            pieces.append(")")
        elif node.word is not None:
            pieces.append(f" ({node.label} {escape(node.word)})")
        else:
            pieces.append(f" ({node.label}")
            open_ends += [None, *reversed(node.children)]
    return "".join(pieces).removeprefix(" ")


def write(folder: Path, bank: Treebank) -> Path:
    """The files of a user's treebank."""
    folder.mkdir(exist_ok=True)
    for name, part in zip(FILES, (bank.train, bank.valid, bank.test), strict=True):
        (folder / name).write_text("".join(f"{render(tree)}\n" for tree in part))
    return folder


def config(cell: TreeCellName = "mufuru", **changes: Any) -> TreesConfig:
    """A small model; settings of the training and the cell are found by name."""
    training = {name: changes.pop(name) for name in list(changes) if hasattr(Training(), name)}
    unit = {name: changes.pop(name) for name in list(changes) if hasattr(TreeCellConfig(), name)}
    base = TreesConfig(
        replace(TreeCellConfig(hidden_size=6).for_cell(cell), **unit),
        replace(Training(epochs=2, batch_size=8, learning_rate=0.01), **training),
        embedding_size=5,
    )
    return replace(base, **changes)


def task(cell: TreeCellName = "mufuru", bank: Treebank | None = None, **changes: Any) -> TreesTask:
    return TreesTask(config(cell, **changes), bank or treebank())
