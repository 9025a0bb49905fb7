"""Regress, tag and forecast through the engine and every command."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from commands import command
from folders import assert_same_run
from number_data import TASKS, made

from mufuru.experiments.cli.explore import load
from mufuru.experiments.engine import Interrupted, fit, load_model, load_run
from mufuru.experiments.explorer.runs import View
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.regress.task import Predictor as RegressPredictor
from mufuru.experiments.tasks.task import Totals


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each task."""
    folder = tmp_path_factory.mktemp("runs")
    for task in TASKS:
        fit(task, made(task, folder), folder / task)
    return {task: folder / task for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_stopped_and_resumed_to_the_same_bits(task: str, runs: dict[str, Path], tmp_path: Path) -> None:
    config = made(task, runs[task].parent)
    kind = KINDS[task].make
    step, count = kind.step, 0  # type: ignore[attr-defined]

    def interrupted(self: Any, model: Any, *rest: Any) -> Any:
        nonlocal count
        count += model.training
        if model.training and count == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, model, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "step", interrupted)
        with pytest.raises(Interrupted, match="stopped after update 4"):
            fit(task, config, tmp_path / "stopped")
    torch.rand(3)
    fit(task, config, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", runs[task])


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_a_batch_are_shared_between_processes(task: str, runs: dict[str, Path]) -> None:
    """The sums of two shares are those of the whole."""
    made: Any
    made, model = load_run(runs[task])
    batch = made.batches("valid")[0]
    rows, whole, parts = made.rows(batch), Totals(), Totals()
    with torch.no_grad():
        whole.add(made.step(model, batch, None))
        for part in (slice(0, rows // 3), slice(rows // 3, rows)):
            parts.add(made.step(model, made.share(batch, part), None))
    assert parts.count == whole.count
    # float32 in another order
    assert made.metrics(parts) == pytest.approx(made.metrics(whole), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_batches_do_not_change_metrics(task: str, runs: dict[str, Path]) -> None:
    made: Any
    made, model = load_run(runs[task])
    one, other = Totals(), Totals()
    with torch.no_grad():
        for batch in made.batches("test"):
            one.add(made.step(model, batch, None))
            for row in range(made.rows(batch)):
                other.add(made.step(model, made.share(batch, slice(row, row + 1)), None))
    assert made.metrics(other) == pytest.approx(made.metrics(one), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_every_command(task: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs[task]

    def done(*arguments: object) -> str:
        said = command(capsys, *arguments)
        assert said.code == 0, said
        return said.out

    metrics = json.loads(done("evaluate", run, "--json"))["metrics"]
    assert metrics == json.loads((run / "result.json").read_text())["test"]
    if KINDS[task].new_data is not None:
        # the whole file: 48 examples of training, 6 of validation and 6 of test
        own, data = json.loads((run / "result.json").read_text()), run.parent / TASKS[task][2]
        every = json.loads(done("evaluate", run, "--data", data, "--json"))["metrics"]
        if task == "regress":
            shares = {"train": 48, "valid": 6, "test": 6}
            assert every["mae"] == pytest.approx(sum(n * own[part]["mae"] for part, n in shares.items()) / 60, rel=1e-5)
        assert every.keys() == metrics.keys()
        assert done("predict", run, data).count("\n") == 60
    done("export", run, "--to", "safetensors", "-o", tmp_path / "files")
    assert f"A {KINDS[task].noun}: " in (tmp_path / "files" / "README.md").read_text()
    done("prune", run, "--threshold", "0.13", "--measure", "mean", "-o", tmp_path / "pruned")
    load_model(tmp_path / "pruned")
    done("report", run, "-o", tmp_path / "report.html")
    drawn = "Forecasts of test values" in (tmp_path / "report.html").read_text()
    assert drawn == (task == "forecast")


@pytest.mark.parametrize("task", TASKS)
def test_onnx_gives_the_answers(task: str, runs: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    said = command(capsys, "export", runs[task], "--to", "onnx", "-o", tmp_path / "model.onnx")
    assert said.code == 0, said
    model: Any = load_model(runs[task])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    arguments = model.example(3, 8, seed=5)
    names = [place.name for place in session.get_inputs()]
    (got,) = session.run(None, {name: value.numpy() for name, value in zip(names, arguments, strict=True)})
    # onnxruntime has exponentials of its own
    np.testing.assert_allclose(got, model.answers(*arguments)[0].numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("task", "text"), [("regress", "a flat with room"), ("tag", "Anna Smith sees")])
def test_the_explorer(task: str, text: str, runs: dict[str, Path]) -> None:
    (run,) = load([runs[task]])
    answer = run.answer(View(run.name, text))
    assert len(answer["predictions"]) == len(answer["tokens"]) == len(text.split())
    label, share = answer["predictions"][-1]["top"][0]
    assert 0 <= share <= 1
    if task == "regress":
        predictor: Any = RegressPredictor(load_model(runs[task]), run.reader.config)
        assert float(label) == pytest.approx(predictor.predict([text.split()])[0].value, rel=1e-3)
    else:
        assert {name for name, _ in answer["predictions"][-1]["top"]} == {"B-PER", "I-PER", "O"}
