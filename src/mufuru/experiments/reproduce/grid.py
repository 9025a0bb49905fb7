"""What the experiments' runs have in common: a list of settings becomes a list of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.cells import CellName

Config = TypeVar("Config")


class Grid(Protocol):
    """A dataclass whose fields are options and which knows the runs they mean."""

    def jobs(self, root: Path) -> list[Job]: ...


@dataclass(frozen=True)
class Setting:
    """A run without its seed, and the seeds it is made with."""

    group: str
    what: str
    """What is different within the group."""
    kind: str
    """The task."""
    config: Any
    seeds: range


def jobs(root: Path, settings: Iterable[Setting], cost: Callable[[Any], float]) -> list[Job]:
    """All runs, each in a folder named after what it differs in."""
    return [
        Job(name, setting.kind, config, root / name, cost(config))
        for setting in settings
        for seed in setting.seeds
        for name, config in [
            (f"{setting.group}/{setting.what}/seed-{seed}", replace(setting.config, seed=seed)),
        ]
    ]


def longest_first(made: list[Job]) -> list[Job]:
    """So that no core ends with a long run alone."""
    return sorted(made, key=lambda job: -job.cost)


def seeds_first(made: list[Job]) -> list[Job]:
    """The first seed of every setting before any second: runs that are long may be stopped."""
    return sorted(longest_first(made), key=lambda job: int(job.config.seed))


def with_cell(config: Config, **changes: Any) -> Config:
    return _changed(config, "cell", **changes)


def with_training(config: Config, **changes: Any) -> Config:
    return _changed(config, "training", **changes)


def for_cell(config: Config, cell: CellName, **changes: Any) -> Config:
    """The same setting for another cell, without the options that it lacks."""
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
