"""Many runs on several cores: skipped, resumed, killed, failed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import pytest
from commands import family
from folders import assert_same_run
from leaks import assert_leaks_nothing, held

from mufuru.experiments.engine import RunError, fit
from mufuru.experiments.engine.processes import Processes, one_thread_each
from mufuru.experiments.engine.sweep import Job, sweep, usable_cores
from mufuru.experiments.engine.work import Died, Ended, Where
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig

E = TypeVar("E")
TINY = LogicConfig(CellConfig(hidden_size=2), Training(epochs=2, batch_size=10), 0, 20, 10, 10)
LONG = replace(TINY, training=replace(TINY.training, epochs=100_000))


def jobs(root: Path, *configs: LogicConfig) -> list[Job]:
    return [Job(f"run-{number}", "logic", config, root / f"run-{number}") for number, config in enumerate(configs)]


def results(some: list[Job]) -> list[int]:
    return [RunFolder(job.folder).result.stat().st_mtime_ns for job in some]


def test_runs_are_made_once_and_what_fails_stops_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    some = jobs(tmp_path, *(replace(TINY, seed=seed) for seed in range(3)))
    # one is finished already, one has only begun
    fit("logic", some[0].config, some[0].folder)
    fit("logic", some[1].config, some[1].folder)
    RunFolder(some[1].folder).result.unlink()
    wild = Job("wild", "logic", replace(TINY, training=replace(TINY.training, learning_rate=1e300)), tmp_path / "wild")
    unknown = Job("unknown", "nothing", TINY, tmp_path / "unknown")
    first = sweep([wild, unknown, *some], workers=2)
    assert (first.skipped, sorted(first.done), sorted(first.failed)) == (1, ["run-1", "run-2"], ["unknown", "wild"])
    assert "learning rate 1e+300" in first.failed["wild"]
    assert "unknown task 'nothing'" in first.failed["unknown"]
    assert capfd.readouterr().err.endswith("3 of 5 runs, 2 failed\n")
    times = results(some)
    assert sweep(some, quiet=True).skipped == 3
    assert capfd.readouterr() == ("", "")
    assert results(some) == times
    fit("logic", some[2].config, tmp_path / "alone")
    assert_same_run(some[2].folder, tmp_path / "alone")


def test_a_run_with_other_settings_is_never_taken_for_this_one(tmp_path: Path) -> None:
    fit("logic", TINY, tmp_path / "run-1")
    other = replace(TINY, training=replace(TINY.training, learning_rate=0.5))
    with pytest.raises(RunError, match=r"run-1 has other settings: training.learning_rate is 0.001 there and 0.5 here"):
        sweep(jobs(tmp_path, TINY, other), quiet=True)
    assert not (tmp_path / "run-0").exists(), "nothing starts before all is checked"


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run-0"):
        sweep([*jobs(tmp_path, TINY), *jobs(tmp_path, LONG)], quiet=True)


class Deadly:
    """Settings that kill whatever process reads them, as a lack of memory would."""

    def __reduce__(self) -> Any:
        return signal.raise_signal, (signal.SIGKILL,)


def test_runs_are_made_in_their_order_and_one_whose_process_dies_is_tried_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deadly = Job("deadly", "logic", Deadly(), tmp_path / "deadly", cost=2.0)
    some = [replace(job, cost=float(place)) for place, job in enumerate(jobs(tmp_path, *[TINY] * 3))]
    outcome = sweep([deadly, *some], workers=1)
    reason = "its process was ended by SIGKILL, most likely because memory ran out"
    assert (outcome.done, outcome.failed) == (["run-0", "run-1", "run-2"], {"deadly": reason})
    # a line is broken where the terminal ends
    assert " ".join(capfd.readouterr().err.split()).count(f"deadly: {reason}; once more") == 1


def until(processes: Processes, kind: type[E]) -> list[E]:
    """Wait for an event, and return all of its kind."""
    found: list[E] = []
    end = time.monotonic() + 120
    while not found and time.monotonic() < end:
        found = [event for event in processes.listen(0.2) if isinstance(event, kind)]
    return found


def test_a_process_that_dies_between_two_runs_is_noticed(tmp_path: Path) -> None:
    processes, job = Processes(1, Where(tmp_path)), Job("one", "nothing", TINY, tmp_path / "one")
    processes.start(job)
    (ended,) = until(processes, Ended)
    assert "unknown task 'nothing'" in str(ended.failure)
    (worker,) = processes.idle
    worker.process.kill()
    worker.process.join()
    processes.start(job)
    (died,) = until(processes, Died)
    assert died.reason.startswith("its process was ended by SIGKILL")
    assert not processes.running()
    processes.close()


def test_workers_have_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with one_thread_each():
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def counts(others: set[int]) -> dict[int, tuple[int, int]]:
    """Return the threads and files of each process but the others, such as those of earlier tests."""
    return {process: (one.threads, one.files) for process, one in held().items() if process not in others}


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_many_runs_leak_nothing(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # a process and a piece of shared memory that Python keeps for all pools
    resource_tracker.ensure_running()
    multiprocessing.RawValue("d")
    # pipes of the pools of other tests close when they are collected
    gc.collect()
    others = set(family(os.getpid())) - {os.getpid()}
    before = counts(others)
    assert_leaks_nothing(tmp_path, count, monkeypatch)
    # a thread that has been told to end takes a moment
    end = time.monotonic() + 10
    while counts(others) != before and time.monotonic() < end:
        time.sleep(0.1)
    assert counts(others) == before
