"""Questions to the records of language models and classifiers: which model, what it is measured by, how good."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import runs
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import NOISE, Summary, paired, summarise
from mufuru.experiments.report.tables import MISSING
from mufuru.experiments.tasks import KINDS


@dataclass(frozen=True)
class Measure:
    """The metric that people talk of, and how it is written."""

    key: str
    """In a record."""
    name: str
    digits: int
    scale: float
    lower_is_better: bool
    highest: float = math.inf
    """An interval ends there: no run can be better."""

    def value(self, found: float) -> str:
        return f"{found:.{self.digits}f}"

    def signed(self, found: float) -> str:
        """With a sign, and a minus as long as a plus; what rounds to 0 has a plus."""
        # adding 0.0 turns -0.0 into 0.0
        return f"{round(found, self.digits) + 0.0:+.{self.digits}f}".replace("-", "−")

    def interval(self, found: Summary | None) -> str:
        """Mean and 95 % interval."""
        if found is None:
            return MISSING
        bounds = found.interval()
        if bounds is None:
            return f"{self.value(found.mean)} (n/a)"
        low, high = (self.value(min(bound, self.highest)) for bound in bounds)
        return f"{self.value(found.mean)} ({low}–{high})"

    def change(self, found: Summary | None) -> str:
        """A difference and its 95 % interval."""
        if found is None:
            return MISSING
        bounds = found.interval()
        return f"{self.signed(found.mean)} " + (
            "(n/a)" if bounds is None else f"({' to '.join(map(self.signed, bounds))})"
        )

    def deviation(self, found: Summary | None) -> str:
        return MISSING if found is None or found.deviation is None else self.value(found.deviation)

    def better(self, found: float, bar: float) -> bool:
        """Does it come to the bar or past it?"""
        return found <= bar + NOISE if self.lower_is_better else found >= bar - NOISE


AXES = ("cell.cell", "cell.controller_size", "cell.controller_activation")
"""The settings that tell models apart."""
PERPLEXITY = Measure("perplexity", "perplexity", 1, 1.0, lower_is_better=True)
ACCURACY = Measure("accuracy", "accuracy, %", 2, 100.0, lower_is_better=False, highest=100.0)


def measure_of(records: Runs) -> Measure:
    """Perplexity where runs have it, else accuracy."""
    return PERPLEXITY if any("perplexity" in record.result.get("test", {}) for record in records) else ACCURACY


def model(record: Record) -> str:
    """What a reader calls it: the cell, and the controller where it has one."""
    cell = str(cell_of(record))
    if record.task in KINDS and cell in (names := KINDS[record.task].cell_names):
        return names[cell]
    controller = runs.setting(record, "cell.controller_size")
    if controller is None:
        return runs.name(cell)
    with_relu = runs.setting(record, "cell.controller_activation") == "relu"
    return f"{runs.name(cell)} (controller {controller}{' with relu' if with_relu else ''})"


def cell_of(record: Record) -> Any:
    """Its name, wherever the task's settings have it."""
    return runs.setting(record, "cell.cell") or runs.setting(record, "cell")


def by_model(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The runs of each model, MuFuRU first, then those with a controller, then the others."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=_place):
        found.setdefault(model(record), []).append(record)
    return found


def by_settings(records: Runs) -> dict[str, list[Record]]:
    """The runs of each model and, where runs differ in more than model and seed, of each setting."""
    known = dict.fromkeys(path for record in records for path in runs.flat(record.config))
    differ = [path for path in known if path not in (*AXES, "cell", "seed") and len(runs.values(records, path)) > 1]
    found: dict[str, list[Record]] = {}
    for name, some in by_model(records).items():
        for record in some:
            said = [f"{path.rpartition('.')[2].replace('_', ' ')} {runs.setting(record, path)}" for path in differ]
            found.setdefault(", ".join([name, *said]), []).append(record)
    return found


def _place(record: Record) -> tuple[int, int, str, str]:
    cell, order = str(cell_of(record)), list(runs.CELLS)
    controller = runs.setting(record, "cell.controller_size") or 0
    activation = runs.setting(record, "cell.controller_activation") or ""
    return (order.index(cell) if cell in order else len(order), int(controller), str(activation), cell)


def by_seed(records: Iterable[Record], split: str = "test") -> dict[int, float]:
    """The measure of each seed as it is written, of records that differ in nothing else."""
    found = list(records)
    measure = measure_of(found)
    return {seed: value * measure.scale for seed, value in runs.by_seed(found, split, measure.key).items()}


def summary(records: Iterable[Record], split: str = "test") -> Summary | None:
    """The measure over the seeds; None where there is no run."""
    found = by_seed(records, split)
    return summarise([found[seed] for seed in sorted(found)]) if found else None


def difference(one: Iterable[Record], other: Iterable[Record], split: str = "test") -> Summary | None:
    """The first minus the second, seed by seed; None where they share no seed."""
    return paired(by_seed(one, split), by_seed(other, split))
