"""The task of trees: batches, labels, metrics, settings, and what is seen inside."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from classify_data import write_vectors
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tree_data import CELLS, config, task, treebank, trees, write

from mufuru.experiments.data import DataError
from mufuru.experiments.data.sst import Tree, Treebank, parse
from mufuru.experiments.engine import evaluate
from mufuru.experiments.reproduce.sentiment import FEWER
from mufuru.experiments.settings import SettingError, from_json, to_json
from mufuru.experiments.tasks.trees.model import (
    PRESETS,
    TreebankConfig,
    TreeCellConfig,
    TreeCellName,
    TreesConfig,
    unit,
)
from mufuru.experiments.tasks.trees.task import PHRASE, UNLABELLED, Batch, TreesTask, collate, numbered
from mufuru.experiments.tasks.words import word_class
from mufuru.tree_order import bottom_up

ULPS = 1e-6
"""Logits are of the size of 1: products of other shapes may round their last bits in another way."""


class Reads(nn.Module):
    """Instead of a model: the logits are what is known of each leaf, and a node has those of its left child."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, words: Tensor, levels: Any) -> Tensor:
        return bottom_up(self.logits[words], levels, lambda pairs: pairs[:, 0])


def rebuilt(made: TreesTask, batch: Batch) -> list[Tree]:
    """The trees of a batch, from its numbers alone, with targets for labels."""
    levels, words = batch.levels, made.meaning.vocabulary
    assert words is not None
    order = levels.places.argsort()
    found = {int(order[place]): Tree(label(batch, int(order[place])), words.words[int(batch.words[place])])
             for place in range(levels.leaves)}  # fmt: skip
    place = levels.leaves
    for level in levels.children:
        for left, right in level.tolist():
            number = int(order[place])
            parts = found[int(order[left])], found[int(order[right])]
            found[number] = Tree(label(batch, number), None, parts)
            place += 1
    return [found[root] for root in batch.roots.tolist()]


def label(batch: Batch, number: int) -> int:
    target = int(batch.targets[number])
    return 2 if target == UNLABELLED else target


@pytest.mark.parametrize("classes", [2, 5])
def test_batches_hold_every_tree_once(classes: Any) -> None:
    made = task(data=TreebankConfig(classes=classes), lowercase=False)

    def plain(tree: Tree) -> Tree:
        """With the label that training sees: 0 and 1 for the two classes, 2 for nothing."""
        seen = tree.label if classes == 5 else {0: 0, 1: 0, 2: 2, 3: 1, 4: 1}[tree.label]
        return Tree(seen, tree.word, tuple(plain(child) for child in tree.children))

    bank = treebank()
    learned = [t for t in bank.train if classes == 5 or any(node.label != 2 for node in t.nodes())]
    found = [tree for batch in made.batches("train", 3) for tree in rebuilt(made, batch)]
    assert Counter(found) == Counter(map(plain, learned))
    rooted = [t for t in bank.valid if classes == 5 or t.label != 2]
    assert [tree for batch in made.batches("valid") for tree in rebuilt(made, batch)] == list(map(plain, rooted))
    assert any(len(tree.words()) == 1 for tree in found)


def test_the_order_follows_from_seed_and_epoch() -> None:
    made, other = task(), task(seed=1)
    assert len(made.batches("train")) == -(-len(made.trees["train"]) // 8)
    orders = [torch.cat(list(found.groups)).tolist() for found in (
        made.batches("train"), made.batches("train", 0), made.batches("train", 1), other.batches("train"))]  # fmt: skip
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]
    assert all(sorted(order) == list(range(len(made.trees["train"]))) for order in orders)


@pytest.mark.parametrize("cell", CELLS)
def test_the_same_alone_and_in_a_batch(cell: TreeCellName) -> None:
    made = task(cell)
    model, trees = made.build().eval(), made.trees["valid"]
    vocabulary = model.vocabulary
    together = collate(trees, vocabulary, True)
    with torch.no_grad():
        roots = model(together.words, together.levels)[together.roots]
        for number, tree in enumerate(trees):
            batch = collate([tree], vocabulary, True)
            alone = model(batch.words, batch.levels)[batch.roots]
            torch.testing.assert_close(alone[0], roots[number], rtol=0, atol=ULPS)
    assert roots.std() > 100 * ULPS


@pytest.mark.parametrize("cell", CELLS)
def test_words_alone(cell: TreeCellName) -> None:
    """Trees of one word each have no level; the classifier sees the words' states."""
    words = [parse("(4 good)"), parse("(0 bad)")]
    made = task(cell, Treebank(words, words, words, "words"), batch_size=2)
    model = made.build()
    (batch,) = made.batches("train")
    assert batch.levels.children == ()
    assert batch.roots.tolist() == [0, 1]
    step = made.step(model, batch, None)
    step.loss.backward()
    assert step.count == 2
    assert made.inspect(model.eval())["data"] == made.description


