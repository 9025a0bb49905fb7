"""Kill -9 at any moment, go on, and end with the bits of a run that was left alone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import toy
from folders import assert_same_run, names

from mufuru.experiments.engine import Interrupted, RunError, fit
from mufuru.experiments.engine.store import Store
from mufuru.experiments.record import RunFolder

NEVER = 1e9
"""Seconds between checkpoints that no run lives to see."""
UPDATES = 3 * toy.BATCHES
CONFIG = toy.toy()
AVERAGED = toy.toy(average=0.9, select="last")


@pytest.fixture(scope="module")
def start() -> Callable[..., ForkServerProcess]:
    """Start a function of `toy` in a process of its own; what loads slowly is loaded once for all of them."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pytest", "mufuru.experiments.engine", "torch._dynamo"])

    def start(function: Callable[..., None], *args: Any) -> ForkServerProcess:
        process = context.Process(target=function, args=args)
        process.start()
        return process

    return start


@pytest.fixture(scope="module")
def undisturbed(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that is left alone."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run(start, folder, resume=False)
    return folder


def run(
    start: Any,
    folder: Path,
    resume: bool,
    seconds: float = NEVER,
    at: int | None = None,
    file: int | None = None,
    config: toy.ToyConfig = CONFIG,
) -> bool:
    """Whether a run came to its end; otherwise it was killed."""
    process = start(toy.run_in_child, folder, config, resume, seconds, at, file)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return bool(process.exitcode == 0)


@pytest.mark.parametrize("seconds", [0, NEVER])
@pytest.mark.parametrize("at", [1, 7, UPDATES])
def test_killed_in_a_chosen_update(start: Any, undisturbed: Path, tmp_path: Path, seconds: float, at: int) -> None:
    folder = tmp_path / "run"
    assert not run(start, folder, resume=False, seconds=seconds, at=at)
    assert not RunFolder(folder).finished
    assert RunFolder(folder).last.exists() == (seconds == 0 and at > 1)
    assert run(start, folder, resume=True)
    assert_same_run(folder, undisturbed)


def test_killed_while_averaging(start: Any, tmp_path: Path) -> None:
    """The average of the weights is part of a checkpoint."""
    assert run(start, tmp_path / "alone", resume=False, config=AVERAGED)
    assert not run(start, tmp_path / "run", resume=False, seconds=0, at=8, config=AVERAGED)
    assert run(start, tmp_path / "run", resume=True, config=AVERAGED)
    assert_same_run(tmp_path / "run", tmp_path / "alone")


def test_killed_again_and_again(start: Any, undisturbed: Path, tmp_path: Path) -> None:
    """Each life gets three updates further."""
    folder = tmp_path / "run"
    lives = 1
    while not run(start, folder, resume=lives > 1, seconds=0, at=4):
        lives += 1
    assert lives == -(-UPDATES // 3)
    assert_same_run(folder, undisturbed)


def test_killed_between_any_two_changes_to_files(start: Any, undisturbed: Path, tmp_path: Path) -> None:
    """Before flushing, linking and renaming of environment, config, checkpoints, best weights and result; now and then
    once more after going on."""
    chance = random.Random(0)
    second_checkpoint = range(15, 21)
    for first in (3, 6, 7, 10, 12, *second_checkpoint, *chance.sample(range(21, 110), 3)):
        folder = tmp_path / str(first)
        assert not run(start, folder, resume=False, seconds=0, file=first)
        if chance.random() < 0.4:
            assert not run(start, folder, RunFolder(folder).config.exists(), seconds=0, file=chance.randrange(1, 9))
        assert run(start, folder, RunFolder(folder).config.exists())
        assert_same_run(folder, undisturbed)


def test_killed_from_outside_at_random_moments(start: Any, undisturbed: Path, tmp_path: Path) -> None:
    chance = random.Random(1)
    kills = 0
    for number in range(5):
        folder = tmp_path / str(number)
        process = start(toy.run_in_child, folder, CONFIG, False, 0.01 * (number % 2), None, None)
        while process.is_alive() and not RunFolder(folder).config.exists():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert run(start, folder, resume=True)
        assert_same_run(folder, undisturbed)
    assert kills, "every run was over before it was killed"


def test_gone_on_from_the_checkpoint_before_the_last(start: Any, undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(start, folder, resume=False, seconds=0, at=9)
    RunFolder(folder).last.unlink()
    assert run(start, folder, resume=True)
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop(start: Any, undisturbed: Path, tmp_path: Path, number: int) -> None:
    """Ctrl-C: all is saved at once, and the message tells how to go on."""
    folder = tmp_path / "a run"
    process = start(toy.run_to_exit, folder, CONFIG, False, 0.03)
    wait_for(process, RunFolder(folder).best)
    os.kill(process.pid, number)
    process.join()
    message = (folder / "message").read_text()
    assert process.exitcode == 1
    assert message.startswith("Interrupted: stopped after update ")
    assert message.endswith(f"of {UPDATES}, everything is saved: resume with `mufuru train --resume '{folder}'`")
    assert RunFolder(folder).last.exists()
    (folder / "message").unlink()
    assert run(start, folder, resume=True)
    assert_same_run(folder, undisturbed)


def wait_for(process: Any, path: Path) -> None:
    while process.is_alive() and not path.exists():
        time.sleep(0.001)
    assert path.exists()


def test_a_folder_serves_one_process(start: Any, undisturbed: Path, tmp_path: Path) -> None:
    """A second one is refused while the first lives, and only so long."""
    folder = tmp_path / "run"
    process = start(toy.run_to_exit, folder, CONFIG, False, 0.2)
    wait_for(process, RunFolder(folder).config)
    for resume in (True, False):
        with pytest.raises(RunError, match=r"another process is training the run in .*run: wait for it, or stop it"):
            fit("toy", CONFIG, folder, resume=resume)
    process.kill()
    process.join()
    assert run(start, folder, resume=True)
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize("at", [1, 8, UPDATES])
def test_stopped_and_gone_on_within_one_process(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A real signal to this very process; its handler is put back."""
    toy.intrude(monkeypatch, at, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match=f"stopped after update {at} of {UPDATES}"):
        fit("toy", CONFIG, tmp_path / "run", checkpoint_seconds=NEVER)
    monkeypatch.undo()
    random.random()
    fit("toy", CONFIG, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_stopped_between_training_and_testing(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = Store.best

    def interrupted(self: Store) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return best(self)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "best", interrupted)
        with pytest.raises(Interrupted, match=f"stopped after update {UPDATES} of {UPDATES}"):
            fit("toy", CONFIG, tmp_path / "run")
    fit("toy", CONFIG, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_sent_twice_does_not_hurry(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A shell and the system both send SIGHUP when a terminal is closed, a service manager SIGTERM to all processes."""

    def twice() -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    toy.intrude(monkeypatch, 4, twice)
    with pytest.raises(Interrupted, match="stopped after update 4") as stopped:
        fit("toy", CONFIG, tmp_path / "run", checkpoint_seconds=NEVER)
    assert stopped.value.number == number
    assert signal.getsignal(number) == before
    monkeypatch.undo()
    fit("toy", CONFIG, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    toy.intrude(monkeypatch, 4, lambda: os.kill(os.getpid(), number))
    before = signal.signal(number, signal.SIG_IGN)
    try:
        fit("toy", CONFIG, tmp_path / "run")
    finally:
        signal.signal(number, before)
    assert_same_run(tmp_path / "run", undisturbed)


def test_a_second_ctrl_c_acts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    toy.intrude(monkeypatch, 4, twice)
    with pytest.raises(KeyboardInterrupt):
        fit("toy", CONFIG, tmp_path / "run")


def test_the_files_of_a_finished_run(undisturbed: Path) -> None:
    expected = {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "best.safetensors",
        "last.safetensors",
        "result.json",
    }
    assert names(undisturbed) == expected
