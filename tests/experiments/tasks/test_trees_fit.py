"""Tree classifiers through the engine and the command line: stopped in mid-epoch and resumed to the same bits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from classify_data import write_vectors
from commands import assert_refused, command
from folders import assert_same_run
from tree_data import CELLS, VALUE, config, treebank, write

from mufuru.experiments.engine import Interrupted, RunError, evaluate, fit, load_model, load_run
from mufuru.experiments.record import read_run
from mufuru.experiments.tasks.trees.model import TreebankConfig, TreeCellName, TreesConfig
from mufuru.experiments.tasks.trees.task import TreesTask

TINY = ("--hidden-size", "6", "--embedding-size", "5", "--epochs", "1", "--batch-size", "16")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "bank", treebank())


def settings(folder: Path, cell: TreeCellName = "mufuru", **changes: Any) -> TreesConfig:
    noise = {"embedding_dropout": 0.2, "output_dropout": 0.2, "evaluate_every": 5, "average": 0.9, "clip": 1.0}
    return config(cell, data=TreebankConfig(treebank=str(folder)), **{**noise, **changes})


def interrupt_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C in a training step."""
    step, count = TreesTask.step, 0

    def interrupted(self: TreesTask, model: Any, *args: Any) -> Any:
        nonlocal count
        count += model.training
        if model.training and count == number:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, model, *args)

    monkeypatch.setattr(TreesTask, "step", interrupted)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("at", [1, 7, 13])
def test_stopped_in_mid_epoch_and_gone_on_with(folder: Path, tmp_path: Path, cell: TreeCellName, at: int) -> None:
    """An epoch has nine batches of 8 trees; their order and the masks to come are in the checkpoint."""
    chosen = settings(folder, cell)
    fit("trees", chosen, tmp_path / "alone")
    assert [line["update"] for line in read_run(tmp_path / "alone").curve] == [5, 10, 15, 18]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_step(patch, at)
        with pytest.raises(Interrupted, match=f"stopped after update {at} of 18"):
            fit("trees", chosen, tmp_path / "stopped")
    torch.rand(3)
    fit("trees", chosen, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone")


@pytest.mark.parametrize("cell", CELLS)
def test_a_run_comes_back_with_and_without_its_data(folder: Path, tmp_path: Path, cell: TreeCellName) -> None:
    vectors = write_vectors(tmp_path / "vectors.txt")
    result = fit("trees", settings(folder, cell, vectors=str(vectors)), tmp_path / "run")
    made, model = load_run(tmp_path / "run")
    assert evaluate(made, model, "test") == result["test"]
    assert set(result["test"]) == {"loss", "accuracy", "phrase_accuracy"}
    assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    for file in (*folder.iterdir(), vectors):
        file.unlink()
    alone = load_model(tmp_path / "run")
    for batch in made.batches("test"):
        assert torch.equal(alone(batch.words, batch.levels), model(batch.words, batch.levels))


def test_data_that_changed_is_noticed(folder: Path, tmp_path: Path) -> None:
    fit("trees", settings(folder), tmp_path / "run")
    file = folder / "test.txt"
    file.write_text(file.read_text().replace("good", "great"))
    with pytest.raises(RunError, match="they were trained on other data, or the files of the data have changed"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize("cell", ["mufuru", "lstm"])
def test_it_learns_to_turn_around(tmp_path: Path, cell: TreeCellName) -> None:
    """A "not" turns what stands to its right around: the sum of the words is not enough."""
    bank = treebank(300)
    tested = [tree for tree in bank.test if tree.label != 2]
    by_words = [(sum(VALUE.get(word, 0) for word in tree.words()) > 0) == (tree.label > 2) for tree in tested]
    assert sum(by_words) / len(tested) < 0.7
    still = {"embedding_dropout": 0.0, "output_dropout": 0.0, "evaluate_every": None, "average": None}
    chosen = settings(write(tmp_path / "bank", bank), cell, **still, hidden_size=16, learning_rate=0.03, epochs=6)
    assert fit("trees", chosen, tmp_path / "run")["test"]["accuracy"] >= 0.9


def test_from_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    vectors = write_vectors(tmp_path / "vectors.txt")
    said = command(capsys, "train", "trees", "--treebank", folder, "--vectors", vectors, *TINY, "--output", run)
    assert said.code == 0, said.err
    result = read_run(run).result
    assert f"{result['test']['accuracy']:.4f}" in said.out
    again = command(capsys, "evaluate", run, "--json")
    assert json.loads(again.out)["metrics"] == result["test"]
    assert_refused(command(capsys, "predict", run), 2, "is of the task trees", "expected a classifier")


def test_mistakes_at_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("train", "trees", "--treebank", folder, "--output", tmp_path / "run", *TINY)
    missing = command(capsys, "train", "trees", "--treebank", tmp_path / "none", *TINY)
    assert_refused(missing, 2, "there is no such file or folder", "train.txt, dev.txt, test.txt")
    (folder / "dev.txt").write_text("(3 (2 so) (3 very) (4 good))\n")
    assert_refused(command(capsys, *given), 2, "two parts, got one with 3", "Make the trees binary first")
    (folder / "dev.txt").write_text("(3 (2 so)\n")
    assert_refused(command(capsys, *given), 2, "dev.txt, line 1, column 10")
    assert not (tmp_path / "run" / "config.json").exists()


def test_help_names_cells_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "train", "trees", "--help")
    assert said.code == 0
    assert "--cell {mufuru,gru,lstm}" in said.out
    assert "mufuru train trees --cell gru" in said.out
