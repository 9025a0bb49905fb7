"""Many runs on a cluster of two nodes: made, resumed when a node dies, stopped, refused."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import commands
import pytest
from commands import TINY, assert_refused, command, family, finish, started, wait_until
from folders import assert_same_run
from leaks import assert_leaks_nothing
from ray_nodes import needs_ray, ray_cluster

from mufuru.experiments import reproduce
from mufuru.experiments.engine import checkpoint, cluster, fit
from mufuru.experiments.engine.errors import PlaceError, RunError
from mufuru.experiments.engine.remote import UNFINISHED
from mufuru.experiments.engine.sweep import Job, Outcome, sweep
from mufuru.experiments.engine.work import Where
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig

ray = needs_ray()
SHORT = LogicConfig(CellConfig(hidden_size=2), Training(epochs=2, batch_size=10), 0, 20, 10, 10)
LONG = replace(SHORT, training=replace(SHORT.training, epochs=100))
ENDLESS = ("--over", "seed=0,1", "--search", "grid", "--epochs", "100000", "--hidden-size", "2", *TINY)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes import torch, one after the other on a busy machine."""
    monkeypatch.setattr(commands, "PATIENCE", 300.0)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    before = os.environ.get("PYTHONPATH")
    with ray_cluster() as nodes:
        yield nodes
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture
def third(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Adds a node that starts its processes with this code."""
    added = []

    def add(code: str, name: str = "sitecustomize.py") -> None:
        (tmp_path / "there" / name).parent.mkdir(parents=True)
        (tmp_path / "there" / name).write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "there"), prepend=os.pathsep)
        added.append(nodes.add_node(num_cpus=1))

    yield add
    for node in added:
        nodes.remove_node(node, allow_graceful=False)


def jobs(root: Path, *configs: Any) -> list[Job]:
    return [Job(f"run-{number}", "logic", config, root / f"run-{number}") for number, config in enumerate(configs)]


class Deadly:
    """Settings that kill whatever process reads them."""

    def __reduce__(self) -> Any:
        return signal.raise_signal, (signal.SIGKILL,)


def test_runs_are_those_of_one_machine_and_what_fails_stops_nothing(
    nodes: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # relative folders: processes of the cluster start elsewhere
    some = jobs(Path("runs"), *(replace(SHORT, seed=seed) for seed in range(4)))
    wild = Job(
        "wild", "logic", replace(SHORT, training=replace(SHORT.training, learning_rate=1e300)), Path("runs/wild")
    )
    deadly = Job("deadly", "logic", Deadly(), Path("runs/deadly"))
    fit("logic", some[0].config, some[0].folder)
    outcome = sweep([deadly, wild, *some], cluster=nodes.address)
    assert (outcome.skipped, sorted(outcome.done)) == (1, ["run-1", "run-2", "run-3"])
    assert sorted(outcome.failed) == ["deadly", "wild"]
    assert "learning rate 1e+300" in outcome.failed["wild"]
    assert outcome.failed["deadly"].startswith("its process died (The worker died unexpectedly")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("4 of 6 runs, 2 failed\n")
    fit("logic", some[3].config, tmp_path / "alone")
    assert_same_run(some[3].folder, tmp_path / "alone")
    environment = json.loads(RunFolder(some[3].folder).environment.read_text())
    assert environment["threads"] == 1
    assert sorted(path.name for path in Path("runs").iterdir()) == ["run-0", "run-1", "run-2", "run-3", "wild"]
    assert not ray.is_initialized()


def test_no_more_runs_at_a_time_than_there_are_cores(nodes: Any, tmp_path: Path) -> None:
    """Runs that wait for a core get none while others report."""
    some = jobs(tmp_path, *(replace(LONG, training=replace(LONG.training, epochs=400), seed=k) for k in range(4)))
    assert len(sweep(some, workers=4, cluster=nodes.address).done) == 4
    made = [[file.stat().st_mtime for file in (run.config, run.result)] for run in (RunFolder(j.folder) for j in some)]
    assert max(sum(begun <= now < ended for begun, ended in made) for now, _ in made) == 2


def trains_in(node: Any, folder: Path) -> bool:
    """Return whether a process of the node has the folder of a run open, after its first checkpoint."""
    if not RunFolder(folder).previous.exists():
        return False
    for process in family(node.all_processes["raylet"][0].process.pid):
        with suppress(FileNotFoundError, PermissionError):
            for handle in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if handle.readlink().is_relative_to(folder):
                        return True
    return False


def test_runs_on_a_node_that_dies_are_resumed_on_another(
    nodes: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("looks in /proc for the node that makes a run")
    some = jobs(tmp_path, *(replace(LONG, seed=seed) for seed in range(2)))
    node = nodes.worker_nodes.copy().pop()
    begun: dict[str, int] = {}

    def kill() -> None:
        wait_until(lambda: any(trains_in(node, job.folder) for job in some))
        configs = [RunFolder(job.folder).config for job in some]
        begun.update((str(config), config.stat().st_mtime_ns) for config in configs if config.exists())
        nodes.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    # every update is saved: slow enough to be killed in the middle
    outcome = sweep(some, cluster=nodes.address, checkpoint_seconds=0.0)
    killer.join()
    nodes.add_node(num_cpus=1)
    assert sorted(outcome.done) == ["run-0", "run-1"]
    (number,) = re.findall(r"run-(\d): its machine is gone; resumed", capfd.readouterr().err)
    resumed = some[int(number)]
    assert str(RunFolder(resumed.folder).config) in begun
    # settings are written when a run begins: none began again
    assert {path: Path(path).stat().st_mtime_ns for path in begun} == begun
    fit("logic", resumed.config, tmp_path / "alone")
    assert_same_run(resumed.folder, tmp_path / "alone")


def updates(archive: Path) -> int:
    """Updates of a run that is under way behind a URL."""
    with zipfile.ZipFile(archive) as content:
        folder = content.extract("last.safetensors", archive.parents[2] / "last")
    return int(checkpoint.load(Path(folder)).values["status"]["update"])


def under_way(archives: list[Path], before: list[int]) -> bool:
    return all(path.exists() and updates(path) > count for path, count in zip(archives, before, strict=True))


def test_ctrl_c_saves_every_run_and_the_same_command_resumes(nodes: Any, tmp_path: Path) -> None:
    """Behind a URL, through the command line."""
    store, output = tmp_path / "store", tmp_path / "output"
    line = ("sweep", "logic", *ENDLESS, "--output", output, "--store", f"file://{store}", "--cluster", nodes.address)
    archives = [store / f"trial-000{number}" / UNFINISHED for number in range(2)]
    before = [0, 0]
    for _ in range(2):
        with started(*line, "--checkpoint-seconds", "0.2") as process:
            wait_until(partial(under_way, archives, before), process)
            process.send_signal(signal.SIGINT)
            said = finish(process)
        assert (said.code, said.out) == (130, ""), said.err
        assert "Stopping: the runs save themselves first." in said.err
        assert said.err.endswith("mufuru: stopped; all runs are saved. The same command resumes them\n")
        assert "Traceback" not in said.err
        before = [updates(archive) for archive in archives]
    state = json.loads((store / "sweep.json").read_text())
    assert [trial["state"] for trial in state["trials"]] == ["begun", "begun"]
    assert sorted(path.name for path in store.iterdir()) == ["sweep.json", "trial-0000", "trial-0001"]


@pytest.mark.slow
def test_halving_on_a_cluster(nodes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    rates = "learning_rate=1e-2,1e-9,2e-9,3e-9,4e-9,5e-9,6e-9"
    options = ("--search", "asha", "--epochs", "400", "--hidden-size", "4", *TINY, "--output", tmp_path)
    said = command(capsys, "sweep", "logic", "--over", rates, *options, "--cluster", nodes.address)
    assert said.code == 0, said.err
    trials = json.loads((tmp_path / "sweep.json").read_text())["trials"]
    states = [trial["state"] for trial in trials]
    assert set(states) == {"finished", "stopped early"}
    early = [trial for trial in trials if trial["state"] == "stopped early"]
    assert all(len(trial["validations"]) < 400 for trial in early)
    # an ordinary run folder, which can be resumed
    name = f"trial-{early[0]['number']:04d}"
    assert RunFolder(tmp_path / name).last.exists()
    assert not RunFolder(tmp_path / name).finished
    assert "Repeat it with\n  mufuru train logic --preset" in said.out


def test_reproduce_hands_on_where_runs_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {}

    def sweep(jobs: Any, **options: Any) -> Outcome:
        asked.update(options)
        return Outcome()

    monkeypatch.setattr(reproduce, "sweep", sweep)
    where = ("--cluster", "10.0.0.1:6379", "--store", "s3://bucket/logic", "--jobs", "50")
    assert command(capsys, "reproduce", "logic", "--short", "--output", tmp_path, "--quiet", *where).code == 0
    assert asked["cluster"] == "10.0.0.1:6379"
    assert asked["store"] == "s3://bucket/logic"
    assert asked["workers"] == 50


@pytest.mark.slow
def test_reproduce_on_a_cluster(nodes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--short", "--sizes", "8", "--cells", "gru", "--seeds", "1")
    options = ("--output", tmp_path / "out", "--store", f"file://{tmp_path}/store", "--quiet")
    said = command(capsys, "reproduce", "logic", *small, *options, "--cluster", nodes.address)
    assert said == (0, "", "")
    assert list((tmp_path / "store").rglob("best.safetensors"))
    assert (tmp_path / "out" / "report" / "report.html").exists()


def test_an_address_where_nothing_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for name in ("sweep", "reproduce"):
        more = ENDLESS if name == "sweep" else ("--short",)
        said = command(capsys, name, "logic", *more, "--output", tmp_path / name, "--cluster", address)
        assert_refused(said, 2, f"nothing answers at {address}")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["somewhere", "ray://here:10001", "here:port", "127.0.0.1:99999"])
def test_an_address_that_is_none(address: str, tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match=r"--cluster should be auto or HOST:PORT|nothing answers at"):
        sweep(jobs(tmp_path, SHORT), cluster=address, quiet=True)


def test_an_address_of_something_else(tmp_path: Path) -> None:
    """A web server, which answers at once, and closes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(PlaceError, match=rf"what answers at {address} is no Ray cluster"):
            sweep(jobs(tmp_path, SHORT), cluster=address, quiet=True)
        server.shutdown()


def test_a_machine_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def init(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please specify the one to connect to")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(PlaceError, match=r"cannot join a Ray cluster at auto: .* Start one with `ray start --head`"):
        sweep(jobs(tmp_path, SHORT), cluster="auto", quiet=True)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PlaceError, match=r"--cluster needs Ray, which is not installed: `pip install '\.\[cluster\]'`"):
        sweep(jobs(tmp_path, SHORT), cluster="auto", quiet=True)


WITHOUT = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mufuru":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (WITHOUT, "sitecustomize.py", r"^node .* has no mufuru: install version \S+ there"),
        (
            '__version__ = "0.0.1"\n',
            "mufuru/__init__.py",
            r"^node .* has mufuru 0\.0\.1, and this is \S+: install the same",
        ),
    ],
    ids=["without mufuru", "another version"],
)
def test_a_node_that_cannot_work(nodes: Any, third: Any, tmp_path: Path, code: str, name: str, words: str) -> None:
    third(code, name)
    with pytest.raises(PlaceError, match=words):
        sweep(jobs(tmp_path / "runs", SHORT), cluster=nodes.address, quiet=True)
    assert list((tmp_path / "runs").iterdir()) == []
    assert not ray.is_initialized()


