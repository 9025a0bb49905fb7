"""One run on several processes from the command line: torchrun itself, a rank that is killed, Ctrl-C, restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import commands
import pytest
from commands import SOURCE, Said, assert_refused, command, finish, wait_until
from folders import assert_same_run
from rank_runs import launch

import mufuru
from mufuru.experiments.record import RunFolder
from mufuru.experiments.tasks.logic.config import PRESETS

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="ranks are found in /proc")
# 44 updates, each with a checkpoint
OPTIONS = {"epochs": 4, "train-formulae": 101, "valid-formulae": 20, "test-formulae": 20, "batch-size": 10}
OPTIONS |= {"evaluate-every": 20, "checkpoint-seconds": 0}
RUN = ("logic", *(f"--{name}={value}" for name, value in OPTIONS.items()))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five processes import torch, one after the other on a busy machine."""
    monkeypatch.setattr(commands, "PATIENCE", 300.0)


def torchrun(*arguments: object, restarts: int = 0) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    line += ["--max-restarts", str(restarts), "-m", "mufuru", *map(str, arguments)]
    return commands.opened(line, {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"})


def pid_of_rank(rank: int, parent: int) -> int:
    """The process that torchrun has started as this rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, variables = (folder / "status").read_text(), (folder / "environ").read_bytes()
        except OSError:  # it has just ended
            continue
        if f"PPid:\t{parent}\n" in status and f"RANK={rank}".encode() in variables.split(b"\0"):
            return int(folder.name)
    raise AssertionError(f"torchrun has no rank {rank}")


def ours(said: Said) -> list[str]:
    """Our messages among torchrun's."""
    return [line for line in said.err.splitlines() if line.startswith("mufuru: ")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, left alone, on two ranks without torchrun."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    paper = PRESETS["paper"]
    training = replace(paper.training, epochs=4, batch_size=10, evaluate_every=20)
    config = replace(paper, training=training, train_formulae=101, valid_formulae=20, test_formulae=20)
    assert [rank.code for rank in launch("logic", config, folder)] == [0, 0]
    return folder


def test_stopped_then_resumed_killed_and_started_again(undisturbed: Path, tmp_path: Path) -> None:
    """With the bits of a run that nobody disturbed."""
    folder = tmp_path / "run"
    process = torchrun("train", *RUN, "--output", folder)
    wait_until(RunFolder(folder).last.exists, process)
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code != 0
    (message,) = ours(said)
    again = f"torchrun --nproc-per-node 2 -m mufuru train --resume {folder}"
    assert message.startswith("mufuru: stopped after update ")
    assert message.endswith(f"of 44, everything is saved: resume with `{again}`")

    before = RunFolder(folder).last.stat().st_mtime_ns
    process = torchrun(*again.split()[5:], "--checkpoint-seconds", 0, restarts=1)
    wait_until(lambda: RunFolder(folder).last.stat().st_mtime_ns > before, process)
    os.kill(pid_of_rank(1, process.pid), signal.SIGKILL)
    said = finish(process)
    assert said.code == 0, said
    (message,) = ours(said)
    assert "another process of this run ended at update" in message
    assert "resume the run from its last checkpoint, of update" in message
    assert said.out.count("The run is in") == 1
    assert said.err.count(f"logic in {folder}: 44 updates") == 2
    assert said.err.count("of them done") == 2
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize("ranks", [True, False])
def test_a_rank_ends_without_pythons_last_steps(ranks: bool, tmp_path: Path) -> None:
    """In these a thread of gloo may abort the process of a complete run. What was printed is there."""
    (tmp_path / "sitecustomize.py").write_text("import atexit; atexit.register(print, 'last step')")
    paths = os.pathsep.join([str(tmp_path), SOURCE])
    more = {"PYTHONPATH": paths} | ({"TORCHELASTIC_RUN_ID": "some"} if ranks else {})
    line = [sys.executable, "-m", "mufuru", "--version"]
    said = subprocess.run(line, env={**os.environ, **more}, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [f"mufuru {mufuru.__version__}", *([] if ranks else ["last step"])]


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes this process one of two that torchrun has started."""

    def be(rank: int) -> None:
        place = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "here", "MASTER_PORT": 1, "TORCHELASTIC_RUN_ID": "x"}
        for name, value in place.items():
            monkeypatch.setenv(name, str(value))

    return be


def test_commands_that_one_process_runs(capsys: pytest.CaptureFixture[str], as_rank: Callable[[int], None]) -> None:
    """Rank 0 says so, the others end."""
    as_rank(0)
    assert_refused(command(capsys, "doctor"), 2, "torchrun is for mufuru train: start mufuru doctor without it")
    as_rank(1)
    assert command(capsys, "doctor") == (1, "", "")


def test_a_mistake_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_rank: Callable[[int], None]
) -> None:
    as_rank(0)
    assert_refused(command(capsys, "train", "logik", "--output", tmp_path / "run"), 2, "logik")
    as_rank(1)
    assert command(capsys, "train", "logik", "--output", tmp_path / "run") == (1, "", "")
    assert not (tmp_path / "run").exists()
