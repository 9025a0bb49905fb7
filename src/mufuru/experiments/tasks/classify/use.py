"""Use of a trained classifier on new sequences: labels of lines of text or numbers, and the explorer's view."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.data import DataError, alike
from mufuru.experiments.data.layout import Layout
from mufuru.experiments.data.readers import values
from mufuru.experiments.data.text import CUTS
from mufuru.experiments.tasks.classify.model import encode
from mufuru.experiments.tasks.task import HowToRead, Prediction, Reader, StepPrediction, Steps, prefixes, ranked
from mufuru.experiments.tasks.words import Meaning, unknown_note


class Predictor:
    """A classifier for `mufuru predict`; no prediction depends on the others of its batch."""

    def __init__(self, model: Any, config: Any) -> None:
        self.model, self.config, self.meaning = model.eval(), config, model.meaning

    def read(self, line: str) -> list[str] | Tensor:
        """Return the words or characters of a line, or (steps, channels) its numbers."""
        if self.meaning.vocabulary is not None:
            return CUTS[self.config.data.cut](line)
        numbers = values(line)
        if numbers.size(1) != self.meaning.channels:
            wanted = f"{self.meaning.channels} number{'' if self.meaning.channels == 1 else 's'}"
            raise DataError(f"expected {wanted} a step, got {numbers.size(1)}")
        return numbers

    def open(self, file: Path | None, how: HowToRead) -> tuple[Iterator[Any], str]:
        """Return the sequences of a file, read as the training file was, and how they were read."""
        known = known_of(self.model, self.config, how)
        data = alike.read(file, known, labels=how.labels, format=how.format, text=how.text_column)
        return (example.sequence for example in data.examples), data.note

    @torch.no_grad()
    def predict(self, sequences: list[Any]) -> list[Prediction]:
        if not sequences:
            return []
        inputs, order = batched(sequences, self.meaning, self.config)
        labels, probabilities = self.meaning.labels, self.model(inputs)[order].double().softmax(1)
        return [Prediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)))
                for row in probabilities]  # fmt: skip


def batched(sequences: list[Any], meaning: Meaning, config: Any) -> tuple[PackedSequence, Tensor]:
    """Return all sequences as a batch, which has the longest first, and the place of each in it."""
    rows = torch.arange(len(sequences))
    batch = encode(sequences, rows, meaning, config).batch(rows)
    return batch.inputs, batch.which.argsort()


def known_of(model: Any, config: Any, how: HowToRead) -> alike.Known:
    """Return the kind of input that a model reads; a run without a layout has the columns of its settings."""
    data, meaning = config.data, model.meaning
    columns = {"text": data.text_column, "label": data.label_column, "format": data.format}
    layout = Layout.from_json(how.layout or columns)
    words = meaning.vocabulary

    def knows(word: str) -> bool:
        return words is None or (word.lower() if config.lowercase else word) in words

    return alike.Known(layout, meaning.channels, meaning.labels, data.cut, knows)


class SequenceReader(Reader):
    """Reader of texts and series of numbers for the explorer: the label so far."""

    predictor: ClassVar[type[Predictor]] = Predictor
    """The class that reads a text."""

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
        sequence = self.predictor(self.model, self.config).read(one_line(text) if self.takes == "series" else text)
        if not len(sequence):
            raise DataError("the text has no words: type some")
        most = self.config.max_length
        notes = [] if most is None or len(sequence) <= most else [f"The model reads the first {most} steps alone."]
        x = encode([sequence], torch.zeros(1), self.model.meaning, self.config).steps
        if not isinstance(sequence, list):
            return Steps([" ".join(f"{value:.4g}" for value in step) for step in sequence[:most].tolist()], x, notes)
        vocabulary = self.model.meaning.vocabulary
        forms = zip(sequence, self.config.forms(sequence, vocabulary), strict=True)
        missing = (word for word, form in forms if form not in vocabulary or (form != word and form.startswith("<unk")))
        return Steps(sequence[:most], x, notes + unknown_note(missing))

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        if self.both_ways:
            logits = self.answers(steps)
        elif self.config.pooling == "last":
            logits = self.model.logits(outputs)
        else:
            # the outputs of a prefix are the first outputs: only the pooling is computed for each
            logits = self.model.logits(self.model.pooling(prefixes(outputs), outputs.flip(0))).flip(0)
        return self.predictions(logits)

    def predictions(self, logits: Tensor) -> list[StepPrediction]:
        """Return the predictions of (steps, outputs) of the model, by step."""
        return [StepPrediction(top) for top in ranked(logits.double().softmax(1), self.labels)]


def written(sequence: list[str] | Tensor, config: Any) -> str:
    """Return a sequence as a text that `Predictor.read` reads; numbers to six places, enough for display."""
    if isinstance(sequence, list):
        return ("" if config.data.cut == "characters" else " ").join(sequence)
    rows = [[float(f"{value:.6g}") for value in step] for step in sequence.tolist()]
    return " ".join(f"{value:g}" for (value,) in rows) if sequence.size(1) == 1 else json.dumps(rows)


def one_line(text: str) -> str:
    """Return a series that was pasted as a column as a row."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    separator = next((mark for mark in ("\t", ",") if mark in text), " ")
    return separator.join(line.strip(separator) for line in lines)
