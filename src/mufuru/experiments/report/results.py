"""Results of runs as tables and figures: by model, by cell, and by what was changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import figures, provenance, runs
from mufuru.experiments.report.figures import Look, curves, marks
from mufuru.experiments.report.measure import PERPLEXITY, Measure
from mufuru.experiments.report.page import MISSING, Block, Picture, Table
from mufuru.experiments.report.runs import Lines, Runs

INTERVAL = "mean over the seeds and, in brackets, its 95 % interval (Student's t; n/a for one run)"
NO_CURVES = "The records hold no learning curves: only run folders do."
BOTH = {"mufuru", "gru"}


def table(
    lines: Lines, measure: Measure, caption: str, against: str = "", published: Mapping[str, float] | None = None
) -> Table:
    """Return a row for each line: mean, spread and every run on the test data, the mean on the validation data; beside
    them the difference to one of the lines, seed by seed, and the published numbers."""
    against = against if against in lines and len(lines) > 1 else ""
    head = ["model", "parameters", f"test {measure.name}", "deviation", "every run", f"validation {measure.name}"]
    head += [f"minus {against}"] if against else []
    head += ["the paper"] if published else []
    rows = []
    for name, records in lines.items():
        row = (name, *_row(records, measure))
        if against:
            row += (MISSING if name == against else measure.change(measure.difference(records, lines[against])),)
        if published:
            row += (f"{published[name]:.1f}" if name in published else MISSING,)
        rows.append(row)
    return Table(caption, tuple(head), tuple(rows))


def _row(records: Runs, measure: Measure) -> tuple[str, ...]:
    test, valid = measure.summary(records), measure.summary(records, "valid")
    every = MISSING if test is None else ", ".join(map(measure.value, test.values))
    sizes = ", ".join(f"{size:,}" for size in sorted({record.result["parameters"] for record in records}))
    return sizes, measure.interval(test), measure.deviation(test), every, measure.interval(valid)


def section(
    part: str,
    measure: Measure,
    caption: str,
    against: str = "GRU",
    published: Mapping[str, float] | None = None,
    figure: str = "",
) -> Callable[[Runs], list[Block]]:
    """Return the section of a part, by model: a figure if it has a name, and a table."""

    def blocks(records: Runs) -> list[Block]:
        lines = runs.lines(records, part)
        shown: list[Block] = [dots(figure, lines, measure, published)] if figure else []
        return [*shown, table(lines, measure, f"{caption}: {INTERVAL}", against, published)]

    return blocks


def pivot(
    rows: Mapping[Any, Runs],
    head: tuple[str, ...],
    caption: str,
    entry: Callable[[Runs], str],
    lead: Measure | None = None,
) -> Table:
    """Return a row for each group of runs, by the row's first entries, and a column for each cell; with a measure of
    the lead, one more column for MuFuRU minus GRU, seed by seed, where both ran."""
    cells = runs.cells(record for records in rows.values() for record in records)
    leading = lead if lead and set(cells) >= BOTH else None
    lines = []
    for name, records in rows.items():
        by_cell = {cell: runs.where(records, cell__cell=cell) for cell in cells}
        line = (*name, *map(entry, by_cell.values()))
        line += (leading.change(leading.difference(by_cell["mufuru"], by_cell["gru"])),) if leading else ()
        lines.append(line)
    names = (*head, *map(runs.name, cells), *(["MuFuRU − GRU"] if leading else []))
    return Table(caption, names, tuple(lines))


def dots(name: str, lines: Lines, measure: Measure, published: Mapping[str, float] | None = None) -> Picture:
    """Return the same lines as a figure."""
    caption = f"Test {measure.name}: mean (mark), 95 % interval (bar) and every run (faint marks)."
    caption += " Upright stroke: the paper." if published else ""
    alt = f"Dot plot of test {measure.name} of {', '.join(lines)}; the numbers are in the next table"
    drawn = {line: (runs.cell_of(records[0]), measure.summary(records)) for line, records in lines.items()}
    return Picture(name, lambda: marks.models(drawn, measure, published or {}), alt, caption)


def bar(lines: Lines, measure: Measure, value: float) -> str:
    """Say whether MuFuRU's mean comes to the bar."""
    summary = measure.summary(lines.get("MuFuRU", ()))
    if summary is None:
        return "No run of MuFuRU is finished."
    state = "met" if measure.better(summary.mean, value) else "missed"
    return f"MuFuRU {measure.interval(summary)}: the bar of {value:g} is {state}."


def changes(base: Runs, changed: Runs, names: Mapping[str, str]) -> dict[str, list[Record]]:
    """Return runs by the settings in which they differ from a base, in words; the base first, with the seeds that they
    have.

    `names` has the settings' names for readers, in their order; a setting that is not there goes by its own name.
    """

    def words(record: Record) -> str:
        values = {name: provenance.plain(runs.setting(record, name)) for name in runs.differing(base[0], record)}
        return ", ".join(f"{names.get(name, name)} {value}" for name, value in values.items())

    groups = runs.grouped(sorted(changed, key=lambda record: _order(base[0], record, list(names))), words)
    seeds = {runs.setting(record, "seed") for record in changed}
    same = [record for record in base if runs.setting(record, "seed") in seeds]
    return {"nothing": same or list(base), **groups}


