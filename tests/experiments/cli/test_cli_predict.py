"""`mufuru predict`: labels line by line, without the data that the model was trained on."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from classify_data import write_csv, write_numbers
from commands import SOURCE, TINY, Said, assert_refused, command, finish, start

from mufuru.experiments.cli import main
from mufuru.experiments.engine import load_run
from mufuru.experiments.tasks.classify.use import Predictor

TRAINING = ("--hidden-size", "8", "--pooling", "last", "--epochs", "2", "--min-count", "1", "--quiet")
TEXTS = ("The film is good .", "bad", "", "a zebra, but a GOOD one", "plot")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on texts, on characters, on numbers, and one of another task; `data` has what they were trained on."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "data").mkdir()
    texts = write_csv(folder / "data" / "texts.csv")
    numbers = write_numbers(folder / "data" / "bumps.tsv")
    for name, file, cut in (("texts", texts, "words"), ("letters", texts, "characters"), ("numbers", numbers, "words")):
        line = ["train", "classify", *TRAINING, "--data", str(file), "--cut", cut, "--output", str(folder / name)]
        assert main(line) == 0
    assert main(["train", "logic", *TINY, "--epochs", "1", "--quiet", "--output", str(folder / "logic")]) == 0
    return folder


@pytest.fixture
def away(runs: Path, tmp_path: Path) -> Path:
    """The runs alone, on another machine as it were: no file that their settings name is there."""
    for name in ("texts", "letters", "numbers", "logic"):
        shutil.copytree(runs / name, tmp_path / name)
        config = tmp_path / name / "config.json"
        config.write_text(config.read_text().replace(str(runs / "data"), "/nowhere"))
    return tmp_path


def type_in(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def lines(said: Said) -> list[Any]:
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


def by_hand(run: Path, line: str) -> dict[str, float]:
    """The probabilities of a line alone, from the task and the model of the run."""
    task: Any
    model: Any
    task, model = load_run(run)
    if task.meaning.vocabulary is None:
        inputs = torch.tensor([[float(value)] for value in line.split("\t")])
    else:
        words = list(line.lower()) if task.config.data.cut == "characters" else line.lower().replace(",", " ,").split()
        inputs = task.meaning.vocabulary.encode(words or ["<unk>"])
    packed = torch.nn.utils.rnn.pack_sequence([inputs])
    with torch.no_grad():
        probabilities = model(packed).softmax(1)[0].tolist()
    return dict(zip(task.labelled.labels, probabilities, strict=True))


@pytest.mark.parametrize("name", ["texts", "letters"])
def test_predictions_are_those_of_python(
    runs: Path, away: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    found = lines(command(capsys, "predict", away / name, file))
    assert len(found) == len(TEXTS)
    for line, prediction in zip(TEXTS, found, strict=True):
        expected = by_hand(runs / name, line)
        # float32 in a batch of another size
        assert prediction["probabilities"] == pytest.approx(expected, abs=1e-6)
        assert prediction["label"] == max(expected, key=expected.__getitem__)
        assert set(prediction) == {"label", "probabilities"}
        assert sum(prediction["probabilities"].values()) == pytest.approx(1, abs=1e-12)


def test_rows_of_numbers(runs: Path, away: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [line.split("\t", 1)[1] for line in (runs / "data" / "bumps.tsv").read_text().splitlines()[:5]]
    file = tmp_path / "rows.tsv"
    file.write_text("\n".join(rows))
    tabs = lines(command(capsys, "predict", away / "numbers", file))
    for row, prediction in zip(rows, tabs, strict=True):
        assert prediction["probabilities"] == pytest.approx(by_hand(runs / "numbers", row), abs=1e-6)
    for separator in (",", " "):
        file.write_text("\n".join(row.replace("\t", separator) for row in rows))
        assert lines(command(capsys, "predict", away / "numbers", file)) == tabs
    file.write_text("\n".join(json.dumps([float(value) for value in row.split("\t")]) for row in rows))
    assert lines(command(capsys, "predict", away / "numbers", file)) == tabs


def test_an_answer_that_is_no_number_is_refused(away: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JSON has no NaN: nothing is written in its place."""
    file = tmp_path / "rows.tsv"
    file.write_text("1 2 3\n3e38 -3e38 3e38\n")
    found = command(capsys, "predict", away / "numbers", file, "--batch-size", "1")
    assert found.code == 2
    assert "mufuru: the model's next answer is not a finite number" in found.err
    assert len(found.out.splitlines()) == 1


