"""From arguments to a dataclass through tyro, with every typing mistake told in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from itertools import pairwise
from typing import Any, TypeVar

import torch
import tyro

from mufuru.experiments.settings import SettingError

T = TypeVar("T")
MOST_THREADS = 1024
LOOKS = (tyro.conf.OmitArgPrefixes,)
PLAINER = (
    (r"^Error parsing (--\S+): invalid literal for int\(\) with base 10:", r"\1 should be a whole number, got"),
    (r"^Error parsing (--\S+): could not convert string to float:", r"\1 should be a number, got"),
    (
        r"^Error parsing (--\S+): Could not find valid parse for arguments: (.*)",
        r"\1 cannot be \2: values are separated by blanks",
    ),
    (
        r"^Error parsing (--\S+): no type matching \{None\}\|INT .*? from \['(.*?)'\].*",
        r"\1 should be a whole number or None, got '\2'",
    ),
    (
        r"^Error parsing (--\S+): no type matching \{None\}\|FLOAT .*? from \['(.*?)'\].*",
        r"\1 should be a number or None, got '\2'",
    ),
    (r"^Error parsing (?!-)\S+: ", ""),
    (
        r"^Missing value for argument '(.*?)'\. Expected 1 values\.",
        r"\1 needs a value; one that begins with - is written \1=VALUE.",
    ),
    (r"^Missing value for argument '(.*?)'\. Expected (\d+) values\.", r"\1 needs \2 values."),
    (r"^Missing value for argument '(.*?)'\. Expected .*", r"\1 needs a value."),
    (r"^Missing from .*?: (\S+).*", r"\1 is missing."),
    (r"^Unrecognized options: ", "not understood: "),
)
"""tyro's sentences and how we say them; a sentence not found here is told as it is."""


class UsageError(Exception):
    """A typing mistake: one line, which names the nearest match where there is one."""


def parse(
    kind: type[T], arguments: list[str], *, prog: str, description: str, examples: str = "", default: T | None = None
) -> T:
    """The dataclass that the arguments describe. `--help` prints and leaves, examples last."""
    check_options(kind, arguments, prog)
    starting_point = {} if default is None else {"default": default}
    said = io.StringIO()
    cli: Any = tyro.cli
    try:
        with contextlib.redirect_stderr(said):
            parsed: T = cli(kind, args=arguments, prog=prog, description=description, config=LOOKS, **starting_point)
            return parsed
    except SettingError as error:
        raise UsageError(f"{error}. See {prog} --help") from None
    except SystemExit as leaving:
        if leaving.code:
            raise UsageError(f"{sentence(said.getvalue())} See {prog} --help") from None
        if examples and {"-h", "--help"} & set(arguments):
            print(f"\nexamples:\n{examples}")
        raise


def use_threads(threads: int, prog: str) -> None:
    """Compute with so many threads."""
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"--threads should be from 1 to {MOST_THREADS}, got {threads}. See {prog} --help")
    torch.set_num_threads(threads)


def check_options(kind: type[Any], arguments: list[str], prog: str) -> None:
    """Refuse an option that does not exist, before anything else is found missing because of it, and one whose values
    a second one would replace in silence."""
    known = {"--help": False, **options(kind)}
    seen = set()
    for before, argument in pairwise(("", *arguments)):
        name = argument.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name != "--" and name not in known:
            value = f" If it is the value of {before}, write {before}={argument!r}." if before in known else ""
            raise UsageError(f"unknown option {name}.{nearest(name, list(known))}{value} See {prog} --help")
        if known.get(name) and name in seen:
            raise UsageError(f"{name} is given twice: give all its values after one {name}. See {prog} --help")
        seen.add(name)


def options(kind: type[Any]) -> dict[str, bool]:
    """All options that tyro makes of a dataclass and those inside it, and whether they take any number of values."""
    found: dict[str, bool] = {}
    annotated = typing.get_type_hints(kind, include_extras=True)
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            found |= options(typing.cast("type[Any]", hint))
        elif tyro.conf.Positional not in getattr(annotated[name], "__metadata__", ()):
            flag = name.replace("_", "-")
            found[f"--{flag}"] = typing.get_origin(hint) is tuple and typing.get_args(hint)[-1] is Ellipsis
            if annotated[name] is bool:  # those that are annotated have no opposite
                found[f"--no-{flag}"] = False
    return found


def nearest(name: str, known: list[str]) -> str:
    """` Did you mean X?`, or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""


def sentence(box: str) -> str:
    """What the first part of tyro's framed message says, in one line; where there is no UTF-8 the frame is plainer."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" │") for line in box.splitlines()]
    # the first line is the title; then come parts between lines that are nothing but a rule
    parts = re.split(r"(?:^|\n)[─╰╯-]+(?:\n|$)", "\n".join(line for line in lines[1:] if line))
    text = " ".join(next((part for part in parts if part), box).split())
    for pattern, plain in PLAINER:
        text = re.sub(pattern, plain, text)
    return _with_choice(text if text.endswith((".", "?")) else text + ".")


def _with_choice(text: str) -> str:
    """Add the nearest of the choices that tyro lists."""
    found = re.search(r"^invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*)\)", text)
    if not found:
        return text
    value, name, choices = found.groups()
    known = re.findall(r"'(.*?)'", choices)
    return f"{name} should be one of {', '.join(known)}, got {value!r}.{nearest(value, known)}"


def value_of(option: str, arguments: list[str]) -> str | None:
    """An option's value, for what must be known before the arguments can be parsed; the last one counts."""
    found = None
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if argument == option:
            found = following
        elif argument.startswith(option + "="):
            found = argument.partition("=")[2]
    return found
