"""The classification task: sequences in, the probability of each label out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mufuru.experiments.data import labelled as labelled_files
from mufuru.experiments.data import sst
from mufuru.experiments.data.examples import Labelled
from mufuru.experiments.settings import SettingError, choose
from mufuru.experiments.tasks.classify import inspection
from mufuru.experiments.tasks.classify.batches import POOL, Batch, Encoded, encode, in_order, shuffled
from mufuru.experiments.tasks.classify.config import ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.model import Classifier, Standardise
from mufuru.experiments.tasks.task import Batches, State, Step, Totals
from mufuru.experiments.tasks.words import Meaning, build_vocabulary, word_vectors

EVALUATION_BATCH = 100
"""Sequences at a time where nothing is trained; no metric depends on it."""
SPLITS = ("train", "valid", "test")


class ClassifyTask:
    """Sequences, model and metrics of one run."""

    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: ClassifyConfig, labelled: Labelled | None = None) -> None:
        self.config = config
        self.labelled = load(config.data) if labelled is None else labelled
        if self.labelled.kind == "numeric" and config.vectors is not None:
            raise SettingError("vectors are for words, and the data is numeric: leave vectors out")
        self.description = self.labelled.description
        self.vectors = word_vectors(config, config.data.data_dir, self._all_words())
        self.meaning = self._meaning()
        self._encoded = {split: self._encode(split) for split in SPLITS}
        self._fixed = {
            split: Batches(encoded.batch, in_order(encoded.lengths, EVALUATION_BATCH))
            for split, encoded in self._encoded.items()
            if split != "train"
        }

    @property
    def fingerprint(self) -> str:
        """The sha256 of the data and the words that are known of it, wherever they were read from."""
        return hashlib.sha256(json.dumps([self.labelled.fingerprint, self.meaning.to_json()]).encode()).hexdigest()

    def build(self) -> Classifier:
        model = Classifier(self.config, self.meaning, self.fingerprint)
        if isinstance(model.embedding, Standardise):
            model.embedding.measure(self._encoded["train"].steps)
        elif self.vectors and self.meaning.vocabulary:
            rows = self.meaning.vocabulary.encode(self.vectors.found)
            with torch.no_grad():
                model.get_parameter("embedding.weight")[rows] = self.vectors.matrix
        return model

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """All batches; those of "train" in the order of the epoch."""
        if split in self._fixed:
            return self._fixed[split]
        encoded = choose("split", split, self._encoded)
        size, pool = self.config.training.batch_size, POOL if self.config.bucketing else 1
        return Batches(encoded.batch, shuffled(encoded.lengths, size, "classify", self.config.seed, epoch, pool=pool))

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.inputs)
        loss = cross_entropy(logits, batch.targets, reduction="sum")
        said = logits.detach().argmax(1)
        if batch.targets.is_floating_point():  # as right as the share of the label that was said
            return Step(loss, len(batch.targets), sums={"right": batch.targets.gather(1, said.unsqueeze(1)).sum()})
        sums: dict[str, Tensor | float] = {"right": (said == batch.targets).sum()}
        if not model.training:
            sums |= _confusion(said, batch.targets, logits.size(1))
        return Step(loss, len(batch.targets), sums=sums)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Loss and accuracy, and in evaluation, unless there are shares, the mean of the classes' F1 scores."""
        metrics = {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}
        return metrics | ({"macro_f1": _macro_f1(totals.sums)} if "said 0" in totals.sums else {})

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """A description of the data; and a MuFuRU's operations over validation: `inspection.operation_weights` by class
        of the word it reads, and in "sentences" `inspection.walk`, where there are words."""
        facts: dict[str, Any] = {"data": self.description}
        if self.config.cell.cell != "mufuru":
            return facts
        words = None if self.config.data.cut == "characters" else self.meaning.vocabulary
        facts |= inspection.operation_weights(model, self._fixed["valid"], words)
        if words is not None:
            valid = self.labelled.valid
            facts["sentences"] = inspection.walk(model, self.meaning, self.config, valid.tokens, valid.targets)
        return facts

    def _all_words(self) -> dict[str, None]:
        """Each once, in the order of the data."""
        return {word: None for split in SPLITS for word in self._words(split)}

    def _words(self, split: str) -> Iterator[str]:
        """The words of a split as they are looked up, one by one."""
        for text in getattr(self.labelled, split).tokens:
            text = text[: self.config.max_length]
            yield from map(str.lower, text) if self.config.lowercase else text

    def _meaning(self) -> Meaning:
        labels = self.labelled.labels
        if self.labelled.kind == "numeric":
            return Meaning(labels, None, self.labelled.channels)
        known = self.vectors.found if self.vectors else ()
        return Meaning(labels, build_vocabulary(Counter(self._words("train")), known, self.config.min_count))

    def _encode(self, split: str) -> Encoded:
        examples = getattr(self.labelled, split)
        return encode(examples.tokens, examples.values, examples.targets, self.meaning, self.config)


def load(data: DataConfig) -> Labelled:
    """The labelled sequences that the settings name."""
    if data.data is None:
        treebank = sst.load(None if data.data_dir is None else Path(data.data_dir))
        return sst.examples(
            treebank, data.classes, data.phrases, distinct=data.distinct_phrases, graded=data.graded, lower=False
        )
    return labelled_files.load(
        Path(data.data),
        valid=None if data.valid_data is None else Path(data.valid_data),
        test=None if data.test_data is None else Path(data.test_data),
        text=data.text_column,
        label=data.label_column,
        split=data.split_column,
        format=data.format,
        cut=data.cut,
        lower=False,
        held_out=data.held_out,
        seed=data.split_seed,
    )


def _confusion(said: Tensor, targets: Tensor, classes: int) -> dict[str, Tensor | float]:
    """By class the number of predictions, of targets, and of right predictions."""
    counts = {"said": said, "true": targets, "both": said[said == targets]}
    return {
        f"{name} {number}": float(count)
        for name, labels in counts.items()
        for number, count in enumerate(torch.bincount(labels, minlength=classes).tolist())
    }


def _macro_f1(sums: dict[str, float]) -> float:
    """The mean F1 of the classes; one that neither occurs nor is said has none."""
    scores = []
    for name, said in sums.items():
        if name.startswith("said "):
            number = name.removeprefix("said ")
            either = said + sums[f"true {number}"]
            scores += [2 * sums[f"both {number}"] / either] if either else []
    return sum(scores) / len(scores)
