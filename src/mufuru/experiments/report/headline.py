"""The results in one table: every experiment in its main setting, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mufuru.experiments.report import claims, models, paper
from mufuru.experiments.report.experiment import of
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.tables import MISSING, Table

CELLS = {"gru": "GRU", "mufuru": "MuFuRU"}
UNITS = 8
"""Of the row on formulae: the size that the paper speaks of."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    experiment: str
    what: str
    choose: Callable[[Runs, str], Runs]
    """The runs of a cell."""
    in_paper: bool = True
    """Whether it is a setting of the paper's."""


def formulae(part: str) -> Callable[[Runs, str], Runs]:
    return lambda records, cell: claims.at(of(records, part), cell, UNITS)


def sequences(part: str) -> Callable[[Runs, str], Runs]:
    return lambda records, cell: models.by_model(of(records, part)).get(CELLS[cell], [])


ROWS = (
    Row("logic", f"Boolean formulae, {UNITS} units, learning rate 0.001: accuracy, %", formulae("sweep")),
    Row("logic", f"Boolean formulae, {UNITS} units, learning rate 0.01: accuracy, %", formulae("solved")),
    Row("lm", "Penn Treebank, 200 units: perplexity", sequences("paper")),
    Row("lm", "Penn Treebank, 200 units, well regularised: perplexity", sequences("best"), in_paper=False),
    Row("sentiment", "Sentiment Treebank, 100 units: accuracy, %", sequences("paper")),
    Row(
        "sentiment",
        "Sentiment Treebank, 100 units each way, well regularised: accuracy, %",
        sequences("best"),
        in_paper=False,
    ),
)


def table(records: Mapping[str, Runs]) -> Table:
    """By experiment: mean and 95 % interval over the seeds, on the test data."""
    head = (
        "test results",
        *(f"{name}, paper" for name in CELLS.values()),
        *(f"{name}, here" for name in CELLS.values()),
    )
    return Table("", head, tuple((row.what, *_published(row), *_measured(row, records)) for row in ROWS))


def _published(row: Row) -> list[str]:
    numbers = paper.numbers(row.experiment) if row.in_paper else ()
    found = {number.model: f"{number.value:.1f}" for number in numbers}
    return [found.get(name, "no number") for name in CELLS.values()]


def _measured(row: Row, records: Mapping[str, Runs]) -> list[str]:
    chosen = [row.choose(records.get(row.experiment, ()), cell) for cell in CELLS]
    return [models.measure_of(some).interval(models.summary(some)) if some else MISSING for some in chosen]
