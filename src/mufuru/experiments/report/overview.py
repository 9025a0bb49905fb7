"""The page of any finished runs: a row for each, learning curves, settings and how to rerun."""

import json
import math
from collections.abc import Iterable, Sequence

from mufuru.experiments.record import Record, endings
from mufuru.experiments.report import inspection, results, runs
from mufuru.experiments.report.claims import AUTHORS
from mufuru.experiments.report.experiment import Report
from mufuru.experiments.report.figures import EVERY_LOOK
from mufuru.experiments.report.measure import Measure, Summary, summarise
from mufuru.experiments.report.page import MISSING, Block, Command, Folded, Page, Section, Table, count
from mufuru.experiments.report.runs import Lines, Runs
from mufuru.experiments.tasks import KINDS

MOST_LINES = 8
"""Maximum lines in a figure of learning curves: more cannot be distinguished."""
MOST_ROWS = 24
"""Maximum settings in a figure of test results."""
MOST_SETTINGS = 4
"""More columns of settings would push the results off the page."""
MOST_PANELS = 3
"""More would be too small to read."""


def page(records: Runs, reports: Iterable[Report]) -> Page:
    """Return a page with a section for each task; the paper's numbers are shown beside runs on its data."""
    tasks = sorted({record.task for record in records})
    sections: list[Section] = []
    for task in tasks:
        report = next((report for report in reports if task in report.tasks), None)
        some = [record for record in records if record.task == task]
        settings = results.settings({"value": some}, "Every setting. Where runs differ, all values")
        sections.append(Section(f"{task}: results", tuple(_task(some, report))))
        sections.append(Section(f"{task}: settings", (Folded("Every setting", settings),)))
    rerun: list[Block] = [results.environment(records)]
    if commands := results.commands(records):
        rerun += ["The commands that made these runs:", Command("\n".join(commands))]
    made = count(len(records), "finished run")
    sections.append(Section("How to rerun", tuple(rerun)))
    best = [some for some in by_data(records) if measured(some)[1]]
    lead = f"{made} of {', '.join(tasks)}."
    if len(best) == 1:
        lead = f"{headline(best[0])} {lead}"
    elif best:
        sections.insert(0, Section("In short", (in_short(best),)))
    return Page(f"mufuru: {made}", lead, tuple(sections))


def by_data(records: Runs) -> list[list[Record]]:
    """Return the runs on the same data of the same task together: only they can be compared."""
    return list(runs.grouped(records, lambda r: (r.task, json.dumps(runs.setting(r, "data"), sort_keys=True))).values())


def headline(records: Runs) -> str:
    """Return the best test result on the same data and the next one in a sentence."""
    measure, best = ranked(records)
    side, data = "lower" if measure.lower_is_better else "higher", data_of(records)
    task = records[0].task + (f" ({data})" if data else "")
    return f"{task}: test {measure.name} {', then '.join(best)}; {side} is better."


def in_short(best: Sequence[Runs]) -> Table:
    """Return a row for the runs on each data set: the best test result and the next one."""
    rows = []
    for records in best:
        measure, (first, *others) = ranked(records)
        rows.append((records[0].task, data_of(records) or MISSING, measure.arrow, first, *(others or [MISSING])))
    caption = "Best test results of the runs on the same data; ↑ higher or ↓ lower is better"
    return Table(caption, ("task", "data", "test metric", "best", "next"), tuple(rows), wordy=True)


def ranked(records: Runs) -> tuple[Measure, list[str]]:
    """Return the two best test results in words, the best first."""
    measure, tested = measured(records)
    order = sorted(tested, key=lambda name: tested[name].mean, reverse=not measure.lower_is_better)
    words = [f"{measure.value(tested[name].mean)} by {name} ({count(tested[name].n, 'run')})" for name in order[:2]]
    return measure, words


def data_of(records: Runs) -> str:
    """Return the name of the file or files of the data; "" for those of the paper."""
    own = runs.setting(records[0], "data.data") or runs.setting(records[0], "data.text") or ""
    paths = own if isinstance(own, list) else [own]
    return " ".join(str(path).rpartition("/")[2] for path in paths)


def own_metric(task: str) -> tuple[str, bool]:
    """Return the metric by which a task chooses weights, and whether a higher one is better."""
    make = KINDS[task].make if task in KINDS else None
    return getattr(make, "metric", "loss"), getattr(make, "higher_is_better", False)


def measured(records: Runs) -> tuple[Measure, dict[str, Summary]]:
    """Return the metric by which the task chooses weights, and the test results of runs that differ in their seed
    alone, by their settings."""
    key, higher = own_metric(records[0].task)
    metrics = {
        name: [value for record in some if (value := runs.metric(record, "test", key)) is not None]
        for name, some in runs.by_settings(records).items()
    }
    tested = {name: summarise(values) for name, values in metrics.items() if values}
    most = max((abs(value) for summary in tested.values() for value in summary.values), default=0.0)
    digits = 3 if most < 10 else 1 if most < 1000 else 0
    # losses and errors are above 0; what is better the higher it is, such as accuracy and F1, is a share
    highest = 1.0 if higher and most <= 1 else math.inf
    return Measure(key, digits=digits, lower_is_better=not higher, lowest=0.0, highest=highest), tested


