"""Use of a trained tagger on new sentences: labels of their tokens, and the explorer's view."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_packed_sequence

from mufuru.experiments.data import DataError, tagged
from mufuru.experiments.data.lines import ending, read_each
from mufuru.experiments.data.text import CUTS
from mufuru.experiments.tasks.classify.use import Predictor as LabelPredictor
from mufuru.experiments.tasks.classify.use import SequenceReader, batched
from mufuru.experiments.tasks.task import HowToRead, StepPrediction, Steps

TABLES = (".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".conll", ".conllu", ".ts")
"""Endings of files that have more than a text in each line."""


class Tags(NamedTuple):
    """The tokens of a sentence, the likeliest label of each, and its probability."""

    tokens: list[str]
    labels: list[str]
    probabilities: list[float]


class Predictor(LabelPredictor):
    """A tagger for `mufuru predict`; no prediction depends on the others of its batch."""

    def read(self, line: str) -> list[str]:
        """Return the tokens of a line of text, or of a JSON list of tokens."""
        if not line.lstrip().startswith('["'):
            return CUTS[self.config.data.cut](line)
        try:
            tokens = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"expected a JSON list of tokens ({error})") from None
        if not all(isinstance(token, str) and token for token in tokens):
            raise DataError("expected a JSON list of tokens, none of them empty")
        return list(tokens)

    def open(self, file: Path | None, how: HowToRead) -> tuple[Iterator[list[str]], str]:
        """Return the sentences of a file, without labels: in the format of training if its name has the same ending,
        else, as on standard input, a text in each line; a table is refused."""
        if how != HowToRead(how.layout):
            raise DataError("a tagger reads files as in training: leave --format, --text-column and --labels out")
        data, own = self.config.data, "" if file is None else ending(file)
        trained = ending(Path(data.data or ""))
        form = data.format or tagged.guess_format(Path(data.data or ""))
        if file is None or (own != trained and own not in TABLES):
            return read_each(file, self.read), ""
        if own != trained:
            raise DataError(f"{file}: expected sentences as in training, in a file whose name ends in {trained}, or a "
                            "text in each line of a .txt file")  # fmt: skip
        sentences = tagged.read(file, form, data.token_column, data.label_column)
        return iter([sentence.tokens for sentence in sentences]), f"{file.name}: {form}, {len(sentences):,} sentences"

    @torch.no_grad()
    def predict(self, sequences: list[Any]) -> list[Any]:
        inputs, order = batched(sequences, self.meaning, self.config)
        logits, _ = pad_packed_sequence(self.model(inputs), batch_first=True)
        best, labels = logits[order].double().softmax(2).max(2)
        rows = zip(sequences, labels.tolist(), best.tolist(), strict=True)
        names = self.meaning.labels
        return [Tags(tokens, [names[label] for label in row[: len(tokens)]], sure[: len(tokens)])
                for tokens, row, sure in rows]  # fmt: skip


class TagReader(SequenceReader):
    """Reader of sentences for the explorer: the label of every token, by a model that has read the whole sentence
    where it reads from both ends."""

    predictor = Predictor

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        return self.predictions(self.model.output(outputs))
