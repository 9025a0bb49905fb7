"""Run the commands of the page Your own data that have real files, and keep what they found for the page.

    python docs/real_files.py          half a minute, then make docs

It writes results.json, forecast.svg and units.svg into docs/your-own-data. Other processors may give other last digits:
the page says what these runs gave.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import mufuru
from mufuru.experiments.cli import main as command
from mufuru.experiments.engine import load_run
from mufuru.experiments.record import read_run
from mufuru.experiments.report import inspection, plots
from mufuru.experiments.report.figures import style, svg
from mufuru.experiments.report.page import Table
from mufuru.experiments.report.render import markdown_table
from mufuru.experiments.tasks.cells import traced

DOCS = Path(__file__).parent
PAGE, FOLDER = DOCS / "your-own-data.md", DOCS / "your-own-data"
RESULTS = FOLDER / "results.json"


def main() -> None:
    lines = re.findall(
        r"^mufuru (train .*--data docs/your-own-data/.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        os.symlink(DOCS, "docs")
        for line in lines:
            if command([*shlex.split(line), "--quiet"]):
                sys.exit(f"mufuru {line} failed")
        digits, sunspots = (read_run(Path("runs") / name) for name in ("digits", "sunspots"))
        found = {"digits": inspection.labels_of(digits), "sunspots": sunspots.result["test"]}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        with style():
            (FOLDER / "forecast.svg").write_bytes(svg(plots.forecasts(inspection.forecasts_of(sunspots))))
            (FOLDER / "units.svg").write_bytes(svg(units(Path("runs/digits"))))


def units(run: Path) -> Any:
    """Draw the map of units by the rows of the first test image."""
    task, model = load_run(run)
    batch: Any = task.batches("test")[0]
    trace, _ = traced(model, batch.inputs)
    return mufuru.plot.units(trace, [f"row {row}" for row in range(1, len(batch.inputs.batch_sizes) + 1)])


def digits(found: dict[str, Any]) -> str:
    """Return the table of labels, for the page."""
    caption = "What `mufuru evaluate runs/digits` says of the test images"
    return markdown_table(inspection.label_table(found["digits"], "")).replace("\n", f"{caption}:\n", 1)


def sunspots(found: dict[str, Any]) -> str:
    """Return the metrics of the forecasts beside the seasonal-naive ones, for the page."""
    scores = found["sunspots"]
    rows = [
        ("MuFuRU", scores["mase"], scores["smape"]),
        ("seasonal-naive", scores["naive_mase"], scores["naive_smape"]),
    ]
    cells = tuple((name, f"{mase:.3f}", f"{smape:.1f}") for name, mase, smape in rows)
    inside = f"Test forecasts; {100 * scores['coverage']:.0f} % of the values lie between the quantiles 0.1 and 0.9"
    return markdown_table(Table(inside, ("", "MASE", "sMAPE"), cells))


if __name__ == "__main__":
    main()
