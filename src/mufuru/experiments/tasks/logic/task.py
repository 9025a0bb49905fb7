"""The propositional-logic task: formulae in, whether they are true out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import mufuru
from mufuru.experiments.draws import permutation
from mufuru.experiments.settings import choose
from mufuru.experiments.tasks.logic.batches import Batch, encode
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS
from mufuru.experiments.tasks.logic.model import FormulaReader
from mufuru.experiments.tasks.logic.sampling import sample_splits
from mufuru.experiments.tasks.task import State, Step, Totals

EVALUATION_BATCH = 500
"""Formulae at a time where nothing is trained; no metric depends on it."""


class LogicTask:
    """Formulae, model and metrics of one run."""

    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: LogicConfig) -> None:
        self.config = config
        self.formulae = sample_splits(config.splits, config.seed)
        self._encoded = {split: encode(formulae) for split, formulae in self.formulae.items()}
        self._fixed = {
            split: encoded.batches(torch.arange(len(encoded.values)), EVALUATION_BATCH)
            for split, encoded in self._encoded.items()
            if split != "train"
        }

    def build(self) -> nn.Module:
        return FormulaReader(self.config.cell)

    def batches(self, split: str, epoch: int = 0) -> list[Batch]:
        """All batches; those of "train" in an order of the epoch's own."""
        if split in self._fixed:
            return self._fixed[split]
        encoded = choose("split", split, self._encoded)
        order = permutation(len(encoded.values), "logic", "order", self.config.seed, epoch)
        return encoded.batches(order, self.config.training.batch_size)

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.tokens)
        loss = binary_cross_entropy_with_logits(logits, batch.values, reduction="sum")
        right = ((logits.detach() > 0) == (batch.values > 0.5)).sum()
        return Step(loss, len(batch.values), sums={"right": right})

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """MuFuRU's mean operation weight by the token it reads, over the test formulae; {} for other cells.

        `{"operation_weights": {"tokens", "ops", "weight": [[per operation] per token], "entropy"}}`, of the first layer
        read forwards. A token that no test formula has gets None for its row; entropy is that of the choice, in nats.
        """
        if self.config.cell.cell != "mufuru":
            return {}
        recorder = mufuru.Recorder(labels=len(TOKENS))
        for batch in self._fixed["test"]:
            with torch.no_grad(), mufuru.tracing(model) as traces:
                model(batch.tokens)
            (layer,) = traces.values()
            recorder.add(layer[0], labels=batch.tokens)
        use = recorder.use()
        weight = [_row(weights) for weights in use.label_weight.tolist()]
        entropy = round(float(use.entropy.sum(0).mean()), 6)
        table = {"tokens": list(TOKENS), "ops": list(use.op_names), "weight": weight, "entropy": entropy}
        return {"operation_weights": table}


def _row(weights: list[float]) -> list[float] | None:
    """Rounded, as more digits than these differ between kernels; JSON knows no NaN."""
    return None if math.isnan(weights[0]) else [round(weight, 6) for weight in weights]
