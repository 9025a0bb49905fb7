"""Dynamic evaluation of language models against the same written again, token by token."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, assert_refused, command
from lm_texts import VOCABULARY, config, corpus
from torch.nn.functional import cross_entropy

from mufuru.experiments.engine import evaluate, fit, store
from mufuru.experiments.record import read_records, read_run, write_records
from mufuru.experiments.reproduce import lm
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm import dynamic
from mufuru.experiments.tasks.lm.config import DataConfig
from mufuru.experiments.tasks.lm.dynamic import Dynamic
from mufuru.experiments.tasks.lm.task import LMTask


def made(cell: Any = "gru", **changes: Any) -> tuple[LMTask, Any]:
    torch.manual_seed(0)
    task = LMTask(config(cell, **changes), corpus())
    return task, task.build().eval()


def by_hand(task: LMTask, model: Any, how: Dynamic) -> float:
    """The loss of the test text with the paper's rule, logits and all, one segment at a time."""
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    weights = {name: weight.clone() for name, weight in start.items()}
    text = torch.cat((torch.tensor([VOCABULARY.end]), task.corpus.test))
    total, state = 0.0, None
    for begin in range(0, len(text) - 1, how.segment):
        piece = text[begin : begin + how.segment + 1]
        live = {name: weight.requires_grad_() for name, weight in weights.items()}
        outputs, state = torch.func.functional_call(model, live, (piece[:-1].unsqueeze(1), state))
        logits = outputs.squeeze(1) @ live["output.weight"].T + live["output.bias"]
        loss = cross_entropy(logits, piece[1:])
        total += float(loss.detach()) * (len(piece) - 1)
        gradients = torch.autograd.grad(loss, list(live.values()))
        weights = {
            name: (weight - how.learning_rate * gradient + how.decay * (start[name] - weight)).detach()
            for (name, weight), gradient in zip(live.items(), gradients, strict=True)
        }
        state = state.detach()
    return total / len(task.corpus.test)


@pytest.mark.parametrize("cell", ["gru", "mufuru"])
@pytest.mark.parametrize("how", [Dynamic(0.5, 0.1, 7), Dynamic(1.0, 0.0, 1), Dynamic(0.3, 1.0, 100)])
def test_it_is_the_papers_rule(cell: Any, how: Dynamic) -> None:
    task, model = made(cell)
    # two orders of adding in single precision, over at most 47 updates
    assert dynamic.evaluate(task, model, "test", how)["loss"] == pytest.approx(by_hand(task, model, how), rel=1e-5)