def test_nodes_that_do_not_share_the_store(nodes: Any, tmp_path: Path) -> None:
    """The memory of this process."""
    with pytest.raises(PlaceError, match=r"^node .* does not see memory://runs: give --output a folder that all"):
        sweep(jobs(tmp_path, SHORT), cluster=nodes.address, store="memory://runs", quiet=True)


HERE = {"version": "1.0", "code": "a", "seen": True, "missing": ""}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": "b"}, "has mufuru 1.0 with other code than this: install the same commit"),
        ({"missing": "Install s3fs to access S3"}, "cannot open s3://runs: Install s3fs"),
        ({"seen": False}, "does not see s3://runs"),
    ],
)
def test_answers_of_a_node(change: dict[str, Any], words: str) -> None:
    cluster.check_node("one", HERE, HERE, "s3://runs")
    with pytest.raises(PlaceError, match=words):
        cluster.check_node("one", HERE | change, HERE, "s3://runs")


# a folder may have the name of what fsspec would take for a URL
@pytest.mark.parametrize("name", ["runs", "memory::runs"])
def test_nodes_find_the_folder_of_the_runs(tmp_path: Path, name: str) -> None:
    with cluster.token(Where(tmp_path / name)) as place:
        assert cluster.probe_by_value()(place)["seen"]
    assert not any((tmp_path / name).iterdir())


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(os, "makedirs", refuse)
    words = r"^cannot write to .*/runs \(Permission denied\): what was saved before is"
    with pytest.raises(RunError, match=words), cluster.token(Where(tmp_path / "runs")):
        pass


