"""The task of trees: parse trees in, the probability of each label of each phrase out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mufuru
from mufuru.experiments.data import DataError, sst
from mufuru.experiments.data.sst import Treebank
from mufuru.experiments.data.trees import LABELS, Tree
from mufuru.experiments.settings import choose
from mufuru.experiments.tasks.task import Batches, State, Step, Totals
from mufuru.experiments.tasks.trees import batches
from mufuru.experiments.tasks.trees.batches import UNLABELLED, Batch, Forest, Phrases
from mufuru.experiments.tasks.trees.config import TreebankConfig, TreesConfig
from mufuru.experiments.tasks.trees.model import TreeClassifier
from mufuru.experiments.tasks.words import CLASSES, Meaning, build_vocabulary, word_class, word_vectors

EVALUATION_BATCH = 100
"""Trees at a time where nothing is trained; no metric depends on it."""
SPLITS = ("train", "valid", "test")
PHRASE = "phrase"
"""The class of a left child of several words."""
NAMES = (*CLASSES, PHRASE)


class TreesTask:
    """Trees, model and metrics of one run.

    Training learns the label of every phrase that has one; elsewhere accuracy is that of whole sentences, neutral ones
    left out where there are two classes, as in the literature.
    """

    metric = "accuracy"
    higher_is_better = True

    def __init__(self, config: TreesConfig, treebank: Treebank | None = None) -> None:
        self.config = config
        treebank = load(config.data) if treebank is None else treebank
        self._phrases = {split: self._chosen(split, getattr(treebank, split)) for split in SPLITS}
        words = dict.fromkeys(word for split in SPLITS for word in self._words(split))
        self.vectors = word_vectors(config, config.data.data_dir, words)
        known = self.vectors.found if self.vectors else ()
        self._vocabulary = build_vocabulary(Counter(self._words("train")), known, config.min_count)
        self.meaning = Meaning(sst.LABELS[config.data.classes], self._vocabulary)
        self.forests: dict[str, Forest] = {
            split: batches.encode(some, self._vocabulary, config.lowercase) for split, some in self._phrases.items()
        }
        counts = [f"{len(self.forests[split]):,}" for split in SPLITS]
        self.description = (f"{treebank.name}, {config.data.classes} classes: trees of {counts[0]} sentences to train "
                            f"on, {counts[1]} for validation and {counts[2]} for the test")  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """The sha256 of the trees and the words that are known of them, wherever they were read from."""
        total = hashlib.sha256(json.dumps(self.meaning.to_json()).encode())
        for phrases in self._phrases.values():
            total.update(json.dumps(phrases).encode())
        return total.hexdigest()

    def build(self) -> TreeClassifier:
        model = TreeClassifier(self.config, self.meaning, self.fingerprint)
        if self.vectors:
            with torch.no_grad():
                model.embedding.weight[self._vocabulary.encode(self.vectors.found)] = self.vectors.matrix
        return model

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """All batches; those of "train" in the order of the epoch."""
        forest = choose("split", split, self.forests)
        if split != "train":
            return Batches(forest.batch, batches.in_order(len(forest), EVALUATION_BATCH))
        size, seed = self.config.training.batch_size, self.config.seed
        return Batches(forest.batch, batches.shuffled(len(forest), size, "trees", seed, epoch))

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.words, batch.levels)
        phrases = _right(logits, batch.targets)
        if model.training:
            loss = cross_entropy(logits, batch.targets, ignore_index=UNLABELLED, reduction="sum")
            return Step(loss, phrases[1], sums={"phrases right": phrases[0], "phrases": phrases[1]})
        logits, targets = logits[batch.roots], batch.targets[batch.roots]
        loss = cross_entropy(logits, targets, ignore_index=UNLABELLED, reduction="sum")
        right, count = _right(logits, targets)
        return Step(loss, count, sums={"right": right, "phrases right": phrases[0], "phrases": phrases[1]})

    def metrics(self, totals: Totals) -> dict[str, float]:
        """In training the loss of a phrase, in evaluation that of a sentence, and the accuracy of sentences; and the
        accuracy of phrases always."""
        metrics = {"loss": totals.mean("loss")} | ({"accuracy": totals.mean("right")} if "right" in totals.sums else {})
        return metrics | {"phrase_accuracy": totals.sums["phrases right"] / totals.sums["phrases"]}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """A description of the data; and TreeMuFuRU's mean weights by class of the left child, over validation."""
        facts: dict[str, Any] = {"data": self.description}
        if self.config.cell.cell == "lstm":
            return facts
        return facts | {"operation_weights": operation_weights(model, self.batches("valid"))}

    def _chosen(self, split: str, trees: Sequence[Tree]) -> list[Phrases]:
        """In training all trees with a label to learn, otherwise those of labelled sentences."""
        chosen = [batches.numbered(tree, self._target) for tree in trees]
        if split == "train":
            chosen = [phrases for phrases in chosen if any(target != UNLABELLED for target in phrases.targets)]
        else:
            chosen = [phrases for phrases in chosen if phrases.targets[-1] != UNLABELLED]
        if not chosen:
            raise DataError(f"no tree of {split} has a label other than neutral, which two classes leave out: give "
                            "more trees, or choose 5 classes")  # fmt: skip
        if all(phrases.targets[-1] == UNLABELLED for phrases in chosen):
            raise DataError(f"every sentence of {split} is neutral, which two classes leave out, so that none can be "
                            "measured: give more trees, or choose 5 classes")  # fmt: skip
        return chosen

    def _target(self, label: int) -> int:
        if self.config.data.classes == LABELS:
            return label
        return UNLABELLED if label == sst.NEUTRAL else int(label > sst.NEUTRAL)

    def _words(self, split: str) -> Iterator[str]:
        """The words of a split as they are looked up, one by one."""
        for phrases in self._phrases[split]:
            yield from map(str.lower, phrases.words) if self.config.lowercase else phrases.words


