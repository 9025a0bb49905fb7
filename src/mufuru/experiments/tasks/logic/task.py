"""The propositional-logic task: formulae in, whether they are true out; and the explorer's reader of formulae."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import mufuru
from mufuru.experiments.draws import permutation
from mufuru.experiments.settings import choose
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, Formula, FormulaError, parse, sample_splits
from mufuru.experiments.tasks.logic.model import Batch, FormulaReader, encode
from mufuru.experiments.tasks.task import Reader, State, Step, StepPrediction, Steps, Totals, prefixes, ranked

EVALUATION_BATCH = 500
"""Formulae at a time where nothing is trained; no metric depends on it."""
LABELS = ("false", "true")


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
        """All batches; those of "train" in the order of the epoch."""
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


class LogicReader(Reader):
    """The explorer's: whether a formula is true so far, and whether the model knows."""

    takes = "formula"
    examples = (
        "1 0 AND 0 OR 1 if/then",
        "0 1 XOR 1 XOR 0 XOR 1 XOR 1 XOR",
        "1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ",
        "1 0 ∨ 1 ∧ 0 ⊕ 1 ⇒ 0 ⇔",
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    def steps(self, text: str) -> Steps:
        tokens = unfinished(text)
        notes = [] if len(tokens) % 2 else ["The formula is not finished: a gate is missing after the last value."]
        return Steps([TOKENS[token] for token in tokens], torch.tensor(tokens), notes)

    def embed(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.model.embed(x)
        return embedded

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        logits = self.model(prefixes(steps.x)).flip(0) if self.both_ways else self.model.output(outputs).squeeze(1)
        true = logits.double().sigmoid()
        tops = ranked(torch.stack((1 - true, true), 1), LABELS)
        tokens = tuple(steps.x.tolist())
        return [StepPrediction(top, truth(tokens[: place + 1])) for place, top in enumerate(tops)]


def unfinished(text: str) -> tuple[int, ...]:
    """The tokens of a formula whose last gate may still be missing, or be half typed."""
    try:
        return parse(text).tokens
    except FormulaError:
        for known in (text, without_beginning(text)):
            with suppress(FormulaError):
                return parse(known + " AND").tokens[:-1]
        raise


def without_beginning(text: str) -> str:
    """The text without its last word, if that may become the name of a gate."""
    # begun only where a word does: from each of its letters, a long word would take the square of its length
    last = re.search(r"(?<![\w/])[\d_/]*([^\W\d_][\w/]*)$", text)
    typing = last is not None and any(name.lower().startswith(last[1].lower()) for name in TOKENS)
    return text[: last.start(1)] if last is not None and typing else text


def truth(tokens: tuple[int, ...]) -> str | None:
    """The label of a formula's value; None where its last gate is missing."""
    return LABELS[Formula(tokens).value] if len(tokens) % 2 else None