def compared(name: str, records: Runs) -> list[Block]:
    """Return the test results of a task as a figure, where there are two settings or more to compare."""
    measure, tested = measured(records)
    if len(tested) < 2:
        return []
    cells = {name: runs.cell_of(some[0]) for name, some in runs.by_settings(records).items()}
    shown = {name: (cells[name], summary) for name, summary in list(tested.items())[:MOST_ROWS]}
    where = f" on {data}" if (data := data_of(records)) else ""
    more = " Bars need two runs."
    more += f" The first {len(shown)} of {len(tested)} settings." if len(tested) > len(shown) else ""
    return [results.dots(name, shown, measure, where, more, {})]


def _task(records: Runs, report: Report | None) -> list[Block]:
    task, groups, blocks = records[0].task, by_data(records), list[Block]()
    for place, some in enumerate(groups, 1):
        blocks += compared(f"{task}-test-{place}", some)
    blocks += _tables(records)
    if report and report.numbers and all(map(runs.on_papers_data, records)):
        metric = f"test {report.measure.name}"
        rows = tuple((model, metric, f"{value:g}", report.place) for model, value in report.numbers.items())
        blocks.append(Table(f"The paper's results ({AUTHORS})", ("model", "metric", "value", "section"), rows))
    lines = runs.by_settings(records)
    blocks += [*results.dynamic(lines), *_curves(task, lines)]
    if any(map(inspection.forecasts_of, records)):
        blocks += inspection.forecasts(f"{task}-forecasts", records)
    blocks += [inspection.labels(some) for some in groups if any(map(inspection.labels_of, some))]
    # a mean over different settings would mean nothing
    if len(lines) == 1 and any(map(inspection.recorded, records)):
        if report and report.operations:
            return blocks + report.operations(records)
        blocks += inspection.use(f"{task}-operations", {"MuFuRU": records}, "the validation data")
        if any(map(inspection.sentences_of, records)):
            blocks += inspection.sentences(f"{task}-sentence", records)
    return blocks


def _tables(records: Runs) -> list[Block]:
    """Return a row for each run: its test metrics and, as far as runs differ, its settings; then the rest, folded."""
    differing = runs.varying(records)
    tested, *rest = (
        [(split, key) for key in sorted({key for record in records for key in record.result.get(split, {})})]
        for split in ("test", "valid", "train")
    )
    others = [metric for metrics in rest for metric in metrics]
    few = differing if len(differing) <= MOST_SETTINGS else []
    folders = [record.folder for record in records if record.folder]
    names = endings(folders) if len(folders) == len(records) else [str(place) for place, _ in enumerate(records, 1)]
    settings = [tuple(runs.end(record, path, records) for path in differing) for record in records]
    sizes = [tuple(_size(record, key) for key in ("parameters", "updates", "seconds")) for record in records]
    first = [
        (name, *_metrics(record, tested), *(row if few else ()), *size)
        for name, record, row, size in zip(names, records, settings, sizes, strict=True)
    ]
    head = ("run", *(f"test {key}" for _, key in tested), *few, "parameters", "updates", "seconds")
    blocks: list[Block] = [Table("One row per run; the metrics are those of the selected weights", head, tuple(first))]
    if len(differing) > len(few):
        rows = [(path, *row) for path, row in zip(differing, zip(*settings, strict=True), strict=True)]
        blocks.append(
            Folded(
                "Settings in which the runs differ",
                Table("One column per run", ("setting", *names), tuple(rows), wordy=True),
            )
        )
    if others:
        rows = [(name, *_metrics(record, others)) for name, record in zip(names, records, strict=True)]
        content = Table("One row per run", ("run", *(f"{split} {key}" for split, key in others)), tuple(rows))
        blocks.append(Folded("Metrics of the validation and training data", content))
    return blocks


def _size(record: Record, key: str) -> str:
    value = record.result.get(key)
    return MISSING if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def _metrics(record: Record, metrics: list[tuple[str, str]]) -> list[str]:
    values = [runs.metric(record, split, key) for split, key in metrics]
    return [MISSING if value is None else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" for value in values]


def _curves(task: str, lines: Lines) -> list[Block]:
    held = results.with_curves(lines)
    if not held:
        return [results.NO_CURVES]
    # a single point is no curve
    curved = {name: some for name, some in held.items() if any(len(record.curve) > 1 for record in some)}
    if not curved:
        return ["Every run was evaluated once: there is no learning curve to draw."]
    keys = {
        key for some in curved.values() for record in some for line in record.curve for key in line.get("valid", ())
    }
    own, _ = own_metric(task)
    metric = own if own in keys else min(keys - {"loss"}, default="loss")
    shown = dict(list(curved.items())[:MOST_LINES])
    caption = "Learning curves: mean over the seeds, and the middle half of the runs as a shade."
    if len(curved) > len(shown):
        caption += f" The first {len(shown)} of {len(curved)} settings."
    looks = dict(zip(shown, EVERY_LOOK, strict=False))
    picture = results.curve_picture(f"{task}-curves", {"": shown}, metric, looks, caption)
    return [picture, *inspection.over_training(f"{task}-use", dict(list(shown.items())[:MOST_PANELS]))]
