"""The classification task: sequences in, the probability of each label out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mufuru.experiments.data.examples import Labelled
from mufuru.experiments.settings import SettingError, choose
from mufuru.experiments.tasks.classify import inspection, sentences, sources
from mufuru.experiments.tasks.classify.batches import POOL, Batch, Batches, Encoded, in_order, shuffled
from mufuru.experiments.tasks.classify.config import ClassifyConfig
from mufuru.experiments.tasks.classify.encoding import encode
from mufuru.experiments.tasks.classify.meaning import Meaning, build_vocabulary
from mufuru.experiments.tasks.classify.model import Classifier, Standardise
from mufuru.experiments.tasks.task import State, Step, Totals
from mufuru.experiments.tasks.words import word_vectors

EVALUATION_BATCH = 100
"""Sequences at a time where nothing is trained; no metric depends on it."""
SPLITS = ("train", "valid", "test")


class ClassifyTask:
    """Sequences, model and metrics of one run."""

    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: ClassifyConfig, labelled: Labelled | None = None) -> None:
        self.config = config
        self.labelled = sources.load(config.data) if labelled is None else labelled
        if self.labelled.kind == "numeric" and config.vectors is not None:
            raise SettingError("vectors are for words, and the data is numeric: leave vectors out")
        self.description = self.labelled.description
        self.vectors = word_vectors(config, config.data.data_dir, self._all_words())
        self.meaning = self._meaning()
        self._encoded = {split: self._encode(split) for split in SPLITS}
        self._fixed = {
            split: Batches(encoded, in_order(encoded.lengths, EVALUATION_BATCH))
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
        """All batches; those of "train" in an order of the epoch's own."""
        if split in self._fixed:
            return self._fixed[split]
        encoded = choose("split", split, self._encoded)
        size, pool = self.config.training.batch_size, POOL if self.config.bucketing else 1
        return Batches(encoded, shuffled(encoded.lengths, size, "classify", self.config.seed, epoch, pool=pool))

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.inputs)
        loss = cross_entropy(logits, batch.targets, reduction="sum")
        found = logits.detach().argmax(1)
        if batch.targets.is_floating_point():  # as right as the share of what is said
            return Step(loss, len(batch.targets), sums={"right": batch.targets.gather(1, found.unsqueeze(1)).sum()})
        sums: dict[str, Tensor | float] = {"right": (found == batch.targets).sum()}
        if not model.training:
            sums |= _confusion(found, batch.targets, logits.size(1))
        return Step(loss, len(batch.targets), sums=sums)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Loss and accuracy, and in evaluation, unless there are shares, the mean of the classes' F1 scores."""
        found = {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}
        return found | ({"macro_f1": _macro_f1(totals.sums)} if "said 0" in totals.sums else {})

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """What the data is; and what a MuFuRU does with it, over validation: `inspection.operation_weights` by class of
        the word it reads, and in "sentences" `sentences.walk`, where there are words."""
        found: dict[str, Any] = {"data": self.description}
        if self.config.cell.cell != "mufuru":
            return found
        words = None if self.config.data.cut == "characters" else self.meaning.vocabulary
        found |= inspection.operation_weights(model, self._fixed["valid"], words)
        if words is not None:
            valid = self.labelled.valid
            found["sentences"] = sentences.walk(model, self.meaning, self.config, valid.tokens, valid.targets)
        return found

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


def _confusion(found: Tensor, targets: Tensor, classes: int) -> dict[str, Tensor | float]:
    """By class: how often it was said, how often it was true, and both at once."""
    counts = {"said": found, "true": targets, "both": found[found == targets]}
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
