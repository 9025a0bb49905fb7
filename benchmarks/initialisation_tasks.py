"""The tasks of `initialisation.py`: bits to recall, the parity of neighbours, and Boolean formulae."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import logic

from mufuru import MuFuRU

Metrics: TypeAlias = dict[str, float | None]

KEEPS = (None, 0.0, 1.0, 2.0, 3.0, 4.0)
"""First logits of keep; None is nn.GRU."""
EVERY = 25
"""Updates between two looks at fresh data."""
FRESH = 1000
"""Sequences in one look."""
ENOUGH = 0.99


@dataclass(frozen=True)
class Case:
    """One training run. Settings that a task does not have are None."""

    task: str
    keep: float | None
    seed: int
    lr: float
    hidden_size: int
    batch: int
    steps: int | None = None
    updates: int | None = None
    epochs: int | None = None

    @property
    def layer(self) -> str:
        return "nn.GRU" if self.keep is None else f"MuFuRU, keep {self.keep:g}"

    def config(self) -> dict[str, Any]:
        """All but the seed, as the record has it."""
        config = {key: value for key, value in asdict(self).items() if value is not None and key != "seed"}
        return {"layer": "nn.GRU" if self.keep is None else "MuFuRU"} | config

    def __str__(self) -> str:
        size = f"T {self.steps}" if self.steps else f"lr {self.lr:g}"
        return f"{self.task} {size}, {self.layer}, seed {self.seed}"


def plan(seeds: int, distances: list[int], updates: int, epochs: int) -> Iterator[Case]:
    """All runs, seed by seed: a plan that is stopped has measured all layers about as often."""
    for seed in range(1, seeds + 1):
        for keep in KEEPS:
            for steps in distances:
                yield Case("recall", keep, seed, 3e-3, 16, 64, steps=steps, updates=updates)
            yield Case("parity", keep, seed, 3e-3, 16, 64, steps=16, updates=updates)
            for lr in (1e-3, 1e-2):
                yield Case("logic", keep, seed, lr, 8, 50, epochs=epochs)


def run(case: Case) -> Metrics:
    return formulae(case) if case.task == "logic" else bits(case)


def recurrent(case: Case, input_size: int) -> nn.GRU | MuFuRU:
    if case.keep is None:
        return nn.GRU(input_size, case.hidden_size)
    return MuFuRU(input_size, case.hidden_size, op_bias={"keep": case.keep})


class Reader(nn.Module):
    """A recurrent layer that reads a bit per step, and a linear layer that names a bit after every step."""

    def __init__(self, rnn: nn.GRU | MuFuRU) -> None:
        super().__init__()
        self.rnn = rnn
        self.output = nn.Linear(rnn.hidden_size, 2)

    def forward(self, bits: Tensor) -> Tensor:
        states, _ = self.rnn(bits.unsqueeze(-1).float())
        logits: Tensor = self.output(states)
        return logits


def recall(model: nn.Module, bits: Tensor) -> tuple[Tensor, Tensor]:
    """The first bit, after the last."""
    return model(bits)[-1], bits[0]


def parity(model: nn.Module, bits: Tensor) -> tuple[Tensor, Tensor]:
    """At every step but the first: do this bit and the one before differ?"""
    return model(bits)[1:].flatten(0, 1), (bits[1:] ^ bits[:-1]).flatten()


QUESTIONS: dict[str, Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]]] = {"recall": recall, "parity": parity}


def bits(case: Case) -> Metrics:
    """Train until the answers on fresh data are right; how many updates did it take?"""
    assert case.steps is not None
    assert case.updates is not None
    torch.manual_seed(case.seed)
    model, ask = Reader(recurrent(case, 1)), QUESTIONS[case.task]
    optimizer = torch.optim.Adam(model.parameters(), case.lr)
    data, fresh = (torch.Generator().manual_seed(number) for number in (case.seed, case.seed + 1_000_000))
    share = 0.0
    for update in range(1, case.updates + 1):
        loss = cross_entropy(*ask(model, torch.randint(2, (case.steps, case.batch), generator=data)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % EVERY == 0:
            share = right(ask, model, torch.randint(2, (case.steps, FRESH), generator=fresh))
            if share >= ENOUGH:
                return {"updates": update, "accuracy": share}
    return {"updates": None, "accuracy": share}


@torch.no_grad()
def right(ask: Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]], model: nn.Module, bits: Tensor) -> float:
    logits, targets = ask(model, bits)
    return int((logits.argmax(-1) == targets).sum()) / len(targets)


def formulae(case: Case) -> Metrics:
    """Boolean formulae, exactly as examples/logic.py trains and tests on them."""
    assert case.epochs is not None
    rng = random.Random(case.seed)
    training = logic.sample_unique(1000, range(5, 11), rng)
    test = logic.sample_unique(1000, range(11, 21), rng)
    torch.manual_seed(case.seed)
    model = logic.Evaluator(recurrent(case, len(logic.TOKENS)))
    with contextlib.redirect_stdout(io.StringIO()):
        logic.train(case.layer, model, training, case.epochs, case.lr, random.Random(case.seed))
    return {"training accuracy": logic.accuracy(model, training), "accuracy": logic.accuracy(model, test)}
