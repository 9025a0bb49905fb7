"""`mufuru sweep` on this machine: what it prints, keeps and refuses."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import commands
import pytest
from commands import TINY, assert_refused, command, finish, started, wait_until
from folders import assert_same_run

from mufuru.disk import locked
from mufuru.experiments.record import RunFolder
from mufuru.experiments.search.run import Made
from mufuru.experiments.search.state import Trial

SMALL = ("logic", *TINY, "--epochs", "3", "--hidden-size", "2")
RATES = ("--over", "learning_rate=log:1e-3:1e-1")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes import torch, one after the other on a busy machine."""
    monkeypatch.setattr(commands, "PATIENCE", 300.0)


def test_a_search_names_the_best_and_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("sweep", *SMALL, *RATES, "--trials", "3", "--output", tmp_path / "sweep")
    said = command(capsys, *line)
    assert said.code == 0, said.err
    assert said.err.endswith("3 of 3 runs\n")
    rows = [row.split() for row in said.out.splitlines() if row.strip().startswith("trial-")]
    metrics = {row[0]: float(row[2]) for row in rows}
    assert sorted(metrics) == ["trial-0000", "trial-0001", "trial-0002"]
    for name, metric in metrics.items():
        result = json.loads((tmp_path / "sweep" / name / "result.json").read_text())
        assert f"{result['valid']['accuracy']:.4f}" == f"{metric:.4f}"
    best = rows[0][0]
    assert metrics[best] == max(metrics.values())
    assert f"The best is {tmp_path / 'sweep' / best}: valid accuracy" in said.out
    (repeat,) = [row for row in said.out.splitlines() if row.startswith("  mufuru train")]
    again = command(capsys, *shlex.split(repeat)[1:], "--output", tmp_path / "again", "--quiet")
    assert again == (0, "", "")
    assert_same_run(tmp_path / "again", tmp_path / "sweep" / best)
    files = {path.name for path in (tmp_path / "sweep").iterdir()}
    assert files == {*metrics, "sweep.json", "table.md", "plot.svg", "plot.png"}
    # nothing is made again
    times = [RunFolder(tmp_path / "sweep" / name).result.stat().st_mtime_ns for name in metrics]
    assert command(capsys, *line).out == said.out
    assert [RunFolder(tmp_path / "sweep" / name).result.stat().st_mtime_ns for name in metrics] == times
    # every trial is an ordinary run
    report = command(capsys, "report", tmp_path / "sweep", "-o", tmp_path / "report.html")
    assert report.out == f"Wrote 3 runs to {tmp_path / 'report.html'}\n"


def test_a_search_that_is_killed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = ("--over", "epochs=3,100000", "--search", "grid")
    line = ("sweep", "logic", *TINY, *over, "--jobs", "1", "--checkpoint-seconds", "0.1", "--output", tmp_path)
    first, second = (RunFolder(tmp_path / f"trial-000{number}") for number in range(2))
    with started(*line) as process:
        wait_until(second.last.exists, process)
        process.send_signal(signal.SIGKILL)
    times, begun = first.result.stat().st_mtime_ns, second.config.stat().st_mtime_ns
    # its worker saves the run when it notices
    wait_until(lambda: not held(second.path))
    before = second.last.stat().st_mtime_ns
    with started(*line) as process:
        wait_until(lambda: second.last.stat().st_mtime_ns > before, process)
        process.send_signal(signal.SIGINT)
        said = finish(process)
    assert said.code == 130
    assert said.err.endswith("mufuru: stopped; all runs are saved. The same command resumes them\n")
    assert first.result.stat().st_mtime_ns == times
    assert second.config.stat().st_mtime_ns == begun
    states = [trial["state"] for trial in json.loads((tmp_path / "sweep.json").read_text())["trials"]]
    assert states == ["finished", "begun"]


def held(folder: Path) -> bool:
    """Return whether a process is training the run."""
    with locked(folder, timeout=0) as free:
        return not free


def test_runs_save_themselves_when_the_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    last = RunFolder(tmp_path / "trial-0000").last
    monkeypatch.setattr("mufuru.experiments.search.run.Trials.enough", lambda plan: last.exists())
    options = ("--over", "seed=0,1", "--epochs", "100000", "--hours", "1", "--checkpoint-seconds", "0.1")
    said = command(capsys, "sweep", "logic", *TINY, *options, "--jobs", "1", "--output", tmp_path)
    assert said.code == 0
    assert "Stopping: the runs save themselves first." in said.err
    assert [row.split()[-1] for row in said.out.splitlines() if row.strip().startswith("trial-")] == ["begun"]
    assert "The best" not in said.out
    assert not RunFolder(tmp_path / "trial-0001").config.exists()


