"""Results of language models and classifiers, line by line: runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping

from mufuru.experiments.record import Record
from mufuru.experiments.report import models, provenance, runs
from mufuru.experiments.report.figures import curves, style
from mufuru.experiments.report.figures import models as models_figure
from mufuru.experiments.report.models import Measure
from mufuru.experiments.report.page import Block, Picture
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.tables import MISSING, Table

Lines = Mapping[str, Runs]
"""Name -> runs that differ in their seed alone; none of them is empty."""
INTERVAL = "mean over the seeds and, in brackets, its 95 % interval (Student's t; n/a for one run)"


def table(lines: Lines, caption: str, against: str = "", published: Mapping[str, float] | None = None) -> Table:
    """A row for each line: mean, spread and every run on the test data, the mean on the validation data; beside them
    the difference to one of the lines, seed by seed, and the paper's numbers."""
    measure = measure_of(lines)
    against = against if against in lines and len(lines) > 1 else ""
    head: tuple[str, ...] = (
        "model",
        "parameters",
        f"test {measure.name}",
        "deviation",
        "every run",
        f"validation {measure.name}",
    )
    head += (f"minus {against}",) if against else ()
    head += ("the paper",) if published else ()
    rows = []
    for name, records in lines.items():
        row = (name, *_row(records, measure))
        if against:
            same = name == against
            row += (MISSING if same else measure.change(models.difference(records, lines[against])),)
        if published:
            row += (f"{published[name]:.1f}" if name in published else MISSING,)
        rows.append(row)
    return Table(caption, head, tuple(rows))


def _row(records: Runs, measure: Measure) -> tuple[str, ...]:
    found = models.summary(records)
    every = MISSING if found is None else ", ".join(map(measure.value, found.values))
    sizes = ", ".join(f"{size:,}" for size in sorted({record.result["parameters"] for record in records}))
    valid = models.summary(records, "valid")
    return sizes, measure.interval(found), measure.deviation(found), every, measure.interval(valid)


def measure_of(lines: Lines) -> Measure:
    return models.measure_of([record for records in lines.values() for record in records])


def dots(name: str, lines: Lines, published: Mapping[str, float] | None = None) -> Picture:
    """The same lines as a figure."""
    measure = measure_of(lines)
    caption = f"Test {measure.name}: mean (mark), 95 % interval (bar) and every run (faint marks)."
    caption += " Upright stroke: the paper." if published else ""
    alt = f"Dot plot of test {measure.name} of {', '.join(lines)}; the numbers are in the next table"
    return Picture(name, lambda: models_figure.draw(lines, measure, published or {}), alt, caption)


def bar(lines: Lines, name: str, value: float) -> str:
    """Does a model's mean come to what we hold ourselves to?"""
    found, measure = models.summary(lines.get(name, ())), measure_of(lines)
    if found is None:
        return f"No run of {name} is finished."
    state = "met" if measure.better(found.mean, value) else "missed"
    return f"{name} {measure.interval(found)}: the bar of {value:g} is {state}."


def changes(base: Runs, changed: Runs, names: Mapping[str, str]) -> dict[str, list[Record]]:
    """Runs by the settings in which they differ from a base, in words; the base first, with the seeds that they have.

    `names` says how settings are called and in which order they come; one that is not there goes by its own name.
    """
    found: dict[str, list[Record]] = {}
    for record in sorted(changed, key=lambda record: _order(base[0], record, names)):
        words = ", ".join(_said(name, record, names) for name in differing(base[0], record))
        found.setdefault(words, []).append(record)
    seeds = {runs.setting(record, "seed") for record in changed}
    same = [record for record in base if runs.setting(record, "seed") in seeds]
    return {"nothing": same or list(base), **found}


def differing(base: Record, record: Record) -> list[str]:
    """The settings that are not the base's, the seed aside."""
    one, other = runs.flat(base.config), runs.flat(record.config)
    return [name for name in sorted(one.keys() | other.keys()) if name != "seed" and one.get(name) != other.get(name)]


