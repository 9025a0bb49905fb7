"""Runs as tables and figures: results by model, by cell and by change; and settings, versions and commands."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import figures, plots, runs
from mufuru.experiments.report.figures import Look
from mufuru.experiments.report.measure import PERPLEXITY, Measure
from mufuru.experiments.report.page import MISSING, Block, Picture, Table
from mufuru.experiments.report.runs import Lines, Runs
from mufuru.experiments.settings import flat

NO_CURVES = "The records hold no learning curves: only run folders do."
Numbers = Mapping[str, float]
"""The paper's results by model."""
MANY = 4
"""Maximum lists to write out; more are counted."""


def models(
    lines: Lines, measure: Measure, caption: str, figure: str = "", against: str = "", published: Numbers | None = None
) -> list[Block]:
    """Return a figure, if it has a name, and a table with a row for each line: mean, spread and every run on the test
    data, the mean on the validation data; beside them the difference to one of the lines, and the published numbers."""
    against = against if against in lines and len(lines) > 1 else ""
    head = ["model", "parameters", f"test {measure.name}", "deviation", "every run", f"validation {measure.name}"]
    head += [f"minus {against}, {how}" for how in measure.compared] if against else []
    head += ["the paper"] if published else []
    rows = []
    for name, records in lines.items():
        test, valid = measure.summary(records), measure.summary(records, "valid")
        every = MISSING if test is None else ", ".join(map(measure.value, test.values))
        row = [name, parameters(records), measure.interval(test), measure.deviation(test), every]
        row.append(measure.interval(valid))
        for how in measure.compared if against else ():
            difference = None if name == against else measure.difference(records, lines[against], how=how)
            row.append(measure.change(difference))
        if published:
            row.append(f"{published[name]:.1f}" if name in published else MISSING)
        rows.append(tuple(row))
    drawn = {line: (runs.cell_of(records[0]), measure.summary(records)) for line, records in lines.items()}
    stroke = " Upright stroke: the paper." if published else ""
    shown: list[Block] = [dots(figure, drawn, measure, "", stroke, published or {})] if figure else []
    return [*shown, Table(f"{caption}: {measure.in_words}", tuple(head), tuple(rows))]


def parameters(records: Runs) -> str:
    """Write the number of parameters; where runs differ, all numbers."""
    return ", ".join(f"{size:,}" for size in sorted({record.result["parameters"] for record in records})) or MISSING


def section(
    part: str, measure: Measure, caption: str, figure: str = "", published: Numbers | None = None
) -> Callable[[Runs], list[Block]]:
    """Return the section of a part, by model."""
    return lambda records: models(runs.lines(records, part), measure, caption, figure, "GRU", published)


def dots(name: str, lines: plots.Dots, measure: Measure, where: str, more: str, published: Numbers) -> Picture:
    """Return test results as a figure; `more` ends the caption."""
    caption = f"Test {measure.name}{where}: mean (mark), 95 % interval (bar) and every run (faint marks).{more}"
    alt = f"Dot plot of test {measure.name} of {', '.join(lines)}; the numbers are in the next table"
    return Picture(name, lambda: plots.models(lines, measure, published), alt, caption)


def bar(lines: Lines, measure: Measure, value: float) -> str:
    """Describe whether MuFuRU's mean reaches the bar."""
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
        values = {name: runs.plain(runs.setting(record, name)) for name in runs.differing(base[0], record)}
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
    how = measure.compared[0]
    return Table(f"{caption}. Changes: {how}; a {sign} one is for the better", head, tuple(rows))


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


def curve_picture(name: str, rows: plots.Groups, metric: str, looks: Mapping[str, Look], caption: str) -> Picture:
    """Return learning curves: a row of figures for each title, of which a single one may be empty."""
    by = plots.axis_of([record for lines in rows.values() for records in lines.values() for record in records])
    titles = f", with {' and '.join(rows)}," if any(rows) else ""
    alt = f"Training loss and validation {metric} by {by}{titles} for {', '.join(looks)}"
    return Picture(name, lambda: plots.curves(rows, metric, looks, by), alt, caption)


def with_curves(lines: Lines) -> dict[str, list[Record]]:
    """Return the runs that have a learning curve."""
    return {name: kept for name, some in lines.items() if (kept := [record for record in some if record.curve])}


def learning(name: str, parts: Mapping[str, tuple[str, Lines]], measure: Measure) -> list[Block]:
    """Return the learning curves of each part, by the part's name: its title, and its lines."""
    blocks: list[Block] = []
    for part, (title, lines) in parts.items():
        curved = with_curves(lines)
        # variants share the cell of the line with the plain name, and get looks of their own
        cells = {line: "" if line.endswith(")") else runs.cell_of(records[0]) for line, records in curved.items()}
        looks = {line: figures.look(cell, place) for place, (line, cell) in enumerate(cells.items())}
        caption = (
            f"{title}: mean over the seeds, and the middle half of the runs as a shade. Where runs end at different "
            "times, the mean is over those that go on. The first tenth of a curve may lie outside of the figure."
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


def settings(groups: Mapping[str, Runs], caption: str) -> Table:
    """Return every setting of each group of runs; where its runs differ, all values."""
    return _values({name: list(map(_taken, records)) for name, records in groups.items()}, caption, "setting")


def _taken(record: Record) -> dict[str, Any]:
    """Return the settings without options that the cell lacks: a record has a value for them."""
    layer = record.config.get("cell")
    if not isinstance(layer, dict):
        return record.config
    own = {name: value for name, value in layer.items() if not runs.is_lacking(record, f"cell.{name}")}
    return record.config | {"cell": own}


def environment(records: Runs) -> Table:
    """Return versions, commit and machine."""
    made_with = [{key: value for key, value in r.environment.items() if key != "command"} for r in records]
    return _values({"value": made_with}, "Versions, commit and machine. Where runs differ, all values", "made with")


def _values(groups: Mapping[str, list[dict[str, Any]]], caption: str, title: str) -> Table:
    """Return a row for each dotted name, with all its values in each group."""
    named = [list(map(flat, members)) for members in groups.values()]
    # a file of records has lost the order of the settings
    names = sorted({name for members in named for member in members for name in member})
    rows = ((name, *(listed(m[name] for m in members if name in m) for members in named)) for name in names)
    return Table(caption, (title, *groups), tuple(rows), wordy=True)


def commands(records: Runs) -> list[str]:
    """Return the different command lines, each once."""
    every = [r.environment["command"] for r in records if r.environment.get("command")]
    return sorted({shlex.join(c) if isinstance(c, list) else str(c) for c in every})


def listed(values: Iterable[Any]) -> str:
    """Write all different values, in order; whole numbers without gaps as a range."""
    different = {json.dumps(value): value for value in values}
    order = sorted(
        different.values(), key=lambda v: (isinstance(v, str), v if isinstance(v, int | float) else 0, str(v))
    )
    if len(order) > 2 and all(type(v) is int for v in order) and order[-1] - order[0] == len(order) - 1:
        return f"{order[0]} to {order[-1]}"
    if len(order) > MANY and any(isinstance(v, list) for v in order):
        return f"{len(order)} different"
    return (" · " if any(isinstance(v, list) for v in order) else ", ").join(map(runs.plain, order)) or MISSING
