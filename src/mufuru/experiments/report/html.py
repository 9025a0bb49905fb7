"""Any finished runs as one HTML file that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mufuru.experiments.files import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import logic, overview, render, runs


def write(records: Sequence[Record], path: Path) -> None:
    """Write the report of these runs: that of the paper's experiment where they belong to one, else run by run."""
    found = runs.unique(records)
    page = logic.page(found) if logic.is_one_experiment(found) else overview.page(found)
    write_atomically(path, render.render(page).encode())
