"""The task of trees: parse trees in, the probability of each label of each phrase out."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mufuru
from mufuru import Levels
from mufuru.experiments.data import PARTS, DataError, sst
from mufuru.experiments.data.sst import Tree, Treebank
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.draws import permutation
from mufuru.experiments.tasks.cells import weight_table
from mufuru.experiments.tasks.task import Batches, State, Step, Totals
from mufuru.experiments.tasks.trees.model import TreeClassifier, TreesConfig
from mufuru.experiments.tasks.words import CLASSES, Meaning, read_words, set_vectors, word_class

UNLABELLED = -1
"""The target of a phrase that is read but not learned from."""


class Batch(NamedTuple):
    """Some trees: the leaves of all, then the inner nodes of all."""

    words: Tensor
    """(leaves,): the ids of the words."""
    levels: Levels
    """The children of every node, by height."""
    targets: Tensor
    """(nodes,): the id of each phrase's class, or `UNLABELLED`."""
    roots: Tensor
    """(trees,): which nodes are whole sentences."""


class Phrases(NamedTuple):
    """A tree with numbered nodes: n leaves from 0 on, and their n - 1 inner nodes from n on."""

    words: list[str]
    targets: list[int]
    """Targets of leaves, then of inner nodes."""
    children: list[tuple[int, int]]


def numbered(tree: Tree, target: Callable[[int], int]) -> Phrases:
    """Number the nodes of a tree; `target` gives the class of a label, or `UNLABELLED`."""
    nodes = tree.nodes()
    words = [node.word for node in nodes if node.word is not None]
    leaves, inner, waiting = itertools.count(), itertools.count(len(words)), list[int]()
    targets: tuple[list[int], list[int]] = [], []
    children: list[tuple[int, int]] = []
    for node in nodes:
        if node.word is None:
            if len(node.children) != 2:
                raise DataError(f"expected trees whose phrases have two parts, got one with {len(node.children)}: "
                                f"{' '.join(node.words())[:80]!r}. Make the trees binary first")  # fmt: skip
            right, left = waiting.pop(), waiting.pop()
            children.append((left, right))
        waiting.append(next(leaves if node.word is not None else inner))
        targets[node.word is None].append(target(node.label))
    return Phrases(words, targets[0] + targets[1], children)


def collate(trees: Sequence[Phrases], vocabulary: Vocabulary, lowercase: bool) -> Batch:
    words = [word for tree in trees for word in tree.words]
    first, inner, roots, children = 0, len(words), list[int](), list[list[int]]()
    for tree in trees:
        n = len(tree.words)
        children += [[node + first if node < n else node - n + inner for node in pair] for pair in tree.children]
        roots.append(inner + n - 2 if n > 1 else first)
        first, inner = first + n, inner + n - 1
    targets = [target for tree in trees for target in tree.targets[: len(tree.words)]]
    targets += [target for tree in trees for target in tree.targets[len(tree.words) :]]
    ids = vocabulary.encode(map(str.lower, words) if lowercase else words)
    levels = Levels.of(torch.tensor(children, dtype=torch.int64).view(-1, 2), len(words))
    return Batch(ids, levels, torch.tensor(targets), torch.tensor(roots))


