"""`mufuru explore`: a local page that looks inside trained models."""

from __future__ import annotations

import importlib.util
import json
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mufuru.experiments.cli.usage import UsageError, parse, use_threads
from mufuru.experiments.engine import RunError, read_config
from mufuru.experiments.record import RunFolder
from mufuru.experiments.ship import load_as
from mufuru_command import ending_at_once

if TYPE_CHECKING:
    from mufuru.experiments.explorer import ExploredRun

EXAMPLES = """\
  mufuru explore
  mufuru explore runs/first
  mufuru explore runs/mufuru runs/gru --port 9000
"""
DESCRIPTION = """\
Look inside trained models, in a web browser on this machine: type a text, and see the prediction after every token,
which operation every unit used, and what changes when an operation is forbidden or forced. Without RUNS, two small
models that come with mufuru evaluate Boolean formulae. Nothing is loaded from the network. Ctrl-C ends it."""
PACKAGES = ("starlette", "uvicorn")


@dataclass(frozen=True)
class Explore:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = ()
    """Folders of runs of the same kind or of others; none for the models that come with mufuru."""
    port: int = 8765
    """Port to listen on; the next free one if it is taken."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than this one lets other machines in."""
    open: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Open the page in the web browser."""
    threads: int = 1
    """Threads to compute with."""


def main(arguments: list[str]) -> int:
    chosen = parse(Explore, arguments, prog="mufuru explore", description=DESCRIPTION, examples=EXAMPLES)
    if not 1 <= chosen.port <= 65535:
        raise UsageError(f"--port should be from 1 to 65535, got {chosen.port}. See mufuru explore --help")
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise RunError(f"{' and '.join(missing)} not installed: pip install 'mufuru[experiments,explore]'")
    with ending_at_once():
        # not before it is known that they can be imported
        from mufuru.experiments.explorer import server, shipped

    use_threads(chosen.threads, "mufuru explore")
    runs = load(chosen.runs or shipped())
    listening = server.listen(chosen.host, chosen.port)
    address = announce(chosen, listening.getsockname()[1], runs)
    if chosen.open:
        webbrowser.open(address)
    server.serve(runs, listening, chosen.host)
    return 0


def announce(chosen: Explore, port: int, runs: Sequence[ExploredRun]) -> str:
    """Say where the page is; returned is its address."""
    if port != chosen.port:
        print(f"Port {chosen.port} is taken, this is {port}.")
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    address = f"http://{host}:{port}/"
    print(f"Looking into {', '.join(run.name for run in runs)}: {address}  (Ctrl-C ends it)", flush=True)
    return address


def load(folders: Sequence[Path]) -> list[ExploredRun]:
    """The runs under names of their own."""
    return [load_one(folder, name) for folder, name in zip(folders, names(folders), strict=True)]


def load_one(folder: Path, name: str) -> ExploredRun:
    from mufuru.experiments.explorer import explored

    return explored(name, read_config(folder)[0], load_as("reader", folder), scores(folder))


def scores(folder: Path) -> dict[str, float]:
    """The test metrics of a run that is finished."""
    with suppress(OSError, ValueError, KeyError):
        found: dict[str, float] = json.loads(RunFolder(folder).result.read_text(encoding="utf-8"))["test"]
        return found
    return {}


def names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, and as much more of it as tells it from the others."""
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise UsageError("the same run is given twice: name each once. See mufuru explore --help")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]
