"""From arguments to a dataclass through tyro, which reports typing mistakes itself and exits with code 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import tyro

from mufuru.experiments.settings import SettingError, choose

T = TypeVar("T")
MOST_THREADS = 1024


class UsageError(Exception):
    """A typing mistake that only the command can see, in one line; exit code 2."""


def parse(
    kind: type[T], arguments: list[str], *, prog: str, description: str, examples: str = "", default: T | None = None
) -> T:
    """Return the dataclass that the arguments describe. `--help` prints and exits, examples last."""
    check_repeated(arguments, prog)
    names: dict[str, Any] = {"prog": prog, "description": description, "config": (tyro.conf.OmitArgPrefixes,)}
    if default is not None:
        names["default"] = default
    try:
        parsed: T = tyro.cli(kind, args=arguments, **names)
        return parsed
    except SettingError as error:
        raise UsageError(f"{error}. See {prog} --help") from None
    except SystemExit as leaving:
        if not leaving.code and examples:
            print(f"\nexamples:\n{examples}")
        raise


def check_repeated(arguments: list[str], prog: str) -> None:
    """Refuse an option that is given twice: the second would silently replace the values of the first."""
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{repeated[0]} is given twice: give all its values after one. See {prog} --help")


def pick(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return an entry by its name; a mistyped name is a usage error that suggests the nearest."""
    try:
        return choose(kind, name, known)
    except SettingError as error:
        raise UsageError(str(error)) from None


def use_threads(threads: int, prog: str) -> None:
    """Set the number of threads to compute with."""
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"--threads should be from 1 to {MOST_THREADS}, got {threads}. See {prog} --help")
    torch.set_num_threads(threads)
