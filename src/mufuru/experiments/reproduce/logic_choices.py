"""Formulae: the choices that the paper leaves open, fewer operations, and other features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import inspection, plots, runs
from mufuru.experiments.report.inspection import BELOW
from mufuru.experiments.report.measure import Difference
from mufuru.experiments.report.page import Block, Folded, Picture, Table
from mufuru.experiments.report.runs import Runs, of_part
from mufuru.experiments.reproduce.logic_runs import (
    GATES,
    GUESSING,
    SETTINGS,
    SHARE,
    SIZE,
    SOLVED,
    at,
    mean_accuracy,
    pivot,
    reached,
    share,
    sizes,
)
from mufuru.experiments.tasks.logic.config import PRESETS
from mufuru.experiments.tasks.logic.formulae import TOKENS
from mufuru.ops import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Choice = tuple[float, int, str]
"""Learning rate, batch size, and first values of the weights."""


def choice(record: Record) -> Choice:
    start = str(runs.setting(record, "cell.initialisation") or "default")
    start = f"{start} ±{runs.setting(record, 'cell.initial_scale'):g}" if start == "uniform" else start
    return runs.setting(record, "training.learning_rate"), runs.setting(record, "training.batch_size"), start


def open_choices(records: Runs) -> list[Block]:
    """Return the effect of each choice that the paper leaves open."""
    here = of_part(records, "open")
    alt = (
        "Heat maps of mean test accuracy by learning rate and batch size, one for each size, cell and "
        "initialisation; the numbers are in the next tables"
    )
    caption = "Mean test accuracy by learning rate (down), batch size (across) and first values of the weights."
    blocks: list[Block] = [best_choice(here, size) for size in sizes(here)]
    blocks.append(Picture("open", lambda: choice_maps(here), alt, caption))
    return blocks + [Folded(f"All choices with {size} units", choice_table(here, size)) for size in sizes(here)]


def best_choice(records: Runs, size: int) -> str:
    """Describe the best choice of each cell, and in how many choices one cell is surely ahead."""
    parts, by_choice = [], runs.grouped(runs.where(records, cell__hidden_size=size), choice)
    for cell in runs.cells(records):
        every = {c: s for c, some in by_choice.items() if (s := SHARE.summary(runs.where(some, cell__cell=cell)))}
        if every:
            rate, batch, start = best = max(every, key=lambda c: every[c].mean)
            words = f"rate {rate:g}, batches of {batch}, {start} first values"
            parts.append(f"{runs.name(cell)} {SHARE.interval(every[best])} ({words})")
    pairs = [[runs.where(some, cell__cell=cell) for cell in ("mufuru", "gru")] for some in by_choice.values()]
    leads = [interval for one, other in pairs if (d := SHARE.difference(one, other)) and (interval := d.interval())]
    ahead, behind = sum(low > 0 for low, _ in leads), sum(high < 0 for _, high in leads)
    counts = (
        f" Of {len(leads)} choices, the 95 % interval of MuFuRU minus GRU is above 0 in {ahead}, below 0 in {behind} "
        f"and holds 0 in {len(leads) - ahead - behind}."
    )
    here = {cell: runs.where(records, cell__hidden_size=size, cell__cell=cell) for cell in runs.cells(records)}
    shares = [f"{len(some)} runs of {runs.name(cell)} {share(some)}" for cell, some in here.items() if some]
    solved = f" Over all choices, {SOLVED} is reached by these shares: of {', of '.join(shares)}."
    return f"Best choice of each cell with {size} units: {'; '.join(parts)}.{counts if leads else ''}{solved}"


def choice_table(records: Runs, size: int) -> Table:
    """Return the mean test accuracy of every cell for each choice."""
    by_choice = sorted(runs.grouped(runs.where(records, cell__hidden_size=size), choice).items())
    rows = {(f"{rate:g}", str(batch), start): some for (rate, batch, start), some in by_choice}
    head = ("learning rate", "batch size", "first values")
    return pivot(rows, head, f"Test accuracy with {size} units: {SHARE.in_words}", mean_accuracy, "seed by seed")


def choice_maps(records: Runs) -> Figure:
    """Draw a row of heat maps for each size and cell, a column for the first values."""
    every = runs.grouped(records, lambda r: (r.config["cell"]["hidden_size"], r.config["cell"]["cell"], *choice(r)))
    rates, batches = runs.values(records, "training.learning_rate"), runs.values(records, "training.batch_size")
    columns = sorted({key[-1] for key in every})

    def mean(*key: Any) -> float:
        summary = SHARE.summary(every.get(key, ()))
        return summary.mean if summary else math.nan

    rows = [
        {
            f"{runs.name(cell)}, {size} units" + (f", {start}" if len(columns) > 1 else ""): [
                [mean(size, cell, rate, batch, start) for batch in batches] for rate in rates
            ]
            for start in columns
        }
        for size in sizes(records)
        for cell in runs.cells(records)
    ]
    down, across = ("learning rate", [f"{rate:g}" for rate in rates]), ("batch size", list(map(str, batches)))
    return plots.grid(rows, down, across, GUESSING, 1)


ALL, GATED = "all seven", "keep and replace"
VARIANTS = {
    frozenset(PAPER): ALL,
    **{frozenset(PAPER) - {op}: f"without {op}" for op in PAPER},
    frozenset(GATES): GATED,
    **{frozenset((*GATES, op)): f"{GATED} with {op}" for op in PAPER if op not in GATES},
}
"""Names of sets of operations, in the order of the table."""


def variant(record: Record) -> str:
    """Return a name for the operations that a unit has."""
    if (cell := runs.cell_of(record)) != "mufuru":
        return runs.name(cell)
    operations = runs.setting(record, "cell.ops") or PAPER
    return VARIANTS.get(frozenset(operations), ", ".join(sorted(operations)))


def variants(records: Runs) -> dict[str, list[Record]]:
    every, order = runs.grouped(records, variant), list(VARIANTS.values())
    return {name: every[name] for name in [*(n for n in order if n in every), *sorted(every.keys() - set(order))]}


def ablation(records: Runs) -> list[Block]:
    """Return which operation matters."""
    here = of_part(records, "ablation")
    alt = f"Dot plot of test accuracy for each set of operations; {BELOW}"
    caption = (
        "Test accuracy by the operations the unit has: mean (dot), 95 % interval (bar), every run (faint dots). "
        "Broken line: mean of all seven."
    )
    by_units = {size: variants(runs.where(here, cell__hidden_size=size)) for size in sizes(here)}
    panels = {
        f"{size} units": {name: s for name, some in lines.items() if (s := SHARE.summary(some))}
        for size, lines in by_units.items()
    }
    blocks: list[Block] = [sentence for size, lines in by_units.items() if (sentence := _matters(lines, size))]
    blocks.append(Picture("ablation", lambda: plots.variants(panels, list(variants(here)), ALL, SHARE), alt, caption))
    head = ("operations", "test accuracy", f"runs with {SOLVED} or more", "change from all seven")
    for size, lines in by_units.items():
        rows = []
        for name, some in lines.items():
            summary, change = SHARE.summary(some), None if name == ALL else SHARE.difference(some, lines.get(ALL, ()))
            rows.append((name, SHARE.interval(summary), reached(summary), SHARE.change(change)))
        words = f"Test accuracy with {size} units: {SHARE.in_words}. Last column: seed by seed"
        blocks.append(Table(words, head, tuple(rows)))
    return blocks


def _matters(lines: runs.Lines, size: int) -> str:
    """Name the operation whose absence costs most, and the one that adds most to keep and replace."""

    def changes(name: str, base: str) -> dict[str, Difference]:
        every = {op: SHARE.difference(lines.get(f"{name} {op}", ()), lines.get(base, ())) for op in PAPER}
        return {op: change for op, change in every.items() if change}

    lost, gained, parts = changes("without", ALL), changes(f"{GATED} with", GATED), []
    if lost:
        worst = min(lost, key=lambda op: lost[op].mean)
        parts.append(f"leaving out {worst} changes test accuracy most for the worse, {SHARE.change(lost[worst])}")
    if gained:
        best = max(gained, key=lambda op: gained[op].mean)
        parts.append(f"{best} adds most to keep and replace, {SHARE.change(gained[best])}")
    return f"With {size} units {'; '.join(parts)}." if parts else ""


def features(records: Runs) -> list[Block]:
    """Return MuFuRU with the sigmoid features of the authors' code beside the tanh of the paper, seed by seed."""
    here, rows = of_part(records, "features"), []
    groups = {PRESETS[preset].training.learning_rate: group for group, (preset, _) in SETTINGS.items()}
    blocks: list[Block] = []
    for number, rate in enumerate(runs.values(here, "training.learning_rate"), 1):
        sigmoid = runs.where(here, training__learning_rate=rate)
        tanh = runs.where(of_part(records, groups.get(rate, "")), cell__cell="mufuru")
        for size in sizes(sigmoid):
            pair = at(sigmoid, "mufuru", size), at(tanh, "mufuru", size)
            change = SHARE.change(SHARE.difference(*pair))
            rows.append((f"{rate:g}", str(size), *map(mean_accuracy, pair), change, *map(share, pair)))
        means = {
            name: inspection.mean(at(some, "mufuru"), TOKENS) for name, some in (("sigmoid", sigmoid), ("tanh", tanh))
        }
        panels = {f"{name} features, rate {rate:g}": weights for name, weights in means.items() if weights}
        words = (
            f"Average weight of every operation at a token with {SIZE} units: means of the runs; the highest is framed."
        )
        blocks.append(inspection.picture(f"features-{number}", panels, words))
        blocks += [Folded(f"{name}: the weights as a table", inspection.table(w, name)) for name, w in panels.items()]
    head = ("learning rate", "hidden size", "sigmoid", "tanh", "sigmoid − tanh")
    caption = f"Test accuracy by the activation of the features: {SHARE.in_words}. Difference: seed by seed"
    reach = tuple(f"{name}, {SOLVED} or more" for name in ("sigmoid", "tanh"))
    return [Table(caption, (*head, *reach), tuple(rows)), *blocks]
