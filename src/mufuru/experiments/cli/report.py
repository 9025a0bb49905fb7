"""`mufuru report`: finished runs as one page that opens from disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mufuru.experiments.cli.usage import Runs, UsageError, parse
from mufuru.experiments.record import Record, RecordError, RunFolder, read_records, read_run
from mufuru.experiments.report.page import count
from mufuru.experiments.reproduce import write_page

EXAMPLES = """\
  mufuru report runs/first
  mufuru report runs/logic -o logic.html
  mufuru report results/logic/sweep.jsonl -o sweep.html
"""


@dataclass(frozen=True)
class Report:
    """Write finished runs into one HTML page: results, curves, settings, how to rerun."""

    runs: Runs
    """Folders of runs, folders that hold such folders, or files of records."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page to write."""


def main(arguments: list[str]) -> int:
    chosen = parse(Report, arguments, EXAMPLES)
    if not chosen.runs:
        raise UsageError("RUNS is missing. See mufuru report --help")
    if chosen.output.is_dir():
        raise UsageError(f"-o {chosen.output} is a folder: name a file, such as {chosen.output / 'report.html'}")
    if chosen.output.exists() and not chosen.output.is_file():
        # the page takes the place of what is there
        raise UsageError(f"-o {chosen.output} is a device or a pipe: name a file")
    records = [record for path in chosen.runs for record in read(path)]
    write_page(records, chosen.output)
    print(f"Wrote {count(len(records), 'run')} to {chosen.output}")
    return 0


def read(path: Path) -> list[Record]:
    """Return the records in one place; none at all is a mistake."""
    if RunFolder(path).config.exists():
        return [read_run(path)]
    records = read_records(path)
    if not records:
        raise RecordError(f"there is no finished run in {path}: train one with `mufuru train`")
    return records
