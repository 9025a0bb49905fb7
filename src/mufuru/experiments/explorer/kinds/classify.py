"""Classifiers of texts and of series of numbers: the label so far."""

from __future__ import annotations

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.explorer.kinds.reader import Prediction, Reader, Steps, prefixes, ranked
from mufuru.experiments.tasks.classify.encoding import encode
from mufuru.experiments.tasks.classify.predictor import Predictor, Sequence


class SequenceReader(Reader):
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
        return Steps(self.shown(sequence)[:most], encoded.steps, notes + self.unknown(sequence))

    def shown(self, sequence: Sequence) -> list[str]:
        if isinstance(sequence, list):
            return sequence
        return [" ".join(f"{value:.4g}" for value in step) for step in sequence.tolist()]

    def unknown(self, sequence: Sequence) -> list[str]:
        """A note of the words that the model does not know."""
        vocabulary = self.model.meaning.vocabulary
        if vocabulary is None or not isinstance(sequence, list):
            return []
        looked_up = {word: word.lower() if self.config.lowercase else word for word in sequence}
        missing = [word for word, form in looked_up.items() if form not in vocabulary]
        return [f"Not in the vocabulary, read as {vocabulary.unknown}: {', '.join(missing)}."] if missing else []

    def outputs(self, steps: Steps) -> Tensor:
        outputs, _ = self.layer(self.model.embedding(steps.x).unsqueeze(1))
        rows: Tensor = outputs[:, 0]
        return rows

    def predict(self, steps: Steps, outputs: Tensor) -> list[Prediction]:
        if self.both_ways:
            logits = self.model(prefixes(steps.x))
        elif self.config.pooling == "last":
            logits = self.logits(outputs.flip(0))
        else:
            # the outputs of a beginning are the first outputs: only the pooling has to be done for each
            logits = self.logits(self.model.pooling(prefixes(outputs), outputs.flip(0)))
        tops = ranked(logits.flip(0).double().softmax(1), self.labels)
        return [Prediction(top) for top in tops]

    def logits(self, pooled: Tensor) -> Tensor:
        """(steps, classes): of two classes the model has the second one's logit alone."""
        found: Tensor = self.model.output(pooled)
        return found if found.size(1) > 1 else torch.cat((torch.zeros_like(found), found), 1)


def one_line(text: str) -> str:
    """A series that was pasted as a column, as a row."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    separator = next((mark for mark in ("\t", ",") if mark in text), " ")
    return separator.join(line.strip(separator) for line in lines)
