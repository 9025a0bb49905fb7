"""Models of tasks as files: they come back without their data, with a card that tells of their run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from shipped import make_runs

from mufuru.experiments.engine import load_model
from mufuru.experiments.record import read_run
from mufuru.experiments.ship.card import card
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.classify.use import Predictor
from mufuru.experiments.tasks.lm.model import LanguageModel
from mufuru.experiments.tasks.logic.model import FormulaReader
from mufuru.experiments.tasks.trees.model import TreeClassifier
from mufuru.saving.files import PretrainedError, checksum

RUNS: dict[str, Any] = {
    "lm": LanguageModel,
    "lm-lstm": LanguageModel,
    "texts": Classifier,
    "numbers": Classifier,
    "logic": FormulaReader,
    "trees": TreeClassifier,
    "trees-lstm": TreeClassifier,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), *RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_model_comes_back_without_its_data(name: str, runs: Path, tmp_path: Path) -> None:
    model: Any = load_model(runs / name)
    model.save_pretrained(tmp_path / "saved")
    assert str(runs) not in (tmp_path / "saved" / "config.json").read_text(), "no path of the machine is told"
    chance = torch.get_rng_state()
    loaded = RUNS[name].from_pretrained(tmp_path / "saved")
    assert torch.equal(chance, torch.get_rng_state())
    assert not loaded.training
    for (own, one), (other, same) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert own == other
        assert torch.equal(one, same), own
    arguments = model.example(3, 7, seed=0)
    for one, same in zip(model.answers(*arguments), loaded.answers(*arguments), strict=True):
        assert torch.equal(one, same)


def test_tied_weights_are_written_once_and_stay_tied(runs: Path, tmp_path: Path) -> None:
    model: Any = load_model(runs / "lm")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes().count(b"output.weight") == 0
    loaded = LanguageModel.from_pretrained(tmp_path)
    assert loaded.output.weight is loaded.embedding.weight
    assert torch.equal(loaded.output.weight, model.output.weight)


def test_a_classifier_can_be_used_at_once(runs: Path, tmp_path: Path) -> None:
    model: Any = load_model(runs / "texts")
    model.save_pretrained(tmp_path)
    loaded = Classifier.from_pretrained(tmp_path)
    one, other = (Predictor(each, each.config) for each in (model, loaded))
    line = "a good film"
    assert one.predict([one.read(line)]) == other.predict([other.read(line)])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["options"]["cell"].update(ops=["keep", "maximum"]), "unknown operation 'maximum'"),
        (lambda c: c["options"]["cell"].update(hidden_size=9), "should be"),
        (lambda c: c["options"]["cell"].update(colour="red"), "colour"),
        (lambda c: c["options"]["cell"].update(hidden_size="many"), "hidden_size"),
        (lambda c: c["options"].pop("cell") and c["options"].update(cell=None), "cell"),
        (lambda c: c["options"].update(tied=False), "output.weight is missing"),
        (lambda c: c.update(model="Classifier"), "is of a Classifier, got LanguageModel.from_pretrained"),
        (lambda c: c.update(dtype="float64"), "torch.float64, got"),
    ],
)
def test_settings_that_cannot_be_meant(edit: Any, message: str, runs: Path, tmp_path: Path) -> None:
    model: Any = load_model(runs / "lm")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    config["sha256"] = checksum(config, (tmp_path / "model.safetensors").read_bytes())
    path.write_text(json.dumps(config))
    with pytest.raises(PretrainedError) as error:
        LanguageModel.from_pretrained(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_without_a_vocabulary(runs: Path, tmp_path: Path) -> None:
    language_model: Any = load_model(runs / "lm")
    language_model.save_pretrained(tmp_path / "lm")
    formulae: Any = load_model(runs / "logic")
    formulae.save_pretrained(tmp_path / "logic")
    path = tmp_path / "lm" / "config.json"
    weights = shutil.copy(tmp_path / "logic" / "model.safetensors", tmp_path / "lm")
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "sha256": checksum(config, Path(weights).read_bytes())}), encoding="utf-8")
    with pytest.raises(PretrainedError, match=r"the weights lack 'carried.content', which says what"):
        LanguageModel.from_pretrained(tmp_path / "lm")
    with pytest.raises(PretrainedError, match="has the settings it was trained with, got dropout"):
        LanguageModel.from_pretrained(tmp_path / "lm", dropout=0.5)


@pytest.mark.parametrize("name", RUNS)
def test_the_card_is_the_record(name: str, runs: Path) -> None:
    model: Any = load_model(runs / name)
    record = read_run(runs / name)
    text = card(record, model, name)
    assert str(runs) not in text
    read: Any = ModelCard(text)
    assert read.data.library_name == "mufuru"
    (result,) = [found for found in read.data.eval_results if found.metric_type == "loss"]
    assert result.metric_value == record.result["test"]["loss"]
    assert result.dataset_name == ("drawn formulae" if name == "logic" else result.dataset_name)
    for metric, value in record.result["valid"].items():
        assert metric in read.text
        assert f"{value:.4f}" in read.text
    assert f"from {type(model).__module__} import {type(model).__name__}" in read.text
    assert record.environment["torch"] in read.text
    assert ("## Operations" in read.text) == (not name.endswith("lstm"))
    assert f"| `training.batch_size` | `{record.config['training']['batch_size']}` |" in read.text


def test_the_card_of_own_texts_has_no_classes_of_words(runs: Path) -> None:
    """Negation and intensifiers are of the Sentiment Treebank; the row of all tokens is their mean, by their counts."""
    record, model = read_run(runs / "texts"), load_model(runs / "texts")
    table = record.result["inspection"]["operation_weights"]
    assert {"negation", "intensifier"} <= set(table["tokens"])
    text = card(record, model, "texts")
    assert not [word for word in ("negation", "intensifier", "contrast") if word in text]
    weights = [sum(w * n for w, n in zip(column, table["counts"], strict=True)) / sum(table["counts"])
               for column in zip(*table["weight"], strict=True)]  # fmt: skip
    assert f"| all | {' | '.join(f'{weight:.4f}' for weight in weights)} |" in text
    assert sum(weights) == pytest.approx(1.0, abs=1e-4)
    record.config["data"]["data"] = None
    assert "| negation |" in card(record, model, "treebank")


def test_the_code_of_a_card_runs(runs: Path, tmp_path: Path) -> None:
    model: Any = load_model(runs / "texts")
    model.save_pretrained(tmp_path, card=card(read_run(runs / "texts"), model, "texts"))
    text = (tmp_path / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0].replace("this/model", str(tmp_path))
    found: dict[str, Any] = {}
    exec(code, found)
    assert torch.equal(found["model"].output.weight, model.output.weight)
