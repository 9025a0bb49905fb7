"""Arguments become a dataclass through tyro, which reports typing mistakes itself and exits with code 2."""

from collections import Counter
from dataclasses import dataclass, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
import tyro

from mufuru.experiments.settings import SettingError

S = TypeVar("S")
T = TypeVar("T")
MOST_THREADS = 1024

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")]
File = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")]
Output = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
Split = Literal["train", "valid", "test"]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
AsJson = Annotated[Flag, tyro.conf.arg(help="Print JSON.")]
Threads = Annotated[int, tyro.conf.arg(help="Threads to compute with.")]


@dataclass(frozen=True)
class FromPreset:
    """The option that decides the defaults of all settings."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Settings to start from, by default the first preset; the options below change them."""


class UsageError(Exception):
    """A typing mistake that only the command can see, in one line; exit code 2."""


def parse(kind: type[T], arguments: list[str], examples: str, *, prog: str = "", default: T | None = None) -> T:
    """Return the dataclass that the arguments describe, and set its number of threads if it has one.

    Its docstring is the help's description. `--help` prints and exits, examples last.
    """
    prog = prog or f"mufuru {kind.__name__.lower()}"
    more: dict[str, Any] = {} if default is None else {"default": default}
    try:
        check_given(arguments)
        parsed: T = tyro.cli(kind, args=arguments, prog=prog, config=(tyro.conf.OmitArgPrefixes,), **more)
        if (threads := getattr(parsed, "threads", None)) is not None:
            check_range("--threads", threads, 1, MOST_THREADS)
            torch.set_num_threads(threads)
        return parsed
    except SettingError as error:
        raise UsageError(f"{error}. See {prog} --help") from None
    except SystemExit as leaving:
        if not leaving.code:
            print(f"\nexamples:\n{examples}")
        raise


def parse_first(kind: type[T], arguments: list[str]) -> T:
    """Return the options on which the defaults of the others depend; the others are ignored here."""
    try:
        options: dict[str, Any] = {"add_help": False, "return_unknown_args": True, "console_outputs": False}
        first: tuple[T, list[str]] = tyro.cli(kind, args=arguments, **options)
        return first[0]
    except SystemExit:
        # the parser of all options reports the mistake, and names the help
        return kind()


def parse_both(
    options: type[S], settings: type[T], arguments: list[str], examples: str, prog: str, about: str, *defaults: Any
) -> tuple[S, T]:
    """Return two dataclasses whose fields are options of one command."""
    flat = tyro.conf.arg(name="")
    fields = [("options", Annotated[options, flat]), ("settings", Annotated[settings, flat])]
    command = make_dataclass("Command", fields, frozen=True, namespace={"__doc__": about})
    parsed: Any = parse(command, arguments, examples, prog=prog, default=command(*defaults) if defaults else None)
    return parsed.options, parsed.settings


def check_given(arguments: list[str]) -> None:
    """Refuse an option that is given twice: the second would silently replace the values of the first. Refuse an empty
    value, as of a variable of the shell that is not set; only a prompt may be empty."""
    parts = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--") else [one])]
    for before, value in pairwise(["", *parts]):
        if not value and before != "--prompt":
            what = f"the value of {before}" if before.startswith("--") else "an argument"
            raise SettingError(f"{what} is empty: give one (is a variable of the shell not set?)")
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise SettingError(f"{repeated[0]} is given twice: give all its values after one")


def check_range(option: str, value: float | None, least: int, most: int | None = None) -> None:
    """Refuse an option's value outside of its range; None passes."""
    if value is not None and not (least <= value and (most is None or value <= most)):
        expected = f"at least {least}" if most is None else f"from {least} to {most}"
        raise SettingError(f"{option} should be {expected}, got {value}")
