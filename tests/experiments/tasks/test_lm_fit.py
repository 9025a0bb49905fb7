"""Language models through the engine: stopped in mid-epoch and resumed to the same bits."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import assert_same_run
from lm_texts import config

from mufuru.experiments.engine import Interrupted, RunError, evaluate, fit, load_run
from mufuru.experiments.record import read_run
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.lm.config import DataConfig, LMConfig
from mufuru.experiments.tasks.lm.task import LMTask

NOISE = {"embedding_dropout": 0.2, "input_dropout": 0.2, "output_dropout": 0.2, "weight_dropout": 0.2}
PENALTIES = {"activation_penalty": 1.0, "temporal_penalty": 1.0}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("the cat sat on the mat\nthe dog sat , and the cat ran\n\n" * 16)
    return path


def settings(book: Path, cell: CellName, **changes: Any) -> LMConfig:
    data = DataConfig(text=(str(book),), min_count=2)
    return config(cell, {**NOISE, **PENALTIES}, data=data, tied=True, average=0.9, clip=1.0, **changes)


def interrupt_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C in a training step."""
    step, count = LMTask.step, 0

    def interrupted(self: LMTask, model: Any, *args: Any) -> Any:
        nonlocal count
        count += model.training
        if model.training and count == number:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, model, *args)

    monkeypatch.setattr(LMTask, "step", interrupted)


@pytest.mark.parametrize(
    ("cell", "options"), [("mufuru", {}), ("mufuru", {"controller_size": 2}), ("gru", {}), ("lstm", {"num_layers": 2})]
)
@pytest.mark.parametrize("at", [1, 4, 11])
def test_stopped_in_mid_epoch_and_gone_on_with(
    book: Path, tmp_path: Path, cell: CellName, options: dict[str, Any], at: int
) -> None:
    """An epoch has eight windows; the carried state, the average and the masks to come are all in the checkpoint."""
    chosen = settings(book, cell, **options)
    fit("lm", chosen, tmp_path / "alone")
    assert read_run(tmp_path / "alone").curve[0]["update"] == 8
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_step(patch, at)
        with pytest.raises(Interrupted, match=f"stopped after update {at} of 16"):
            fit("lm", chosen, tmp_path / "stopped")
    torch.rand(3)
    fit("lm", chosen, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone")


def test_a_run_comes_back_with_tied_weights(book: Path, tmp_path: Path) -> None:
    for select in ("best", "last"):
        result = fit("lm", settings(book, "gru", select=select), tmp_path / select)
        made, model = load_run(tmp_path / select)
        output, embedding = model.get_submodule("output"), model.get_submodule("embedding")
        assert output.weight is embedding.weight
        assert evaluate(made, model, "test") == result["test"]
        assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_the_record_of_a_run(book: Path, tmp_path: Path) -> None:
    result = fit("lm", settings(book, "mufuru"), tmp_path / "run")
    assert result["valid"]["perplexity"] == min(
        line["valid"]["perplexity"] for line in read_run(tmp_path / "run").curve
    )
    table = result["inspection"]["operation_weights"]
    assert {"function words", "content words", "<eos>"} <= set(table["tokens"])


def test_a_text_that_changed_is_noticed(book: Path, tmp_path: Path) -> None:
    fit("lm", settings(book, "gru"), tmp_path / "run")
    book.write_text(book.read_text().replace("dog", "cow"))
    with pytest.raises(RunError, match="trained on other data, or the files of the data have changed since"):
        load_run(tmp_path / "run")


def test_a_relative_path_is_one_of_the_folder_where_the_run_began(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = settings(Path("book.txt"), "gru")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_step(patch, 2)
        with pytest.raises(Interrupted):
            fit("lm", chosen, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"book\.txt: there is no such file.* from the folder in which it was started"):
        fit("lm", chosen, tmp_path / "run", resume=True)
    monkeypatch.chdir(tmp_path)
    fit("lm", chosen, tmp_path / "run", resume=True)


@pytest.mark.slow
def test_it_learns_a_text(book: Path, tmp_path: Path) -> None:
    """Far below the vocabulary's size: the text repeats itself."""
    chosen = settings(book, "mufuru", hidden_size=32, epochs=30, learning_rate=0.02)
    plain = replace(chosen, regularisation=LMConfig().regularisation)
    assert fit("lm", plain, tmp_path / "run")["test"]["perplexity"] < 1.5
