"""Means of few runs and how far they can be trusted; a measure: a metric, its better direction, how it is written."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mufuru.experiments.record import Record, RecordError
from mufuru.experiments.report import runs
from mufuru.experiments.report.page import MISSING

NOISE = 1e-9
"""Sums of decimals miss their value by the last bits: the mean of 1, 0.99 and 0.98 should count as 0.99."""


class Summary(NamedTuple):
    """The same run with several seeds, in a few numbers. No interval is ever made from one run."""

    values: tuple[float, ...]
    mean: float
    deviation: float | None
    """Standard deviation of one run; None for one run alone."""
    margin: float | None
    """Half the width of the 95 % interval of the mean (Student's t); None for one run alone."""

    @property
    def n(self) -> int:
        return len(self.values)

    def interval(self, low: float = -math.inf, high: float = math.inf) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean, cut where no value can be; None for one run alone."""
        if self.margin is None:
            return None
        return max(self.mean - self.margin, low), min(self.mean + self.margin, high)

    def reaches(self, bar: float) -> bool:
        """Return whether the mean is at least that value."""
        return self.mean >= bar - NOISE

    def reaching(self, bar: float) -> int:
        """Count the runs with at least that value."""
        return sum(value >= bar - NOISE for value in self.values)


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, deviation and interval of at least one value."""
    deviation = margin = None
    if len(values) > 1:
        deviation = statistics.stdev(values)
        margin = t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values))
    return Summary(tuple(values), statistics.fmean(values), deviation, margin)


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary | None:
    """Return `one` minus `other`, run by run, for the seeds that both have; None where they share none."""
    seeds = sorted(one.keys() & other.keys())
    return summarise([one[seed] - other[seed] for seed in seeds]) if seeds else None


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with these degrees of freedom, for a probability from 0.5 up."""
    inside, low, high = 2 * probability - 1, 0.0, 1e9
    # 200 halvings reach the last bit of any float
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, degrees) < inside else (low, middle)
    return high


def t_within(t: float, degrees: int) -> float:
    """Probability that |T| < t: the finite sums for whole degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine = math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside


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
        """Write a number with its sign, and a minus as long as a plus. An interval from −0.0004 begins with −0.000: it
        holds 0; zero itself has a plus."""
        return f"{0.0 if abs(number) < NOISE else number:+.{self.digits}f}".replace("-", "−")

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
        """Return whether a number reaches the bar."""
        return number <= bar + NOISE if self.lower_is_better else number >= bar - NOISE


PERPLEXITY = Measure("perplexity", lower_is_better=True)
ACCURACY = Measure("accuracy", "%", digits=2, scale=100.0, highest=100.0)
