"""Small texts and models for the tests of the language-model task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig, CellName
from mufuru.experiments.tasks.lm.config import LMConfig, Regularisation
from mufuru.experiments.tasks.lm.task import LMTask

CELLS: tuple[CellName, ...] = ("mufuru", "gru", "lstm", "vanilla")
WORDS = ("the", "cat", "sat", "<eos>", "<unk>", "N", "on", "mat", ",", "dog")
VOCABULARY = Vocabulary(WORDS)
END = WORDS.index("<eos>")


def stream(length: int, seed: int = 0) -> Tensor:
    """Tokens in any order."""
    return torch.randint(len(WORDS), (length,), generator=torch.Generator().manual_seed(seed))


def corpus(train: int = 203, valid: int = 61, test: int = 47) -> Corpus:
    return Corpus(stream(train, 1), stream(valid, 2), stream(test, 3), VOCABULARY, "noise")


def config(cell: CellName = "mufuru", regularisation: dict[str, float] | None = None, **changes: Any) -> LMConfig:
    """A small model; settings of the training and the cell are found by name."""
    training = {name: changes.pop(name) for name in list(changes) if hasattr(Training(), name)}
    layer = {name: changes.pop(name) for name in list(changes) if hasattr(CellConfig(), name)}
    base = LMConfig(
        replace(CellConfig(hidden_size=6).for_cell(cell), **layer),
        replace(Training(epochs=2, batch_size=4, learning_rate=0.01), **training),
        regularisation=Regularisation(**(regularisation or {})),
        bptt=7,
        evaluation_window=16,
    )
    return replace(base, **changes)


def task(*args: Any, **changes: Any) -> LMTask:
    return LMTask(config(*args, **changes), corpus())
