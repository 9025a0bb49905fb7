"""Use a trained classifier on new sequences, as people write them: a line of text, or a row of numbers."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.labelled import values
from mufuru.experiments.data.tokens import tokenise
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.encoding import encode
from mufuru.experiments.tasks.classify.model import Classifier

Sequence: TypeAlias = list[str] | Tensor
"""The words or characters of a text, or (steps, channels) numbers."""


class Prediction(NamedTuple):
    """The likeliest label, and the probability of each."""

    label: str
    probabilities: dict[str, float]


class Predictor:
    """`read` turns a line into what `predict` takes; no prediction depends on what else is predicted with it."""

    def __init__(self, model: Classifier, config: ClassifyConfig) -> None:
        self.model, self.config, self.meaning = model.eval(), config, model.meaning

    def read(self, line: str) -> Sequence:
        """The words or characters of a line, or (steps, channels) its numbers."""
        if self.meaning.vocabulary is not None:
            return tokenise(line, self.config.data.cut, lower=False)
        found = values(line)
        if found.size(1) != self.meaning.channels:
            wanted = f"{self.meaning.channels} number{'' if self.meaning.channels == 1 else 's'}"
            raise DataError(f"expected {wanted} a step, got {found.size(1)}")
        return found

    @torch.no_grad()
    def predict(self, sequences: list[Sequence]) -> list[Prediction]:
        """The predictions for some sequences, in their order."""
        if not sequences:
            return []
        texts = [sequence for sequence in sequences if isinstance(sequence, list)]
        numbers = [sequence for sequence in sequences if isinstance(sequence, Tensor)]
        count = torch.arange(len(sequences))
        batch = encode(texts, numbers, count, self.meaning, self.config).batch(count)
        # a batch has the longest first
        logits = self.model(batch.inputs)[batch.which.argsort()]
        return [self._prediction(row) for row in logits.double().softmax(1)]

    def _prediction(self, probabilities: Tensor) -> Prediction:
        labels = self.meaning.labels
        named = dict(zip(labels, probabilities.tolist(), strict=True))
        return Prediction(labels[int(probabilities.argmax())], named)
