"""Runs as tasks of a Ray cluster: a run whose process or machine dies is resumed elsewhere from its last checkpoint.

Every node needs the same version of mufuru, and has to see the folder of the runs, or the URL where they are kept.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import socket
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

import mufuru
from mufuru.disk import locked
from mufuru.experiments.engine.errors import Interrupted, PlaceError, RunError, writing_to
from mufuru.experiments.engine.remote import Remote
from mufuru.experiments.engine.work import GRACE, Died, Ended, Event, Job, Looked, Reporter, Validation, Where, work
from mufuru.kernels import library

PROBE_SECONDS = 120.0
"""Seconds that a node gets to answer: it may have to start a process first."""
CONNECT_SECONDS = 5.0
SETTINGS = b"\x04"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
"""Greeting of HTTP/2, which Ray speaks, and an empty frame of settings; the answer begins with such a frame."""


def import_ray() -> Any:
    """Return the module `ray`, or say how to install it."""
    # this program reports what happens to nodes; Ray reads both when it is imported
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        message = "--cluster needs Ray, which is not installed: `pip install '.[cluster]'` in the folder of mufuru"
        raise PlaceError(message) from error


@contextmanager
def connected(address: str, where: Where) -> Iterator[Cluster]:
    """Connect to a cluster, make sure that all of its nodes can work, and leave nothing there afterwards."""
    ray = import_ray()
    connect(ray, address)
    try:
        with token(where) as place:
            check_nodes(ray, place, where.store)
            if where.workers is None and not ray.cluster_resources().get("CPU"):
                raise PlaceError("the cluster has no core: add a node with `ray start --address HOST:PORT`")
            yield Cluster(ray, where)
    finally:
        ray.shutdown()


def connect(ray: Any, address: str) -> None:
    """Connect this process to the cluster."""
    if address != "auto":
        check_listening(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise PlaceError(f"cannot join a Ray cluster at {address}: {_reason(error)} {_hint(address)}") from None


def check_listening(address: str) -> None:
    """Refuse an address where nothing listens, or something else: Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise PlaceError(f"--cluster should be auto or HOST:PORT, such as 10.0.0.1:6379, got {address!r}")
    try:
        with socket.create_connection((host, int(port)), CONNECT_SECONDS) as connection:
            connection.sendall(HTTP2)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise PlaceError(f"nothing answers at {address} ({error}). {_hint(address)}") from None
    if answer[3:4] != SETTINGS:
        raise PlaceError(f"what answers at {address} is no Ray cluster. {_hint(address)}")


def _reason(error: Exception, line: int = 0) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[line]


def _hint(address: str) -> str:
    start = "Start one with `ray start --head`" if address == "auto" else "Expected HOST:PORT of a running Ray cluster"
    return f"{start}, or leave --cluster out to use this machine alone"


@contextmanager
def token(where: Where) -> Iterator[str]:
    """Put a file where runs are kept, for nodes to see; yield its path or URL."""
    name = f".cluster-{uuid.uuid4().hex}"
    if where.store is None:
        path = where.root.absolute() / name
        with writing_to(where.root):
            where.root.mkdir(parents=True, exist_ok=True)
            path.touch()
        try:
            yield str(path)
        finally:
            path.unlink(missing_ok=True)
        return
    kept = Remote(where.store)
    kept.write(name, b"")
    try:
        yield f"{kept.url}/{name}"
    finally:
        with suppress(RunError):
            kept.remove(name)


