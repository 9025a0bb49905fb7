"""Metrics of regress, tag and forecast beside others' computations, and what their predictors give and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import command
from number_data import forecast, made, regress, tag, write_names, write_rooms, write_waves
from seqeval.metrics import f1_score

from mufuru.experiments.data import DataError
from mufuru.experiments.data.series import Loaded, Series
from mufuru.experiments.engine import evaluate
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.forecast.task import ForecastTask
from mufuru.experiments.tasks.forecast.use import Predictor as Forecasts
from mufuru.experiments.tasks.regress.task import Predictor as Estimates
from mufuru.experiments.tasks.regress.task import RegressTask, pinball
from mufuru.experiments.tasks.tag.model import signatures
from mufuru.experiments.tasks.tag.task import TagTask
from mufuru.experiments.tasks.tag.use import Predictor as Labels
from mufuru.experiments.tasks.task import HowToRead, Totals


def test_regression_in_units_of_the_data(tmp_path: Path) -> None:
    """Targets are 100,000 and some hundreds: standardised inside, undone outside."""
    task = RegressTask(regress(write_rooms(tmp_path / "rooms.csv")))
    model = task.build().eval()
    examples = task.labelled.test
    estimates = Estimates(model, task.config).predict(examples.sequences)
    got, want = np.array([one.value for one in estimates]), examples.targets.numpy()
    metrics = evaluate(task, model, "test")
    assert metrics["mae"] == pytest.approx(np.abs(got - want).mean(), rel=1e-5)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.square(got - want).mean()), rel=1e-5)
    assert metrics["r2"] == pytest.approx(
        1 - np.square(got - want).sum() / np.square(want - want.mean()).sum(), rel=1e-5
    )
    train = task.labelled.train.targets.numpy()
    assert abs(got - train.mean()).max() < 3 * train.std()
    assert all(one.quantiles["0.1"] <= one.quantiles["0.9"] for one in estimates)
    # the exported model speaks in units of the data too
    assert model(task.batches("test")[0].inputs)[:, 0].detach().sort().values.tolist() == pytest.approx(
        sorted(got), rel=1e-6
    )


def test_a_split_of_equal_targets_has_no_r2() -> None:
    sums = {"absolute": 3.0, "squared": 9.0, "target": 6.0, "target squared": 12.0}
    task = object.__new__(RegressTask)
    assert task.metrics(Totals(1.0, 3, sums)) == {"loss": 1 / 3, "mae": 1.0, "rmse": 3**0.5}


def test_the_quantile_loss_is_least_at_the_quantile() -> None:
    values = torch.arange(101, dtype=torch.float64)
    losses = torch.stack([pinball(guess.expand(101, 1), values, (0.9,)).sum() for guess in values])
    assert int(losses.argmin()) == 90


def test_spans_as_seqeval_counts_them(tmp_path: Path) -> None:
    task = TagTask(tag(write_names(tmp_path / "names.conll")))
    assert task.metric == "span_f1"
    torch.manual_seed(0)
    model = task.build().eval()
    predicted = Labels(model, task.config).predict(task.labelled.test.sequences)
    sizes = [len(words) for words in task.labelled.test.sequences]
    wanted = [[task.meaning.labels[label] for label in row.tolist()] for row in task.labelled.test.targets.split(sizes)]
    metrics = evaluate(task, model, "test")
    assert metrics["span_f1"] == pytest.approx(f1_score(wanted, [one.labels for one in predicted]))
    right = [a == b for row, one in zip(wanted, predicted, strict=True) for a, b in zip(row, one.labels, strict=True)]
    assert metrics["accuracy"] == pytest.approx(np.mean(right))


def test_right_spans_have_a_perfect_score(tmp_path: Path) -> None:
    task = TagTask(tag(write_names(tmp_path / "names.conll")))

    def step(batch: Any, state: Any) -> Any:
        class Right:
            training = False

            def __call__(self, inputs: Any) -> Any:
                return inputs._replace(data=torch.nn.functional.one_hot(batch.targets, 3).double())

        return task.step(Right(), batch, state)

    metrics = evaluate(task, task.build(), "test", step)
    assert (metrics["span_f1"], metrics["accuracy"]) == (1.0, 1.0)


def test_labels_without_spans_and_without_seqeval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tag(write_names(tmp_path / "names.conll"))

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name, name="seqeval")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(DataError, match=r"needs seqeval, which is not installed: `pip install '.\[tag\]'`"):
        TagTask(config)
    task = TagTask(replace(config, metric="accuracy"))
    assert set(evaluate(task, task.build(), "test")) == {"loss", "accuracy"}
    parts = replace(config, data=replace(config.data, label_column="2"))
    assert TagTask(parts).metric == "accuracy"
    with pytest.raises(DataError, match="the metric span_f1 is for BIO labels, and the labels are N, V"):
        TagTask(replace(parts, metric="span_f1"))


def test_rare_words_are_read_as_their_signatures(tmp_path: Path) -> None:
    assert signatures("Frankfurter") == ("<unk-title-er>", "<unk-title>")
    assert signatures("rare17") == ("<unk-digit>", "<unk-digit>")
    assert signatures("NATO") == ("<unk-upper-to>", "<unk-upper>")
    assert signatures("a") == ("<unk-lower>", "<unk-lower>")
    task = TagTask(tag(write_names(tmp_path / "names.conll")))
    vocabulary = task.meaning.vocabulary
    assert vocabulary is not None
    assert "<unk-digit>" in vocabulary
    assert list(task.config.forms(["rare999", "Anna", "Zeno"], vocabulary)) == ["<unk-digit>", "Anna", "<unk>"]
    assert Labels(task.build(), task.config).predict([[], ["Anna"]])[0] == ([], [], [])


def test_forecasts_beside_the_seasonal_naive_one(tmp_path: Path) -> None:
    """All numbers again from the file's values, window by window."""
    config = forecast(write_waves(tmp_path / "waves.csv"))
    task = ForecastTask(config)
    model = task.build().eval()
    assert "192 training, 20 validation, 20 test forecasts of 3 from 18 values" not in task.description
    sums: dict[str, list[Any]] = {"mase": [], "naive_mase": [], "smape": [], "naive_smape": [], "coverage": []}
    for one in task.series:
        values = one.values[:, 0].double().numpy()
        scale = np.abs(values[6:96] - values[:90]).mean()
        # 12 values each are held out: origins from 108 to 117
        for origin in range(108, 118):
            with torch.no_grad():
                low, median, high = model(one.values[origin - 18 : origin].unsqueeze(1))[0].double().numpy().T
            truth, naive = values[origin : origin + 3], values[origin - 6 : origin - 3]
            for name, guess in (("", median), ("naive_", naive)):
                sums[f"{name}mase"].append(np.abs(guess - truth) / scale)
                sums[f"{name}smape"].append(200 * np.abs(guess - truth) / (np.abs(guess) + np.abs(truth)))
            sums["coverage"].append((low <= truth) & (truth <= high))
    metrics = evaluate(task, model, "test")
    for name, some in sums.items():
        # the model's own numbers are float32
        assert metrics[name] == pytest.approx(np.mean(some), rel=1e-3), name