def test_the_standard_input(
    away: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "new.txt").write_text("good film\n\nbad plot")
    from_file = lines(command(capsys, "predict", away / "texts", tmp_path / "new.txt"))
    type_in(monkeypatch, "good film\r\n\r\nbad plot")
    assert lines(command(capsys, "predict", away / "texts")) == from_file
    assert len(from_file) == 3
    type_in(monkeypatch, "")
    assert lines(command(capsys, "predict", away / "texts")) == []


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_batch_size_makes_no_difference(
    away: Path, size: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for count in (32, size):
        type_in(monkeypatch, "\n".join(TEXTS))
        found.append(lines(command(capsys, "predict", away / "texts", "--batch-size", count)))
    for one, other in zip(*found, strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_an_answer_comes_before_the_next_question(away: Path) -> None:
    """With batches of one, as at the end of `tail -f`."""
    line = [sys.executable, "-m", "mufuru_command", "predict", str(away / "texts"), "--batch-size", "1"]
    variables = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(line, stdin=PIPE, stdout=PIPE, text=True, env=variables) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in TEXTS[:2]:
            process.stdin.write(text + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["label"] in ("yes", "no")
        process.stdin.close()
        assert process.wait() == 0


def test_a_very_long_line_is_read_to_its_end(
    away: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 words in the batch of a short line; the last of them makes a difference."""
    type_in(monkeypatch, "bad\n" + 100_000 * "bad " + "\n" + 99_999 * "bad " + "good\n")
    _, long, last = lines(command(capsys, "predict", away / "texts"))
    assert last["probabilities"] != pytest.approx(long["probabilities"], abs=1e-3)


def test_a_mistake_is_told_with_its_line_after_the_answers_before_it(
    away: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "1 2 3\n1 2 x\n1 2 3\n")
    said = command(capsys, "predict", away / "numbers")
    assert said.out.count("\n") == 1
    assert_refused(Said(said.code, "", said.err), 2, "standard input, line 2: ", "'x'")
    type_in(monkeypatch, "1 2 3\n\n")
    assert_refused(command(capsys, "predict", away / "numbers")._replace(out=""), 2, "standard input, line 2: ")
    type_in(monkeypatch, "[[1, 2], [3, 4]]\n")
    assert_refused(
        command(capsys, "predict", away / "numbers"), 2, "line 1: the model reads series of 1 number a step, got"
    )
    type_in(monkeypatch, b"good\n\xff\n")
    said = command(capsys, "predict", away / "texts")
    assert said.out.count("\n") == 1
    assert_refused(said._replace(out=""), 2, "standard input, line 2: expected UTF-8")


def test_what_is_refused(away: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = command(capsys, "predict", away / "logic", tmp_path / "new.txt")
    assert_refused(other, 2, "is of the task logic: expected a classifier of sequences, of `mufuru train classify`")
    assert_refused(command(capsys, "predict", away / "texts", tmp_path / "none.txt"), 2, "there is no such file")
    assert_refused(command(capsys, "predict", tmp_path / "none"), 2, "config.json is missing")
    assert_refused(command(capsys, "predict", away / "texts", "--batch-size", "0"), 2, "at least 1, got 0")
    assert_refused(command(capsys, "predict"), 2, "RUN")


def test_a_reader_that_goes_away(away: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("good\n" * 5000)
    process = start("predict", away / "texts", tmp_path / "many.txt", "--batch-size", "1")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    said = finish(process)
    assert said.err == ""
    assert said.code != 0


def test_from_python(runs: Path) -> None:
    task: Any
    model: Any
    task, model = load_run(runs / "texts")
    predictor = Predictor(model, task.config)
    assert predictor.predict([]) == []
    (found,) = predictor.predict([predictor.read("GOOD")])
    assert found.probabilities == pytest.approx(by_hand(runs / "texts", "good"), abs=1e-6)


def test_files_as_train_reads_them(
    runs: Path, away: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer a row: the same for the training file, with its labels, as for its texts or numbers alone."""
    table = (runs / "data" / "texts.csv").read_text().splitlines()[1:]
    (tmp_path / "bare.txt").write_text("".join(row.split('"')[1] + "\n" for row in table))
    said = command(capsys, "predict", away / "texts", runs / "data" / "texts.csv")
    assert said.err == "mufuru: texts.csv: text in column 'text'\n"
    assert said.out == command(capsys, "predict", away / "texts", tmp_path / "bare.txt").out
    assert said.out.count("\n") == len(table)
    numbers = (runs / "data" / "bumps.tsv").read_text()
    bare = "".join(line.split("\t", 1)[1] + "\n" for line in numbers.splitlines())
    said = command(capsys, "predict", away / "numbers", runs / "data" / "bumps.tsv")
    assert said.err == "mufuru: bumps.tsv: sequences of numbers, the label in the first column, which is left out\n"
    for text in (numbers, bare):
        type_in(monkeypatch, text)
        assert command(capsys, "predict", away / "numbers").out == said.out
    assert_refused(command(capsys, "predict", away / "texts", runs / "data" / "bumps.tsv"), 2, "expected a column")
    type_in(monkeypatch, numbers)
    assert_refused(command(capsys, "predict", away / "texts"), 2, "line 1: the model reads text, got the numbers")
    assert_refused(command(capsys, "predict", away / "numbers", runs / "data" / "texts.csv"), 2, "expected a number")
