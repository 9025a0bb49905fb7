"""Early ends of a run: errors as sentences for the user, and the signals that ask a run to stop."""

import errno
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

from mufuru.experiments.settings import UserError

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a run to stop; SIGHUP comes from a terminal that is closed."""


class RunError(UserError, RuntimeError):
    """A run that cannot be made, resumed or read; the message says what is wrong and what to do."""


class PlaceError(RunError):
    """A cluster, URL or folder where runs cannot be made or kept, or a package that is not there."""


class Failure(RunError):
    """Machine, network or numbers failed while a valid command ran. Exit code 1."""

    code = 1


class Interrupted(RunError):
    """A signal stopped the run; all is saved, and the message says how to resume."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


def resume_command(folder: Path) -> str:
    return f"`mufuru train --resume {shlex.quote(str(folder))}`"


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a `RunError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"no space left for {folder}: what was saved before is untouched. Make room, then resume with "
            raise Failure(message + resume_command(folder)) from error
        message = f"cannot write to {folder} ({error.strerror or error}): what was saved before is untouched"
        raise Failure(message) from error


class Stop:
    """Context in which a signal that asks to stop only sets `number`; a second Ctrl-C acts as it always did.

    SIGTERM and SIGHUP are often sent twice, by a shell and by the system: the second does not hurry. A signal that is
    ignored, as SIGHUP is under nohup, stays so. Outside of the main thread Python receives no signals: nothing changes.
    """

    def __init__(self, signals: Iterable[int] = SIGNALS) -> None:
        self.number = 0
        """The first signal that arrived, 0 if there was none."""
        self.signals = signals
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            self._restore(*self._before.popitem())

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        if signal.SIGINT in self._before:
            self._restore(signal.SIGINT, self._before.pop(signal.SIGINT))

    @staticmethod
    def _restore(number: int, handler: Any) -> None:
        # None stands for a handler that was not set by Python
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer a Ctrl-C until the end of this context: compiled code may turn it into another error."""
    stop = Stop([signal.SIGINT])
    try:
        with stop:
            yield
    finally:
        if stop.number:
            signal.raise_signal(signal.SIGINT)
