"""What can go wrong with a run, as sentences for the one who started it."""

from __future__ import annotations

import errno
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunError(RuntimeError):
    """A run cannot start or go on; the message says why and what to do."""


class Interrupted(RunError):
    """A signal stopped the run; all is saved, and the message says how to go on."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


def resume_command(folder: Path) -> str:
    """What to type to go on with a run."""
    return f"`mufuru train --resume {shlex.quote(str(folder))}`"


def not_finite(name: str, value: float, update: int, rate: float, folder: Path, saved_update: int) -> RunError:
    """A loss, gradient or metric that is NaN or infinite: where, what to try, what is left."""
    kept = f"The last good checkpoint, of update {saved_update}, stays in {folder}"
    return RunError(
        f"the {name} is {value} at update {update}, with learning rate {rate:g}: the run stops here. Try a lower "
        "--learning-rate, a --clip of the gradient such as 1, or a longer --warmup. "
        + (kept if saved_update else f"There is no checkpoint in {folder} yet")
    )


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"no space left for {folder}: what was saved before is untouched. Make room, then go on with "
            raise RunError(message + resume_command(folder)) from error
        message = f"cannot write to {folder} ({error.strerror or error}): what was saved before is untouched"
        raise RunError(message) from error
