"""Classifiers through the engine: stopped in mid-epoch and resumed to the same bits."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from classify_data import config, write_csv, write_numbers, write_vectors
from folders import assert_same_run
from rich.console import Console

from mufuru.experiments.engine import Interrupted, RunError, evaluate, fit, load_model, load_run
from mufuru.experiments.engine.progress import Live, progress_for
from mufuru.experiments.record import read_run
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.classify.config import ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.task import ClassifyTask

TRAINING: dict[str, Any] = {"evaluate_every": 5, "average": 0.9, "clip": 1.0}
LEARNING: dict[str, Any] = {"hidden_size": 16, "pooling": "max", "learning_rate": 0.02, "average": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "texts.csv")


def settings(file: Path, cell: CellName = "mufuru", **changes: Any) -> ClassifyConfig:
    noise = {"embedding_dropout": 0.2, "output_dropout": 0.2}
    return config(cell, data=DataConfig(data=str(file)), **{**TRAINING, **noise, **changes})


def interrupt_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C in a training step."""
    step, count = ClassifyTask.step, 0

    def interrupted(self: ClassifyTask, model: Any, *args: Any) -> Any:
        nonlocal count
        count += model.training
        if model.training and count == number:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, model, *args)

    monkeypatch.setattr(ClassifyTask, "step", interrupted)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("mufuru", {"pooling": "attention"}),
        ("mufuru", {"controller_size": 2, "select": "last"}),
        ("gru", {"pooling": "max", "bidirectional": True}),
        ("lstm", {"pooling": "mean"}),
    ],
)
@pytest.mark.parametrize("at", [1, 9, 17])
def test_stopped_in_mid_epoch_and_gone_on_with(
    file: Path, tmp_path: Path, cell: CellName, options: dict[str, Any], at: int
) -> None:
    """An epoch has twelve batches of 8 sequences; their order and the masks to come are in the checkpoint."""
    chosen = settings(file, cell, **options)
    fit("classify", chosen, tmp_path / "alone")
    assert [line["update"] for line in read_run(tmp_path / "alone").curve] == [5, 10, 15, 20, 24]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_step(patch, at)
        with pytest.raises(Interrupted, match=f"stopped after update {at} of 24"):
            fit("classify", chosen, tmp_path / "stopped")
    torch.rand(3)
    fit("classify", chosen, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone")


def test_gone_on_with_from_vectors(file: Path, tmp_path: Path) -> None:
    chosen = settings(file, vectors=str(write_vectors(tmp_path / "vectors.txt")), tune_embeddings=False)
    fit("classify", chosen, tmp_path / "alone")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_step(patch, 7)
        with pytest.raises(Interrupted):
            fit("classify", chosen, tmp_path / "stopped")
    fit("classify", chosen, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone")


@pytest.mark.parametrize("select", ["best", "last"])
def test_a_run_comes_back(file: Path, tmp_path: Path, select: str) -> None:
    result = fit("classify", settings(file, select=select), tmp_path / "run")
    made, model = load_run(tmp_path / "run")
    assert evaluate(made, model, "test") == result["test"]
    assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_a_model_comes_back_without_its_data(file: Path, tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "vectors.txt")
    fit("classify", settings(file, vectors=str(vectors)), tmp_path / "run")
    made, model = load_run(tmp_path / "run")
    file.unlink()
    vectors.unlink()
    before = torch.get_rng_state()
    alone = load_model(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    for batch in made.batches("test"):
        assert torch.equal(alone(batch.inputs), model(batch.inputs))
    for name, tensor in model.state_dict().items():
        assert torch.equal(alone.state_dict()[name], tensor), name


def test_a_model_of_another_task_comes_back_too(tmp_path: Path) -> None:
    from mufuru.experiments.tasks.logic.config import PRESETS

    short = PRESETS["short"]
    small = replace(short, training=replace(short.training, epochs=1), train_formulae=20, valid_formulae=5)
    fit("logic", small, tmp_path / "run")
    one, other = load_model(tmp_path / "run"), load_run(tmp_path / "run")[1]
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())


def test_data_that_changed_is_noticed(file: Path, tmp_path: Path) -> None:
    fit("classify", settings(file), tmp_path / "run")
    file.write_text(file.read_text().replace("good", "great"))
    with pytest.raises(RunError, match="they were trained on other data, or the files of the data have changed"):
        load_run(tmp_path / "run")


def test_the_record_of_a_run(file: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    result = fit("classify", settings(file), tmp_path / "run", progress=progress_for(said))
    curve = read_run(tmp_path / "run").curve
    assert result["valid"]["accuracy"] == max(line["valid"]["accuracy"] for line in curve)
    assert set(result["test"]) == {"loss", "accuracy", "macro_f1"}
    assert "operation_weights" in result["inspection"]
    # what was guessed of the file is told first
    assert said.getvalue().startswith(result["inspection"]["data"] + "\n")
    assert "texts.csv" in result["inspection"]["data"]


def test_a_bar_tells_of_the_data_too() -> None:
    said = io.StringIO()
    Live(Console(file=said, width=200)).describe("texts.csv: text in column 'text' [guessed]")
    assert said.getvalue() == "texts.csv: text in column 'text' [guessed]\n"


@pytest.mark.parametrize("cell", ["mufuru", "gru"])
def test_it_learns_texts(file: Path, tmp_path: Path, cell: CellName) -> None:
    """Whether a word occurs: a pool over all steps sees it at once."""
    write_csv(file, 300)
    chosen = settings(file, cell, **LEARNING, epochs=8)
    assert fit("classify", chosen, tmp_path / "run")["test"]["accuracy"] == 1.0


@pytest.mark.parametrize("cell", ["mufuru", "gru"])
def test_it_learns_numbers(tmp_path: Path, cell: CellName) -> None:
    file = write_numbers(tmp_path / "bumps.tsv")
    chosen = settings(file, cell, **LEARNING, epochs=12, embedding_dropout=0.0)
    result = fit("classify", chosen, tmp_path / "run")
    assert result["test"]["accuracy"] == 1.0
