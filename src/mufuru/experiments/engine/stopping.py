"""Ctrl-C and SIGTERM: finish the update, or what must not be disturbed, then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stop:
    """Within this context the first SIGINT or SIGTERM only sets `requested`; a second one acts as it always did.

    Outside of the main thread, where Python hears no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if _hears_signals():
            self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._leave()

    def _leave(self) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set by Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}


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
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _hears_signals() -> bool:
    return threading.current_thread() is threading.main_thread()