def test_no_window_of_training_sees_what_is_held_out(tmp_path: Path) -> None:
    task = ForecastTask(forecast(write_waves(tmp_path / "waves.csv"), stride=3))
    for number in range(2):
        first, last = number * 120, number * 120 + 120
        origins = {part: rows[rows[:, 1] == number, 0] for part, rows in task.origins.items()}
        assert (int(origins["train"].min()), int(origins["train"].max())) == (first + 18, first + 96 - 3)
        assert origins["valid"].tolist() == list(range(first + 96, first + 106, 3))
        assert origins["test"].tolist() == list(range(first + 108, last - 2, 3))


def test_forecasts_follow_the_scale_of_a_window(tmp_path: Path) -> None:
    task = ForecastTask(forecast(write_waves(tmp_path / "waves.csv"), ("warm",)))
    model = task.build().eval()
    inputs = task.batch(task.origins["test"]).inputs
    other = inputs.clone()
    other[:, :, 0] = 1000 + 5 * other[:, :, 0]
    with torch.no_grad():
        one, far = model(inputs), model(other)
        flat = model(torch.ones(18, 1, 2))
    # float32 of numbers about 1000
    torch.testing.assert_close(1000 + 5 * one, far, rtol=1e-5, atol=1e-2)
    assert flat.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantiles": (0.9, 0.1)}, "quantiles should be rising numbers above 0 and below 1, got 0.9 0.1"),
        ({"quantiles": (0.1, 0.9)}, "quantiles should have 0.5 among them"),
        ({"context": 5}, "context should be a season at least, 6 steps, got 5"),
        ({"horizon": 0}, "horizon should be a number above 0, got 0"),
    ],
)
def test_settings_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        forecast(tmp_path / "waves.csv", **changes)