@torch.no_grad()
def operation_weights(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
    """`{"tokens", "counts", "ops", "weight", "entropy"}`: a row of mean weights for each class of a node's left child,
    which is where English has "not" and "very"; "ops" are the choices, such as keep_right.

    A left child of several words is a "phrase"; classes that the trees do not have are left out; `entropy` is that of
    the choice, in nats.
    """
    if not isinstance(model, TreeClassifier) or not isinstance(unit := model.unit, mufuru.TreeMuFuRU):
        raise TypeError(f"expected a classifier with a TreeMuFuRU, got {model}")
    class_of = torch.tensor([CLASSES.index(word_class(word)) for word in model.vocabulary.words])
    sums = torch.zeros(len(NAMES), len(unit.choices), dtype=torch.float64)
    counts, entropy = torch.zeros(len(NAMES), dtype=torch.int64), 0.0
    for batch in batches:
        weights = unit.trace(model.embed(batch.words), batch.levels).weights.double()
        classes = left_classes(batch, class_of)
        sums.index_add_(0, classes, weights.mean(-1))
        counts += torch.bincount(classes, minlength=len(NAMES))
        entropy += float(torch.special.entr(weights).sum(1).mean(-1).sum())
    seen = counts.nonzero().flatten().tolist()
    return {
        "tokens": [NAMES[row] for row in seen],
        "counts": [int(counts[row]) for row in seen],
        "ops": list(unit.choices),
        "weight": [[round(value, 6) for value in (sums[row] / counts[row]).tolist()] for row in seen],
        "entropy": round(entropy / max(int(counts.sum()), 1), 6),
    }


def left_classes(batch: Batch, class_of: Tensor) -> Tensor:
    """(inner nodes,): the class of each node's left child, by the nodes' numbers."""
    levels = batch.levels
    nothing = torch.zeros(0, 2, dtype=torch.int64)
    left = torch.cat((nothing, *levels.children))[:, 0][levels.places[levels.leaves :] - levels.leaves]
    # leaves come first in the order of heights too, and keep their order
    of_word = class_of[batch.words[left.clamp(max=levels.leaves - 1)]]
    return torch.where(left < levels.leaves, of_word, NAMES.index(PHRASE))


def load(data: TreebankConfig) -> Treebank:
    """The treebank that the settings name."""
    if data.treebank is not None:
        return sst.load_own(Path(data.treebank))
    return sst.load(None if data.data_dir is None else Path(data.data_dir))


def _right(logits: Tensor, targets: Tensor) -> tuple[float, int]:
    """Number of labelled phrases that are classified rightly, and of all labelled ones."""
    said, labelled = logits.detach().argmax(1), targets != UNLABELLED
    return float(((said == targets) & labelled).sum()), int(labelled.sum())
