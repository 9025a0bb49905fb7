"""`mufuru train`: one run, from a preset and flags, or resumed where it stopped."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mufuru.experiments.cli import show_metrics
from mufuru.experiments.cli.usage import (
    MOST_THREADS,
    Flag,
    Folder,
    FromPreset,
    Output,
    UsageError,
    check_range,
    parse_both,
    parse_first,
)
from mufuru.experiments.engine import fit, progress_for, read_config, torchrun
from mufuru.experiments.record import RecordError, RunFolder, read_json
from mufuru.experiments.settings import SettingError, choose
from mufuru.experiments.tasks import KINDS
from mufuru_command import ending_at_once


@dataclass(frozen=True)
class Start(FromPreset):
    """Options that decide the defaults of all settings."""

    resume: Folder = None
    """Folder of a run that was stopped: resume it."""


@dataclass(frozen=True)
class Options(Start):
    """Options that are not settings of the run itself."""

    output: Output = None
    """Folder of the run; None for a name in runs/ made of task, cell, size and seed."""
    find_data: Folder = None
    """Folder that has the files of the data of a resumed run now, if they were moved; the content must be the same."""
    quiet: Flag = False
    """No progress, no result: only errors."""
    tensorboard: Flag = False
    """Write TensorBoard's event files into the folder too."""
    threads: int | None = None
    """Threads to compute with; None for as many as the resumed run used, since the same number gives the same bits, or
    for one, with which small models are the fastest."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints; 0 for one after every update."""
    rank_timeout: float = 1800.0
    """Under torchrun: seconds to wait for another process before the run is given up."""

    def __post_init__(self) -> None:
        if self.resume and self.output:
            raise SettingError("--resume continues in the folder of the run: leave --output out")
        if self.find_data and not self.resume:
            raise SettingError("--find-data is for a run that is resumed: name the files themselves, or add --resume")
        check_range("--threads", self.threads, 1, MOST_THREADS)
        check_range("--rank-timeout", self.rank_timeout, 1, MOST_SECONDS)


MOST_SECONDS = 10**6
"""Longest time to wait for another process; gloo counts it in milliseconds."""
EXAMPLES = """\
  mufuru train {kind} --preset {preset}
  mufuru train {kind} --cell gru --hidden-size 32 --learning-rate 1e-2 --seed 3 --output runs/gru
  mufuru train --resume runs/gru
  torchrun --nproc-per-node 4 -m mufuru train {kind} --output runs/shared
"""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    with torchrun.first_reports():
        name, options, config = parse_run(arguments)
    torch.set_num_threads(options.threads or (threads_of(options.resume) if options.resume else 1))
    with ending_at_once():
        # torch imports its compiler with the first optimiser: import it now, while there is nothing to lose
        importlib.import_module("torch._dynamo")
    folder = options.resume or options.output or default_folder(name, config)
    with torchrun.joined(options.rank_timeout) as here:
        quiet = options.quiet or not here.first
        result = fit(
            name,
            config,
            folder,
            resume=options.resume is not None or (here.restarted and here.same(RunFolder(folder).config.exists)),
            progress=progress_for(quiet=quiet),
            checkpoint_seconds=options.checkpoint_seconds,
            tensorboard=options.tensorboard and here.first,
            ranks=here,
            data=options.find_data,
        )
    if not quiet:
        show_metrics({split: result[split] for split in ("train", "valid", "test") if split in result})
        print(selection(result))
        print(f"The run is in {folder}. Next: mufuru report {folder} -o report.html")
    return 0


BY = {
    "metric": "the only one with it",
    "earliest": "the earliest of {tied}",
    "loss": "of {tied} the one with the lowest loss",
    "later": "of {tied} the latest of those with the lowest loss",
}


def selection(result: dict[str, Any]) -> str:
    """Return a sentence about the weights that were tested, and the rule that chose them."""
    chosen = result.get("selection", {"by": ""})
    if chosen["by"] not in BY:
        return f"Tested are the weights of update {result['updates']}, the last."
    return (f"Tested are the weights of update {result['best_update']} of {result['updates']}: {chosen['metric']} "
            f"{chosen['value']:.4f} on validation, {BY[chosen['by']].format(**chosen)}.")  # fmt: skip


def overview() -> str:
    """Return the help of `mufuru train` itself."""
    rows = "\n".join(f"  {name:<10} presets: {', '.join(kind.presets)}" for name, kind in KINDS.items())
    first, kind = next(iter(KINDS.items()))
    return (
        "usage: mufuru train TASK [OPTIONS]\n       mufuru train --resume FOLDER\n\n"
        "Train a model; the folder of the run keeps settings, metrics and checkpoints.\n"
        "Stop it with Ctrl-C, or lose the machine: --resume continues as if nothing had happened.\n\n"
        f"tasks:\n{rows}\n\n"
        "mufuru train TASK --help lists all settings.\n\n"
        f"examples:\n{EXAMPLES.format(kind=first, preset=next(iter(kind.presets)))}"
    )


def parse_run(arguments: list[str]) -> tuple[str, Options, Any]:
    """Return task, options and settings: flags over the preset, or over the settings of the run to resume."""
    name, default, flags = starting_point(arguments)
    kind = KINDS[name]
    examples = EXAMPLES.format(kind=name, preset=next(iter(kind.presets)))
    about = f"Train a model. Presets: {', '.join(kind.presets)}."
    options = parse_both(Options, kind.config, flags, examples, f"mufuru train {name}", about, Options(), default)
    return name, *options


def starting_point(arguments: list[str]) -> tuple[str, Any, list[str]]:
    """Return the task's name, the settings that flags change, and the flags."""
    chosen = parse_first(Start, arguments)
    named, flags = (None, arguments) if arguments[0].startswith("-") else (arguments[0], arguments[1:])
    if named is None and chosen.resume is None:
        raise UsageError(f"expected a task ({', '.join(KINDS)}) or --resume FOLDER. See mufuru train --help")
    name, config = read_config(chosen.resume) if chosen.resume else (named or "", None)
    presets = choose("task", named or name, KINDS).presets
    if named not in (None, name):
        raise UsageError(f"the run in {chosen.resume} is of the task {name}: leave {named} out")
    if chosen.preset or not config:
        config = choose("preset", chosen.preset or next(iter(presets)), presets)
    return name, config, flags


def threads_of(folder: Path) -> int:
    """Return the number of threads with which a run was begun; 1 if its folder does not record it."""
    try:
        threads = read_json(RunFolder(folder).environment).get("threads")
    except RecordError:
        return 1
    return threads if isinstance(threads, int) and threads > 0 else 1


def default_folder(name: str, config: Any) -> Path:
    """Return a path such as runs/logic-mufuru-8-seed-0."""
    cell = getattr(config, "cell", None)
    parts = [name, *([cell.cell, str(cell.hidden_size)] if cell else []), f"seed-{config.seed}"]
    return Path("runs") / "-".join(parts)
