"""The command line: `mufuru COMMAND ...`. One file per command; the process starts in `mufuru_command`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import mufuru_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command within this process and return its exit code."""
    return mufuru_command.run(sys.argv[1:] if arguments is None else arguments)