@pytest.mark.parametrize(("classes", "outputs"), [(2, 1), (5, 5)])
def test_logits_of_two_and_of_five_classes(classes: Any, outputs: int) -> None:
    made = task(data=TreebankConfig(classes=classes))
    model = made.build()
    batch = made.batches("valid")[0]
    logits = model(batch.words, batch.levels)
    assert logits.shape == (len(batch.targets), classes)
    assert model.output.out_features == outputs
    assert bool(logits[:, 0].eq(0).all()) == (classes == 2)


def test_metrics_by_hand() -> None:
    """A model that says of a phrase what its leftmost word is; by a plain count over the trees."""
    made = task()
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    logits = torch.randn(len(vocabulary), 2)
    reader = Reads(logits)

    def said(tree: Tree) -> Tensor:
        return logits[int(vocabulary.encode([tree.words()[0].lower()]))]

    rooted = [tree for tree in treebank().valid if tree.label != 2]
    nodes = [node for tree in rooted for node in tree.nodes() if node.label != 2]
    found = evaluate(made, reader, "valid")
    right = [int(said(tree).argmax()) == (tree.label > 2) for tree in rooted]
    assert found["accuracy"] == sum(right) / len(rooted)
    assert found["phrase_accuracy"] == sum(int(said(n).argmax()) == (n.label > 2) for n in nodes) / len(nodes)
    losses = [cross_entropy(said(tree), torch.tensor(int(tree.label > 2))) for tree in rooted]
    assert found["loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)

    step = made.step(reader.train(), made.batches("valid")[0], None)
    assert step.count == len(nodes)
    losses = [cross_entropy(said(node), torch.tensor(int(node.label > 2))) for node in nodes]
    assert float(step.loss) == pytest.approx(float(torch.stack(losses).sum()), rel=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_no_metric_depends_on_the_batch_size(cell: TreeCellName, monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = task(cell), []
    model = made.build()
    for size in (1, 7, 1000):
        monkeypatch.setattr("mufuru.experiments.tasks.trees.task.EVALUATION_BATCH", size)
        found.append(evaluate(made, model, "valid"))
    for other in found[1:]:
        # sums of some losses of the size of 1 in another order
        assert other == pytest.approx(found[0], rel=1e-5)


def test_neutral_phrases_are_not_learned_from() -> None:
    """The gradient of the loss is 0 at their logits, and nowhere else."""
    made, model = task(), nn.Module().train()
    batch = made.batches("train")[0]
    logits = torch.randn(len(batch.targets), 2, requires_grad=True)
    model.forward = lambda words, levels: logits
    step = made.step(model, batch, None)
    step.loss.backward()
    learned = batch.targets != UNLABELLED
    assert torch.equal(logits.grad.abs().sum(1) > 0, learned)
    assert step.count == int(learned.sum()) < len(learned)


def test_a_treebank_of_ones_own(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", treebank())
    read = TreesTask(config(data=TreebankConfig(treebank=str(folder))))
    assert read.fingerprint == task().fingerprint
    assert read.description.startswith("own, 2 classes: trees of 69 sentences to train on, 26 for validation")
    assert task(data=TreebankConfig(classes=5)).fingerprint != read.fingerprint
    other = treebank()
    other.test[0] = parse("(4 other)")
    assert task(bank=other).fingerprint != read.fingerprint


def test_trees_that_are_not_binary_are_refused() -> None:
    bank = treebank()
    bank.train[5] = parse("(3 (2 so) (3 very) (4 good))")
    with pytest.raises(DataError, match=r"two parts, got one with 3: 'so very good'. Make the trees binary first"):
        task(bank=bank)
    bank.train[5] = parse("(3 (2 (2 so)) (3 very))")
    with pytest.raises(DataError, match="two parts, got one with 1"):
        task(bank=bank)


def test_nothing_but_neutral_is_refused() -> None:
    bank = Treebank(treebank().train, [parse("(2 (4 good) (0 bad))")], treebank().test, "small")
    with pytest.raises(DataError, match="no tree of valid has a label other than neutral"):
        task(bank=bank)
    assert len(task(bank=bank, data=TreebankConfig(classes=5)).trees["valid"]) == 1


def test_training_sentences_that_are_all_neutral_are_refused() -> None:
    """Their phrases could be learned from, and then no sentence could be measured."""
    bank = Treebank([parse("(2 (4 good) (0 bad))")], treebank().valid, treebank().test, "small")
    with pytest.raises(DataError, match="every sentence of train is neutral"):
        task(bank=bank)


def test_a_deep_tree_is_encoded() -> None:
    tree = Tree(3, "w")
    for _ in range(3000):
        tree = Tree(3, None, (tree, Tree(2, "w")))
    made = task()
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    batch = collate([numbered(tree, made._target)], vocabulary, True)
    assert len(batch.levels.children) == 3000


def test_vectors_land_in_the_embedding(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    made = task(vectors=str(path), tune_embeddings=False)
    model = made.build()
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    weight = model.embedding.weight
    torch.testing.assert_close(weight[int(vocabulary.encode(["bad"]))], torch.tensor([2.0, 2.1, 2.2, 2.3, 2.4]))
    assert weight[int(vocabulary.encode(["plot"]))].abs().max() <= 0.05
    assert not weight.requires_grad


@pytest.mark.parametrize("cell", CELLS)
def test_what_is_seen_inside(cell: TreeCellName) -> None:
    made = task(cell)
    model = made.build().eval()
    found = made.inspect(model)
    assert found["data"] == made.description
    if cell == "lstm":
        assert set(found) == {"data"}
        return
    table = found["operation_weights"]
    lefts: Counter[str] = Counter()
    for tree in treebank().valid:
        for node in tree.nodes() if tree.label != 2 else ():
            if node.children:
                word = node.children[0].word
                lefts[PHRASE if word is None else word_class(word)] += 1
    assert dict(zip(table["tokens"], table["counts"], strict=True)) == lefts
    assert table["ops"] == list(model.unit.choices)
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in table["weight"])
    assert 0 < table["entropy"] < torch.tensor(len(table["ops"])).log()


def test_weights_inside_are_those_of_the_trees_alone() -> None:
    """Mean weights at the nodes with "not" on the left, one tree at a time."""
    made = task()
    model = made.build().eval()
    row = made.inspect(model)["operation_weights"]
    sums: list[torch.Tensor] = []
    for phrases, tree in zip(made.trees["valid"], (t for t in treebank().valid if t.label != 2), strict=True):
        batch = collate([phrases], model.vocabulary, True)
        weights = model.unit.trace(model.embed(batch.words), batch.levels).weights
        inner = [node for node in tree.nodes() if node.children]
        sums += [w for node, w in zip(inner, weights, strict=True) if node.children[0].word == "not"]
    expected = torch.stack(sums).mean((0, 2)).tolist()
    # rounded to six digits
    assert row["weight"][row["tokens"].index("negation")] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_presets_go_to_json_and_back(preset: TreesConfig) -> None:
    assert from_json(TreesConfig, to_json(preset)) == preset
    for cell in CELLS:
        replace(preset, cell=preset.cell.for_cell(cell))


def test_with_fewer_units_there_are_about_as_many_parameters() -> None:
    ours = PRESETS["paper"].cell
    cells = (replace(ours, hidden_size=FEWER), ours.for_cell("lstm"))
    counts = [sum(p.numel() for p in unit(cell, 100).parameters()) for cell in cells]
    # 311,600 and 270,600
    assert 0.8 < counts[1] / counts[0] < 1.25


def test_a_gru_is_two_operations() -> None:
    model = task("gru").build()
    assert model.unit.choices == ("keep_left", "keep_right", "replace")


def test_biases_reach_the_unit() -> None:
    assert task(keep_bias=3.0).build().unit.bias[18:30].eq(3.0).all()
    assert task(reset_bias=0.25).build().unit.bias[6:18].eq(0.25).all()
    assert task("lstm", keep_bias=1.5).build().unit.bias[18:].eq(1.5).all()


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (TreeCellConfig, {"cell": "lstm", "ops": ("keep",)}, "ops is an option of mufuru, not of lstm"),
        (TreeCellConfig, {"cell": "lstm", "reset_bias": 1.0}, "reset_bias is an option of mufuru and gru"),
        (TreeCellConfig, {"cell": "vanilla"}, "unknown cell 'vanilla'"),
        (TreeCellConfig, {"ops": ("keeps",)}, "ops: unknown operation 'keeps'"),
        (TreeCellConfig, {"ops": ("max",), "keep_bias": 1.0}, "keep_bias needs the operation keep"),
        (TreeCellConfig, {"hidden_size": 0}, "hidden_size should be a number above 0"),
        (TreesConfig, {"tune_embeddings": False}, "tune_embeddings can be off only with vectors"),
        (TreesConfig, {"output_dropout": 1.0}, "output_dropout should be at least 0 and below 1"),
    ],
)
def test_settings_that_cannot_be_meant(make: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)):
        make(**settings)


def test_trees_of_the_tests_have_all_labels() -> None:
    assert {node.label for tree in trees(40, 2) for node in tree.nodes()} == set(range(5))