def test_series_that_cannot_be_forecast(tmp_path: Path) -> None:
    config = forecast(tmp_path / "none.csv")
    with pytest.raises(DataError, match="the series 'short' has 20 values, expected at least 27: 18 to forecast from"):
        ForecastTask(config, Loaded([Series("short", torch.rand(20, 1))], (), "made"))
    with pytest.raises(DataError, match="the series 'same' repeats itself exactly in training"):
        ForecastTask(config, Loaded([Series("same", torch.arange(6.0).repeat(20).unsqueeze(1))], (), "made"))
    predictor = Forecasts(ForecastTask(config, Loaded([Series("a", torch.rand(60, 1))], (), "made")).build(), config)
    with pytest.raises(DataError, match="expected at least 18 values to forecast from, and the series has 2"):
        predictor.read("1 2")
    with pytest.raises(DataError, match="expected a value in each step, and the series has 2 numbers"):
        predictor.read(str([[1, 2]] * 18))


@pytest.mark.parametrize("task", ["regress", "tag", "forecast"])
def test_a_run_needs_its_file(task: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = command(capsys, "train", task, "--output", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert f"{task} needs" in said.err
    assert "--data" in said.err
    assert not (tmp_path / "run").exists()


def test_predictions_of_files(tmp_path: Path) -> None:
    """A forecaster reads the series of a table, a tagger the sentences of columns, or lines of text."""
    config = made("forecast", tmp_path)
    guessed = replace(config, data=replace(config.data, value_columns=()))
    forecaster = Forecasts(ForecastTask(guessed).build(), guessed)
    # of the columns that were guessed in training, a year is none, however few rows there are
    (tmp_path / "new.csv").write_text("year,warm,calm,rising\n" + "1900,1,2,3\n1902,4,5,6\n" * 9)
    found, _ = forecaster.open(tmp_path / "new.csv", HowToRead())
    assert [one.name for one in found] == ["calm", "rising", "warm"]
    (tmp_path / "other.csv").write_text("year,price\n1,2\n")
    with pytest.raises(DataError, match=r"other.csv has no column 'calm'"):
        forecaster.open(tmp_path / "other.csv", HowToRead())
    task = TagTask(made("tag", tmp_path))
    predictor = Labels(task.build(), task.config)
    sentences, said = predictor.open(tmp_path / "names.conll", HowToRead())
    assert len(list(sentences)) == 60
    assert said == "names.conll: conll, 60 sentences"
    with pytest.raises(DataError, match=r"waves.csv: expected sentences as in training"):
        predictor.open(tmp_path / "waves.csv", HowToRead())
    (tmp_path / "lines.md").write_text(f"Anna walks.\n{json.dumps(['Anna walks', '.'])}\n")
    assert list(predictor.open(tmp_path / "lines.md", HowToRead())[0]) == [["Anna", "walks", "."], ["Anna walks", "."]]
    (tmp_path / "lines.md").write_text('["Anna", 3]\n')
    with pytest.raises(DataError, match=r"lines.md, line 1: expected a JSON list of tokens"):
        list(predictor.open(tmp_path / "lines.md", HowToRead())[0])
