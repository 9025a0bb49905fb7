"""A task small enough to be killed a hundred times: echo the bit of the step before, with every source of chance."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from mufuru.experiments import tasks
from mufuru.experiments.engine import RunError, fit
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.task import State, Step, Totals

TRAINING = Training(epochs=3, batch_size=4, learning_rate=0.05, evaluate_every=3)
BATCHES = 5
"""Training batches of an epoch with the settings above: 15 updates in all."""


@dataclass(frozen=True)
class ToyConfig:
    training: Training = field(default_factory=lambda: TRAINING)
    seed: int = 0
    size: int = 3
    dropout: float = 0.5
    carry: bool = True
    """The state goes on from batch to batch."""
    scale: float = 1.0
    """Factor of the loss, to make gradients long."""
    nan_at: int | None = None
    """The training step, counted from 1, whose loss is NaN."""


class ToyModel(nn.Module):
    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.read = nn.GRU(1, size, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.write = nn.Linear(size, 1)
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor, s: Tensor | None) -> tuple[Tensor, Tensor]:
        h, s = self.read(x, s)
        return self.write(self.drop(h)).squeeze(-1), s


class ToyTask:
    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: ToyConfig) -> None:
        self.config = config
        self.steps = 0
        generator = torch.Generator().manual_seed(config.seed)
        lengths = {"train": 4 * BATCHES, "valid": 12, "test": 12}
        self.data = {split: torch.randint(2, (n, 6), generator=generator).float() for split, n in lengths.items()}

    def build(self) -> nn.Module:
        return ToyModel(self.config.size, self.config.dropout)

    def batches(self, split: str, epoch: int = 0) -> tuple[Tensor, ...]:
        data = self.data[split]
        if split == "train":
            generator = torch.Generator().manual_seed(1000 * self.config.seed + epoch)
            data = data[torch.randperm(len(data), generator=generator)]
        return tuple(data.split(self.config.training.batch_size))

    def step(self, model: nn.Module, batch: Tensor, state: State) -> Step:
        logits, s = model(batch.unsqueeze(-1), state[0] if state else None)
        wanted = batch.roll(1, dims=1)
        loss = self.config.scale * binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        penalty = None
        if model.training:
            self.steps += 1
            INTRUDER(self.steps)
            model.get_buffer("seen").add_(len(batch))
            # chance from all three sources goes into the weights
            penalty = 0.01 * random.gauss(0, 1) * np.random.normal() * logits.square().mean()
            loss = loss * float("nan") if self.steps == self.config.nan_at else loss
        right = ((logits > 0) == (wanted > 0.5)).sum()
        carried = (s.detach(), (None, torch.tensor(batch.numel()))) if self.config.carry else None
        return Step(loss, batch.numel(), carried, {"right": right}, penalty)

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        return {
            "bias": model.get_parameter("write.bias").tolist(),
            "training": model.training,
            "chance": torch.rand(1).item(),
        }


def nobody(step: int) -> None:
    """Nothing happens."""


INTRUDER: Callable[[int], None] = nobody
"""Called in every training step with its number in this process, from 1: where tests kill, wait and interrupt."""

tasks.KINDS["toy"] = tasks.Kind(ToyTask, {"plain": ToyConfig()})


def toy(**settings: Any) -> ToyConfig:
    """A config with some settings other than usual; those of the training are found by name."""
    training = {name: settings.pop(name) for name in list(settings) if hasattr(TRAINING, name)}
    return ToyConfig(training=replace(TRAINING, **training), **settings)


def intrude(monkeypatch: Any, at: int, act: Callable[[], object]) -> None:
    """Do something in the training step with this number."""
    monkeypatch.setattr("toy.INTRUDER", lambda step: act() if step == at else None)


def pretend(monkeypatch: Any, metrics: Callable[[], dict[str, float]]) -> None:
    """Let every evaluation give these metrics; the function `fit` hides the module of its name."""
    monkeypatch.setattr(import_module("mufuru.experiments.engine.fit"), "evaluate", lambda *_: metrics())


def run_in_child(
    folder: Path, config: ToyConfig, resume: bool, seconds: float, kill_at: int | None, kill_file: int | None
) -> None:
    """A process of its own, that kills itself in a training step or before a change to a file, each by its number."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    global INTRUDER
    INTRUDER = lambda step: kill_myself() if step == kill_at else None  # noqa: E731
    if kill_file is not None:
        kill_before_file(kill_file)
    fit("toy", config, folder, resume=resume, checkpoint_seconds=seconds)


def run_to_exit(folder: Path, config: ToyConfig, resume: bool, step_seconds: float) -> None:
    """As the command line does it: the message on a failure, exit code 1. Slow enough to be met half-way."""
    torch.set_num_threads(1)
    global INTRUDER
    INTRUDER = lambda step: time.sleep(step_seconds)  # noqa: E731
    try:
        fit("toy", config, folder, resume=resume)
    except RunError as error:
        (folder / "message").write_text(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before_file(number: int) -> None:
    """Be killed just before the numbered call that flushes, links, renames or cuts a file."""
    calls = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                kill_myself()
            return original(*args, **named)

        return call

    for name in ("fsync", "link", "replace", "chmod"):
        setattr(os, name, counted(getattr(os, name)))