def test_a_node_that_may_not_open_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its file system raises is an answer."""

    def refuse(url: str, **_: Any) -> None:
        raise PermissionError("no key for s3://runs")

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)
    assert cluster.probe_by_value()("s3://runs/.cluster-1")["missing"] == "no key for s3://runs"


def test_a_node_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise ray.exceptions.WorkerCrashedError

    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "NodeID": "0" * 56, "NodeManagerAddress": "one"}])
    monkeypatch.setattr(ray, "remote", lambda look: MagicMock())
    monkeypatch.setattr(ray, "get", die)
    with pytest.raises(PlaceError, match=r"node one cannot be asked whether it can make runs \(.+\): look at it with"):
        cluster.check_nodes(ray, "place", None)


def test_a_late_node_without_mufuru_fails_its_runs_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    task = cluster.task_by_value()
    state, failure = task("0.0.1", {}, b"", None)
    assert state == "ended"
    assert failure is not None
    assert failure.endswith("expected 0.0.1")
    monkeypatch.setitem(sys.modules, "mufuru.experiments.engine.cluster", None)
    assert "has no mufuru with its experiments" in str(task("0.0.1", {}, b"", None)[1])


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 100])
def test_many_runs_leak_nothing(nodes: Any, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_leaks_nothing(tmp_path, count, monkeypatch, nodes.address)
