"""The parts of the report on logic: each a function from the runs of one part to paragraphs, tables and figures."""

from __future__ import annotations

from collections.abc import Callable

from mufuru.experiments.report import ablation as fewer
from mufuru.experiments.report import choices, claims, paper, provenance, runs, tables, weights
from mufuru.experiments.report.claims import SIZE, SOLVED
from mufuru.experiments.report.figures import ablation as ablation_figure
from mufuru.experiments.report.figures import accuracy, curves, operations, style
from mufuru.experiments.report.figures import choices as choices_figure
from mufuru.experiments.report.page import Block, Folded, Picture
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import Summary
from mufuru.experiments.report.tables import Table

INTERVAL = "mean over the seeds and, in brackets, its 95 % interval (Student's t; n/a for one run)"
GATES = ("min_gates", "max_gates", "test_min_gates", "test_max_gates")
CURVES_AT = (8, 64)
"""Hidden sizes whose learning curves are shown, where they ran."""


def about(records: Runs) -> str:
    """The experiment in two sentences."""
    gates = {name: provenance.listed(runs.values(records, name)) for name in GATES}
    return (
        f"Recurrent layers learn whether a formula of {gates['min_gates']} to {gates['max_gates']} gates is true, and "
        f"are tested on unseen ones of {gates['test_min_gates']} to {gates['test_max_gates']}. "
        f"{tables.count(len(records), 'finished run')} of {', '.join(map(runs.name, runs.cells(records)))}."
    )


def by_size(records: Runs, caption: str, cell: Callable[[Runs], str], lead: bool = False) -> Table:
    """A row for each hidden size, a column for each cell; asked for a lead, one more where both cells ran."""
    names = runs.cells(records)
    lead = lead and {"mufuru", "gru"} <= set(names)
    caption += ". Last column: the difference, seed by seed" if lead else ""
    rows = []
    for size in runs.values(records, "cell.hidden_size"):
        here = {name: claims.at(records, name, size) for name in names}
        ahead = [tables.gain(runs.difference(here["mufuru"], here["gru"]))] if lead else []
        rows.append((str(size), *(cell(some) for some in here.values()), *ahead))
    return Table(caption, ("hidden size", *map(runs.name, names), *(["MuFuRU − GRU"] if lead else [])), tuple(rows))


def sizes(records: Runs, name: str) -> list[Block]:
    """Accuracy by hidden size: sentence, figure and tables."""
    alt = "Line plot of test accuracy against hidden size, a line for each of " + ", ".join(
        map(runs.name, runs.cells(records))
    )
    return [
        at_eight(records),
        Picture(
            f"accuracy-{name}",
            lambda: accuracy.draw(records),
            alt + "; the numbers are in the next table",
            "Test accuracy against hidden size: mean (line), its 95 % interval (bar) and every run (faint marks).",
        ),
        by_size(records, f"Test accuracy: {INTERVAL}", _accuracy, lead=True),
        by_size(records, f"Runs with a test accuracy of {SOLVED} or more", _share),
        by_size(records, f"Training accuracy minus test accuracy, run by run: {INTERVAL}", _gap),
    ]


def _accuracy(records: Runs) -> str:
    return tables.accuracy(runs.summary(records))


def _share(records: Runs) -> str:
    return tables.share(runs.summary(records), SOLVED)


def _gap(records: Runs) -> str:
    return tables.gain(claims.gap(records))


def at_eight(records: Runs) -> str:
    """The size of which the paper speaks, in a sentence."""
    found = {cell: s for cell in runs.cells(records) if (s := runs.summary(claims.at(records, cell, SIZE)))}
    if not found:
        return f"There are no runs with {SIZE} units, of which the paper speaks."
    parts = [f"{runs.name(cell)} {_told(summary)}" for cell, summary in found.items()]
    sentence = f"Mean test accuracy with {SIZE} units: {', '.join(parts)}."
    ahead = runs.difference(claims.at(records, "mufuru", SIZE), claims.at(records, "gru", SIZE))
    return sentence + (f" MuFuRU minus GRU, seed by seed: {tables.gain(ahead)}." if ahead else "")


def _told(summary: Summary) -> str:
    return f"{tables.accuracy(summary)[:-1]}; {tables.count(summary.n, 'run')})"


def every_size(records: Runs, cell: str) -> str:
    """Is the mean test accuracy high enough at every size from eight up? With the lowest."""
    chosen = {
        size: s
        for size in claims.sizes(records, cell)
        if size >= SIZE and (s := runs.summary(claims.at(records, cell, size)))
    }
    if not chosen:
        return ""
    low = min(chosen, key=lambda size: chosen[size].mean)
    under = [str(size) for size, summary in chosen.items() if not summary.reaches(SOLVED)]
    state = f"below {SOLVED} with {', '.join(under)} units" if under else f"at least {SOLVED} at every size"
    lowest = f"the lowest mean is {tables.accuracy(chosen[low])}, with {low}"
    return f"{runs.name(cell)} from {SIZE} units up: {state}; {lowest}."


