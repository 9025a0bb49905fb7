"""A whole task in one file, as it would stand among the tasks: is the number of ones in a sequence of bits odd?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.data import DataError
from mufuru.experiments.draws import Draws
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer, per_step
from mufuru.experiments.tasks.models import SequenceModel
from mufuru.experiments.tasks.task import (
    Card,
    Kind,
    Prediction,
    Reader,
    State,
    Step,
    StepPrediction,
    Steps,
    Totals,
    ranked,
)

LABELS = ("even", "odd")


@dataclass(frozen=True)
class ParityConfig:
    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=4))
    training: Training = field(default_factory=lambda: Training(epochs=2, batch_size=8))
    seed: int = 0
    longest: int = 6
    """Most bits of a sequence."""


class ParityModel(SequenceModel):
    settings = ParityConfig
    argument = "bits"

    def __init__(self, config: ParityConfig) -> None:
        super().__init__()
        self.config = config
        self.reader = SequenceLayer(config.cell, 2)
        self.output = nn.Linear(self.reader.output_size, 1)

    def forward(self, bits: PackedSequence | Tensor, lengths: Tensor | None = None) -> Tensor:
        _, state = self.reader(per_step(embed, bits), None, lengths)
        logits: Tensor = self.output(self.reader.last(state)).squeeze(-1)
        return logits

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        return torch.randint(2, (steps, batch), generator=generator)


def embed(bits: Tensor) -> Tensor:
    return one_hot(bits, 2).float()


def padded(sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """(steps, batch) and lengths."""
    rows = [torch.tensor(bits) for bits in sequences]
    return nn.utils.rnn.pad_sequence(rows), torch.tensor([len(row) for row in rows])


class ParityTask:
    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: ParityConfig) -> None:
        self.config = config
        self.sequences = {
            split: self._draw(split, count) for split, count in (("train", 40), ("valid", 12), ("test", 12))
        }

    def _draw(self, split: str, count: int) -> list[list[int]]:
        draws = Draws("parity", split, self.config.seed)
        return [[draws.bits(1) for _ in range(1 + draws.below(self.config.longest))] for _ in range(count)]

    def build(self) -> ParityModel:
        return ParityModel(self.config)

    def batches(self, split: str, epoch: int = 0) -> list[list[list[int]]]:
        sequences, size = self.sequences[split], self.config.training.batch_size
        return [sequences[start : start + size] for start in range(0, len(sequences), size)]

    def step(self, model: nn.Module, batch: list[list[int]], state: State) -> Step:
        logits = model(*padded(batch))
        targets = torch.tensor([float(sum(bits) % 2) for bits in batch])
        loss = binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return Step(loss, len(batch), sums={"right": ((logits.detach() > 0) == (targets > 0)).sum()})

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        return {}


class ParityPredictor:
    def __init__(self, model: ParityModel, config: ParityConfig) -> None:
        self.model = model.eval()

    def read(self, line: str) -> list[int]:
        if not line or set(line) - set("01"):
            raise DataError(f"expected bits, got {line!r}")
        return [int(bit) for bit in line]

    @torch.no_grad()
    def predict(self, sequences: list[list[int]]) -> list[Prediction]:
        odd = self.model(*padded(sequences)).sigmoid().tolist() if sequences else []
        return [Prediction(LABELS[p > 0.5], {"even": 1 - p, "odd": p}) for p in odd]


class ParityReader(Reader):
    takes = "characters"

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    def steps(self, text: str) -> Steps:
        return Steps(list(text), torch.tensor(ParityPredictor(self.model, self.config).read(text)))

    def embed(self, x: Tensor) -> Tensor:
        return embed(x)

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        odd = self.model.output(outputs).squeeze(1).sigmoid()
        return [StepPrediction(top) for top in ranked(torch.stack((1 - odd, odd), 1), LABELS)]


CARD = Card("judge of parity", "drawn bits")
PRESETS = {"small": ParityConfig()}
KIND = Kind(ParityTask, PRESETS, CARD, model=ParityModel, predictor=ParityPredictor, reader=ParityReader)
