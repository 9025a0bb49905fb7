"""`mufuru train`: one run, from a preset and flags, or taken up again where it stopped."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mufuru.experiments.cli.show import show_metrics
from mufuru.experiments.cli.usage import UsageError, nearest, parse, use_threads, value_of
from mufuru.experiments.engine import fit, progress_for, read_config
from mufuru.experiments.record import RecordError, RunFolder, read_object
from mufuru.experiments.settings import SettingError, choose
from mufuru.experiments.tasks import KINDS, Kind
from mufuru_command import ending_at_once


@dataclass(frozen=True)
class Options:
    """What is not a setting of the run itself."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Settings to start from, the first of them if none is named; the options below change them."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = None
    """Folder of the run; None for a name in runs/ made of task, cell, size and seed."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of a run that was stopped: go on with it."""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """No progress, no result: only errors."""
    tensorboard: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write TensorBoard's event files into the folder too."""
    threads: int | None = None
    """Threads of the run; None for one, with which small models are the fastest, or for as many as the run had that is
    gone on with: the same number gives the same bits."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints; 0 for one after every update."""


EXAMPLES = """\
  mufuru train {kind} --preset {preset}
  mufuru train {kind} --cell gru --hidden-size 32 --learning-rate 1e-2 --seed 3 --output runs/gru
  mufuru train --resume runs/gru
"""


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    name, rest = split(arguments)
    options, config = parse_run(name, rest)
    before = 1 if options.resume is None else threads_of(options.resume)
    use_threads(before if options.threads is None else options.threads, f"mufuru train {name}")
    with ending_at_once():
        # torch imports its compiler with the first optimiser: sooner, while there is nothing to lose
        importlib.import_module("torch._dynamo")
    folder = options.resume or options.output or default_folder(name, config)
    result = fit(
        name,
        config,
        folder,
        resume=options.resume is not None,
        progress=progress_for(quiet=options.quiet),
        checkpoint_seconds=options.checkpoint_seconds,
        tensorboard=options.tensorboard,
    )
    if not options.quiet:
        show_metrics({split: result[split] for split in ("train", "valid", "test") if split in result})
        print(f"The run is in {folder}. Next: mufuru report {folder} -o report.html")
    return 0


def threads_of(folder: Path) -> int:
    """With how many threads a run was begun; one if its folder does not say."""
    try:
        threads = read_object(RunFolder(folder).environment).get("threads")
    except RecordError:
        return 1
    return threads if isinstance(threads, int) and threads > 0 else 1


def overview() -> str:
    """The help of `mufuru train` itself."""
    rows = "\n".join(f"  {name:<10} presets: {', '.join(kind.presets)}" for name, kind in KINDS.items())
    first, kind = next(iter(KINDS.items()))
    return (
        "usage: mufuru train TASK [OPTIONS]\n       mufuru train --resume FOLDER\n\n"
        "Train a model; the folder of the run keeps settings, metrics and checkpoints.\n"
        f"Stop it with Ctrl-C, or lose the machine: --resume goes on as if nothing had happened.\n\ntasks:\n{rows}\n\n"
        "mufuru train TASK --help lists all settings.\n\n"
        f"examples:\n{EXAMPLES.format(kind=first, preset=next(iter(kind.presets)))}"
    )


def split(arguments: list[str]) -> tuple[str, list[str]]:
    """The task's name and the other arguments; a run to resume knows its task."""
    if not arguments[0].startswith("-"):
        if arguments[0] not in KINDS:
            known = list(KINDS)
            raise UsageError(
                f"unknown task {arguments[0]}: expected one of {', '.join(known)}.{nearest(arguments[0], known)}"
            )
        return arguments[0], arguments[1:]
    folder = value_of("--resume", arguments)
    if folder is None:
        raise UsageError(f"expected a task ({', '.join(KINDS)}) or --resume FOLDER. See mufuru train --help")
    return read_config(Path(folder))[0], arguments


def parse_run(name: str, arguments: list[str]) -> tuple[Options, Any]:
    """Options and settings: flags over the preset, or over the settings of the run to resume."""
    kind = KINDS[name]
    default = starting_point(kind, value_of("--preset", arguments), value_of("--resume", arguments))
    flat = tyro.conf.arg(name="")
    fields = [("options", Annotated[Options, flat]), ("config", Annotated[kind.config, flat])]
    command = make_dataclass("Train", fields, frozen=True)
    parsed: Any = parse(
        command,
        arguments,
        prog=f"mufuru train {name}",
        description=f"Train a model. Presets: {', '.join(kind.presets)}.",
        examples=EXAMPLES.format(kind=name, preset=next(iter(kind.presets))),
        default=command(Options(), default),
    )
    if parsed.options.resume and parsed.options.output:
        raise UsageError("--resume goes on in the folder of the run: leave --output out")
    return parsed.options, parsed.config


def starting_point(kind: Kind, preset: str | None, resume: str | None) -> Any:
    """The settings that flags then change."""
    if preset is not None:
        try:
            return choose("preset", preset, dict(kind.presets))
        except SettingError as error:
            raise UsageError(str(error)) from None
    if resume is not None:
        return read_config(Path(resume))[1]
    return next(iter(kind.presets.values()))


def default_folder(name: str, config: Any) -> Path:
    """Such as runs/logic-mufuru-8-seed-0."""
    cell = getattr(config, "cell", None)
    parts = [name, *([cell.cell, str(cell.hidden_size)] if cell else []), f"seed-{config.seed}"]
    return Path("runs") / "-".join(parts)