def operation_weights(records: Runs) -> list[Block]:
    """The heat map, and its numbers as a table."""
    size = SIZE if claims.at(records, "mufuru", SIZE) else max(claims.sizes(records, "mufuru"), default=SIZE)
    trained = claims.at(records, "mufuru", size)
    found, one = weights.mean(trained), weights.chosen(trained)
    if found is None or one is None:
        return ["None of these runs recorded which operations its units use."]
    units = tables.count(size, "unit")
    panels = {f"mean of {found.n} runs, {units}" if found.n > 1 else f"one run, {units}": found}
    if found.n > 1 and (single := weights.mean([one])):
        panels[f"one of them, seed {runs.setting(one, 'seed')}"] = single
    about = "Average weight of every operation at a token, over units and test formulae; the highest is framed."
    if len(panels) > 1:
        about += " The single run is the one with the best validation accuracy."
    shape = f"{len(found.tokens)} tokens by {len(found.operations)} operations"
    alt = f"Heat map of {shape}; the numbers are in the next table"
    caption = "Average weight" + (" and its standard deviation between runs" if found.n > 1 else "") + f", {units}"
    return [
        Picture("operations", lambda: operations.draw(panels), alt, about),
        Folded("The weights as a table", weights.table(found, caption)),
    ]


def learning(records: Runs) -> list[Block]:
    """Learning curves at a small and a large size."""
    curved = [record for record in records if record.curve]
    there = runs.values(curved, "cell.hidden_size")
    chosen = [size for size in CURVES_AT if size in there] or there[:1]
    if not chosen:
        return ["The records hold no learning curves: only run folders do."]
    rows = {
        f"{size} units": {runs.name(c): some for c in runs.cells(curved) if (some := claims.at(curved, c, size))}
        for size in chosen
    }
    looks = {runs.name(cell): style.look(cell, place) for place, cell in enumerate(runs.cells(curved))}
    caption = (
        "Mean over the seeds, and the middle half of the runs as a shade. Validation formulae are as long as those of "
        "training, test formulae are longer."
    )
    alt = f"Training loss and validation accuracy by epoch, with {' and '.join(rows)}, for {', '.join(looks)}"
    return [Picture("curves", lambda: curves.draw(rows, "accuracy", looks), alt, caption)]


def open_choices(records: Runs) -> list[Block]:
    """What each choice that the paper leaves open is worth."""
    blocks: list[Block] = [_best(records, size) for size in runs.values(records, "cell.hidden_size")]
    blocks.append(
        Picture(
            "open",
            lambda: choices_figure.draw(records),
            "Heat maps of mean test accuracy by learning rate and batch size, one for each size, cell and "
            "initialisation; the numbers are in the next tables",
            "Mean test accuracy by learning rate (down), batch size (across) and first values of the weights.",
        )
    )
    for size in runs.values(records, "cell.hidden_size"):
        table = choices.table(records, size, f"Test accuracy with {size} units: {INTERVAL}. Last column: seed by seed")
        blocks.append(Folded(f"All choices with {size} units", table))
    return blocks


def _best(records: Runs, size: int) -> str:
    found = {cell: best for cell in runs.cells(records) if (best := choices.best(records, cell, size))}
    parts = [f"{runs.name(c)} {tables.accuracy(runs.summary(some))} ({name})" for c, (name, some) in found.items()]
    return f"Best choice of each cell with {size} units: {'; '.join(parts)}." + _leads(records, size)


def _leads(records: Runs, size: int) -> str:
    """In how many choices one cell is surely ahead."""
    found = [lead.interval() for lead in choices.leads(runs.where(records, cell__hidden_size=size)) if lead.n > 1]
    if not found:
        return ""
    ahead, behind = sum(i is not None and i[0] > 0 for i in found), sum(i is not None and i[1] < 0 for i in found)
    return (
        f" Of {len(found)} choices, the 95 % interval of MuFuRU minus GRU is above 0 in {ahead}, below 0 in {behind} "
        f"and holds 0 in {len(found) - ahead - behind}."
    )


def ablation(records: Runs) -> list[Block]:
    """Which operation matters."""
    alt = "Dot plot of test accuracy for each set of operations; the numbers are in the next table"
    caption = (
        "Test accuracy by the operations the unit has: mean (dot), 95 % interval (bar), every run (faint dots). "
        "Broken line: mean of all seven."
    )
    there = runs.values(records, "cell.hidden_size")
    blocks: list[Block] = [told for size in there if (told := _matters(records, size))]
    blocks.append(Picture("ablation", lambda: ablation_figure.draw(records), alt, caption))
    for size in there:
        about = f"Test accuracy with {size} units: {INTERVAL}. Last column: seed by seed"
        blocks.append(fewer.table(records, size, SOLVED, about))
    return blocks


def _matters(records: Runs, size: int) -> str:
    """The operation whose absence costs most, and the one that adds most to keep and replace."""
    here = runs.where(records, cell__hidden_size=size)
    lost = {op: s for op in paper.OPERATIONS if (s := fewer.change(here, f"without {op}"))}
    gained = {
        op: s
        for op in paper.OPERATIONS
        if (s := runs.difference(fewer.of(here, f"{fewer.GATED} with {op}"), fewer.of(here, fewer.GATED)))
    }
    parts = []
    if lost:
        worst = min(lost, key=lambda op: lost[op].mean)
        parts.append(f"leaving out {worst} changes test accuracy most for the worse, {tables.gain(lost[worst])}")
    if gained:
        best = max(gained, key=lambda op: gained[op].mean)
        parts.append(f"{best} adds most to keep and replace, {tables.gain(gained[best])}")
    return f"With {size} units {'; '.join(parts)}." if parts else ""