def check_nodes(ray: Any, place: str, store: str | None) -> None:
    """Refuse a cluster with a node that cannot make runs."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    look = probe_by_value()
    probe, here = ray.remote(look), look(place)
    answers = [
        probe.options(num_cpus=0, max_retries=1, scheduling_strategy=affinity(node["NodeID"], soft=True)).remote(place)
        for node in nodes
    ]
    for node, answer in zip(nodes, answers, strict=True):
        name = node["NodeManagerAddress"]
        try:
            check_node(name, ray.get(answer, timeout=PROBE_SECONDS), here, store)
        except ray.exceptions.RayError as error:
            problem = f"cannot be asked whether it can make runs ({_reason(error, -1)})"
            if isinstance(error, ray.exceptions.GetTimeoutError):
                problem = f"starts no process within {PROBE_SECONDS:.0f} seconds"
            raise PlaceError(f"node {name} {problem}: look at it with `ray status`") from None


def probe_by_value() -> Callable[[str], dict[str, Any]]:
    """Return a function that a node can run without mufuru."""

    def probe(place: str) -> dict[str, Any]:
        import hashlib
        import importlib.util
        import os
        import pathlib
        import re

        # found, not imported: that would import torch
        try:
            spec = importlib.util.find_spec("mufuru")
        except ImportError:
            spec = None
        if spec is None or spec.origin is None:
            return {"version": None}
        package, code = pathlib.Path(spec.origin).parent, hashlib.sha256()
        for path in sorted(package.rglob("*.py")):
            code.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
        version = re.findall(r'^__version__ = "(.+)"$', pathlib.Path(spec.origin).read_text("utf-8"), re.MULTILINE)
        missing, seen = "", os.path.exists(place)
        if "://" in place:
            try:
                import fsspec

                files, path_there = fsspec.core.url_to_fs(place, use_listings_cache=False)
                seen = files.exists(path_there)
            except Exception as error:
                # a package that is not installed, rights that it lacks: every file system has errors of its own
                missing = str(error) or type(error).__name__
        return {"version": "".join(version), "code": code.hexdigest(), "seen": seen, "missing": missing}

    return probe


def check_node(name: str, there: dict[str, Any], here: dict[str, Any], store: str | None) -> None:
    """Refuse a node with another version, or without the files."""
    if there["version"] is None:
        raise PlaceError(f"node {name} has no mufuru: install version {here['version']} there, with its experiments")
    if there["version"] != here["version"]:
        versions = f"mufuru {there['version']}, and this is {here['version']}"
        raise PlaceError(f"node {name} has {versions}: install the same version on all nodes")
    if there["code"] != here["code"]:
        both = f"mufuru {here['version']} with other code than this"
        raise PlaceError(f"node {name} has {both}: install the same commit on all nodes")
    if there["missing"]:
        raise PlaceError(f"node {name} cannot open {store}: {there['missing']}")
    if not there["seen"]:
        raise PlaceError(
            f"node {name} does not see {store or 'the folder of the runs'}: give --output a folder that all nodes "
            "share, or --store a URL that all of them reach, such as s3://bucket/folder"
        )


class Cluster:
    """The tasks of this sweep on a cluster."""

    def __init__(self, ray: Any, where: Where) -> None:
        self.ray, self.where = ray, where
        affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        here = affinity(ray.get_runtime_context().get_node_id(), soft=False)
        # beside this process: it is there as long as this process is
        self.board = ray.remote(board_by_value()).options(num_cpus=0, scheduling_strategy=here).remote()
        self.task = ray.remote(task_by_value()).options(num_cpus=1, max_retries=0)
        self.tasks: dict[Any, Job] = {}
        self.fractions: dict[str, float] = {}
        self.halted: set[str] = set()
        self.cores, self.due = 0, 0.0

    def running(self) -> dict[str, tuple[Job, float]]:
        return {job.name: (job, self.fractions.get(job.name, 0.0)) for job in self.tasks.values()}

    def room(self) -> int:
        """Return how many more tasks to submit: one for each core, or as many as were asked for."""
        if self.where.workers is None and time.monotonic() >= self.due:
            self.due = time.monotonic() + 5.0
            # tasks wait for a node where there is none
            self.cores = max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        return (self.where.workers or self.cores) - len(self.tasks)

    def start(self, job: Job) -> None:
        if self.where.store is None:
            job = replace(job, folder=job.folder.absolute())
        variables = {name: value for name, value in os.environ.items() if name.startswith("MUFURU_")}
        content = pickle.dumps((job, self.where, os.getcwd(), sys.argv))
        self.tasks[self.task.remote(mufuru.__version__, variables, content, self.board)] = job

    def listen(self, seconds: float) -> list[Event]:
        self.ray.wait(list(self.tasks), timeout=seconds)
        over, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)
        # a run's last report comes before its end
        self.fractions, validations = self.ray.get(self.board.read.remote())
        jobs = {job.name: job for job in self.tasks.values()}
        looked = [Looked(jobs[name], Validation(*pair)) for name, pair in validations if name in jobs]
        return [*looked, *map(self.settle, over)]

    def settle(self, task: Any) -> Event:
        """Return how a task ended."""
        job, errors = self.tasks.pop(task), self.ray.exceptions
        self.board.forget.remote(job.name)
        try:
            state, failure = self.ray.get(task)
        except errors.NodeDiedError:
            return Died(job, "its machine is gone", innocent=True)
        except errors.OutOfMemoryError:
            return Died(job, "its process was ended because memory ran out")
        except errors.RayError as error:
            return Died(job, f"its process died ({_reason(error)})")
        if state == "interrupted":
            asked = job.name in self.halted
            return Ended(job, None, halted=True) if asked else Died(job, "its process was asked to stop", innocent=True)
        return Ended(job, failure)

    def halt(self, name: str) -> None:
        self.halted.add(name)
        self.board.halt.remote([name])

    def stop(self) -> None:
        self.ray.get(self.board.halt.remote([job.name for job in self.tasks.values()]))
        started = set(self.ray.get(self.board.read.remote())[0])
        waiting = [task for task, job in self.tasks.items() if job.name not in started]
        for task in waiting:
            self.ray.cancel(task)
        if self.tasks:
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=GRACE)

    def close(self) -> None:
        if self.tasks:
            # Ray ends this process if the answer of a cancelled task comes: what has ended is left alone
            _, running = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)
            for task in running:
                self.ray.cancel(task, force=True)
        self.tasks = {}
        self.ray.kill(self.board)


def board_by_value() -> type:
    """Return the class of the actor that runs report to, which needs nothing but Python."""

    class Board:
        def __init__(self) -> None:
            self.fractions: dict[str, float] = {}
            self.validations: list[tuple[str, tuple[int, float]]] = []
            self.halted: set[str] = set()

        def report(self, name: str, fraction: float, validations: list[tuple[int, float]]) -> bool:
            """Take note of a run's progress; return whether it should stop."""
            self.fractions[name] = fraction
            self.validations += [(name, pair) for pair in validations]
            return name in self.halted

        def read(self) -> tuple[dict[str, float], list[tuple[str, tuple[int, float]]]]:
            """Return the part of each run that is made, and all validations since the last call."""
            validations, self.validations = self.validations, []
            return self.fractions, validations

        def forget(self, name: str) -> None:
            self.fractions.pop(name, None)

        def halt(self, names: list[str]) -> None:
            self.halted.update(names)

    return Board


