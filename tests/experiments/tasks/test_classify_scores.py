"""Scores of each class, calibration, weights of classes, the metric that selects, and runs whose data moved."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from classify_data import config, labelled, task, write_csv
from commands import assert_refused, command
from torch.nn.functional import cross_entropy

from mufuru.experiments.engine import evaluate, fit, load_model, load_run
from mufuru.experiments.report.inspection import label_table
from mufuru.experiments.settings import SettingError, from_json, to_json
from mufuru.experiments.tasks.classify import scores
from mufuru.experiments.tasks.classify.config import ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.task import ClassifyTask


def drawn(examples: int = 400, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are three times too sure, and targets drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(examples, classes, dtype=torch.float64, generator=generator)
    return 3 * logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def test_scores_of_each_class() -> None:
    """As counted one by one; a class that is never predicted, or never there, has a score of 0."""
    logits, targets = drawn(50, 4)
    logits[:, 3] = -99.0
    targets[targets == 2] = 1
    found = scores.details(logits, targets, ("a", "b", "c", "d"))
    pairs = list(zip(targets.tolist(), logits.argmax(1).tolist(), strict=True))
    assert found["confusion"] == [[pairs.count((true, guess)) for guess in range(4)] for true in range(4)]
    for number, (label, score) in enumerate(found["classes"].items()):
        right = pairs.count((number, number))
        true, guess = sum(pair[0] == number for pair in pairs), sum(pair[1] == number for pair in pairs)
        assert (label, score["examples"]) == ("abcd"[number], true)
        assert score["precision"] == (right / guess if guess else 0)
        assert score["recall"] == (right / true if true else 0)
        assert score["f1"] == pytest.approx(2 * right / (true + guess) if true + guess else 0)
    assert found["classes"]["d"]["precision"] == found["classes"]["c"]["recall"] == 0


def test_calibration_error() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.35, 0.65], [1.0, 0.0]], dtype=torch.float64)
    # two in the highest bin, 0.9 and 1.0 are both there: 0.9 + 0.9 + 1.0 sure, 2 right; 0.65 sure, 1 right
    wanted = (abs(2.8 - 2) + abs(0.65 - 1)) / 4
    assert scores.calibration_error(probabilities, torch.tensor([0, 0, 1, 0])) == pytest.approx(wanted)


def test_the_temperature_has_the_lowest_loss() -> None:
    logits, targets = drawn()
    best = scores.temperature(logits, targets)
    assert best == pytest.approx(3, rel=0.25)
    losses = [float(cross_entropy(logits / (best * factor), targets)) for factor in (0.99, 1.0, 1.01)]
    assert losses[1] == min(losses)
    sure = scores.temperature(torch.eye(3, dtype=torch.float64), torch.arange(3))
    assert sure == 1


def test_class_weights_are_for_training() -> None:
    made = task(class_weights="balanced", classes=3)
    assert made.class_weights is not None
    counts = torch.bincount(labelled(classes=3).train.targets, minlength=3)
    assert made.class_weights.tolist() == pytest.approx([103 / 3 / count for count in counts.tolist()])
    model, batch = made.build(), made.batches("train")[0]
    by_hand = cross_entropy(model(batch.inputs), batch.targets, reduction="none").detach()
    weighted = (by_hand * made.class_weights[batch.targets]).sum()
    assert float(made.step(model, batch, None).loss.detach()) == pytest.approx(float(weighted), rel=1e-5)
    model.eval()
    assert float(made.step(model, batch, None).loss.detach()) == pytest.approx(float(by_hand.sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_weights": "balanced", "data": DataConfig(graded=True)}, "graded targets are shares"),
        ({"calibrate": True, "select": "last"}, "calibrate is for the best weights"),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        config(**changes)


def test_settings_of_older_runs() -> None:
    """Without the settings that are newer than they, nothing about them changes."""
    old: dict[str, Any] = to_json(config(data=DataConfig("texts.csv")))
    for part, names in (("", ("selection_metric", "class_weights", "calibrate")), ("data", ("numeric_classes",)),
                        ("training", ("ties", "updates"))):  # fmt: skip
        for name in names:
            del (old[part] if part else old)[name]
    found = from_json(ClassifyConfig, old)
    assert found == config(data=DataConfig("texts.csv"))
    assert (found.training.ties, found.training.updates, found.calibrate) == ("earliest", None, False)


def test_the_metric_that_selects() -> None:
    for name, higher in (("accuracy", True), ("macro_f1", True), ("loss", False)):
        made = ClassifyTask(config(selection_metric=name), labelled())
        assert (made.metric, made.higher_is_better) == (name, higher)
        assert made.metric in evaluate(made, made.build(), "valid")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated run, and its data beside it."""
    folder = tmp_path_factory.mktemp("calibrated")
    data = DataConfig(str(write_csv(folder / "texts.csv")))
    chosen = config(data=data, calibrate=True, ties="loss", updates=20, evaluate_every=7, learning_rate=0.03)
    fit("classify", chosen, folder / "run")
    return folder / "run"


