"""Means of few runs, and how far they can be trusted. No interval is ever made from one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOISE = 1e-9
"""Sums of decimals miss their value by the last bits: the mean of 1, 0.99 and 0.98 should count as 0.99."""


@dataclass(frozen=True)
class Summary:
    """The same run with several seeds, in a few numbers."""

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
        """Return whether the mean comes to that value or above it."""
        return self.mean >= bar - NOISE

    def reaching(self, bar: float) -> int:
        """Count the runs that come to that value or above it."""
        return sum(value >= bar - NOISE for value in self.values)


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, deviation and interval of at least one value."""
    if not values:
        raise ValueError("a summary needs at least one value, got none")
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Summary(tuple(values), mean, None, None)
    deviation = statistics.stdev(values)
    return Summary(
        tuple(values), mean, deviation, t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values))
    )


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary | None:
    """Return `one` minus `other`, run by run, for the seeds that both have; None where they share none."""
    seeds = sorted(one.keys() & other.keys())
    return summarise([one[seed] - other[seed] for seed in seeds]) if seeds else None


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t with these degrees of freedom, for a probability from 0.5 up."""
    if degrees < 1 or not 0.5 <= probability < 1:
        raise ValueError(f"expected degrees from 1 and a probability in [0.5, 1), got {degrees} and {probability}")
    inside = 2 * probability - 1
    low, high = 0.0, 1.0
    while t_within(high, degrees) < inside:
        high *= 2
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
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
