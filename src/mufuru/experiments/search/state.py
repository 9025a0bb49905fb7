"""State of a search on the disk: sweep.json, from which the same command continues, on any machine that has it."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from mufuru.disk import locked, remove_leftovers, write_atomically
from mufuru.experiments.engine.errors import Failure, PlaceError, writing_to
from mufuru.experiments.engine.remote import Remote
from mufuru.experiments.record import RecordError, read_json
from mufuru.experiments.search.space import Values

NAME = "sweep.json"
LOCK = "sweep.lock"
"""File behind a URL that marks a running sweep; URLs have no locks."""
ALIVE = 60.0
"""Seconds after which a sweep that has not renewed its lock is dead."""


@dataclass
class Trial:
    """One run of a search."""

    number: int
    settings: Values
    state: Literal["begun", "finished", "stopped early", "failed"] = "begun"
    validations: list[float] = field(default_factory=list)
    """Metric of every validation."""
    value: float | None = None
    """Validation metric of the selected weights, once finished."""
    reason: str = ""
    """Why it failed."""

    @property
    def name(self) -> str:
        return f"trial-{self.number:04d}"

    @property
    def last(self) -> float | None:
        """The metric, or that of the last validation."""
        return self.value if self.value is not None or not self.validations else self.validations[-1]


@dataclass
class State:
    """A search: its identity and its trials."""

    about: dict[str, Any]
    """Task, settings, and what is searched over and how: a folder has one search."""
    seconds: float = 0.0
    """Time spent, over all sessions."""
    trials: list[Trial] = field(default_factory=list)


class Journal:
    """The state in a folder, and as a copy behind a URL."""

    def __init__(self, folder: Path, store: str | None, about: dict[str, Any]) -> None:
        self.path, self.remote = folder / NAME, Remote(store) if store else None
        self.state = State(json.loads(json.dumps(about)))
        self.renewed = -ALIVE

    def load(self) -> None:
        """Take up what the folder or the URL knows; another search there is an error."""
        remove_leftovers(self.path)
        place = str(self.path.parent)
        if self.remote and self.remote.has(NAME):
            content, place = self.remote.read_json(NAME), self.remote.url
        elif self.path.exists():
            try:
                content = read_json(self.path)
            except RecordError as error:
                raise PlaceError(str(error)) from None
        else:
            return
        try:
            there = State(content["about"], content["seconds"], [Trial(**trial) for trial in content["trials"]])
        except (KeyError, TypeError):
            raise PlaceError(f"{NAME} in {place} is damaged: choose another --output") from None
        if different := [key for key, value in self.state.about.items() if there.about.get(key) != value]:
            raise PlaceError(
                f"{place} holds another sweep, with a different {' and '.join(different)}: choose another --output, or "
                "repeat the command that began it"
            )
        self.state = there

    def save(self) -> None:
        """Write the state, whole or not at all."""
        state = asdict(self.state) | {"seconds": round(self.state.seconds, 3)}
        content = json.dumps(state, indent=1).encode() + b"\n"
        try:
            write_atomically(self.path, content)
        except OSError as error:
            raise Failure(
                f"cannot write {self.path} ({error.strerror or error}): what was saved before is untouched. Make room, "
                "then repeat the command"
            ) from error
        if self.remote:
            self.remote.write(NAME, content)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder and the URL for this process; another sweep there is an error."""
        folder = self.path.parent
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, timeout=0) as free:
            if not free:
                message = f"another sweep is at work in {folder}: wait for it, stop it, or choose another --output"
                raise PlaceError(message)
            try:
                with self._url_alone():
                    yield
            finally:
                with suppress(OSError):
                    folder.rmdir()  # only if it is empty: a sweep that could not begin leaves nothing behind

    @contextmanager
    def _url_alone(self) -> Iterator[None]:
        if self.remote is None:
            yield
            return
        if self.remote.has(LOCK):
            owner = self.remote.read_json(LOCK)
            if time.time() - owner["time"] < ALIVE:
                raise PlaceError(
                    f"another sweep is at work in {self.remote.url}, on {owner['host']}: wait for it, stop it, or "
                    f"choose another --store. One that was killed is forgotten after {ALIVE:.0f} seconds"
                )
        self.renew()
        try:
            yield
        finally:
            with suppress(Failure):
                self.remote.remove(LOCK)

    def renew(self) -> None:
        """Show that this sweep is alive."""
        if self.remote and time.monotonic() - self.renewed > ALIVE / 4:
            self.renewed = time.monotonic()
            owner = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
            self.remote.write(LOCK, json.dumps(owner).encode())
