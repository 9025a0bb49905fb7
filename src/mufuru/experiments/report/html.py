"""Any finished runs as one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mufuru.disk import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import lm, logic, overview, render, runs, sentiment
from mufuru.experiments.report.page import Page
from mufuru.experiments.report.runs import Runs


def write(records: Sequence[Record], path: Path) -> None:
    """Write the report of these runs: that of the paper's experiment where they belong to one, else run by run."""
    found = runs.unique(records)
    write_atomically(path, render.render(_page(found)).encode(errors="backslashreplace"))


def _page(found: Runs) -> Page:
    for experiment in (logic.REPORT, lm.REPORT, sentiment.REPORT):
        if experiment.is_one_experiment(found):
            return experiment.page(found)
    return overview.page(found)
