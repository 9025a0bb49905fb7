"""`mufuru sweep`: many runs that differ in a few settings, and which of them is the best."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mufuru.experiments.cli import overview, report_failures
from mufuru.experiments.cli.usage import Flag, FromPreset, Output, UsageError, check_range, parse_both, parse_first
from mufuru.experiments.engine.errors import Failure
from mufuru.experiments.engine.sweep import Where
from mufuru.experiments.record import RunFolder, read_json
from mufuru.experiments.reproduce.grid import Cluster, Jobs, Store
from mufuru.experiments.search import results
from mufuru.experiments.search.run import Made, Method, Search, run
from mufuru.experiments.search.space import parse_space
from mufuru.experiments.settings import SettingError, choose
from mufuru.experiments.tasks import KINDS
from mufuru_command import ending_at_once

EXAMPLES = """\
  mufuru sweep {kind} --over learning_rate=log:1e-4:1e-2 hidden_size=32,64 --trials 40
  mufuru sweep {kind} --over learning_rate=1e-3,3e-3,1e-2 seed=0,1,2 --search grid
  mufuru sweep {kind} --over learning_rate=log:1e-4:1e-2 --search asha --hours 2 --cluster auto
"""
DESCRIPTION = """\
Train many runs that differ in a few settings, and name the best by its validation metric.

--over NAME=A,B,C lists values of a setting; NAME=uniform:LOW:HIGH and NAME=log:LOW:HIGH draw them, the second
uniformly in the logarithm; a number at the end, log:1e-4:1e-2:5, makes a list of that many. ONE+OTHER=A,B gives two
settings the same value. All settings of `mufuru train` can be fixed as there.

The folder keeps every trial as an ordinary run, sweep.json, table.md and plot.svg. After Ctrl-C or worse the same
command continues; with a larger --trials or --hours it adds trials."""
SHOWN = 20
"""Maximum trials in the printed table; the file has all."""


@dataclass(frozen=True)
class Options(FromPreset):
    """Options of the sweep."""

    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUES ...")] = ()
    """Settings to vary, and their values."""
    search: Method = "random"
    """Every combination of lists in a grid, settings drawn at random, or those with runs that fall behind stopped early
    (asha: asynchronous successive halving, by Optuna)."""
    trials: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Maximum number of trials; None for the whole grid, for as many as --hours allow, or for 20."""
    hours: float | None = None
    """Maximum hours to spend; trials that still run then are saved and stopped. None for no limit."""
    search_seed: int = 0
    """Seed of the drawn settings."""
    grace: int = 1
    """Validations that asha gives every run before it may stop it."""
    output: Output = None
    """Folder of the sweep; None for a folder in runs/ named after the task."""
    jobs: Jobs = None
    cluster: Cluster = None
    store: Store = None
    quiet: Flag = False
    """No progress, no table: only errors."""
    checkpoint_seconds: float = 60.0
    """Seconds between two checkpoints of a run."""

    def __post_init__(self) -> None:
        check_range("--trials", self.trials, 1)
        check_range("--jobs", self.jobs, 1)
        check_range("--grace", self.grace, 1)
        if self.hours is not None and not 0 < self.hours < 1e6:
            raise SettingError(f"--hours should be above 0, got {self.hours}")


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        examples = EXAMPLES.format(kind=next(iter(KINDS)))
        return overview("mufuru sweep TASK", "--over NAME=VALUES ... [OPTIONS]", DESCRIPTION, KINDS, examples)
    name, options, config = parse_sweep(arguments)
    root = options.output or Path("runs") / f"{name}-sweep"
    where = Where(root, options.jobs, options.cluster, options.store, options.checkpoint_seconds)
    try:
        search = Search(
            name,
            config,
            parse_space(options.over, config),
            options.over,
            options.search,
            options.search_seed,
            options.trials,
            options.hours,
            options.grace,
        )
    except SettingError as error:
        raise UsageError(f"{error}. See mufuru sweep {name} --help") from None
    made = run(search, where, options.quiet)
    with ending_at_once():
        import matplotlib.backends.backend_agg  # noqa: F401
    try:
        files = results.write(search.space, made, root)
    except OSError as error:
        failures(made)
        raise Failure(f"cannot write the table and the plot into {root} ({error.strerror or error}): the trials are "
                       "kept. Make room, then repeat the command") from error  # fmt: skip
    if not options.quiet:
        show(search, made, root, files)
    return failures(made)


def parse_sweep(arguments: list[str]) -> tuple[str, Options, Any]:
    """Return task, options and the settings that all trials share."""
    name, *flags = arguments
    presets = choose("task", name, KINDS).presets
    prog, examples = f"mufuru sweep {name}", EXAMPLES.format(kind=name)
    default = choose("preset", parse_first(FromPreset, flags).preset or next(iter(presets)), presets)
    kind = KINDS[name].config
    options, config = parse_both(Options, kind, flags, examples, prog, DESCRIPTION, Options(), default)
    if not options.over:
        raise UsageError(f"--over is missing: the settings to vary. See {prog} --help")
    return name, options, config


def show(search: Search, made: Made, root: Path, files: list[Path]) -> None:
    """Print the best trials, the best one's command, and where the rest is."""
    table = Table(*results.heads(search.space, made), box=None)
    rows = results.rows(search.space, made)
    for row in rows[:SHOWN]:
        table.add_row(*row)
    Console(highlight=False).print(table)
    if len(rows) > SHOWN:
        print(f"... and {len(rows) - SHOWN} more")
    if best := made.best:
        test = read_json(RunFolder(root / best.name).result).get("test", {}).get(made.metric)
        more = f", test {test:.4f}" if isinstance(test, float) else ""
        print(f"The best is {root / best.name}: valid {made.metric} {best.last:.4f}{more}. Repeat it with")
        print(f"  {results.train_command(search.kind, search.settings_of(best.number))}")
    print("Written:", *files, sep="\n  ")


def failures(made: Made) -> int:
    """Print every trial that failed, with its last line; return the exit code."""
    failed = {trial.name: trial.reason.strip().splitlines()[-1] for trial in made.trials if trial.state == "failed"}
    return report_failures(failed, "sweep.json has the whole messages; the same command tries these again")
