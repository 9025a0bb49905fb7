"""Shared parts of the experiments: what an experiment is, and how a list of settings becomes a list of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.report import runs
from mufuru.experiments.report.experiment import Report
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.cells import CellName

Config = TypeVar("Config")


class Grid(Protocol):
    """A dataclass whose fields are options of the command."""

    def jobs(self, root: Path) -> list[Job]: ...


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper."""

    report: Report
    grid: type[Grid]
    example: str
    """Value of --part and more options, for an example in the help."""
    long: bool = True
    """Whether runs take hours on real data: then they are announced and the data is checked before they start. A run's
    cost is in seconds."""
    curve_lines: int = 40
    """Most lines of a learning curve in a file of records; 0 for none."""
    unfinished: frozenset[str] = frozenset()
    """Parts whose runs are still being made: results/ may hold some of them, and no page shows them."""
    columns: tuple[str, ...] = ("model",)
    """First columns of the tables in the terminal."""
    lines: Callable[[Runs], Mapping[tuple[str, ...], Runs]] = runs.by_settings
    """Rows of these tables: runs that differ in their seed alone, by the entries of the columns."""

    @property
    def every_run(self) -> list[Job]:
        return self.grid().jobs(Path())


@dataclass(frozen=True)
class Setting:
    """A run without its seed, and the seeds it is made with."""

    group: str
    what: str
    """Difference within the group."""
    kind: str
    """Name of the task."""
    config: Any
    seeds: range


def jobs(root: Path, settings: Iterable[Setting], cost: Callable[[Any], float]) -> list[Job]:
    """Return all runs, each in a folder named after what it differs in."""
    made = []
    for setting in settings:
        for seed in setting.seeds:
            name, config = f"{setting.group}/{setting.what}/seed-{seed}", replace(setting.config, seed=seed)
            made.append(Job(name, setting.kind, config, root / name, cost(config)))
    return made


def longest_first(made: list[Job]) -> list[Job]:
    """Sort runs so that no core ends with a long one alone."""
    return sorted(made, key=lambda job: -job.cost)


def seeds_first(made: list[Job]) -> list[Job]:
    """Put the first seed of every setting before any second: long runs may be stopped."""
    return sorted(longest_first(made), key=lambda job: int(job.config.seed))


def with_cell(config: Config, **changes: Any) -> Config:
    return _changed(config, "cell", **changes)


def with_training(config: Config, **changes: Any) -> Config:
    return _changed(config, "training", **changes)


def for_cell(config: Config, cell: CellName, **changes: Any) -> Config:
    """Return the same setting for another cell, without the options that it lacks."""
    settings: Any = config
    changed: Config = replace(settings, cell=replace(settings.cell.for_cell(cell), **changes))
    return changed


def _changed(config: Config, part: str, **changes: Any) -> Config:
    settings: Any = config
    changed: Config = replace(settings, **{part: replace(getattr(settings, part), **changes)})
    return changed


def check_seeds(seeds: int | None) -> None:
    if seeds is not None and seeds < 1:
        raise SettingError(f"seeds should be at least 1, got {seeds}")