def _order(base: Record, record: Record, names: Mapping[str, str]) -> tuple[int, bool, float, int]:
    """By the first setting, then by its value, None last; one change comes before two."""
    known = [name for name in differing(base, record) if name in names]
    if not known:
        return len(names), False, 0.0, 0
    value = runs.setting(record, known[0])
    return (
        list(names).index(known[0]),
        value is None,
        float(value) if isinstance(value, int | float) else 0.0,
        len(known),
    )


def _said(name: str, record: Record, names: Mapping[str, str]) -> str:
    return f"{names.get(name, name)} {provenance.plain(runs.setting(record, name))}"


def change_table(lines: Lines, caption: str) -> Table:
    """What each change is worth: the first line is what is changed."""
    measure, base = measure_of(lines), next(iter(lines.values()))
    head = ("changed", "runs", f"test {measure.name}", "change", f"validation {measure.name}", "change ")
    rows = []
    for place, (name, records) in enumerate(lines.items()):
        row = [name, str(len(records))]
        for split in ("test", "valid"):
            difference = models.difference(records, base, split) if place else None
            row += [measure.interval(models.summary(records, split)), measure.change(difference)]
        rows.append(tuple(row))
    return Table(caption, head, tuple(rows))


def choice_tables(
    base: Lines,
    changed: Lines,
    names: Mapping[str, str],
    missing: str,
    setting: str = "in the paper's setting, one thing changed at a time",
) -> list[Block]:
    """What each change of a model's base is worth, a table for each model; `missing` says which runs a base needs, and
    `setting` what the base is."""
    blocks: list[Block] = []
    for model, records in changed.items():
        if model in base:
            found = changes(base[model], records, names)
            sign = "negative" if measure_of(found).lower_is_better else "positive"
            caption = f"{model} {setting}. A {sign} change is for the better"
            blocks.append(change_table(found, caption))
        elif missing not in blocks:
            blocks.append(missing)
    return blocks


def learning(name: str, parts: Mapping[str, tuple[str, Lines]]) -> list[Block]:
    """Learning curves of each part, by the part's name: what it is called, and its lines."""
    found: list[Block] = []
    for part, (title, lines) in parts.items():
        curved = {line: kept for line, some in lines.items() if (kept := [record for record in some if record.curve])}
        if curved:
            found.append(_curves(f"{name}-{part}", title, curved))
    return found or ["The records hold no learning curves."]


def _curves(name: str, title: str, lines: Lines) -> Picture:
    measure, shown = measure_of(lines), list(lines)
    by = curves.axis_of([record for records in lines.values() for record in records])
    looks = {line: style.look_of(line, str(models.cell_of(lines[line][0])), place) for place, line in enumerate(shown)}
    caption = (
        f"{title}: mean over the seeds, and the middle half of the runs as a shade. Where runs end at different times, "
        "the mean is over those that go on."
    )
    alt = f"Training loss and validation {measure.key} by {by} for {', '.join(shown)}"
    return Picture(name, lambda: curves.draw({"": lines}, measure.key, looks, by), alt, caption)


def no_gain(tried: Mapping[str, Lines]) -> list[Block]:
    """The changes that the validation data does not thank for, by model: of each, the first line is what is changed."""
    rows = []
    for model, lines in tried.items():
        measure, (base, *changed) = measure_of(lines), lines.items()
        for name, records in changed:
            valid = models.difference(records, base[1], "valid")
            if valid is not None and not (valid.mean < 0 if measure.lower_is_better else valid.mean > 0):
                row = (model, name, str(len(records)), measure.change(valid))
                rows.append((*row, measure.change(models.difference(records, base[1]))))
    head = ("model", "changed", "runs", "validation, change", "test, change")
    return [Table("Tried, and no better on the validation data", head, tuple(rows))] if rows else []
