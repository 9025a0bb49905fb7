"""The propositional-logic task: formulae in, whether they are true out; and the explorer's reader of formulae."""

import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import isnan
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import mufuru
from mufuru.experiments.draws import Draws, permutation
from mufuru.experiments.tasks.cells import traced
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, Formula, FormulaError, parse, sample_splits, sample_unique
from mufuru.experiments.tasks.logic.model import Batch, FormulaReader, encode
from mufuru.experiments.tasks.logic.probes import probes
from mufuru.experiments.tasks.task import KEPT, Reader, State, Step, StepPrediction, Steps, Totals, packed_rows, ranked

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
        """Return all batches; those of "train" in the order of the epoch."""
        if split in self._fixed:
            return self._fixed[split]
        encoded = self._encoded[split]
        order = permutation(len(encoded.values), "logic", "order", self.config.seed, epoch)
        return encoded.batches(order, self.config.training.batch_size)

    def rows(self, batch: Batch) -> int:
        return len(batch.values)

    def share(self, batch: Batch, rows: slice) -> Batch:
        """Return some formulae."""
        return Batch(packed_rows(batch.tokens, rows), batch.values[rows])

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.tokens)
        loss = binary_cross_entropy_with_logits(logits, batch.values, reduction="sum")
        right = ((logits.detach() > 0) == (batch.values > 0.5)).sum()
        return Step(loss, len(batch.values), sums={"right": right})

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}

    def inspect(self, model: Any) -> dict[str, Any]:
        """Return MuFuRU's mean operation weight by the token it reads, over the test formulae; {} for other cells.

        `{"operation_weights": {"tokens", "ops", "weight": [[per operation] per token], "entropy"}}`, of the first layer
        read forwards. A token that no test formula has gets None for its row; entropy is that of the choice, in nats.
        With `probes` also what `probes.probes` finds.
        """
        more = probes(model, self._encoded["test"], self.config.seed) if self.config.probes else {}
        if self.config.cell.cell != "mufuru":
            return more
        recorder = mufuru.Recorder(labels=len(TOKENS))
        for batch in self._fixed["test"]:
            recorder.add(traced(model, batch.tokens)[0], labels=batch.tokens)
        use = recorder.use()
        # more digits differ between kernels; JSON knows no NaN
        weight = [None if isnan(row[0]) else [round(value, 6) for value in row] for row in use.label_weight.tolist()]
        entropy = round(float(use.entropy.sum(0).mean()), 6)
        table = {"tokens": list(TOKENS), "ops": list(use.op_names), "weight": weight, "entropy": entropy}
        return {"operation_weights": table, **more}


class LogicReader(Reader):
    """Reader for the explorer: whether a formula is true so far, and whether the model knows."""

    takes = "formula"
    # without mul, the model that comes with the explorer says true to the first
    examples = (
        "0 1 XNOR 1 OR 1 XOR",
        "1 0 AND 0 OR 1 if/then",
        "0 1 XOR 1 XOR 0 XOR 1 XOR 1 XOR",
        "1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ",
        "1 0 ∨ 1 ∧ 0 ⊕ 1 ⇒ 0 ⇔",
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    @cached_property
    def corpus(self) -> tuple[str, ...]:
        """Validation formulae, drawn as for the run."""
        wanted = replace(self.config.splits["valid"], count=min(KEPT, self.config.valid_formulae))
        return tuple(map(str, sample_unique(wanted, Draws("logic", "valid", self.config.seed))))

    def steps(self, text: str) -> Steps:
        tokens = unfinished(text)
        notes = [] if len(tokens) % 2 else ["The formula is not finished: a gate is missing after the last value."]
        return Steps([TOKENS[token] for token in tokens], torch.tensor(tokens), notes)

    def embed(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.model.embed(x)
        return embedded

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        logits = self.answers(steps) if self.both_ways else self.model.output(outputs).squeeze(1)
        true = logits.double().sigmoid()
        tops = ranked(torch.stack((1 - true, true), 1), LABELS)
        beginnings = [Formula(tuple(steps.x[: place + 1].tolist())) for place in range(len(tops))]
        # the last gate is missing where the number of tokens is even
        truths = [LABELS[formula.value] if len(formula.tokens) % 2 else None for formula in beginnings]
        return [StepPrediction(top, truth) for top, truth in zip(tops, truths, strict=True)]


def unfinished(text: str) -> tuple[int, ...]:
    """Return the tokens of a formula whose last gate may still be missing, or be half typed."""
    try:
        return parse(text).tokens
    except FormulaError:
        for known in (text, without_beginning(text)):
            with suppress(FormulaError):
                return parse(known + " AND").tokens[:-1]
        raise


def without_beginning(text: str) -> str:
    """Return the text without its last word, if that may become the name of a gate."""
    # matched only from the start of a word: from each of its letters, a long word would take quadratic time
    last = re.search(r"(?<![\w/])[\d_/]*([^\W\d_][\w/]*)$", text)
    typing = last is not None and any(name.lower().startswith(last[1].lower()) for name in TOKENS)
    return text[: last.start(1)] if last is not None and typing else text
