"""Runs behind a URL: trained on this machine, kept there, resumed from there."""

from __future__ import annotations

import signal
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from folders import assert_same_run

from mufuru.experiments.engine import Interrupted, RunError, fit, remote
from mufuru.experiments.engine.errors import Failure, PlaceError
from mufuru.experiments.engine.remote import UNFINISHED, Remote, mirrored
from mufuru.experiments.engine.sweep import is_finished
from mufuru.experiments.engine.work import Job, Reporter, Validation, Where, work
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig

SMALL = LogicConfig(CellConfig(hidden_size=2), Training(epochs=6, batch_size=10), 0, 20, 10, 10)
STORE = "memory://bucket/runs"


class Counting(Reporter):
    """Asks the run to stop after a number of updates, and keeps what it sends."""

    interval = 0.0

    def __init__(self, stop_after: int = 10**9) -> None:
        self.stop_after, self.updates, self.sent = stop_after, 0, list[Validation]()

    def step(self, update: int, loss: float) -> None:
        self.updates += 1
        super().step(update, loss)

    def report(self, fraction: float, validations: list[Validation]) -> bool:
        self.sent += validations
        return self.updates >= self.stop_after


@pytest.fixture
def store() -> Iterator[str]:
    yield STORE
    files = fsspec.filesystem("memory")
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def job(folder: Path, config: LogicConfig = SMALL) -> Job:
    return Job("one", "logic", config, folder / "one")


def where(folder: Path, checkpoint_seconds: float) -> Where:
    return Where(folder, cluster="auto", store=STORE, checkpoint_seconds=checkpoint_seconds)


def names(there: Remote) -> list[str]:
    return sorted(Path(path).name for path in there.files.ls(there.path, detail=False))


def download(store: str, folder: Path) -> Path:
    files = Remote(store) / "one"
    folder.mkdir()
    for name in names(files):
        (folder / name).write_bytes(files.read(name))
    return folder


def test_a_run_stopped_on_one_machine_is_resumed_on_another(store: str, tmp_path: Path) -> None:
    one, there = job(tmp_path), Remote(store) / "one"
    for stop_after in (3, 5):
        with pytest.raises(Interrupted):
            work(one, where(tmp_path, 60.0), Counting(stop_after))
        assert names(there) == ["config.json", UNFINISHED]
        assert not is_finished(one, store)
    last = Counting()
    assert work(one, where(tmp_path, 60.0), last) is None
    # 12 updates: those of both beginnings are not made again, and their validations are sent again
    assert last.updates == 12 - 3 - 5
    assert [validation.number for validation in last.sent] == [1, 2, 3, 4, 5, 6]
    assert not one.folder.exists()
    assert is_finished(one, store)
    records = sorted(path.name for path in one.folder.iterdir())
    assert records == ["config.json", "environment.json", "metrics.jsonl", "result.json"]
    fit("logic", SMALL, tmp_path / "alone")
    assert_same_run(download(store, tmp_path / "there"), tmp_path / "alone")


def test_a_run_that_is_killed_is_resumed_from_its_last_checkpoint(store: str, tmp_path: Path) -> None:
    """Every update is saved and copied; the process dies in the next one, without a last word."""

    class Dying(Counting):
        def step(self, update: int, loss: float) -> None:
            super().step(update, loss)
            if self.updates == 7:
                self.mirror.push = lambda: None  # type: ignore[method-assign]
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(job(tmp_path), where(tmp_path, 0.0), Dying())
    rest = Counting()
    assert work(job(tmp_path), where(tmp_path, 60.0), rest) is None
    assert rest.updates == 12 - 6
    fit("logic", SMALL, tmp_path / "alone")
    assert_same_run(download(store, tmp_path / "there"), tmp_path / "alone")


def test_a_run_is_copied_without_being_in_memory(tmp_path: Path) -> None:
    """Checkpoints of a large model are several times its size, and every worker copies its own."""
    there = f"file://{tmp_path}/there"
    with mirrored(Remote(there)) as mirror:
        mirror.files.path.mkdir()
        mirror.files.config.write_text("{}")
        mirror.files.last.write_bytes(bytes(32 << 20))
        tracemalloc.start()
        try:
            mirror.push()
            _, most = tracemalloc.get_traced_memory()
            mirror.files.result.write_text("{}")
            mirror.push()
            _, most_finished = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert max(most, most_finished) < 20 << 20
    assert (tmp_path / "there" / "last.safetensors").stat().st_size == 32 << 20


def test_a_failed_run_keeps_what_it_has(store: str, tmp_path: Path) -> None:
    wild = replace(SMALL, training=replace(SMALL.training, learning_rate=1e300))
    failure = work(job(tmp_path, wild), where(tmp_path, 60.0), Counting())
    assert failure is not None
    assert "learning rate 1e+300" in failure
    assert (Remote(store) / "one").has("config.json")


