"""The command line: `mufuru COMMAND ...`. One file per command; the process starts in `mufuru_command`."""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

import mufuru_command
from mufuru.experiments.cli.usage import UsageError
from mufuru.experiments.engine import torchrun
from mufuru.experiments.engine.errors import Interrupted
from mufuru.experiments.settings import UserError
from mufuru.kernels.choice import CHOICES
from mufuru_command import say

NO_MEMORY = ("allocate memory", "size calculation")
"""Words of torch's errors when memory runs out."""
HUGE = 1e7
"""Metrics from here on are printed in scientific notation."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command within this process and return its exit code."""
    return mufuru_command.run(sys.argv[1:] if arguments is None else arguments)


def load(command: str, arguments: list[str]) -> Callable[[], int]:
    """Import everything that a command needs, and return a function that runs it."""
    return partial(run_command, importlib.import_module(f"mufuru.experiments.cli.{command}"), arguments)


def run_command(command: ModuleType, arguments: list[str]) -> int:
    """Run a module of this package; turn errors into one sentence and an exit code."""
    before = warnings.formatwarning
    # a warning is a sentence for the user too: without the line of code that it came from
    warnings.formatwarning = lambda message, *_, **__: f"mufuru: {message}\n"
    try:
        if (kernel := os.environ.get("MUFURU_KERNEL", "auto")) not in CHOICES:
            raise UsageError(f"MUFURU_KERNEL should be one of {', '.join(CHOICES)}, got {kernel!r}")
        with torchrun.first_reports():
            torchrun.check_command(command.__name__.rpartition(".")[2])
        return int(command.main(arguments))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except Interrupted as error:
        return say(error, 128 + error.number)
    except (UserError, UsageError) as error:
        return say(error, getattr(error, "code", 2))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        return say("not enough memory for this model and its data: try fewer units, a smaller batch or less data", 1)
    finally:
        warnings.formatwarning = before


def overview(usage: str, more: str, about: str, subjects: Mapping[str, Any], examples: str) -> int:
    """Print the help of a command whose first argument is one of its subjects; `usage` ends with their name."""
    noun = usage.rpartition(" ")[2].lower()
    print(
        f"usage: {usage} {more}\n\n{about}\n\n{noun}s: {', '.join(subjects)}\n\n{usage} --help lists all options.\n\n"
        f"examples:\n{examples}",
        end="",
    )
    return 0


def show_metrics(splits: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table with a row per data set and a column per metric."""
    names = list(dict.fromkeys(name for metrics in splits.values() for name in metrics))
    table = Table("", *names, title_justify="left", box=None)
    for split, metrics in splits.items():
        table.add_row(split, *(number(metrics.get(name)) for name in names))
    Console(highlight=False).print(table)


def report_failures(failed: Mapping[str, str], again: str) -> int:
    """Print every run that failed, and how to try again; return the exit code."""
    for name, reason in failed.items():
        print(f"mufuru: {name} failed: {reason}", file=sys.stderr)
    return say(again, 1) if failed else 0


def number(value: float | None) -> str:
    """Write a metric with four digits, a huge one in scientific notation; a count as it is."""
    if isinstance(value, int):
        return str(value)
    return "" if value is None else f"{value:.4f}" if value < HUGE else f"{value:.4g}"