EVALUATION_BATCH = 100
"""Trees at a time where nothing is trained; no metric depends on it."""
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
        if treebank is None:
            own = config.data.treebank
            treebank = sst.load(config.data.data_dir) if own is None else sst.load_own(own)
        self.trees = {split: self._chosen(split, getattr(treebank, split)) for split in PARTS}
        texts = {split: [tree.words for tree in trees] for split, trees in self.trees.items()}
        self._vocabulary, self.vectors = read_words(config, config.data.data_dir, texts)
        self.meaning = Meaning(sst.LABELS[config.data.classes], self._vocabulary)
        train, valid, test = (f"{len(trees):,}" for trees in self.trees.values())
        self.description = (f"{treebank.name}, {config.data.classes} classes: trees of {train} sentences to train "
                            f"on, {valid} for validation and {test} for the test")  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """The sha256 of the trees and their known words, wherever they were read from."""
        total = hashlib.sha256(json.dumps(self.meaning.to_json()).encode())
        for trees in self.trees.values():
            total.update(json.dumps(trees).encode())
        return total.hexdigest()

    def build(self) -> TreeClassifier:
        model = TreeClassifier(self.config, self.meaning, self.fingerprint)
        if self.vectors:
            set_vectors(model.embedding, self._vocabulary, self.vectors)
        return model

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """Return all batches; those of "train" in the order of the epoch."""
        trees = self.trees[split]
        order, size = torch.arange(len(trees)), EVALUATION_BATCH
        if split == "train":
            order = permutation(len(trees), "trees", self.config.seed, epoch)
            size = self.config.training.batch_size
        words = self._vocabulary, self.config.lowercase
        return Batches(lambda which: collate([trees[index] for index in which.tolist()], *words), order.split(size))

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits, targets = model(batch.words, batch.levels), batch.targets
        right, count = _right(logits, targets)
        sums: dict[str, Tensor | float] = {"phrases right": right, "phrases": count}
        if not model.training:
            logits, targets = logits[batch.roots], targets[batch.roots]
            right, count = _right(logits, targets)
            sums["right"] = right
        return Step(cross_entropy(logits, targets, ignore_index=UNLABELLED, reduction="sum"), count, sums=sums)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return loss and accuracy of phrases in training; in evaluation also accuracy, and the loss, of sentences."""
        metrics = {"loss": totals.mean("loss")} | ({"accuracy": totals.mean("right")} if "right" in totals.sums else {})
        return metrics | {"phrase_accuracy": totals.sums["phrases right"] / totals.sums["phrases"]}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Return a description of the data, and TreeMuFuRU's weights by class of the left child, over validation."""
        facts: dict[str, Any] = {"data": self.description}
        if self.config.cell.cell == "lstm":
            return facts
        return facts | {"operation_weights": operation_weights(model, self.batches("valid"))}

    def _chosen(self, split: str, trees: Sequence[Tree]) -> list[Phrases]:
        """Return in training all trees with a label to learn, otherwise those of labelled sentences."""
        chosen = [numbered(tree, self._target) for tree in trees]
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
        if self.config.data.classes == 5:
            return label
        return UNLABELLED if label == sst.NEUTRAL else int(label > sst.NEUTRAL)


@torch.no_grad()
def operation_weights(model: Any, batches: Iterable[Batch]) -> dict[str, Any]:
    """Return `{"tokens", "counts", "ops", "weight", "entropy"}`: a row of mean weights for each class of a node's left
    child, which is where English has "not" and "very"; "ops" are the choices, such as keep_right.

    A left child of several words is a "phrase"; classes that the trees do not have are left out; `entropy` is that of
    the choice, in nats.
    """
    unit: mufuru.TreeMuFuRU = model.unit
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
    means, names = [sums[row] / counts[row] for row in seen], [NAMES[row] for row in seen]
    return weight_table(names, counts[seen], unit.choices, means, entropy / max(int(counts.sum()), 1))


def left_classes(batch: Batch, class_of: Tensor) -> Tensor:
    """Return (inner nodes,): the class of each node's left child, by the nodes' numbers."""
    levels = batch.levels
    nothing = torch.zeros(0, 2, dtype=torch.int64)
    left = torch.cat((nothing, *levels.children))[:, 0][levels.places[levels.leaves :] - levels.leaves]
    # leaves come first in the order of heights too, and keep their order
    of_word = class_of[batch.words[left.clamp(max=levels.leaves - 1)]]
    return torch.where(left < levels.leaves, of_word, NAMES.index(PHRASE))


def _right(logits: Tensor, targets: Tensor) -> tuple[float, int]:
    """Count the labelled phrases that are classified correctly, and all labelled ones."""
    predicted, labelled = logits.detach().argmax(1), targets != UNLABELLED
    return float(((predicted == targets) & labelled).sum()), int(labelled.sum())