def test_other_settings_behind_the_url_are_refused(store: str, tmp_path: Path) -> None:
    work(job(tmp_path), where(tmp_path, 60.0), Counting())
    with pytest.raises(RunError, match=r"memory://bucket/runs/one has other settings: seed is 0 there and 1 here"):
        is_finished(job(tmp_path, replace(SMALL, seed=1)), store)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", r"runs/one/config.json is damaged: expected an object, got list$"),
        ("{", r"runs/one/config.json is damaged: Expecting"),
        ('{"task": "logic", "config": []}', r"has other settings: config is \[\] there and null here"),
    ],
)
def test_a_config_behind_the_url_that_is_none_is_refused(store: str, tmp_path: Path, content: str, words: str) -> None:
    (Remote(store) / "one").write("config.json", content.encode())
    with pytest.raises(RunError, match=words):
        is_finished(job(tmp_path), store)


def test_a_file_is_replaced_whole_or_not_at_all(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Remote(store)
    place.write("state", b"old")

    def break_off(path: str, content: bytes, **_: Any) -> None:
        with place.files.open(path, "wb") as file:
            file.write(content[:2])
        raise OSError("the network is gone")

    monkeypatch.setattr(place.files, "pipe_file", break_off)
    with pytest.raises(Failure, match=r"cannot use memory://bucket/runs \(OSError: the network is gone\)"):
        place.write("state", b"newer")
    assert place.read("state") == b"old"
    assert names(place) == ["state"]


def test_a_network_that_fails_for_a_moment_is_tried_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, failures = Remote(store), [OSError("once"), OSError("twice")]
    put = place.files.pipe_file

    def flaky(path: str, content: bytes, **_: Any) -> None:
        if failures:
            raise failures.pop()
        put(path, content)

    monkeypatch.setattr(place.files, "pipe_file", flaky)
    place.write("state", b"new")
    assert place.read("state") == b"new"


def test_a_url_without_its_package_names_it() -> None:
    fsspec.register_implementation("moon", "no_such_package.Moon", clobber=True, errtxt="Install no_such_package")
    with pytest.raises(PlaceError, match=r"^moon:// needs a package that is not installed here: Install no_such_pack"):
        Remote("moon://crater/runs")


def test_without_fsspec_no_url_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(PlaceError, match=r"^s3:// needs a package that is not installed here: .*fsspec"):
        Remote("s3://bucket/runs")


def test_an_unknown_url_is_refused() -> None:
    with pytest.raises(PlaceError, match=r"cannot open nowhere://runs: Protocol not known: nowhere\. Expected a URL"):
        Remote("nowhere://runs")


def test_a_full_disk_behind_the_url_ends_the_run_with_a_sentence(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        work(job(tmp_path), where(tmp_path, 60.0), Counting(3))
    before = (Remote(store) / "one").read(UNFINISHED)

    def full(self: Remote, name: str, content: bytes) -> None:
        raise Failure(f"cannot use {self.url} (OSError: No space left on device): what it holds is untouched")

    monkeypatch.setattr(remote.Remote, "write", full)
    failure = work(job(tmp_path), where(tmp_path, 0.0), Counting())
    assert failure is not None
    assert failure.startswith("cannot use memory://bucket/runs/one (OSError: No space left")
    assert (Remote(store) / "one").read(UNFINISHED) == before


def test_records_of_a_finished_run_are_all_that_reports_need(store: str, tmp_path: Path) -> None:
    one = job(tmp_path)
    work(one, where(tmp_path, 60.0), Counting())
    remote.fetch_records(Remote(store) / "one", RunFolder(one.folder))
    remote.fetch_weights(Remote(store) / "one", RunFolder(one.folder))
    assert RunFolder(one.folder).finished
    assert RunFolder(one.folder).best.exists()


def test_a_signal_reaches_the_run(store: str, tmp_path: Path) -> None:
    class Signalled(Counting):
        def step(self, update: int, loss: float) -> None:
            super().step(update, loss)
            if update == 2:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted) as caught:
        work(job(tmp_path), where(tmp_path, 60.0), Signalled())
    assert caught.value.number == signal.SIGTERM
    assert (Remote(store) / "one").has(UNFINISHED)


def test_a_damaged_log_ends_a_run_with_a_sentence(tmp_path: Path) -> None:
    one, here = job(tmp_path), Where(tmp_path)
    with pytest.raises(Interrupted):
        work(one, here, Counting(5))
    log = RunFolder(one.folder).metrics
    log.write_text(log.read_text().replace("{", "[", 1))
    assert str(work(one, here, Counting())).startswith(f"{log} is damaged")
