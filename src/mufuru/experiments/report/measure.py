"""A measure: which metric of the records it is, which direction is better, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mufuru.experiments.record import Record, RecordError
from mufuru.experiments.report import runs
from mufuru.experiments.report.page import MISSING
from mufuru.experiments.report.statistics import NOISE, Summary, paired, summarise


@dataclass(frozen=True)
class Measure:
    """A metric of runs."""

    key: str
    """Name of the metric in a record."""
    unit: str = ""
    digits: int = 1
    """Digits after the point."""
    scale: float = 1.0
    """Factor from a record's number to the unit."""
    lower_is_better: bool = False
    lowest: float = -math.inf
    highest: float = math.inf
    """No interval goes beyond these."""

    @property
    def name(self) -> str:
        return f"{self.key}, {self.unit}" if self.unit else self.key

    def by_seed(self, records: Iterable[Record], split: str = "test") -> dict[int, float]:
        """Return the measure of each seed, of records that differ in nothing else."""
        values: dict[int, float] = {}
        for record in records:
            seed, value = int(runs.setting(record, "seed")), runs.metric(record, split, self.key)
            if seed in values:
                raise RecordError(
                    f"two runs with seed {seed} where one was expected: they differ in settings. "
                    "`mufuru report` shows such runs one by one."
                )
            if value is not None:
                values[seed] = value * self.scale
        return values

    def summary(self, records: Iterable[Record], split: str = "test") -> Summary | None:
        """Return the measure over the seeds; None where no run has it."""
        values = self.by_seed(records, split)
        return summarise([values[seed] for seed in sorted(values)]) if values else None

    def difference(self, one: Iterable[Record], other: Iterable[Record], split: str = "test") -> Summary | None:
        """Return the first minus the second, seed by seed; None where they share no seed."""
        return paired(self.by_seed(one, split), self.by_seed(other, split))

    def bounds(self, summary: Summary) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean, cut where no value can be; None for one run alone."""
        return summary.interval(self.lowest, self.highest)

    def value(self, number: float) -> str:
        return f"{number:.{self.digits}f}"

    def signed(self, number: float) -> str:
        """Write a number with its sign, and a minus as long as a plus; what rounds to 0 has a plus."""
        # adding 0.0 turns -0.0 into 0.0
        return f"{round(number, self.digits) + 0.0:+.{self.digits}f}".replace("-", "−")

    def interval(self, summary: Summary | None) -> str:
        """Write a mean and its 95 % interval."""
        if summary is None:
            return MISSING
        bounds = self.bounds(summary)
        return f"{self.value(summary.mean)} ({'n/a' if bounds is None else '–'.join(map(self.value, bounds))})"

    def change(self, summary: Summary | None) -> str:
        """Write a difference and its 95 % interval."""
        if summary is None:
            return MISSING
        bounds = summary.interval()
        return f"{self.signed(summary.mean)} ({'n/a' if bounds is None else ' to '.join(map(self.signed, bounds))})"

    def deviation(self, summary: Summary | None) -> str:
        return MISSING if summary is None or summary.deviation is None else self.value(summary.deviation)

    def better(self, number: float, bar: float) -> bool:
        """Return whether a number comes to the bar or past it."""
        return number <= bar + NOISE if self.lower_is_better else number >= bar - NOISE


PERPLEXITY = Measure("perplexity", lower_is_better=True)
ACCURACY = Measure("accuracy", "%", digits=2, scale=100.0, highest=100.0)
