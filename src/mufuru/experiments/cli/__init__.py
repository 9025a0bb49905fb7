"""The command line: `mufuru COMMAND ...`. One file per command; this one works without the packages they need."""

from __future__ import annotations

import sys
from collections.abc import Sequence

NEEDED = ("cattrs", "matplotlib", "numpy", "rich", "safetensors", "tyro")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for a failure, 2 for a typing mistake, 130 after Ctrl-C."""
    try:
        from mufuru.experiments.cli.dispatch import run

        return run(sys.argv[1:] if arguments is None else list(arguments))
    except ModuleNotFoundError as error:
        return explain_missing(error)
    except KeyboardInterrupt:
        # while modules are still being read; the commands themselves have more to say
        print("mufuru: stopped", file=sys.stderr)
        return 130


def explain_missing(error: ModuleNotFoundError) -> int:
    """Say how to install what the experiments need; any other missing module is a bug and shows as one."""
    name = (error.name or "").split(".")[0]
    if name not in NEEDED:
        raise error
    print(f"mufuru: {name} is not installed: pip install 'mufuru[experiments]'", file=sys.stderr)
    return 1
