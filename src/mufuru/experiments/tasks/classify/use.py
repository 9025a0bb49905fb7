"""Use of a trained classifier on new sequences: labels of lines of text or numbers, and the explorer's view."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.labelled import values
from mufuru.experiments.data.tokens import tokenise
from mufuru.experiments.tasks.classify.batches import encode
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.task import Prediction, Reader, StepPrediction, Steps, prefixes, ranked, unknown_note

Sequence: TypeAlias = list[str] | Tensor
"""The words or characters of a text, or (steps, channels) numbers."""


class Predictor:
    """`read` turns a line into an argument of `predict`; no prediction depends on the others of its batch."""

    def __init__(self, model: Classifier, config: ClassifyConfig) -> None:
        self.model, self.config, self.meaning = model.eval(), config, model.meaning

    def read(self, line: str) -> Sequence:
        """The words or characters of a line, or (steps, channels) its numbers."""
        if self.meaning.vocabulary is not None:
            return tokenise(line, self.config.data.cut, lower=False)
        numbers = values(line)
        if numbers.size(1) != self.meaning.channels:
            wanted = f"{self.meaning.channels} number{'' if self.meaning.channels == 1 else 's'}"
            raise DataError(f"expected {wanted} a step, got {numbers.size(1)}")
        return numbers

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


class SequenceReader(Reader):
    """The explorer's, of texts and of series of numbers: the label so far."""

    @property
    def takes(self) -> str:  # type: ignore[override]
        if self.model.meaning.vocabulary is None:
            return "series"
        return "characters" if self.config.data.cut == "characters" else "words"

    @property
    def labels(self) -> tuple[str, ...]:
        labels: tuple[str, ...] = self.model.meaning.labels
        return labels

    def steps(self, text: str) -> Steps:
        sequence = Predictor(self.model, self.config).read(one_line(text) if self.takes == "series" else text)
        if not len(sequence):
            raise DataError("the text has no words: type some")
        most = self.config.max_length
        notes = [] if most is None or len(sequence) <= most else [f"The model reads the first {most} steps alone."]
        texts, numbers = ([sequence], []) if isinstance(sequence, list) else ([], [sequence])
        encoded = encode(texts, numbers, torch.zeros(1), self.model.meaning, self.config)
        return Steps(shown(sequence)[:most], encoded.steps, notes + self.unknown(sequence))

    def unknown(self, sequence: Sequence) -> list[str]:
        """A note of the words that the model does not know."""
        vocabulary = self.model.meaning.vocabulary
        if vocabulary is None or not isinstance(sequence, list):
            return []
        looked_up = {word: word.lower() if self.config.lowercase else word for word in sequence}
        return unknown_note((word for word, form in looked_up.items() if form not in vocabulary), vocabulary.unknown)

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        if self.both_ways:
            logits = self.model(prefixes(steps.x))
        elif self.config.pooling == "last":
            logits = self.model.logits(outputs.flip(0))
        else:
            # the outputs of a beginning are the first outputs: only the pooling has to be done for each
            logits = self.model.logits(self.model.pooling(prefixes(outputs), outputs.flip(0)))
        tops = ranked(logits.flip(0).double().softmax(1), self.labels)
        return [StepPrediction(top) for top in tops]


def shown(sequence: Sequence) -> list[str]:
    """The steps of a sequence as text."""
    if isinstance(sequence, list):
        return sequence
    return [" ".join(f"{value:.4g}" for value in step) for step in sequence.tolist()]


def one_line(text: str) -> str:
    """A series that was pasted as a column, as a row."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    separator = next((mark for mark in ("\t", ",") if mark in text), " ")
    return separator.join(line.strip(separator) for line in lines)
