"""Load a command, run it, and turn what goes wrong into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mufuru.experiments.cli.usage import UsageError
from mufuru.experiments.data import DataError
from mufuru.experiments.engine.errors import Interrupted, RunError
from mufuru.experiments.record import RecordError
from mufuru.experiments.settings import SettingError
from mufuru.kernels.choice import CHOICES
from mufuru_command import say


def load(command: str, arguments: list[str]) -> Callable[[], int]:
    """Import all that a command needs; what is returned runs it."""
    return partial(run, importlib.import_module(f"mufuru.experiments.cli.{command}"), arguments)


def run(command: Any, arguments: list[str]) -> int:
    """Run a module of this package."""
    try:
        check_kernel()
        with _plain_warnings():
            return int(command.run(arguments))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except Interrupted as error:
        return say(error, 128 + error.number)
    except UsageError as error:
        return say(error, 2)
    except (DataError, SettingError, RunError, RecordError) as error:
        return say(error, 1)
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        return say("not enough memory for this model and its data: try fewer units, a smaller batch or less data", 1)


def check_kernel() -> None:
    if (kernel := os.environ.get("MUFURU_KERNEL", "auto")) not in CHOICES:
        raise UsageError(f"MUFURU_KERNEL should be one of {', '.join(CHOICES)}, got {kernel!r}")


def _is_memory(error: MemoryError | RuntimeError) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error) for word in ("allocate memory", "size calculation"))


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """A warning is a sentence for the user too: without the line of code that it came from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"mufuru: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before