def test_the_model_stays_as_it_is() -> None:
    task, model = made("mufuru", tied=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = evaluate(task, model, "test")
    dynamic.evaluate(task, model, "test", Dynamic(0.5))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert evaluate(task, model, "test") == plain


def test_before_its_first_step_it_is_plain_evaluation() -> None:
    """One segment that holds the whole text: nothing has been learned when it is predicted."""
    task, model = made("lstm")
    found = dynamic.evaluate(task, model, "test", Dynamic(5.0, 0.0, 1000))
    # single precision beside double
    assert found["perplexity"] == pytest.approx(evaluate(task, model, "test")["perplexity"], rel=1e-6)


def test_it_learns_what_repeats() -> None:
    """An untrained model of ten words that sees a text of period 7: near 10 without learning, far below with it."""
    torch.manual_seed(0)
    text = torch.arange(7).repeat(60)
    repeating = corpus()
    object.__setattr__(repeating, "test", text)
    task = LMTask(config("gru"), repeating)
    model = task.build().eval()
    assert evaluate(task, model, "test")["perplexity"] > 9
    assert dynamic.evaluate(task, model, "test", Dynamic(1.0, 0.0, 7))["perplexity"] < 6


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(SettingError, match="learning_rate should be a number above 0, got 0"):
        Dynamic(0)
    with pytest.raises(SettingError, match="segment should be a number above 0, got -1"):
        Dynamic(segment=-1)
    with pytest.raises(SettingError, match="decay should be from 0 to 1, got 2"):
        Dynamic(decay=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat\nthe dog sat , and the cat ran\n" * 16)
    fit("lm", config("gru", data=DataConfig(text=(str(book),))), tmp_path / "run")
    return tmp_path / "run"


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "evaluate", run, "--json", "--dynamic", "--learning-rate", 0.5, "--segment", 5)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    result = json.loads((run / "result.json").read_text())
    assert found["metrics"] == result["test"], "the plain numbers are told apart and are as always"
    assert found["dynamic"]["how"] == {"learning_rate": 0.5, "decay": 0.001, "segment": 5}
    assert found["dynamic"]["tried"] == {}
    learned = found["dynamic"]["metrics"]
    assert learned["perplexity"] == pytest.approx(math.exp(learned["loss"]))
    assert learned != found["metrics"]
    assert "test, dynamic at 0.1" in command(capsys, "evaluate", run, "--dynamic").out
    assert "dynamic" not in command(capsys, "evaluate", run, "--json").out
    assert not (run / "dynamic.json").exists(), "nothing is kept unless asked for"


def test_of_several_learning_rates_the_validation_text_chooses(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = ("0.001", "0.5", "1e+60")
    on_valid = {}
    for rate in rates[:2]:
        said = command(capsys, "evaluate", run, "--json", "--dynamic", "--split", "valid", "--learning-rate", rate)
        on_valid[rate] = json.loads(said.out)["dynamic"]["metrics"]
    best = min(on_valid, key=lambda rate: on_valid[rate]["loss"])
    said = command(capsys, "evaluate", run, "--json", "--dynamic", "--keep", "--learning-rate", *rates)
    assert said.code == 0, said.err
    found = json.loads(said.out)["dynamic"]
    assert found["tried"] == on_valid | {"1e+60": None}
    assert found["how"]["learning_rate"] == float(best)
    alone = command(capsys, "evaluate", run, "--json", "--dynamic", "--learning-rate", best)
    assert json.loads(alone.out)["dynamic"]["metrics"] == found["metrics"]
    kept = json.loads((run / "dynamic.json").read_text())
    assert {key: kept[key] for key in found} == found
    assert kept["environment"] == store.environment()
    assert read_run(run).dynamic == kept
    table = command(capsys, "evaluate", run, "--dynamic", "--learning-rate", *rates).out
    assert "valid, dynamic at 1e+60" in table
    assert "inf" in table


def test_what_the_command_refuses(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(command(capsys, "evaluate", run, "--dynamic", "--decay", 2), 2, "decay should be from 0 to 1, got 2")
    assert_refused(command(capsys, "evaluate", run, "--keep"), 2, "keep are those of dynamic evaluation")
    other = command(capsys, "evaluate", run, "--dynamic", "--keep", "--split", "valid")
    assert_refused(other, 2, "--keep is for the test data: leave --split out")
    assert command(capsys, "train", "logic", *TINY, "--epochs", 1, "--output", tmp_path / "logic", "--quiet").code == 0
    refused = command(capsys, "evaluate", tmp_path / "logic", "--dynamic")
    assert_refused(refused, 2, "is of the task logic: expected a language model")


def test_reports_show_it_apart(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of a single run, and that of the experiment, also from a file of records."""
    assert command(capsys, "evaluate", run, "--dynamic", "--keep", "--learning-rate", 10, 1e-5, 0.5).code == 0
    assert command(capsys, "report", run, "-o", tmp_path / "report.html").code == 0
    assert "with dynamic evaluation" in (tmp_path / "report.html").read_text(encoding="utf-8")
    record = replace(read_run(run), group="best")
    without = replace(record, config=record.config | {"seed": 1}, dynamic={})
    write_records(tmp_path / "best.jsonl", [record, without])
    read = read_records(tmp_path / "best.jsonl")
    assert sorted(bool(found.dynamic) for found in read) == [False, True]
    (table,) = [block for block in lm.best(read) if getattr(block, "caption", "").startswith("Apart")]
    ((model, seed, plain, learned, _, rates),) = table.rows
    assert (model, seed, rates) == ("GRU", "0", "1e-05, 0.5, 10.0")
    assert plain == f"{record.result['test']['perplexity']:.1f}"
    assert learned == f"{record.dynamic['metrics']['perplexity']:.1f}"
    assert not [block for block in lm.best([without]) if getattr(block, "caption", "").startswith("Apart")]


@pytest.mark.parametrize(
    ("rates", "text"),
    [([1e60], "Try a learning_rate below 1e+60"), ([1e60, 1e61], "with every learning rate: try lower ones")],
)
def test_if_it_diverges_the_plain_numbers_are_still_told(
    run: Path, rates: list[float], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, "evaluate", run, "--json", "--dynamic", "--learning-rate", *rates)
    assert said.code == 1
    assert said.err.startswith("mufuru: dynamic evaluation diverged")
    assert text in said.err
    assert json.loads(said.out)["metrics"] == json.loads((run / "result.json").read_text())["test"]
