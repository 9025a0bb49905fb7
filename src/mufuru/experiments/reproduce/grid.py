"""Shared parts of the experiments: what an experiment is, and how a list of settings becomes a list of runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.report.experiment import SHORT, Report
from mufuru.experiments.settings import check_positive
from mufuru.experiments.tasks.cells import CellName

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Jobs = Annotated[int | None, tyro.conf.arg(aliases=["-j"], metavar="N", help=(
    "Runs at the same time, with one thread each; None for one on each usable core."
))]  # fmt: skip
Cluster = Annotated[str | None, tyro.conf.arg(metavar="auto|HOST:PORT", help=(
    "Make the runs on a Ray cluster: auto for the one that this machine belongs to; None for this machine alone."
))]  # fmt: skip
Store = Annotated[str | None, tyro.conf.arg(metavar="URL", help=(
    "Keep the runs behind a URL that all nodes reach, such as s3://bucket/folder; records of finished runs come to "
    "--output. None to keep them in --output, which all nodes of a cluster have to share."
))]  # fmt: skip


class Setting(NamedTuple):
    """A run without its seed, and the seeds it is made with."""

    group: str
    what: str
    """Difference within the group."""
    kind: str
    """Name of the task."""
    config: Any
    seeds: range
    option: str = ""
    """Value of --part that makes it; empty for the group."""


@dataclass(frozen=True)
class Grid(ABC):
    """The runs of an experiment; the fields are options of the command."""

    part: str = "all"
    seeds: int | None = None
    short: Flag = False

    def __post_init__(self) -> None:
        check_positive(self, "seeds")

    @abstractmethod
    def settings(self) -> Iterable[Setting]:
        """Return the settings of all parts, the short form among them."""

    @staticmethod
    @abstractmethod
    def cost(config: Any) -> float:
        """Return about how long a run takes at most, in seconds or compared with others."""

    def jobs(self, root: Path) -> list[Job]:
        """Return the runs of the part, or all but the short form, each in a folder named after its differences.

        The first seed of every setting comes before any second, as long runs may be stopped; among them the longest
        come first, so that no core ends with a long one alone.
        """
        part, made = SHORT if self.short else self.part, []
        for group, what, kind, config, seeds, option in self.settings():
            if part == (option or group) or (part == "all" and group != SHORT):
                for seed in seeds:
                    name, seeded = f"{group}/{what}/seed-{seed}", replace(config, seed=seed)
                    made.append(Job(name, kind, seeded, root / name, self.cost(seeded)))
        return sorted(made, key=lambda job: (job.config.seed, -job.cost))


@dataclass(frozen=True, kw_only=True)
class Experiment(Report):
    """An experiment of the paper: its report, and its runs."""

    grid: type[Grid]
    example: str
    """Value of --part and more options, for an example in the help."""
    long: bool = True
    """Whether runs take hours on real data: then they are announced and the data is checked before they start. A run's
    cost is in seconds."""
    curve_lines: int = 40
    """Maximum lines of a learning curve in a file of records; 0 for none."""


def with_cell(config: Any, cell: CellName | None = None, **changes: Any) -> Any:
    """Return the settings with another cell, without the options that it lacks, or other settings of the cell."""
    layer = config.cell.for_cell(cell) if cell else config.cell
    return replace(config, cell=replace(layer, **changes))


def with_training(config: Any, **changes: Any) -> Any:
    return replace(config, training=replace(config.training, **changes))