def test_trials_that_fail_are_listed_with_their_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over = ("--over", "learning_rate=1e-2,1e300", "--search", "grid")
    said = command(capsys, "sweep", *SMALL, *over, "--output", tmp_path, "--quiet")
    assert (said.code, said.out) == (1, "")
    lines = said.err.splitlines()
    assert lines[0].startswith("mufuru: trial-0001 failed: the ")
    assert "learning rate 1e+300" in lines[0]
    assert lines[1:] == ["mufuru: sweep.json has the whole messages; the same command tries these again"]


def test_a_disk_too_full_for_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that failed are listed all the same."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    made = Made([Trial(0, {}, "failed", reason="no space left for trial-0000")], "accuracy", higher_is_better=True)
    monkeypatch.setattr("mufuru.experiments.cli.sweep.run", lambda *_: made)
    monkeypatch.setattr("mufuru.experiments.search.results.write", full)
    said = command(capsys, "sweep", *SMALL, *RATES, "--output", tmp_path)
    assert (said.code, said.out) == (1, "")
    assert "mufuru: trial-0000 failed: no space left for trial-0000\n" in said.err
    message = (
        f"mufuru: cannot write the table and the plot into {tmp_path} (No space left on device): the trials are kept"
    )
    assert message in said.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--over is missing"),
        (("--over", "learning_rat=1,2"), "unknown setting 'learning_rat'"),
        (("--over", "learning_rate=-1,2"), "learning_rate should be a number above 0, got -1.0"),
        (("--over", "hidden_size=big"), "expected a whole number, got 'big'"),
        ((*RATES, "--search", "grid"), "--search grid needs a number of values for learning_rate"),
        ((*RATES, "--trials", "0"), "--trials should be at least 1, got 0"),
        ((*RATES, "--hours", "-1"), "--hours should be above 0, got -1.0"),
        ((*RATES, "--jobs", "0"), "--jobs should be at least 1, got 0"),
        ((*RATES, "--preset", "best"), "unknown preset 'best'"),
        (
            (*RATES, "--cluster", "nowhere"),
            "--cluster should be auto or HOST:PORT, such as 10.0.0.1:6379, got",
        ),
        ((*RATES, "--store", "nowhere://runs"), "cannot open nowhere://runs: Protocol not known: nowhere"),
        ((*RATES, "--store", "memory://runs"), "--store memory://runs is the memory of one process"),
        ((*RATES, "--over", "seed=1"), "--over is given twice"),
    ],
)
def test_mistakes_are_a_sentence(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, "sweep", "logic", *TINY, *options, "--output", tmp_path / "sweep")
    assert_refused(said, 2, words)
    assert not (tmp_path / "sweep").exists()


def test_a_folder_with_another_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.dumps({"about": {"task": "lm"}, "trials": [], "seconds": 0.0}).encode()
    (tmp_path / "sweep.json").write_bytes(before)
    said = command(capsys, "sweep", *SMALL, *RATES, "--output", tmp_path)
    assert_refused(said, 2, f"{tmp_path} holds another sweep, with a different task", "choose another --output")
    assert (tmp_path / "sweep.json").read_bytes() == before


@pytest.mark.parametrize("name", ["sweep", "reproduce"])
def test_a_file_is_no_place_for_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    options = (*TINY, *RATES) if name == "sweep" else ("--short",)
    said = command(capsys, name, "logic", *options, "--output", tmp_path / "file")
    assert_refused(said, 2, f"{tmp_path / 'file'} is a file: expected a folder for the runs")
    assert (tmp_path / "file").read_text() == "kept"


def test_without_optuna_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = command(capsys, "sweep", *SMALL, *RATES, "--search", "asha", "--output", tmp_path / "sweep")
    assert_refused(said, 2, "--search asha needs Optuna, which is not installed: `pip install '.[search]'`")
    assert not (tmp_path / "sweep").exists()


def test_help_names_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "sweep", "--help")
    assert said.code == 0
    assert "tasks: logic, lm, classify, trees" in said.out
    assert "mufuru sweep logic --over learning_rate=log:1e-4:1e-2" in said.out
    assert "examples:" in command(capsys, "sweep", "lm", "--help").out
