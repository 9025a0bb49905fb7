"""Which runs make up the experiment, and the command that makes them."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from commands import command, finish, start, wait_until

from mufuru.experiments import reproduce
from mufuru.experiments.engine.sweep import Outcome
from mufuru.experiments.record import RunFolder, find_runs, read_lines, read_records
from mufuru.experiments.reproduce.logic import LogicGrid
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig
from mufuru.ops import PAPER

TINY = LogicConfig(CellConfig(hidden_size=2), Training(epochs=2, batch_size=10), 0, 20, 10, 10)


def groups(grid: LogicGrid) -> Counter[str]:
    return Counter(job.name.partition("/")[0] for job in grid.jobs(Path()))


def test_the_grids_are_those_of_the_experiment() -> None:
    whole = groups(LogicGrid())
    assert whole["sweep"] == 4 * 8 * 10
    assert whole["solved"] == 4 * 8 * 10
    assert whole["open"] == 2 * 2 * 4 * 3 * 3 * 5
    assert whole["ablation"] == (1 + 1 + 7 + 5) * 10
    assert whole["features"] == 2 * 8 * 10
    assert set(groups(LogicGrid(part="open"))) == {"open"}
    assert groups(LogicGrid(part="figures", cells=("gru",), sizes=(1, 2), seeds=3))["sweep"] == 6
    assert groups(LogicGrid(short=True)) == {"short": 10}


def test_every_run_has_its_own_name_and_settings() -> None:
    jobs = LogicGrid().jobs(Path("root"))
    assert len({job.name for job in jobs}) == len(jobs)
    assert len({(job.name.partition("/")[0], job.config) for job in jobs}) == len(jobs)
    assert all(job.folder == Path("root") / job.name for job in jobs)
    assert all(job.cost > 0 for job in jobs)


def test_names_say_what_differs() -> None:
    jobs = {job.name: job.config for job in LogicGrid().jobs(Path())}
    paper = PRESETS["paper"]
    assert jobs["sweep/mufuru-8/seed-3"] == replace(paper, seed=3)
    assert jobs["solved/lstm-32/seed-100"].cell.cell == "lstm"
    found = jobs["open/gru-64-lr0.01-batch100-orthogonal/seed-4"]
    assert (found.cell.cell, found.cell.hidden_size, found.cell.initialisation) == ("gru", 64, "orthogonal")
    assert (found.training.learning_rate, found.training.batch_size) == (0.01, 100)
    assert jobs["ablation/all/seed-0"] == paper
    assert jobs["ablation/without-max/seed-0"].cell.ops == tuple(op for op in PAPER if op != "max")
    assert jobs["ablation/only-max/seed-0"].cell.ops == ("keep", "replace", "max")
    for name, same in {
        "16-lr0.001/seed-9": "sweep/mufuru-16/seed-9",
        "8-lr0.01/seed-109": "solved/mufuru-8/seed-109",
    }.items():
        config = jobs[f"features/mufuru-{name}"]
        assert config == replace(jobs[same], cell=replace(jobs[same].cell, activation="sigmoid"))


def test_from_nothing_to_tables_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time nothing is trained, and everything is written again."""
    monkeypatch.setitem(PRESETS, "short", TINY)
    monkeypatch.setattr(reproduce.logic, "SHORT_SEEDS", 1)
    line = ("reproduce", "logic", "--short", "--jobs", 1, "--output", tmp_path / "runs", "--record", tmp_path / "kept")
    said = command(capsys, *line)
    assert said.code == 0, said.err
    for word in ("MuFuRU", "GRU", "test accuracy", "report.html", ".svg", ".png"):
        assert word in said.out
    assert len(find_runs(tmp_path / "runs")) == 2
    (tmp_path / "runs" / "report" / "report.html").unlink()
    again = command(capsys, *line)
    assert (again.code, again.out, again.err) == (0, said.out, "")
    assert (tmp_path / "runs" / "report" / "report.html").exists()
    kept = read_records(tmp_path / "kept" / "short.jsonl")
    assert [(r.group, r.config["cell"]["cell"], r.curve) for r in kept] == [
        ("short", "gru", []),
        ("short", "mufuru", []),
    ]
    assert {r.group for r in read_records(tmp_path / "runs")} == {"short"}


def test_failed_runs_are_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "sweep", lambda jobs, **_: Outcome(failed={jobs[0].name: "it diverged"}))
    said = command(capsys, "reproduce", "logic", "--short", "--output", tmp_path)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        "mufuru: short/gru-8/seed-0 failed: it diverged",
        "mufuru: the same command tries these runs again",
    ]


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    """Whether it runs; one that has ended but that no one has asked about does not."""
    with suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    return False


FIGURES = ("reproduce", "logic", "--part", "figures", "--cells", "mufuru", "--sizes", "1", "--jobs", "1", "--output")
STOPPED = "mufuru: stopped; all runs are saved. The same command resumes them\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """Twice, the workers too, as a system that shuts down does."""
    process = start(*FIGURES, tmp_path)
    wait_until(lambda: bool(list(tmp_path.rglob("metrics.jsonl"))), process)
    workers = children(process.pid)
    for receiver in (process.pid, *workers, process.pid):
        os.kill(receiver, number)
    said = finish(process)
    assert said.code == 128 + number
    assert said.err.endswith(STOPPED)
    assert "Traceback" not in said.err
    wait_until(lambda: not any(alive(worker) for worker in workers))
    assert RunFolder(next(tmp_path.rglob("metrics.jsonl")).parent).last.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_killed_children_end_too_and_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    """kill -9 of the command, then the same command again, then Ctrl-C."""
    process = start(*FIGURES, tmp_path)
    wait_until(lambda: bool(list(tmp_path.rglob("metrics.jsonl"))), process)
    workers = children(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(alive(worker) for worker in workers))
    files = RunFolder(next(tmp_path.rglob("metrics.jsonl")).parent)
    assert files.last.exists(), "a worker whose parent is gone saves its run"
    lines = len(read_lines(files.metrics))
    process = start(*FIGURES, tmp_path)
    wait_until(lambda: len(read_lines(files.metrics)) > lines, process)
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 130
    assert said.err.endswith(STOPPED)
    assert "Traceback" not in said.err
    assert not files.finished
    assert not any(alive(worker) for worker in workers)