def _order(base: Record, record: Record, names: list[str]) -> tuple[int, bool, float, int]:
    """Return a sort key: the first setting, then its value, None last; one change comes before two."""
    known = [name for name in runs.differing(base, record) if name in names]
    if not known:
        return len(names), False, 0.0, 0
    value = runs.setting(record, known[0])
    number = float(value) if isinstance(value, int | float) else 0.0
    return names.index(known[0]), value is None, number, len(known)


def change_table(lines: Lines, measure: Measure, caption: str) -> Table:
    """Return the effect of each change; the first line is what is changed."""
    base = next(iter(lines.values()))
    head = ("changed", "runs", f"test {measure.name}", "change", f"validation {measure.name}", "change ")
    rows = []
    for place, (name, records) in enumerate(lines.items()):
        row = [name, str(len(records))]
        for split in ("test", "valid"):
            difference = measure.difference(records, base, split) if place else None
            row += [measure.interval(measure.summary(records, split)), measure.change(difference)]
        rows.append(tuple(row))
    sign = "negative" if measure.lower_is_better else "positive"
    return Table(f"{caption}. A {sign} change is for the better", head, tuple(rows))


def choice_tables(
    base: Lines, changed: Lines, measure: Measure, names: Mapping[str, str], missing: str, setting: str
) -> list[Block]:
    """Return the effect of each change of a model's base, a table for each model; `missing` names the runs that a base
    needs, `setting` describes the base."""
    blocks: list[Block] = []
    for model, records in changed.items():
        if model in base:
            blocks.append(change_table(changes(base[model], records, names), measure, f"{model} {setting}"))
        elif missing not in blocks:
            blocks.append(missing)
    return blocks


def no_gain(tried: Mapping[str, Lines], measure: Measure) -> list[Block]:
    """Return the changes that did not help on the validation data, by model; the first line of each is its base."""
    rows = []
    for model, lines in tried.items():
        (_, base), *changed = lines.items()
        for name, records in changed:
            valid = measure.difference(records, base, "valid")
            if valid is not None and not (valid.mean < 0 if measure.lower_is_better else valid.mean > 0):
                row = (model, name, str(len(records)), measure.change(valid))
                rows.append((*row, measure.change(measure.difference(records, base))))
    head = ("model", "changed", "runs", "validation, change", "test, change")
    return [Table("Tried, and no better on the validation data", head, tuple(rows))] if rows else []


def curve_picture(name: str, rows: curves.Groups, metric: str, looks: Mapping[str, Look], caption: str) -> Picture:
    """Return learning curves: a row of figures for each title, of which a single one may be empty."""
    by = curves.axis_of([record for lines in rows.values() for records in lines.values() for record in records])
    titles = f", with {' and '.join(rows)}," if any(rows) else ""
    alt = f"Training loss and validation {metric} by {by}{titles} for {', '.join(looks)}"
    return Picture(name, lambda: curves.draw(rows, metric, looks, by), alt, caption)


def learning(name: str, parts: Mapping[str, tuple[str, Lines]], measure: Measure) -> list[Block]:
    """Return the learning curves of each part, by the part's name: its title, and its lines."""
    blocks: list[Block] = []
    for part, (title, lines) in parts.items():
        curved = {line: kept for line, some in lines.items() if (kept := [record for record in some if record.curve])}
        looks = {
            line: figures.look_of(line, runs.cell_of(records[0]), place)
            for place, (line, records) in enumerate(curved.items())
        }
        caption = (
            f"{title}: mean over the seeds, and the middle half of the runs as a shade. Where runs end at different "
            "times, the mean is over those that go on."
        )
        if curved:
            blocks.append(curve_picture(f"{name}-{part}", {"": curved}, measure.key, looks, caption))
    return blocks or ["The records hold no learning curves."]


def dynamic(lines: Lines) -> list[Block]:
    """Return a row for each language model whose dynamic evaluation was kept; never among the others."""
    rows = []
    for name, records in lines.items():
        for record in records:
            if kept := record.dynamic:
                rates = ", ".join(sorted(kept["tried"], key=float)) or MISSING
                static, learning = record.result["test"]["perplexity"], kept["metrics"]["perplexity"]
                rate = f"{kept['how']['learning_rate']:g}"
                numbers = (PERPLEXITY.value(static), PERPLEXITY.value(learning), rate, rates)
                rows.append((name, str(runs.setting(record, "seed")), *numbers))
    head = ("model", "seed", "test perplexity", "with dynamic evaluation", "learning rate", "best on validation of")
    caption = "Apart: with dynamic evaluation a model goes on learning from the test text that it has predicted"
    return [Table(caption, head, tuple(rows))] if rows else []
