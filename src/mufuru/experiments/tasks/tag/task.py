"""The tagging task: sentences in, a label for each token out; accuracy, and the F1 of spans by seqeval."""

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from mufuru.experiments.data import DataError, tagged
from mufuru.experiments.data.examples import Examples, Labelled
from mufuru.experiments.data.text import CUTS
from mufuru.experiments.tasks.classify.model import Batch, Encoded
from mufuru.experiments.tasks.classify.task import LabelledTask
from mufuru.experiments.tasks.tag.model import TagConfig, TaggedFiles, Tagger, signatures
from mufuru.experiments.tasks.task import HowToRead, State, Step, Totals, packed_rows

Spans = set[tuple[int, str, int, int]]
"""Spans by sentence, kind, first and last token."""


class TokenTargets(Encoded):
    """Sentences whose steps are (ids of words, ids of labels)."""

    def batch(self, which: Tensor) -> Batch:
        both = super().batch(which)
        words, labels = both.inputs.data.unbind(1)
        return Batch(both.inputs._replace(data=words), labels, both.which)


class TagTask(LabelledTask):
    """Sentences, model and metrics of one run."""

    metric: str = "accuracy"
    higher_is_better = True
    model = Tagger

    def __init__(self, config: TagConfig, labelled: Labelled | None = None) -> None:
        data = load(config.data) if labelled is None else labelled
        spans = is_bio(data.labels)
        if config.metric == "span_f1" and not spans:
            raise DataError(f"the metric span_f1 is for BIO labels, and the labels are {', '.join(data.labels[:5])}"
                               ": leave it out")  # fmt: skip
        self.metric = config.metric or ("span_f1" if spans else "accuracy")
        self.find_spans = span_finder() if self.metric == "span_f1" else None
        super().__init__(config, data)

    def texts(self, split: str) -> list[list[str]]:
        """Return the words; in training with the signatures of rare ones, so that these have embeddings."""
        texts = super().texts(split)
        if split != "train":
            return texts
        read = str.lower if self.config.lowercase else str
        counts = Counter(read(word) for text in texts for word in text)
        rare = (word for text in texts for word in text if counts[read(word)] < self.config.min_count)
        return [*texts, *(list(dict.fromkeys(signatures(word))) for word in rare)]

    def written(self, sequence: list[str]) -> str:
        """Return the tokens of a sentence as a text, or as JSON where the text would be cut otherwise."""
        text = super().written(sequence)
        return text if CUTS[self.config.data.cut](text) == sequence else json.dumps(sequence, ensure_ascii=False)

    def encode(self, examples: Examples) -> Encoded:
        words = super().encode(examples)
        both = torch.stack((words.steps, examples.targets), 1)
        return TokenTargets(both, words.lengths, torch.arange(len(words.lengths)))

    def share(self, batch: Batch, rows: slice) -> Batch:
        """Return some sentences."""
        labels = packed_rows(PackedSequence(batch.targets, batch.inputs.batch_sizes), rows)
        return Batch(packed_rows(batch.inputs, rows), labels.data, batch.which[rows])

    def step(self, model: Any, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.inputs).data
        loss = cross_entropy(logits, batch.targets, reduction="sum")
        predicted = logits.detach().argmax(1)
        sums: dict[str, Tensor | float] = {"right": (predicted == batch.targets).sum()}
        if self.find_spans and not model.training:
            wanted, found = (self.spans(labels, batch.inputs.batch_sizes) for labels in (batch.targets, predicted))
            sums |= {"spans": len(wanted), "found": len(found), "found right": len(wanted & found)}
        return Step(loss, len(batch.targets), sums=sums)

    def spans(self, labels: Tensor, sizes: Tensor) -> Spans:
        """Return the spans of packed labels."""
        assert self.find_spans is not None
        padded, lengths = pad_packed_sequence(PackedSequence(labels, sizes), batch_first=True)
        rows = zip(padded.tolist(), lengths.tolist(), strict=True)
        names = [[self.meaning.labels[label] for label in row[:length]] for row, length in rows]
        return {(row, *span) for row, some in enumerate(names) for span in self.find_spans(some)}

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return loss and accuracy, and in evaluation of BIO labels precision, recall and F1 of spans."""
        metrics = {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}
        if "spans" not in totals.sums:
            return metrics
        wanted, found, right = (totals.sums[name] for name in ("spans", "found", "found right"))
        scores = {
            "span_precision": (right, found),
            "span_recall": (right, wanted),
            "span_f1": (2 * right, found + wanted),
        }
        return metrics | {name: part / whole if whole else 0.0 for name, (part, whole) in scores.items()}


class NewSentences(TagTask):
    """Another file for a trained tagger, in the format of training: one part, "data"."""

    def __init__(self, model: Tagger, config: TagConfig, file: Path, how: HowToRead) -> None:
        if how.format or how.text_column:
            raise DataError("a tagger reads files as in training: leave --format and --text-column out")
        self.config, self.meaning, data = config, model.meaning, config.data
        self.find_spans = span_finder() if is_bio(self.meaning.labels) and config.metric != "accuracy" else None
        form = data.format or tagged.guess_format(file)
        sentences = tagged.read(file, form, data.token_column, how.label_column or data.label_column)
        self.take(tagged.encoded(sentences, self.meaning.labels, file), f"{file.name}: {form}")


def is_bio(labels: tuple[str, ...]) -> bool:
    """Return whether labels mark the beginnings and insides of spans, in any of BIO's dialects."""
    marked = [label for label in labels if label != "O"]
    return bool(marked) and all(re.match("[BIESLU]-.", label) for label in marked)


def span_finder() -> Callable[[list[str]], list[tuple[str, int, int]]]:
    try:
        module = importlib.import_module("seqeval.metrics.sequence_labeling")
    except ModuleNotFoundError as error:
        raise DataError(f"the F1 of spans needs {error.name}, which is not installed: `pip install '.[tag]'` in the "
                           "folder of mufuru, or select weights by --metric accuracy") from None  # fmt: skip
    finder: Callable[[list[str]], list[tuple[str, int, int]]] = module.get_entities
    return finder


def load(data: TaggedFiles) -> Labelled:
    if data.data is None:
        raise DataError("tag needs sentences and their labels: name the file with --data")
    return tagged.load(data.data, token=data.token_column, label=data.label_column, format=data.format, **data.parts)
