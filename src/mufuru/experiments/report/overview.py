"""The page of any finished runs: a row for each, learning curves, settings and how to rerun."""

from __future__ import annotations

from collections.abc import Sequence

from mufuru.experiments.record import Record
from mufuru.experiments.report import inspection, provenance, runs
from mufuru.experiments.report import results as tables
from mufuru.experiments.report.claims import AUTHORS
from mufuru.experiments.report.experiment import Report
from mufuru.experiments.report.figures import EVERY_LOOK
from mufuru.experiments.report.page import MISSING, Block, Command, Page, Section, Table, count
from mufuru.experiments.report.runs import Runs

MOST_LINES = 8
"""More than these cannot be distinguished in one figure of learning curves."""
MOST_PANELS = 3
"""More would be too small to read."""


def page(records: Runs, reports: Sequence[Report]) -> Page:
    """Return a page with a section for each task; the numbers of these experiments stand beside runs on their data."""
    tasks = sorted({record.task for record in records})
    sections: list[Section] = []
    for task in tasks:
        report = next((report for report in reports if task in report.tasks), None)
        sections += _task(task, [record for record in records if record.task == task], report)
    runs_made = count(len(records), "finished run")
    return Page(f"mufuru: {runs_made}", f"{runs_made} of {', '.join(tasks)}.", (*sections, _rerun(records)))


def _task(task: str, records: Runs, report: Report | None) -> list[Section]:
    blocks: list[Block] = [results(records)]
    if report and report.numbers and all(map(runs.on_papers_data, records)):
        metric = f"test {report.measure.name}"
        rows = tuple((number.model, metric, f"{number.value:g}", number.place) for number in report.numbers)
        blocks.append(Table(f"The paper's results ({AUTHORS})", ("model", "metric", "value", "section"), rows))
    blocks += tables.dynamic(alike(records))
    blocks += _curves(task, records)
    # a mean over different settings would mean nothing
    if len(alike(records)) == 1 and any(map(inspection.recorded, records)):
        blocks += report.operations(records) if report and report.operations else _operations(task, records)
    settings = provenance.settings({"value": records}, "Every setting. Where runs differ, all values")
    return [Section(f"{task}: results", tuple(blocks)), Section(f"{task}: settings", (settings,))]


def _operations(task: str, records: Runs) -> list[Block]:
    blocks = inspection.use(f"{task}-operations", {"MuFuRU": records}, "the validation data")
    if any(map(inspection.sentences_of, records)):
        blocks += inspection.sentences(f"{task}-sentence", records)
    return blocks


def results(records: Runs) -> Table:
    """Return a row for each run: its settings as far as runs differ, and its metrics."""
    differing = provenance.varying(records)
    metrics = [
        (split, key)
        for split in ("test", "valid", "train")
        for key in sorted({key for record in records for key in record.result.get(split, {})})
    ]
    head = ("run", *differing, "parameters", "updates", *(f"{split} {key}" for split, key in metrics), "seconds")
    rows = tuple((str(number), *_result(r, differing, metrics)) for number, r in enumerate(records, 1))
    return Table("One row per run; the metrics are those of the selected weights", head, rows)


def _result(record: Record, differing: list[str], metrics: list[tuple[str, str]]) -> list[str]:
    cells = [provenance.plain(runs.setting(record, name)) for name in differing]
    cells += [str(record.result.get(key, MISSING)) for key in ("parameters", "updates")]
    for split, key in metrics:
        value = runs.metric(record, split, key)
        cells.append(MISSING if value is None else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}")
    seconds = record.result.get("seconds")
    return [*cells, MISSING if seconds is None else f"{seconds:.0f}"]


def _curves(task: str, records: Runs) -> list[Block]:
    curved = [record for record in records if record.curve]
    lines = alike(curved)
    if not lines:
        return [tables.NO_CURVES]
    keys = sorted({key for record in curved for line in record.curve for key in line.get("valid", {})})
    metric = next((key for key in keys if key != "loss"), "loss")
    shown = dict(list(lines.items())[:MOST_LINES])
    looks = dict(zip(shown, EVERY_LOOK, strict=False))
    caption = "Learning curves: mean over the seeds, and the middle half of the runs as a shade."
    if len(lines) > len(shown):
        caption += f" The first {len(shown)} of {len(lines)} settings."
    picture = tables.curve_picture(f"{task}-curves", {"": shown}, metric, looks, caption)
    return [picture, *inspection.over_training(f"{task}-use", dict(list(shown.items())[:MOST_PANELS]))]


def alike(records: Runs) -> dict[str, list[Record]]:
    """Return runs that differ in their seed alone, by the settings that tell them from the others."""
    differing = [name for name in provenance.varying(records) if name != "seed"]

    def name(record: Record) -> str:
        parts = [f"{path.split('.')[-1]} {provenance.plain(runs.setting(record, path))}" for path in differing]
        return ", ".join(parts) or str(runs.setting(record, "cell.cell") or record.task)

    return runs.grouped(records, name)


def _rerun(records: Runs) -> Section:
    blocks: list[Block] = [provenance.environment(records)]
    if commands := provenance.commands(records):
        blocks += ["The commands that made these runs:", Command("\n".join(commands))]
    return Section("How to rerun", tuple(blocks))
