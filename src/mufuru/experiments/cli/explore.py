"""`mufuru explore`: a local page that looks inside trained models."""

from __future__ import annotations

import importlib.util
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mufuru.experiments.cli.usage import Flag, Runs, Threads, UsageError, check_range, parse
from mufuru.experiments.engine import RunError, read_config
from mufuru.experiments.record import RunFolder, endings, find_runs, read_examples, read_result
from mufuru.experiments.ship import load_as
from mufuru_command import ending_at_once

if TYPE_CHECKING:
    from mufuru.experiments.explorer import ExploredRun

EXAMPLES = """\
  mufuru explore
  mufuru explore runs/first
  mufuru explore runs/mufuru runs/gru --port 9000
  mufuru explore runs/demo
"""
MOST = 24
"""Maximum runs on one page: each is a model in memory."""
PACKAGES = ("starlette", "uvicorn")


@dataclass(frozen=True)
class Explore:
    """Look inside trained models, in a web browser on this machine: type a text, and see the prediction after every
    token, which operation every unit used, and what changes when an operation is forbidden or forced. Without RUNS, two
    small models that come with mufuru evaluate Boolean formulae. Nothing is loaded from the network. Ctrl-C ends it."""

    runs: Runs = ()
    """Folders of runs of any task, or folders of such folders; none for the models that come with mufuru."""
    port: int = 8765
    """Port to listen on; the next free one if it is taken."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than the default admits other machines."""
    open: Flag = False
    """Open the page in the web browser."""
    threads: Threads = 1

    def __post_init__(self) -> None:
        check_range("--port", self.port, 1, 65535)


def main(arguments: list[str]) -> int:
    chosen = parse(Explore, arguments, EXAMPLES)
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise RunError(f"{' and '.join(missing)} not installed: `pip install '.[explore]'` in the folder of mufuru")
    with ending_at_once():
        # not before it is known that they can be imported
        from mufuru.experiments.explorer import server, shipped

    runs = load(run_folders(chosen.runs) or shipped())
    listening = server.listen(chosen.host, chosen.port)
    port = listening.getsockname()[1]
    if port != chosen.port:
        print(f"Port {chosen.port} is taken, this is {port}.")
    address = f"http://{f'[{chosen.host}]' if ':' in chosen.host else chosen.host}:{port}/"
    print(f"Looking into {', '.join(run.name for run in runs)}: {address}  (Ctrl-C ends it)", flush=True)
    if chosen.open:
        webbrowser.open(address)
    server.serve(runs, listening, chosen.host, lambda folder: load([folder])[0])
    return 0


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of runs: those given, and the finished ones inside the others."""
    folders = []
    for path in paths:
        inside = find_runs(path) if path.is_dir() and not RunFolder(path).config.exists() else [path]
        if not inside:
            raise RunError(f"there is no finished run in {path}: train one with `mufuru train`")
        folders += inside
    if len(folders) > MOST:
        raise RunError(f"{len(folders)} runs are too many for one page, at most {MOST} fit: name the ones to look into")
    return folders


def load(folders: Sequence[Path]) -> list[ExploredRun]:
    """Load the runs, each under a distinct name, with the test metrics of those that are finished."""
    from mufuru.experiments.explorer import explored

    runs = []
    for folder, name in zip(folders, names(folders), strict=True):
        files, kind = RunFolder(folder), read_config(folder)[0]
        scores = read_result(files.result).get("test", {}) if files.finished else {}
        runs.append(explored(name, kind, load_as("reader", folder), scores, read_examples(files.examples)))
    return runs


def names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each run, by its folder."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("the same run is given twice: name each once. See mufuru explore --help")
    return endings(folders)
