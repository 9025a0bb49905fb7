"""Maps in a report, drawn from the saved models: the leading operation of every unit at every token of an example."""

from functools import partial
from pathlib import Path

import torch

import mufuru
from mufuru.experiments import tasks
from mufuru.experiments.data import DataError
from mufuru.experiments.engine import RunError, load_model, read_config
from mufuru.experiments.record import RecordError, RunFolder, endings, read_examples
from mufuru.experiments.report import figures, overview, runs
from mufuru.experiments.report.experiment import SETTINGS
from mufuru.experiments.report.page import Block, Page, Picture, Section
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.settings import SettingError

FEW = 20
"""Tokens that can be read at a glance: of the examples the longest that has no more is shown."""


def complete(page: Page, records: Runs) -> Page:
    """Return a page that begins with the best result, if its runs can be compared, and has the maps of `maps` behind
    the results."""
    (group, *others), data = {record.group for record in records}, overview.by_data(records)
    alike = group and not others and len(data) == 1 and overview.measured(records)[1]
    lead = f"{overview.headline(records)} {page.lead}" if alike else page.lead
    sections, more = page.sections, maps(records)
    place = next((k for k, one in enumerate(sections) if one.title == SETTINGS), len(sections) - 1)
    return Page(page.title, lead, (*sections[:place], *([more] if more.blocks else []), *sections[place:]))


def maps(records: Runs) -> Section:
    """Return a map for each task and data set: of the MuFuRU with the best validation metric, where its folder has the
    weights."""
    blocks: list[Block] = []
    folders = [record.folder for record in records if record.folder]
    names = dict(zip(folders, endings(folders), strict=True))
    for some in overview.by_data(records):
        task = some[0].task
        key, higher = overview.own_metric(task)
        scores = {
            record.folder: value if higher else -value
            for record in some
            if record.folder and (value := runs.metric(record, "valid", key)) is not None
            if runs.cell_of(record) == "mufuru" and any(map(Path.exists, RunFolder(record.folder).weights))
        }
        if scores and task in tasks.KINDS and tasks.KINDS[task].reader:
            best = max(scores, key=lambda folder: scores[folder])
            blocks += unit_map(f"units-{len(blocks) + 1}", best, names[best])
    return Section("Which operation led in every unit", tuple(blocks))


def unit_map(name: str, folder: Path, called: str) -> list[Block]:
    """Return the map of an example that the run has kept, or else of its task; a sentence where it cannot be made."""
    try:
        kind, config = read_config(folder)
        reader = tasks.hook(kind, "reader", folder)(load_model(folder), config)
        read = [reader.steps(text) for text in read_examples(RunFolder(folder).examples) or reader.examples]
        if not read:
            return []
        steps = max(read, key=lambda one: len(one.tokens) if len(one.tokens) <= FEW else -len(one.tokens))
        with torch.no_grad(), mufuru.tracing(reader.layer.rnn) as traces:
            reader.outputs(steps)
    except (RunError, RecordError, DataError, SettingError) as error:
        return [f"There is no map of {called}: {error}"]
    trace, count = traces[""][0], len(steps.tokens)
    what, names = (
        ("step", [str(1 + step) for step in range(count)]) if reader.takes == "series" else ("token", steps.tokens)
    )
    alt = f"Map of {trace.outputs().size(-1)} units by {count} {what}s, in the colours of their leading operations"
    caption = (
        f"{called} ({kind}) reads an example. A row is a unit of the first layer, a column a {what}; the colour is the "
        "operation with the most weight there, the paler the less. mufuru explore shows the sums behind it."
    )
    draw = figures.style()(partial(mufuru.plot.units, trace, names))
    return [Picture(name, draw, alt, caption)]
