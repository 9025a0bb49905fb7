"""Training through the command line: killed, stopped, resumed, evaluated, reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from commands import TINY, assert_refused, command, finish, start, wait_until
from folders import assert_same_run

from mufuru.experiments.cli import main, train
from mufuru.experiments.record import RunFolder, read_lines, read_run

SETTINGS = ("logic", *TINY, "--epochs", "12", "--hidden-size", "4", "--seed", "5", "--select", "best")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was left alone."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", *SETTINGS, "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A run of one's own to damage."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_settings_come_from_the_flags(run: Path) -> None:
    config = read_run(run).config
    assert (config["seed"], config["cell"]["hidden_size"], config["training"]["epochs"]) == (5, 4, 12)
    assert config["train_formulae"] == 40


def test_quiet_says_nothing_and_the_folder_has_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("logic", *TINY, "--epochs", "1", "--cell", "gru", "--hidden-size", "3", "--seed", "7")
    assert command(capsys, "train", *settings, "--quiet") == (0, "", "")
    assert RunFolder(tmp_path / "runs" / "logic-gru-3-seed-7").finished
    assert_refused(command(capsys, "train", *settings), 2, "runs/logic-gru-3-seed-7", "choose another folder")


@pytest.mark.parametrize("line", [1, 4, 11])
def test_killed_and_gone_on_with(run: Path, tmp_path: Path, line: int, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "killed"
    process = start("train", *SETTINGS, "--output", folder, "--checkpoint-seconds", "0")
    wait_until(lambda: len(read_lines(RunFolder(folder).metrics)) >= line, process)
    process.kill()
    process.communicate()
    assert not RunFolder(folder).finished
    assert command(capsys, "train", "--resume", folder, "--quiet") == (0, "", "")
    assert_same_run(folder, run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_and_gone_on_with(
    run: Path, tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a stopped run"
    process = start("train", *SETTINGS, "--output", folder)
    wait_until(RunFolder(folder).best.exists, process)
    process.send_signal(number)
    said = finish(process)
    assert (said.code, said.out) == (128 + number, "")
    assert f"resume with `mufuru train --resume '{folder}'`" in said.err.splitlines()[-1]
    assert_refused(command(capsys, "report", folder), 2, "not finished", "--resume")
    assert command(capsys, "train", "logic", "--resume", folder, "--quiet").code == 0
    assert_same_run(folder, run)


def test_a_finished_run_is_left_as_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = RunFolder(run).result.stat().st_mtime_ns
    said = command(capsys, "train", "--resume", run)
    assert said.code == 0
    assert f"mufuru report {run}" in said.out
    assert RunFolder(run).result.stat().st_mtime_ns == before
    assert_refused(command(capsys, "train", *SETTINGS, "--output", run), 2, "holds a finished run", "another folder")


def test_other_settings_are_not_mixed_in(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(copy).result.unlink()
    refused = command(capsys, "train", "--resume", copy, "--epochs", "13")
    assert_refused(refused, 2, "training.epochs is 12 there and 13 here")
    assert_refused(command(capsys, "train", "--resume", copy, "--preset", "paper"), 2, "seed is 5 there and 0 here")
    assert_refused(command(capsys, "train", *SETTINGS, "--output", copy), 2, "--resume", "another folder")
    assert_refused(command(capsys, "train", "--resume", copy, "--output", "x"), 2, "leave --output out")
    assert_refused(command(capsys, "train", "lm", "--resume", copy), 2, "is of the task logic: leave lm out")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


def test_a_tampered_checkpoint_is_refused_and_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = RunFolder(copy)
    files.result.unlink()
    damage(files.last)
    kept = files.last.read_bytes()
    assert_refused(command(capsys, "train", "--resume", copy), 2, str(files.last), "Delete it")
    assert files.last.read_bytes() == kept
    damage(files.best)
    assert_refused(command(capsys, "evaluate", copy), 2, str(files.best))


def test_a_cut_off_checkpoint_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = RunFolder(copy)
    files.result.unlink()
    files.last.write_bytes(files.last.read_bytes()[:100])
    assert_refused(command(capsys, "train", "--resume", copy), 2, str(files.last))


@pytest.mark.parametrize("text", ["{", "{}", '{"task": "logic", "config": {"sed": 3}}', '{"task": "x", "config": {}}'])
def test_damaged_settings_are_told(copy: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(copy).config.write_text(text)
    assert_refused(command(capsys, "train", "--resume", copy), 2, str(copy))
    assert_refused(command(capsys, "evaluate", copy), 2, str(copy))


@pytest.mark.parametrize("line", ["train --resume {}", "evaluate {}", "report {}"])
def test_a_folder_without_a_run(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert_refused(command(capsys, *line.format(folder).split()), 2, str(folder))


def test_a_file_where_a_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(command(capsys, "train", *SETTINGS, "--output", tmp_path / "file"), 2, "file")


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_evaluate_gives_the_metrics_of_the_result(run: Path, split: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "evaluate", run, "--split", split, "--json")
    assert json.loads(said.out) == {"run": str(run), "split": split, "metrics": read_run(run).result[split]}
    assert f"{read_run(run).result[split]['accuracy']:.4f}" in command(capsys, "evaluate", run, "--split", split).out


def test_report_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert command(capsys, "report", run, "-o", page) == (0, f"Wrote 1 run to {page}\n", "")
    assert page.read_text().lstrip().lower().startswith("<!doctype html")


def test_report_into_a_place_that_cannot_be(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(command(capsys, "report", run, "-o", tmp_path / "file" / "page.html"), 1, "file")


def test_threads_are_those_the_run_began_with(copy: Path) -> None:
    environment = RunFolder(copy).environment
    environment.write_text(json.dumps({**json.loads(environment.read_text()), "threads": 2}))
    assert train.threads_of(copy) == 2
    environment.write_text("[]")
    assert train.threads_of(copy) == 1


def test_a_report_into_a_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(command(capsys, "report", run, "-o", tmp_path), 2, "is a folder: name a file")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(command(capsys, "report", run, "-o", tmp_path / "pipe"), 2, "is a device or a pipe")
    assert (tmp_path / "pipe").is_fifo()
