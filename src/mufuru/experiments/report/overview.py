"""The page of any finished runs: a row for each, learning curves, settings and how to rerun."""

from __future__ import annotations

from mufuru.experiments.record import Record
from mufuru.experiments.report import dynamic, operation_use, paper, provenance, runs, sections, tables, walked, weights
from mufuru.experiments.report.figures import curves
from mufuru.experiments.report.page import Block, Command, Page, Picture, Section
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.tables import MISSING, Table

MOST_LINES = 8
"""More than these cannot be told apart in one figure of learning curves."""

MOST_PANELS = 3
"""More would be too small to read."""


def page(records: Runs) -> Page:
    """One section for each task."""
    tasks = sorted({record.task for record in records})
    sections = [section for task in tasks for section in _task(task, [r for r in records if r.task == task])]
    count = tables.count(len(records), "finished run")
    return Page(f"mufuru: {count}", f"{count} of {', '.join(tasks)}.", (*sections, rerun(records)))


def _task(task: str, records: Runs) -> list[Section]:
    blocks: list[Block] = [results(records)]
    if stated := published(task, records):
        rows = tuple((number.model, number.metric, f"{number.value:g}", number.place) for number in stated)
        blocks.append(Table(f"The paper's results ({paper.AUTHORS})", ("model", "metric", "value", "section"), rows))
    blocks.extend(dynamic.blocks(alike(records)))
    blocks.extend(_curves(task, records))
    # a mean over different settings would mean nothing
    if len(alike(records)) == 1 and any(map(weights.recorded, records)):
        blocks.extend(_operations(task, records))
    table = provenance.settings({"value": records}, "Every setting. Where runs differ, all values")
    return [Section(f"{task}: results", tuple(blocks)), Section(f"{task}: settings", (table,))]


def published(task: str, records: Runs) -> tuple[paper.Number, ...]:
    """The paper's numbers, where the runs are on the paper's data."""
    if not all(map(runs.on_papers_data, records)):
        return ()
    return paper.numbers({"classify": "sentiment", "trees": "sentiment"}.get(task, task))


def _operations(task: str, records: Runs) -> list[Block]:
    if task == "logic":
        return sections.operation_weights(records)
    found = operation_use.blocks(f"{task}-operations", {"MuFuRU": records}, "the validation data")
    return found + (walked.blocks(f"{task}-sentence", records) if any(map(walked.recorded, records)) else [])


def results(records: Runs) -> Table:
    """What the runs differ in, and what came out."""
    differing = provenance.varying(records)
    metrics = [f"{split} {key}" for split in ("test", "valid", "train") for key in _keys(records, split)]
    head = ("run", *differing, "parameters", "updates", *metrics, "seconds")
    rows = tuple((str(number), *_result(r, differing, metrics)) for number, r in enumerate(records, 1))
    return Table("One row per run; the metrics are those of the selected weights", head, rows)


def _keys(records: Runs, split: str) -> list[str]:
    return sorted({key for record in records for key in record.result.get(split, {})})


def _result(record: Record, differing: list[str], metrics: list[str]) -> list[str]:
    cells = [provenance.plain(runs.setting(record, name)) for name in differing]
    cells += [str(record.result.get(key, MISSING)) for key in ("parameters", "updates")]
    for name in metrics:
        split, key = name.split(" ", 1)
        value = runs.metric(record, split, key)
        cells.append(MISSING if value is None else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}")
    seconds = record.result.get("seconds")
    return [*cells, MISSING if seconds is None else f"{seconds:.0f}"]


def _curves(task: str, records: Runs) -> list[Block]:
    lines = alike([record for record in records if record.curve])
    if not lines:
        return ["The records hold no learning curves: only run folders do."]
    metric = next((key for key in _curve_keys(records) if key != "loss"), "loss")
    shown = dict(list(lines.items())[:MOST_LINES])
    looks = {name: curves.EVERY_LOOK[place] for place, name in enumerate(shown)}
    caption = "Learning curves: mean over the seeds, and the middle half of the runs as a shade."
    if len(lines) > len(shown):
        caption += f" The first {len(shown)} of {len(lines)} settings."
    by = curves.axis_of(records)
    alt = f"Training loss and validation {metric} by {by} for {', '.join(shown)}"
    picture = Picture(f"{task}-curves", lambda: curves.draw({"": shown}, metric, looks, by), alt, caption)
    return [picture, *operation_use.over_training(f"{task}-use", dict(list(shown.items())[:MOST_PANELS]))]


def _curve_keys(records: Runs) -> list[str]:
    return sorted({key for record in records for line in record.curve for key in line.get("valid", {})})


def alike(records: Runs) -> dict[str, list[Record]]:
    """Runs that differ in their seed alone, by the settings that tell them from the others."""
    differing = [name for name in provenance.varying(records) if name != "seed"]
    found: dict[str, list[Record]] = {}
    for record in records:
        parts = [f"{name.split('.')[-1]} {provenance.plain(runs.setting(record, name))}" for name in differing]
        found.setdefault(", ".join(parts) or str(runs.setting(record, "cell.cell") or record.task), []).append(record)
    return found


def rerun(records: Runs) -> Section:
    """Versions, and the commands that made the runs."""
    blocks: list[Block] = [
        provenance.environment(records, "Versions, commit and machine. Where runs differ, all values")
    ]
    commands = provenance.commands(records)
    if commands:
        blocks += ["The commands that made these runs:", Command("\n".join(commands))]
    return Section("How to rerun", tuple(blocks))
