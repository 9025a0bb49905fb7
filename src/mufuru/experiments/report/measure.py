"""Means of a few runs with confidence intervals; a measure: a metric, its better direction and its format."""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from mufuru.experiments.record import Record, RecordError
from mufuru.experiments.report import runs
from mufuru.experiments.report.page import MISSING

NOISE = 1e-9
"""Rounding error of sums of decimals: the mean of 1, 0.99 and 0.98 should count as 0.99."""
RESAMPLES = 10_000
"""Samples of a bootstrap."""
FEWEST_TO_RESAMPLE = 10
"""A bootstrap of fewer runs is too narrow."""
Comparison = Literal["seed by seed", "Welch"]
"""How two models are compared: by the differences of runs with the same seed, or as independent samples."""


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
        """Return the 95 % interval of the mean; None for one run alone. Where Student's t would go past what is
        possible, runs are heaped at that end and t is wrong: the interval is a bootstrap's, or cut if runs are few."""
        if self.margin is None:
            return None
        ends = self.mean - self.margin, self.mean + self.margin
        if (ends[0] < low or ends[1] > high) and self.n >= FEWEST_TO_RESAMPLE:
            return bootstrap(self.values)
        return max(ends[0], low), min(ends[1], high)

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


class Difference(NamedTuple):
    """The mean of one model minus that of another."""

    mean: float
    margin: float | None
    """Half the width of its interval, of 95 % unless stated; None where one model has one run alone."""
    n: int
    """Pairs of runs, or runs of the model that has fewer."""

    def interval(self) -> tuple[float, float] | None:
        return None if self.margin is None else (self.mean - self.margin, self.mean + self.margin)


def welch(one: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> Difference:
    """Return `one` minus `other` as independent samples of different spread (Welch's t)."""
    mean, n = statistics.fmean(one) - statistics.fmean(other), min(len(one), len(other))
    if n < 2:
        return Difference(mean, None, n)
    parts = [statistics.variance(some) / len(some) for some in (one, other)]
    if not sum(parts):
        return Difference(mean, 0.0, n)
    degrees = sum(parts) ** 2 / sum(p * p / (len(some) - 1) for p, some in zip(parts, (one, other), strict=True))
    return Difference(mean, t_quantile(0.5 + confidence / 2, degrees) * math.sqrt(sum(parts)), n)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which is right for few runs and for all or none of them."""
    z = statistics.NormalDist().inv_cdf(0.975)
    centre = (hits + z * z / 2) / (n + z * z)
    margin = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(centre - margin, 0.0), min(centre + margin, 1.0)


@cache
def bootstrap(values: tuple[float, ...]) -> tuple[float, float]:
    """Return the 95 % interval of the mean between percentiles of resampled means; always the same for these values."""
    draws = random.Random(0)
    means = sorted(statistics.fmean(draws.choices(values, k=len(values))) for _ in range(RESAMPLES))
    edge = RESAMPLES // 40
    return means[edge], means[-edge - 1]


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary | None:
    """Return `one` minus `other`, run by run, for the seeds that both have; None where they share none."""
    seeds = sorted(one.keys() & other.keys())
    return summarise([one[seed] - other[seed] for seed in seeds]) if seeds else None


@cache
def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t with these degrees of freedom, 1 or more, for a probability from 0.5 up."""
    inside, low, high = 2 * probability - 1, 0.0, math.pi / 2
    # 60 halvings of the angle reach its last bit
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, degrees) < inside else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _t_within(angle: float, degrees: float) -> float:
    """Probability that |T| < sqrt(degrees) * tan(angle): the density is a power of the cosine, summed by Simpson's rule
    in 1,000 steps, which is right to 1e-10 for up to 100 degrees."""
    steps = 1000
    width = angle / steps
    powers = [math.pow(math.cos(width * step), degrees - 1) for step in range(steps + 1)]
    area = width / 3 * (powers[0] + powers[-1] + 4 * sum(powers[1:-1:2]) + 2 * sum(powers[2:-1:2]))
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    return 2 * area * math.exp(log) / math.sqrt(math.pi)


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
    """No value is beyond these."""
    compared: tuple[Comparison, ...] = ("seed by seed",)
    """How models are compared in tables; verdicts go by the first. Runs with the same seed are pairs where they share
    more than a number, such as data or its order."""

    @property
    def name(self) -> str:
        return f"{self.key}, {self.unit}" if self.unit else self.key

    @property
    def arrow(self) -> str:
        """The name, and the better direction."""
        return f"{self.name} {'↓' if self.lower_is_better else '↑'}"

    @property
    def in_words(self) -> str:
        """Words for a mean and its interval."""
        other = f"; a bootstrap where t goes past what is possible in {FEWEST_TO_RESAMPLE} runs or more"
        other = other if self.lowest > -math.inf or self.highest < math.inf else ""
        return f"mean over the seeds and, in brackets, its 95 % interval (Student's t{other}; n/a for one run)"

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

    def difference(
        self, one: Iterable[Record], other: Iterable[Record], split: str = "test", how: Comparison | None = None
    ) -> Difference | None:
        """Return the first minus the second; None where they share no seed, or one has no run."""
        here, there = self.by_seed(one, split), self.by_seed(other, split)
        if (how or self.compared[0]) == "Welch":
            return welch([*here.values()], [*there.values()]) if here and there else None
        pairs = paired(here, there)
        return Difference(pairs.mean, pairs.margin, pairs.n) if pairs else None

    def bounds(self, summary: Summary) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean; None for one run alone."""
        return summary.interval(self.lowest, self.highest)

    def solved(self, summary: Summary, bar: float) -> str:
        """Write how many runs reach a value, and the 95 % interval of their share (Wilson)."""
        hits = summary.reaching(bar)
        low, high = wilson(hits, summary.n)
        return f"{hits} of {summary.n} ({low:.2f}–{high:.2f})"

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

    def change(self, summary: Summary | Difference | None) -> str:
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


PERPLEXITY = Measure("perplexity", lower_is_better=True, compared=("Welch",))
"""Language models with the same seed share nothing: first weights are drawn in other shapes."""
ACCURACY = Measure(
    "accuracy", "%", digits=2, scale=100.0, lowest=0.0, highest=100.0, compared=("seed by seed", "Welch")
)
