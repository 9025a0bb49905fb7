"""The classification task: settings, vocabulary, vectors, metrics, and what is seen inside."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from classify_data import CELLS, WORDS, config, labelled, task, write_vectors
from torch import nn

from mufuru.experiments.data import DataError, sst
from mufuru.experiments.data.vocabulary import UNKNOWN
from mufuru.experiments.engine import evaluate
from mufuru.experiments.settings import SettingError, from_json, to_json
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.classify.config import PRESETS, ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.model import shuffled
from mufuru.experiments.tasks.classify.task import ClassifyTask
from mufuru.experiments.tasks.task import Totals
from mufuru.experiments.tasks.words import CLASSES, UNKNOWN_SCALE, build_vocabulary, word_class


class Says(nn.Module):
    """A model that is sure of one class."""

    def __init__(self, label: int, classes: int) -> None:
        super().__init__()
        self.logits = 20.0 * nn.functional.one_hot(torch.tensor(label), classes).float()

    def forward(self, inputs: Any) -> Any:
        return self.logits.expand(int(inputs.batch_sizes[0]), -1)


def test_metrics_by_hand() -> None:
    made = task(classes=3)
    targets = made.labelled.valid.targets
    counts = torch.bincount(targets, minlength=3).tolist()
    found = evaluate(made, Says(1, 3), "valid")
    accuracy = counts[1] / len(targets)
    # the other classes occur and are never said
    f1 = 2 * counts[1] / (len(targets) + counts[1])
    assert found["accuracy"] == accuracy
    assert found["macro_f1"] == pytest.approx(f1 / 3)
    assert found["loss"] == pytest.approx(20 * (1 - accuracy), rel=1e-6)


def test_a_class_that_nobody_knows_of_has_no_f1() -> None:
    sums = {
        "predicted 0": 4.0,
        "predicted 1": 0.0,
        "true 0": 4.0,
        "true 1": 0.0,
        "both 0": 4.0,
        "both 1": 0.0,
        "right": 4.0,
    }
    assert task().metrics(Totals(1.0, 4, sums))["macro_f1"] == 1.0


@pytest.mark.parametrize("cell", CELLS)
def test_no_metric_depends_on_the_batch_size(cell: CellName, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1, 7, 1000):
        monkeypatch.setattr("mufuru.experiments.tasks.classify.task.EVALUATION_BATCH", size)
        made = task(cell)
        torch.manual_seed(0)
        found.append(evaluate(made, made.build(), "valid"))
    for other in found[1:]:
        # sums of 31 losses of the size of 1 in another order
        assert other == pytest.approx(found[0], rel=1e-5)


def test_training_gives_loss_and_accuracy_alone() -> None:
    made = task()
    totals = Totals()
    totals.add(made.step(made.build(), made.batches("train")[0], None))
    assert set(made.metrics(totals)) == {"loss", "accuracy"}


def test_the_vocabulary() -> None:
    counts = Counter("baacccdd")
    assert build_vocabulary(counts, (), 1).words == (UNKNOWN, "b", "a", "c", "d")
    assert build_vocabulary(counts, (), 2).words == (UNKNOWN, "a", "c", "d")
    assert build_vocabulary(counts, ("b", "e"), 3).words == (UNKNOWN, "b", "c", "e")
    with pytest.raises(DataError, match=r"no word of the training texts occurs 4 times, the most frequent one 3"):
        build_vocabulary(counts, (), 4)


def test_unknown_words_of_test_are_one() -> None:
    made = task(min_count=40)
    assert made.meaning.vocabulary is not None
    assert set(made.meaning.vocabulary.words) < {UNKNOWN, *map(str.lower, WORDS)}
    assert any((batch.inputs.data == 0).any() for batch in made.batches("train"))


def test_vectors_land_in_the_embedding(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    made = task(vectors=str(path))
    weight = made.build().get_parameter("embedding.weight").detach()
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    number = int(vocabulary.encode(["bad"]))
    torch.testing.assert_close(weight[number], torch.tensor([2.0, 2.1, 2.2, 2.3, 2.4]))
    # the texts have it in upper case only
    assert weight[int(vocabulary.encode(["story"]))].tolist() == [7.5] * 5
    unknown = weight[vocabulary.encode([UNKNOWN, "plot"])]
    assert unknown.abs().max() <= UNKNOWN_SCALE
    assert unknown.std() > UNKNOWN_SCALE / 4
    assert unknown[0].tolist() != unknown[1].tolist()


def test_vectors_are_scaled_and_drawn_words_are_not(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    made, scaled = task(vectors=str(path)), task(vectors=str(path), vector_scale=0.5)
    assert made.vectors is not None
    assert made.meaning.vocabulary is not None
    found = made.meaning.vocabulary.encode(made.vectors.words)
    expected, weight = (one.build().get_parameter("embedding.weight").detach() for one in (made, scaled))
    torch.testing.assert_close(weight[found], 0.5 * expected[found])
    assert weight[int(made.meaning.vocabulary.encode([UNKNOWN]))].abs().max() <= UNKNOWN_SCALE


def test_batches_without_bucketing() -> None:
    """No length decides them."""
    made = task(bucketing=False)
    sizes = torch.ones(len(made.labelled.train.targets), dtype=torch.int64)
    expected = shuffled(sizes, made.config.training.batch_size, "classify", made.config.seed, 0, pool=1)
    assert [set(g.tolist()) for g in made.batches("train").groups] == [set(g.tolist()) for g in expected]


def test_a_word_of_the_test_alone_has_its_vector(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("good 1 1 1 1 1\nwonderful 2 2 2 2 2\nelsewhere 3 3 3 3 3\n")
    data = labelled()
    data.test.sequences[0][:] = ["wonderful"]
    made = ClassifyTask(config(vectors=str(tmp_path / "vectors.txt")), data)
    assert made.meaning.vocabulary is not None
    assert "wonderful" in made.meaning.vocabulary
    assert "elsewhere" not in made.meaning.vocabulary


def test_tuned_and_frozen_embeddings(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    for tuned in (True, False):
        made = task(vectors=str(path), tune_embeddings=tuned)
        model = made.build()
        before = model.get_parameter("embedding.weight").detach().clone()
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=0.1, weight_decay=0.1)
        made.step(model, made.batches("train")[0], None).loss.backward()
        optimizer.step()
        assert torch.equal(model.get_parameter("embedding.weight"), before) != tuned


def test_vectors_that_do_not_fit(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt")
    with pytest.raises(DataError, match=r"has vectors of 5 features, expected 7: .* an embedding_size of 5"):
        task(vectors=str(path), embedding_size=7)
    path.write_text("der 1 2 3 4 5\ndie 1 2 3 4 5\n")
    with pytest.raises(DataError, match="has a vector for none of the 12 words"):
        task(vectors=str(path))
    with pytest.raises(SettingError, match="vectors are for words, and the data is numeric"):
        task(kind="numeric", vectors=str(path))


@pytest.mark.parametrize("way", ["file", "folder", "name"])
def test_vectors_from_a_file_a_folder_or_by_name(tmp_path: Path, way: str) -> None:
    path = write_vectors(tmp_path / "glove.6B.50d.txt", 50)
    vectors = {"file": str(path), "folder": str(tmp_path), "name": "glove.6B"}[way]
    data = DataConfig(data_dir=str(tmp_path) if way == "name" else None)
    made = task(vectors=vectors, embedding_size=50, data=data)
    assert made.vectors is not None
    assert made.vectors.matrix[made.vectors.words.index("good")].tolist()[:2] == [1.0, pytest.approx(1.1)]


SENTENCES = """\
(4 (3 good) (2 film))
(0 (2 a) (1 (2 bad) (2 film)))
(2 (2 film) (2 .))
"""


@pytest.mark.parametrize(("classes", "labels", "count"), [(2, 2, 4), (5, 5, 11)])
def test_the_treebank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: Any, labels: int, count: int) -> None:
    """Neutral phrases are left out of two classes, and of validation and test only sentences are taken."""
    for name in sst.FILES:
        (tmp_path / name).write_text(SENTENCES)
    monkeypatch.setattr(sst, "load", sst.load_own)
    made = ClassifyTask(config(data=DataConfig(classes=classes, data_dir=str(tmp_path))))
    assert len(made.meaning.labels) == labels
    assert len(made.labelled.train) == count
    assert len(made.labelled.valid) == {2: 2, 5: 3}[classes]
    whole = ClassifyTask(config(data=DataConfig(classes=classes, data_dir=str(tmp_path), phrases=False)))
    assert len(whole.labelled.train) == len(made.labelled.valid)
    once = ClassifyTask(config(data=DataConfig(classes=classes, data_dir=str(tmp_path), distinct_phrases=True)))
    assert len(once.labelled.train) == {2: 4, 5: 9}[classes]


def test_graded_labels_by_hand() -> None:
    """The loss against shares, and as much right as the share of what is said; a certain share is a label."""
    certain = labelled()
    shares = nn.functional.one_hot(certain.train.targets, 2).float()
    found, model = [], task().build().eval()
    for targets in (certain.train.targets, shares, shares * 0.8 + 0.1):
        made = ClassifyTask(config(), replace(certain, train=replace(certain.train, targets=targets)))
        batch = made.batches("train")[0]
        step = made.step(model, batch, None)
        found.append((step.loss, float(step.sums["right"])))
        logits = model(batch.inputs)
    assert torch.allclose(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert torch.allclose(found[2][0], -(batch.targets * logits.log_softmax(1)).sum())
    assert found[2][1] == pytest.approx(0.8 * found[0][1] + 0.1 * len(batch.targets))
    assert set(evaluate(made, model, "train")) == {"loss", "accuracy"}
    assert "macro_f1" in evaluate(made, model, "valid")


def test_the_fingerprint_is_of_the_data() -> None:
    data = labelled()
    one, same = (ClassifyTask(config(seed=seed), data).fingerprint for seed in (1, 2))
    assert one == same
    assert ClassifyTask(config(min_count=40), data).fingerprint != one
    data.test.sequences[0][0] = "other"
    assert ClassifyTask(config(), data).fingerprint != one


@pytest.mark.parametrize("cell", CELLS)
def test_what_is_seen_inside(cell: CellName) -> None:
    made = task(cell)
    found = made.inspect(made.build().eval())
    assert found["data"] == "goodness"
    if cell != "mufuru":
        assert set(found) == {"data"}
        return
    table = found["operation_weights"]
    words = Counter(word_class(word) for words in made.labelled.valid.sequences for word in words)
    assert table["tokens"] == list(CLASSES)
    assert table["counts"] == [words[name] for name in CLASSES]
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in table["weight"])
    assert 0 < table["entropy"] < 2


def test_what_is_seen_inside_of_two_directions_and_of_numbers() -> None:
    made = task(bidirectional=True, pooling="max")
    table = made.inspect(made.build().eval())["operation_weights"]
    assert table["backward"]["counts"] == table["counts"]
    assert table["backward"]["weight"] != table["weight"]
    made = task(kind="numeric")
    table = made.inspect(made.build().eval())["operation_weights"]
    assert table["tokens"] == ["all"]
    assert table["counts"] == [sum(map(len, made.labelled.valid.sequences))]


@pytest.mark.parametrize(
    ("word", "expected"),
    [("n't", "negation"), ("Never", "negation"), ("so", "intensifier"), ("But", "contrast"), ("--", "punctuation"),
     ("_", "punctuation"), ("-RRB-", "punctuation"), ("film", "other"), ("90s", "other"), ("é", "other")],
)  # fmt: skip
def test_classes_of_words(word: str, expected: str) -> None:
    assert word_class(word) == expected


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_presets_go_to_json_and_back(preset: ClassifyConfig) -> None:
    assert from_json(ClassifyConfig, to_json(preset)) == preset
    for cell in CELLS:
        replace(preset, cell=preset.cell.for_cell(cell))


def test_the_paper() -> None:
    paper = PRESETS["paper"]
    assert (paper.cell.hidden_size, paper.training.batch_size, paper.training.evaluate_every) == (100, 25, 200)
    assert (paper.training.beta1, paper.training.select, paper.pooling) == (0.0, "best", "last")
    assert (paper.tune_embeddings, paper.data.classes, UNKNOWN_SCALE) == (True, 2, 0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"held_out": (0.5, 0.5)}, "two shares above 0 and below 1 together"),
        ({"data": "a.csv", "classes": 5}, "classes is for the Sentiment Treebank: leave it or --data out"),
        ({"data": "a.csv", "phrases": False}, "phrases is for the Sentiment Treebank"),
        ({"classes": 5, "graded": True}, "graded is for 2 classes, got 5"),
        ({"data": "a.csv", "graded": True}, "graded is for the Sentiment Treebank"),
        ({"text_column": "text"}, "text_column is for a file of your own: name the file with --data"),
    ],
)
def test_data_settings_that_cannot_be_meant(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)):
        DataConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"embedding_size": 0}, "embedding_size should be a number above 0"),
        ({"max_length": -1}, "max_length should be a number above 0"),
        ({"output_dropout": 1.0}, "output_dropout should be at least 0 and below 1"),
        ({"tune_embeddings": False}, "tune_embeddings can be off only with vectors"),
        ({"vector_scale": 0.5}, "vector_scale needs vectors"),
        ({"data": DataConfig(data="a.csv", data_dir="there")}, "data_dir has the Sentiment Treebank, or vectors glove"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        config(**settings)
