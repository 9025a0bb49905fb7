"""Ctrl-C, SIGTERM and SIGHUP: finish the update, or what must not be disturbed, then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What asks a run to stop; SIGHUP comes from a terminal that is closed."""


class Stop:
    """Within this context a signal that asks to stop only sets `requested`; a second Ctrl-C acts as it always did.

    SIGTERM and SIGHUP are often sent twice, by a shell and by the system: the second does not hurry. A signal that is
    ignored, as SIGHUP is under nohup, stays so. Outside of the main thread Python hears no signals: nothing changes.
    """

    def __init__(self) -> None:
        self.number = 0
        """The first signal that was heard, 0 if there was none."""
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        return self.number != 0

    def __enter__(self) -> Stop:
        if _hears_signals():
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            _put_back(*self._before.popitem())

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        if signal.SIGINT in self._before:
            _put_back(signal.SIGINT, self._before.pop(signal.SIGINT))


def _put_back(number: int, handler: Any) -> None:
    # None stands for a handler that was not set by Python
    signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Ctrl-C waits for the end of this context: compiled code may make another error of it."""
    heard = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True

    if not _hears_signals():
        yield
        return
    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        _put_back(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _hears_signals() -> bool:
    return threading.current_thread() is threading.main_thread()