def test_a_calibrated_run(run: Path, tmp_path: Path) -> None:
    """The model is the trained one at another temperature; finishing it once more changes nothing."""
    result = json.loads((run / "result.json").read_text())
    made: Any
    model: Any
    made, model = load_run(run)
    logits, targets = scores.logits_of(model, made.batches("valid"))
    assert float(model.temperature) == pytest.approx(result["inspection"]["temperature"]) != 1
    assert float(model.temperature) == pytest.approx(scores.temperature(logits * float(model.temperature), targets))
    assert result["inspection"]["details"]["test"] == made.details(model, "test")
    assert (result["updates"], result["selection"]["metric"]) == (20, "accuracy")
    assert evaluate(made, load_model(run), "test") == result["test"]
    again = shutil.copytree(run, tmp_path / "again")
    (again / "result.json").unlink()
    repeated = fit("classify", made.config, again, resume=True)
    assert {**repeated, "seconds": 0} == {**result, "seconds": 0}
    assert (again / "best.safetensors").read_bytes() == (run / "best.safetensors").read_bytes()


def test_the_report_has_the_scores_of_labels(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "report", run, "-o", tmp_path / "report.html").code == 0
    page = (tmp_path / "report.html").read_text()
    assert f"Test data by label: {run.name}, MuFuRU with seed 0" in page
    found = json.loads((run / "result.json").read_text())["inspection"]["details"]["test"]
    table = label_table(found, "")
    assert table.head == (
        "label",
        "precision",
        "recall",
        "F1",
        "examples",
        *(f"predicted {x}" for x in found["labels"]),
    )
    for row, label, counts in zip(table.rows, found["labels"], found["confusion"], strict=True):
        assert row[0] == label
        assert (*row[4:],) == (str(sum(counts)), *map(str, counts))
        assert float(row[2]) == pytest.approx(counts[found["labels"].index(label)] / sum(counts), abs=5e-4)
        assert all(f">{cell}</t" in page for cell in row)


def test_evaluation_of_new_and_moved_data(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new file needs no data of the run; the run's own may have moved, and has to be the same."""
    away, data = shutil.copytree(run, tmp_path / "away"), tmp_path / "data"
    data.mkdir()
    (run.parent / "texts.csv").replace(data / "texts.csv")
    new = write_csv(tmp_path / "new.csv", 40, seed=5)
    found = json.loads(command(capsys, "evaluate", away, "--data", new, "--json").out)
    details = found["details"]
    assert sum(map(sum, details["confusion"])) == 40
    right = sum(row[place] for place, row in enumerate(details["confusion"]))
    assert found["metrics"]["accuracy"] == pytest.approx(right / 40)
    f1 = [score["f1"] for score in details["classes"].values()]
    assert found["metrics"]["macro_f1"] == pytest.approx(sum(f1) / 2)
    shown = command(capsys, "evaluate", away, "--data", new).out
    assert "precision" in shown
    assert "true, predicted:" in shown
    assert_refused(command(capsys, "evaluate", away), 2, "texts.csv: there is no such file", "--find-data FOLDER")
    moved = command(capsys, "evaluate", away, "--find-data", data, "--json")
    assert json.loads(moved.out)["metrics"] == json.loads((run / "result.json").read_text())["test"]
    write_csv(tmp_path / "texts.csv", seed=9)
    other = command(capsys, "evaluate", away, "--find-data", tmp_path)
    assert_refused(other, 2, "they were trained on other data")
    assert_refused(command(capsys, "evaluate", away, "--find-data", tmp_path / "none"), 2, "is not a folder")
    assert_refused(command(capsys, "evaluate", away, "--data", new, "--split", "valid"), 2, "leave --split")
    (away / "result.json").unlink()
    resumed = command(capsys, "train", "--resume", away, "--find-data", data, "--quiet")
    assert resumed.code == 0
    (data / "texts.csv").replace(run.parent / "texts.csv")
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (run, away))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_labels_that_are_numbers_to_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new run is refused; one that exists goes on."""
    rows = "".join(f"text {row},{row * row % 97}\n" for row in range(120))
    file = tmp_path / "targets.csv"
    file.write_text("text,label\n" + rows)
    line = ("train", "classify", "--data", file, "--epochs", 1, "--hidden-size", 2, "--quiet", "--output")
    refused = command(capsys, *line, tmp_path / "run")
    assert_refused(refused, 2, "look like numbers to predict", "`mufuru train regress", "--numeric-classes")
    assert not (tmp_path / "run").exists()
    assert command(capsys, *line, tmp_path / "run", "--numeric-classes").code == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    del settings["config"]["data"]["numeric_classes"]
    chosen = from_json(ClassifyConfig, settings["config"])
    old = replace(chosen, data=replace(chosen.data, numeric_classes=False))
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    for name in ("result.json", "best.safetensors", "last.safetensors", "metrics.jsonl", "layout.json"):
        (tmp_path / "old" / name).unlink()
    (tmp_path / "old" / "config.json").write_text(json.dumps(settings))
    fit("classify", old, tmp_path / "old", resume=True)
    # an older run gets the layout when it is resumed
    assert json.loads((tmp_path / "old" / "layout.json").read_text())["text"] == "text"
