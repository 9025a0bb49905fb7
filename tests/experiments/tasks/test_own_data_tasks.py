"""Regress, tag and forecast through the engine and every command."""

from __future__ import annotations

import json
import os
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import assert_refused, command
from folders import assert_same_run
from number_data import TASKS, be_killed, made

from mufuru.experiments.cli.explore import load
from mufuru.experiments.engine import Interrupted, fit, load_model, load_run
from mufuru.experiments.explorer.runs import Place, Refused, View
from mufuru.experiments.record import RunFolder
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.forecast.use import Predictor as ForecastPredictor
from mufuru.experiments.tasks.regress.task import Predictor as RegressPredictor
from mufuru.experiments.tasks.task import KEPT, Totals


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


@pytest.fixture(scope="module")
def processes() -> Any:
    """A context whose processes load only once what loads slowly."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pytest", "number_data", "torch._dynamo"])
    return context


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["with checkpoints", "without"])
@pytest.mark.parametrize("task", TASKS)
def test_killed_and_resumed_to_the_same_bits(
    task: str, seconds: float, processes: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    process = processes.Process(target=be_killed, args=(task, runs[task].parent, tmp_path / "killed", 5, seconds))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert RunFolder(tmp_path / "killed").last.exists() == (seconds == 0)
    fit(task, made(task, runs[task].parent), tmp_path / "killed", resume=True)
    assert_same_run(tmp_path / "killed", runs[task])


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
    # the whole file: 48 examples of training, 6 of validation and 6 of test
    own, data = json.loads((run / "result.json").read_text()), run.parent / TASKS[task][2]
    every = json.loads(done("evaluate", run, "--data", data, "--json"))["metrics"]
    if task == "regress":
        shares = {"train": 48, "valid": 6, "test": 6}
        assert every["mae"] == pytest.approx(sum(n * own[part]["mae"] for part, n in shares.items()) / 60, rel=1e-5)
    assert every.keys() == metrics.keys()
    assert done("predict", run, data).count("\n") == (2 if task == "forecast" else 60)
    done("export", run, "--to", "safetensors", "-o", tmp_path / "files")
    assert f"A {KINDS[task].card.noun}: " in (tmp_path / "files" / "README.md").read_text()
    done("prune", run, "--threshold", "0.13", "--measure", "mean", "-o", tmp_path / "pruned")
    load_model(tmp_path / "pruned")
    done("report", run, "-o", tmp_path / "report.html")
    drawn = "Forecasts of test values" in (tmp_path / "report.html").read_text()
    assert drawn == (task == "forecast")


@pytest.mark.parametrize("task", TASKS)
def test_no_c_file(task: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "export", runs[task], "--to", "c", "-o", tmp_path / "model.c")
    # the regressor of these runs reads words
    words = "the model reads words" if task == "regress" else "only classifiers, regressors and language models can"
    assert_refused(said, 2, words)
    assert not (tmp_path / "model.c").exists()


def test_forecasts_of_another_file(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evaluated as the predictions from the same windows are by hand."""
    rows = (runs["forecast"].parent / TASKS["forecast"][2]).read_text().splitlines()
    steps, horizon, season, origins = 18, 3, 6, 4
    (tmp_path / "new.csv").write_text("\n".join(rows[: 1 + steps + horizon + origins - 1]) + "\n")
    said = command(capsys, "evaluate", runs["forecast"], "--data", tmp_path / "new.csv", "--json")
    assert said.code == 0, said
    metrics = json.loads(said.out)["metrics"]
    values = np.array([row.split(",")[1:3] for row in rows[1:]], float).T[:, : steps + horizon + origins - 1]
    scale = np.abs(values[:, season:] - values[:, :-season]).mean(1)
    errors, naive = [], []
    for origin in range(steps, steps + origins):
        (tmp_path / "window.csv").write_text("\n".join(rows[: 1 + origin]) + "\n")
        said = command(capsys, "predict", runs["forecast"], tmp_path / "window.csv")
        forecasts = np.array([json.loads(line)["forecast"] for line in said.out.splitlines()])
        truth = values[:, origin : origin + horizon]
        errors.append(np.abs(forecasts - truth) / scale[:, None])
        naive.append(np.abs(values[:, origin - season : origin - season + horizon] - truth) / scale[:, None])
    # float32
    assert metrics["mase"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert metrics["naive_mase"] == pytest.approx(np.mean(naive), rel=1e-4)
    (tmp_path / "short.csv").write_text("\n".join(rows[:20]) + "\n")
    said = command(capsys, "evaluate", runs["forecast"], "--data", tmp_path / "short.csv")
    assert_refused(said, 2, "the series 'calm' has 19 values, expected at least 21: 18 to forecast from and a horizon")
    said = command(capsys, "evaluate", runs["forecast"], "--data", tmp_path / "new.csv", "--label-column", "calm")
    assert_refused(said, 2, "leave --format, --text-column and --label-column out")


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


def test_the_explorer_foretells_what_predict_does(runs: dict[str, Path]) -> None:
    (run,) = load([runs["forecast"]])
    text, predictor = run.examples[-1], ForecastPredictor(load_model(runs["forecast"]), run.reader.config)
    answer, (wanted,) = run.answer(View(run.name, text)), predictor.predict([predictor.read(text)])
    low, high = answer["scale"]
    assert [min(map(float, answer["tokens"])), max(map(float, answer["tokens"]))] == pytest.approx(
        [low, high], rel=1e-3
    )
    for step, ((label, place), value) in enumerate(zip(answer["predictions"][-1]["top"], wanted.forecast, strict=True)):
        ahead, said = label.split(": ")
        assert ahead == f"+{step + 1}"
        assert float(said.split()[0]) == pytest.approx(value, abs=1e-3 * (high - low))
        assert place == pytest.approx(min(1, max(0, (value - low) / (high - low))), abs=1e-3)
    # too short a series, and a longer one
    with pytest.raises(Refused, match="expected at least 18 values"):
        run.answer(View(run.name, "1 2 3"))
    assert run.answer(View(run.name, f"5 {text}"))["notes"] == ["The model reads the last 18 values alone."]


@pytest.mark.parametrize("task", TASKS)
def test_runs_keep_texts_that_the_explorer_can_search(task: str, runs: dict[str, Path]) -> None:
    (run,) = load([runs[task]])
    assert 2 <= len(run.examples) <= KEPT
    found = run.alike(Place(run.name, run.examples[0], token=0))
    assert found["texts"] == len(run.examples)
    assert found["found"]
