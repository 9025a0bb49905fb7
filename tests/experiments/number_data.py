"""Small files for the tests of the tasks regress, tag and forecast, and the settings to learn them."""

from __future__ import annotations

import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import torch

from mufuru.experiments.engine import fit
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.forecast.model import ForecastConfig, SeriesConfig
from mufuru.experiments.tasks.regress.task import FilesConfig, RegressConfig
from mufuru.experiments.tasks.tag.model import TagConfig, TaggedFiles


def write_rooms(path: Path, count: int = 60) -> Path:
    """Texts and prices, far from 0: a room costs a hundred."""
    chance = random.Random(0)
    rows = ["description,price"]
    for _ in range(count):
        rooms = chance.randint(1, 6)
        rows.append(f"a flat with{' room' * rooms},{100_000 + 100 * rooms}")
    path.write_text("\n".join(rows) + "\n")
    return path


def write_names(path: Path, count: int = 60) -> Path:
    """Sentences in CoNLL columns: names of people among other words."""
    chance = random.Random(0)
    sentences = []
    for number in range(count):
        rows = []
        for _ in range(chance.randint(1, 5)):
            if chance.random() < 0.4:
                rows += [f"{chance.choice(('Anna', 'Bob'))} N B-PER", f"{chance.choice(('Smith', 'Jones'))} N I-PER"]
            else:
                rows.append(f"{chance.choice(('walks', 'sees', 'well', f'rare{number}'))} V O")
        sentences.append("\n".join(rows))
    path.write_text("-DOCSTART- -X- O\n\n" + "\n\n".join(sentences) + "\n")
    return path


def write_waves(path: Path, count: int = 120) -> Path:
    """A table of two series with a season of 6, one of them rising, beside years and a covariate."""
    chance = random.Random(0)
    rows = ["year,calm,rising,warm"]
    for step in range(count):
        wave = math.sin(step * math.pi / 3)
        rows.append(f"{1900 + step},{wave + chance.gauss(0, 0.1):.4f},{50 + step + 3 * wave:.4f},{step % 4}")
    path.write_text("\n".join(rows) + "\n")
    return path


SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "evaluate_every": 3}


def regress(file: Path, **changes: Any) -> RegressConfig:
    settings: dict[str, Any] = {"embedding_size": 4, "output_dropout": 0.2, "quantiles": (0.1, 0.9), **changes}
    return RegressConfig(CellConfig(hidden_size=4), Training(**SMALL), FilesConfig(data=str(file)), **settings)


def tag(file: Path, **changes: Any) -> TagConfig:
    cell = CellConfig(hidden_size=4, bidirectional=True)
    settings: dict[str, Any] = {
        "embedding_size": 4,
        "min_count": 2,
        "output_dropout": 0.2,
        "lowercase": False,
        **changes,
    }
    return TagConfig(cell, Training(**SMALL), TaggedFiles(data=str(file)), **settings)


def forecast(file: Path, covariates: tuple[str, ...] = (), **changes: Any) -> ForecastConfig:
    data = SeriesConfig(data=str(file), value_columns=("calm", "rising"), covariate_columns=covariates)
    settings: dict[str, Any] = {"horizon": 3, "season": 6, "output_dropout": 0.2, **changes}
    return ForecastConfig(CellConfig(hidden_size=4), Training(**(SMALL | {"batch_size": 32})), data, **settings)


TASKS: dict[str, tuple[Any, Any, str]] = {
    "regress": (write_rooms, regress, "rooms.csv"),
    "tag": (write_names, tag, "names.conll"),
    "forecast": (write_waves, forecast, "waves.csv"),
}
"""By task: what writes its file, what makes its settings, and the file's name."""


def be_killed(task: str, data: Path, folder: Path, at: int, seconds: float) -> None:
    """Train a task in a process of its own, which kills itself in a training step."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    kind: Any = KINDS[task].make
    step, count = kind.step, 0

    def killed(self: Any, model: Any, *rest: Any) -> Any:
        nonlocal count
        count += model.training
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, model, *rest)

    kind.step = killed
    fit(task, made(task, data), folder, checkpoint_seconds=seconds)


def made(task: str, folder: Path) -> Any:
    """Settings of a task, whose file is written into the folder."""
    write, settings, name = TASKS[task]
    return settings(write(folder / name))
