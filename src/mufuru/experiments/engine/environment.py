"""Where a run was made: versions, commit, processor, kernel, command. Nothing private, no path of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mufuru
from mufuru.kernels import library

SOURCE = Path(mufuru.__file__).parent


def environment() -> dict[str, Any]:
    """What environment.json holds."""
    return {
        "mufuru": mufuru.__version__,
        **commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        **kernel(),
        "command": command(sys.argv),
    }


@lru_cache
def commit() -> dict[str, Any]:
    """The commit of the source and whether it was changed since; None for an installed package."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", "."))}


def _git(*arguments: str) -> str | None:
    """What git says in the folder of the source, or None if it fails."""
    # inside of a hook git sets variables that would point it elsewhere
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=SOURCE, env=variables, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@lru_cache
def processor() -> str:
    """The processor's name, as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def kernel() -> dict[str, Any]:
    """Which kernel `kernel="auto"` runs, and where its library came from."""
    wanted = os.environ.get("MUFURU_KERNEL", "auto")
    state = library.status().state
    live = "reference" if wanted == "reference" or state == "unavailable" else "native"
    return {"kernel": live, "kernel_library": state}


def command(arguments: list[str]) -> list[str]:
    """The command line, with paths relative to the current folder; of those outside of it the last name only."""
    program = Path(arguments[0]).name if arguments else ""
    # python -m mufuru is the same command
    program = "mufuru" if program in ("__main__.py", "mufuru_command.py") else program
    return [program, *(_without_path(argument) for argument in arguments[1:])]


def _without_path(argument: str) -> str:
    flag, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    path = Path(value).expanduser()
    if not path.is_absolute() and ".." not in path.parts:
        return argument
    path = Path(os.path.abspath(path))
    here = Path.cwd()
    return f"{flag}{equals}{path.relative_to(here) if path.is_relative_to(here) else path.name}"
