"""Find the command, run it, and turn what goes wrong into one sentence and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import mufuru
from mufuru.experiments.cli.usage import UsageError, nearest
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.engine.errors import Interrupted, RunError
from mufuru.experiments.record import RecordError
from mufuru.experiments.settings import SettingError
from mufuru.kernels.choice import CHOICES

COMMANDS = {
    "train": "train a model, or go on with a run that was stopped",
    "evaluate": "metrics of a trained model",
    "predict": "labels of sequences, from a trained classifier",
    "generate": "text from a trained language model",
    "score": "how well a trained language model predicts a text",
    "explore": "a local page that looks inside trained models",
    "export": "a trained model as files for others: safetensors, int8, ONNX, torch.export",
    "prune": "a trained model without the operations that it hardly uses",
    "report": "finished runs as one HTML page",
    "reproduce": "an experiment of the paper: all runs, tables and figures",
    "doctor": "what is installed, which kernel is live and why",
}
"""Each is a module of this package whose `run(arguments)` returns the exit code."""

HELP = f"""\
usage: mufuru COMMAND [OPTIONS]

MuFuRU, the Multi-Function Recurrent Unit: train it, look inside, rerun the paper.

commands:
{chr(10).join(f"  {name:<10} {text}" for name, text in COMMANDS.items())}

options:
  -h, --help  show this text; after a command, that command's
  --version   show the version

examples:
  mufuru doctor
  mufuru train logic --preset short --output runs/first
  mufuru evaluate runs/first
  mufuru train lm --preset short --text book.txt --output runs/book
  mufuru generate runs/book --prompt "once upon"
  mufuru score runs/book other.txt
  mufuru train classify --data reviews.csv --output runs/reviews
  mufuru predict runs/reviews new.txt
  mufuru explore runs/first
  mufuru prune runs/reviews --threshold 0.01
  mufuru export runs/reviews --to onnx
  mufuru report runs/first -o report.html
  mufuru reproduce logic --short
"""

Arguments: TypeAlias = list[str]


def run(arguments: Arguments) -> int:
    """Run the command that the arguments name."""
    _prepare_streams()
    try:
        with _plain_warnings():
            code = _run_command(arguments)
        # a reader that went away shows here, not when Python ends
        sys.stdout.flush()
        return code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except BrokenPipeError:
        return _leave_quietly()
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except Interrupted as error:
        return _say(error, 130)
    except UsageError as error:
        return _say(error, 2)
    except (DataError, SettingError, RunError, RecordError) as error:
        return _say(error, 1)
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        return _say("not enough memory for this model and its data: try fewer units, a smaller batch or less data", 1)
    except OSError as error:
        return _say(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error, 1)


def _run_command(arguments: Arguments) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"mufuru {mufuru.__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        raise UsageError(f"unknown {kind} {command}.{nearest(command, list(COMMANDS))} See mufuru --help")
    if (kernel := os.environ.get("MUFURU_KERNEL", "auto")) not in CHOICES:
        raise UsageError(f"MUFURU_KERNEL should be one of {', '.join(CHOICES)}, got {kernel!r}")
    return int(importlib.import_module(f"mufuru.experiments.cli.{command}").run(rest))


def _prepare_streams() -> None:
    """A stream that was closed swallows what is said, and one that cannot write a letter writes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


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


def _say(message: object, code: int) -> int:
    print(f"mufuru: {message}", file=sys.stderr)
    return code


def _leave_quietly() -> int:
    """Whoever read our output has enough; Python must not complain about it at its end either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + 13