def task_by_value() -> Callable[..., tuple[str, str | None]]:
    """Return the function of a task; a node that joined later may have another mufuru, or none."""

    def task(version: str, variables: dict[str, str], content: bytes, board: Any) -> tuple[str, str | None]:
        import importlib
        import os

        os.environ.update(variables)
        try:
            mufuru = importlib.import_module("mufuru")
            made_by = importlib.import_module("mufuru.experiments.engine.cluster")
        except ImportError as error:
            return "ended", f"node {os.uname().nodename} has no mufuru with its experiments: {error}"
        if mufuru.__version__ != version:
            return "ended", f"node {os.uname().nodename} has mufuru {mufuru.__version__}, expected {version}"
        done: tuple[str, str | None] = made_by.make(content, board)
        return done

    return task


class Reported(Reporter):
    """Reports to the board."""

    interval = 0.5

    def __init__(self, name: str, board: Any) -> None:
        self.name, self.board = name, board

    def report(self, fraction: float, validations: list[Validation]) -> bool:
        plain = [(validation.number, validation.value) for validation in validations]
        # not ray.get: while a task waits in it, its core goes to another one
        return bool(self.board.report.remote(self.name, fraction, plain).future().result())


def make(content: bytes, board: Any) -> tuple[str, str | None]:
    """Make one run in a process of the cluster; return whether it ended or was interrupted, and why it failed."""
    job, where, folder, arguments = pickle.loads(content)
    # paths of data are those of the command
    with suppress(OSError):
        os.chdir(folder)
    sys.argv = arguments
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", library.MuFuRUKernelWarning)
    reporter = Reported(job.name, board)
    if reporter.report(0.0, []):
        return "interrupted", None
    if where.store is None and job.folder.is_dir():
        # the process that trained the run before may still be exiting
        with locked(job.folder, GRACE):
            pass
    try:
        return "ended", work(job, where, reporter)
    except Interrupted:
        return "interrupted", None
