"""Which operations a trained MuFuRU uses at which kind of token: heat map and table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from mufuru.experiments.report import tables, weights
from mufuru.experiments.report.figures import curves, operations
from mufuru.experiments.report.page import Block, Folded, Picture
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.tables import Table
from mufuru.experiments.report.weights import Weights


def blocks(name: str, panels: Mapping[str, Runs], where: str) -> list[Block]:
    """One heat map for each title, of runs that differ in their seed alone, and their numbers as tables."""
    found = {title: mean for title, records in panels.items() if (mean := weights.mean(records))}
    if not found:
        return ["None of these runs recorded which operations its units use."]
    titles = {f"{title}, {_of(mean)}": mean for title, mean in found.items()}
    rows = {mean.tokens for mean in found.values()}
    # panels share their rows: those that have others get figures of their own
    pictures = [titles] if len(rows) == 1 else [{title: mean} for title, mean in titles.items()]
    shown: list[Block] = []
    for place, some in enumerate(pictures):
        shown.append(_picture(name if place == 0 else f"{name}-{place + 1}", some, where))
    for title, mean in found.items():
        shown.append(Folded(f"{title}: the weights as a table", _table(mean, panels[title], f"{title}: mean weight")))
        if spread := _spread(mean, panels[title], title):
            shown.append(Folded(f"{title}: the spread within a class", spread))
    return shown


def over_training(name: str, panels: Mapping[str, Runs]) -> list[Block]:
    """How the use of the operations went while the runs learned; nothing where no curve holds it."""
    found = {title: records for title, records in panels.items() if curves.operations_of(records)}
    if not found:
        return []
    by = curves.axis_of([record for records in found.values() for record in records])
    names = ", ".join(curves.operations_of([record for records in found.values() for record in records]))
    return [
        Picture(
            name,
            lambda: curves.draw_use(found, by),
            f"Mean weight of {names} by {by}, for {', '.join(found)}",
            "Use of the operations while it learns: mean weight over units and a part of the validation data, first "
            "layer. Mean over the seeds, and the middle half of the runs as a shade.",
        )
    ]


def _of(mean: Weights) -> str:
    return "one run" if mean.n == 1 else f"mean of {mean.n} runs"


def _picture(name: str, panels: dict[str, Weights], where: str) -> Picture:
    first = next(iter(panels.values()))
    shape = f"{len(first.tokens)} kinds of tokens by {len(first.operations)} operations"
    caption = f"Average weight of every operation, over units and {where}; the highest of each row is framed."
    return Picture(
        name,
        lambda: operations.draw(panels),
        f"Heat map of {shape}; the numbers are in the next table",
        caption,
    )


def _table(mean: Weights, records: Runs, caption: str) -> Table:
    """With how often a class was read: all runs read the same data."""
    caption += " and its standard deviation between runs" if mean.n > 1 else ""
    plain = weights.table(mean, caption)
    seen = next((found for record in records if (found := weights.counts(record))), {})
    rows = tuple((row[0], f"{seen[row[0]]:,}" if row[0] in seen else tables.MISSING, *row[1:]) for row in plain.rows)
    return Table(caption, ("read", "times", *plain.head[1:]), rows)


def _spread(mean: Weights, records: Runs, title: str) -> Table | None:
    """How much the words of one class differ; None where the runs did not record it."""
    found = [classes for record in records if (classes := record.result.get("inspection", {}).get("classes"))]
    rows = []
    for name in mean.tokens:
        here = [classes[name]["sd"] for classes in found if name in classes]
        if here:
            cells = [f"{statistics.fmean(spread[op] for spread in here):.2f}" for op in mean.operations]
            rows.append((name, *cells))
    caption = f"{title}: standard deviation of the weight between the tokens of a class, mean over the runs"
    return Table(caption, ("read", *mean.operations), tuple(rows)) if rows else None
