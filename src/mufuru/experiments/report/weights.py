"""The average weight of every operation at every token, from what runs recorded of their trained models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import paper, runs
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import Summary, summarise
from mufuru.experiments.report.tables import Table


@dataclass(frozen=True)
class Weights:
    """A row per token, a column per operation."""

    tokens: tuple[str, ...]
    operations: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    deviations: tuple[tuple[float, ...], ...] | None
    """Standard deviation between runs; None for one run alone."""
    n: int

    def row(self, token: str) -> dict[str, float]:
        return dict(zip(self.operations, self.values[self.tokens.index(token)], strict=True))


def mean(records: Runs) -> Weights | None:
    """The mean over the runs that have weights for the same tokens and operations as the first; None without any."""
    found = [w for record in records if (w := recorded(record))]
    if not found:
        return None
    tokens = ordered(found[0], paper.TOKENS)
    operations = ordered(found[0][tokens[0]], paper.OPERATIONS)
    same = [w for w in found if w.keys() == set(tokens) and all(row.keys() == set(operations) for row in w.values())]
    cells = [[[w[token][op] for w in same] for op in operations] for token in tokens]
    means = tuple(tuple(statistics.fmean(cell) for cell in row) for row in cells)
    deviations = tuple(tuple(statistics.stdev(cell) for cell in row) for row in cells) if len(same) > 1 else None
    return Weights(tokens, operations, means, deviations, len(same))


def recorded(record: Record) -> dict[str, dict[str, float]]:
    """What the run's inspection holds, as token -> operation -> weight; tokens that were never read are left out."""
    found = inspection(record)
    rows = zip(found.get("tokens", ()), found.get("weight", ()), strict=True)
    return {token: dict(zip(found["ops"], row, strict=True)) for token, row in rows if row is not None}


def counts(record: Record) -> dict[str, int]:
    """How often each token, or one of its class, was read; nothing where the run did not count."""
    found = inspection(record)
    return dict(zip(found.get("tokens", ()), found.get("counts", ()), strict=False))


def inspection(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = record.result.get("inspection", {}).get("operation_weights", {})
    return found


def ordered(found: Iterable[str], order: tuple[str, ...]) -> tuple[str, ...]:
    """In the paper's order; what the paper does not have comes last, in the order of the record."""
    return tuple(sorted(found, key=lambda name: order.index(name) if name in order else len(order)))


def chosen(records: Runs) -> Record | None:
    """One run to look at: the best validation accuracy, the first seed of equals. The test set has no say."""
    usable = [record for record in records if recorded(record)]
    return min(usable, key=lambda r: (-(runs.metric(r, "valid") or 0.0), runs.setting(r, "seed")), default=None)


def effective(records: Runs) -> Summary | None:
    """Over how many operations a unit spreads its weight at one step: the exponential of the mean entropy, by run."""
    found = [inspection(record).get("entropy") for record in records]
    known = [math.exp(entropy) for entropy in found if entropy is not None]
    return summarise(known) if known else None


def table(weights: Weights, caption: str) -> Table:
    """The numbers of the heat map, with the deviation between runs where there are several."""
    rows = []
    for index, token in enumerate(weights.tokens):
        cells = [f"{value:.2f}" for value in weights.values[index]]
        if weights.deviations:
            cells = [f"{cell} ± {d:.2f}" for cell, d in zip(cells, weights.deviations[index], strict=True)]
        rows.append((token, *cells))
    return Table(caption, ("token", *weights.operations), tuple(rows))
