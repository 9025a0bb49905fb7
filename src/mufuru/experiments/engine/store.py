"""The run folder as the engine writes it: started, locked, saved to, resumed, finished; and the run's environment."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

import mufuru
from mufuru.disk import locked, remove_leftovers, write_atomically
from mufuru.experiments.engine import checkpoint
from mufuru.experiments.engine.checkpoint import Checkpoint, CheckpointError
from mufuru.experiments.engine.errors import RunError, resume_command, writing_to
from mufuru.experiments.record import RecordError, RunFolder, config_document, read_json
from mufuru.experiments.settings import SettingError, flat, from_json
from mufuru.experiments.tasks import KINDS
from mufuru.kernels import library

SOURCE = Path(mufuru.__file__).parent


class Store:
    """Writer of the files of one run; `document` is the content of its config.json."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.files = RunFolder(path)
        self.document = document

    def check_free(self) -> None:
        """Make sure that a new run would replace nothing."""
        path = self.files.path
        if self.files.finished:
            raise RunError(f"{path} holds a finished run: choose another folder")
        if self.files.config.exists():
            raise RunError(
                f"{path} holds a run already: resume it with {resume_command(path)}, or choose another folder"
            )
        if any(file.exists() for file in (*self.files.weights, self.files.metrics)):
            raise RunError(f"{path} holds files of a run without its config.json: choose another folder")

    def begin(self) -> None:
        """Create a new run. The config comes last: a folder with it holds a run."""
        self._write(self.files.environment, environment())
        self._write(self.files.config, self.document)

    def note_layout(self, layout: dict[str, Any] | None) -> None:
        """Record how the data was read, for later files; an older run without this record gets it now."""
        if layout is not None and not self.files.layout.exists():
            self._write(self.files.layout, layout)

    def check(self) -> None:
        """Make sure that the run in the folder has these settings."""
        try:
            there = read_json(self.files.config)
        except RecordError as error:
            raise RunError(str(error)) from None
        check_same(there, self.document, str(self.files.path))

    def tidy(self) -> None:
        """Remove files that a killed process left half-written."""
        files = self.files
        with writing_to(files.path):
            for path in (*files.weights, files.config, files.environment, files.layout, files.examples, files.result):
                remove_leftovers(path)

    def note_environment(self) -> None:
        """Record what has changed since the run began, if anything."""
        with suppress(RecordError):
            first = read_json(self.files.environment)
            now = {key: value for key, value in environment().items() if key != "command"}
            if changes := {key: value for key, value in now.items() if first.get(key) != value}:
                first.setdefault("resumed", []).append(changes)
                self._write(self.files.environment, first)

    def latest(self) -> Checkpoint | None:
        """Return the last checkpoint; None if the run has not saved anything yet."""
        paths = [path for path in (self.files.last, self.files.previous) if path.exists()]
        if not paths:
            return None
        try:
            latest = checkpoint.load(paths[0])
        except CheckpointError as error:
            rest = f"resume from {paths[1].name}" if paths[1:] else "start the run again from its beginning"
            raise RunError(f"{error}. Delete it to {rest}") from None
        return self._with_best(self._of_this_run(latest, paths[0]))

    def best(self) -> Checkpoint:
        return self._of_this_run(checkpoint.load(self.files.best), self.files.best)

    def save(self, latest: Checkpoint) -> None:
        """Write last.safetensors; the old one becomes previous.safetensors once the new one is complete."""
        if self.files.metrics.exists():
            # the lines that the checkpoint counts on must be on the disk before it
            with writing_to(self.files.path), open(self.files.metrics, "rb+") as file:
                os.fsync(file.fileno())
        self._save(self.files.last, latest, self.files.previous)
        self.files.best_before.unlink(missing_ok=True)

    def save_best(self, weights: Checkpoint) -> None:
        self._save(self.files.best, weights)

    def log(self, line: dict[str, Any]) -> int:
        """Add a line to metrics.jsonl; return its new length in bytes."""
        with writing_to(self.files.path), open(self.files.metrics, "ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            return file.tell()

    def cut_log(self, length: int) -> None:
        """Remove the lines that were written after the checkpoint."""
        with writing_to(self.files.path), open(self.files.metrics, "ab") as file:
            there = file.tell()
            if there >= length:
                file.truncate(length)
        if there < length:
            raise RunError(f"{self.files.metrics} is {there} bytes long, the checkpoint knows of {length}: lines are "
                           "missing. Put them back, or start a new run")  # fmt: skip

    def finish(self, result: dict[str, Any], examples: Sequence[str] = ()) -> None:
        """Write the result; before it, if there are any, examples of the data."""
        if examples:
            self._write(self.files.examples, {"texts": list(examples)})
        self._write(self.files.result, result)

    def result(self) -> dict[str, Any]:
        try:
            result: dict[str, Any] = read_json(self.files.result)
        except RecordError as error:
            raise RunError(f"{error}. Delete it and resume with {resume_command(self.files.path)}") from None
        return result

    def _save(self, path: Path, content: Checkpoint, keep: Path | None = None) -> None:
        with writing_to(self.files.path):
            checkpoint.save(path, Checkpoint(content.tensors, {**content.values, "run": self.document}), keep)

    def _with_best(self, latest: Checkpoint) -> Checkpoint:
        """Add the best weights to a checkpoint without them: runs of version 0.1 have them in two files."""
        if "best" not in latest.values:
            for path in filter(Path.exists, (self.files.best, self.files.best_before)):
                best = self._of_this_run(checkpoint.load(path), path)
                if best.values["update"] == latest.values["status"]["best_update"]:
                    tensors = {f"best/{name}": tensor for name, tensor in best.tensors.items()}
                    values = {name: best.values[name] for name in ("update", "valid")}
                    return Checkpoint(latest.tensors | tensors, latest.values | {"best": values})
        return latest

    def _of_this_run(self, content: Checkpoint, path: Path) -> Checkpoint:
        if different := differences(content.values.get("run", {}), self.document):
            raise RunError(f"{path} belongs to another run: {different}")
        return content

    def _write(self, path: Path, content: Any) -> None:
        with writing_to(self.files.path):
            write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def check_same(there: dict[str, Any], here: dict[str, Any], place: str) -> None:
    """Make sure that the config.json of the run in a place has these settings."""
    if different := differences(there, here):
        raise RunError(f"the run in {place} has other settings: {different}. Resume it with its own, or choose "
                       "another folder")  # fmt: skip


def _leave(self: Store, *_: Any, **__: Any) -> Any:
    """Do nothing, and return None."""


class Follower(Store):
    """The run folder for a process that leaves it to another one: it reads nothing and writes nothing."""

    begin = note_environment = note_layout = latest = save = save_best = log = cut_log = finish = _leave


@contextmanager
def open_store(path: Path, document: dict[str, Any], resume: bool) -> Iterator[Store]:
    """Open a new or existing run in a folder, exclusively for this process."""
    if resume and not RunFolder(path).config.exists():
        raise RunError(f"there is no run in {path} to resume: start it without --resume")
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: expected a folder for the run, or a name that is free")
    with writing_to(path):
        path.mkdir(parents=True, exist_ok=True)
    # on the folder itself: no file that could be left behind
    with locked(path, timeout=0) as alone:
        if not alone:
            raise RunError(f"another process is training the run in {path}: wait for it, or stop it")
        store = Store(path, document)
        store.tidy()
        store.check() if resume else store.check_free()
        try:
            yield store
        finally:
            with suppress(OSError):
                path.rmdir()  # only if it is empty: a run that could not begin leaves nothing behind


def differences(there: dict[str, Any], here: dict[str, Any]) -> str:
    """Name each setting that differs, with both its values; one that is newer than the run there has its default."""
    with suppress(SettingError, KeyError, TypeError):
        there = config_document(there["task"], from_json(KINDS[there["task"]].config, there["config"]))
    before, now = flat(there), flat(here)
    return "; ".join(
        f"{name.removeprefix('config.')} is {json.dumps(before.get(name))} there and {json.dumps(now.get(name))} here"
        for name in before | now
        if before.get(name) != now.get(name)
    )


def environment() -> dict[str, Any]:
    """Content of environment.json: nothing private, no path of the machine."""
    return {
        "mufuru": mufuru.__version__,
        **commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        **ranks(),
        **kernel(),
        "command": command(sys.argv),
    }


@lru_cache
def commit() -> dict[str, Any]:
    """Commit of the source and whether it was changed since; None for an installed package."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", "."))}


def _git(*arguments: str) -> str | None:
    """Output of git in the folder of the source, or None if it fails."""
    # inside of a hook git sets variables that would point it elsewhere
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=SOURCE, env=variables, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@lru_cache
def processor() -> str:
    """Name of the processor, from the system."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def ranks() -> dict[str, int]:
    """The number of processes that make the run together, where there are several."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return {}
    return {"ranks": distributed.get_world_size()}


def kernel() -> dict[str, Any]:
    """The kernel that `kernel="auto"` runs, and the origin of its library."""
    wanted = os.environ.get("MUFURU_KERNEL", "auto")
    state = library.status().state
    named = wanted in ("triton", "reference")
    live = wanted if named else "reference" if state == "unavailable" else "native"
    return {"kernel": live, "kernel_library": state}


def command(arguments: list[str]) -> list[str]:
    """The command line, with paths relative to the current folder; of paths outside of it the last name only."""
    program = Path(arguments[0]).name if arguments else ""
    # python -m mufuru is the same command
    program = "mufuru" if program in ("__main__.py", "mufuru_command.py") else program
    return [program, *map(_without_path, arguments[1:])]


def _without_path(argument: str) -> str:
    flag, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    path, here = Path(value).expanduser(), Path.cwd()
    if not path.is_absolute() and ".." not in path.parts:
        return argument
    path = Path(os.path.abspath(path))
    return f"{flag}{equals}{path.relative_to(here) if path.is_relative_to(here) else path.name}"
