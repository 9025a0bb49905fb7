"""Formulae: the choices that the paper leaves open, fewer operations, other features, and probes of trained models."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import inspection, plots, results, runs
from mufuru.experiments.report.inspection import BELOW
from mufuru.experiments.report.measure import NOISE, Difference, summarise
from mufuru.experiments.report.page import Block, Folded, Picture, Table, count
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
    side_by_side,
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
    every = runs.grouped(records, variant)
    return {name: every[name] for name in inspection.ordered(sorted(every), tuple(VARIANTS.values()))}


def ablation(records: Runs) -> list[Block]:
    """Return which operation matters."""
    lines = variants(of_part(records, "ablation"))
    alt = f"Dot plot of test accuracy for each set of operations; {BELOW}"
    caption = (
        "Test accuracy by the operations the unit has: mean (dot), 95 % interval (bar), every run (faint dots). "
        "Broken line: mean of all seven."
    )
    panels = {f"{SIZE} units": {name: s for name, some in lines.items() if (s := SHARE.summary(some))}}
    picture = Picture("ablation", lambda: plots.variants(panels, list(lines), ALL, SHARE), alt, caption)
    head = ("operations", "test accuracy", f"runs with {SOLVED} or more", "change from all seven")
    rows = []
    for name, some in lines.items():
        change = None if name == ALL else SHARE.difference(some, lines.get(ALL, ()))
        rows.append((name, mean_accuracy(some), reached(some), SHARE.change(change)))
    words = f"Test accuracy with {SIZE} units: {SHARE.in_words}. Last column: seed by seed"
    return [*filter(None, [_matters(lines)]), picture, Table(words, head, tuple(rows))]


def _matters(lines: runs.Lines) -> str:
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
    return f"With {SIZE} units {'; '.join(parts)}." if parts else ""


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
            rows.append((f"{rate:g}", str(size), *side_by_side(*pair), *map(share, pair)))
        panels = {
            f"{name} features, rate {rate:g}": weights
            for name, some in (("sigmoid", sigmoid), ("tanh", tanh))
            if (weights := inspection.mean(at(some, "mufuru"), TOKENS))
        }
        words = (
            f"Average weight of every operation at a token with {SIZE} units: means of the runs; the highest is framed."
        )
        blocks.append(inspection.picture(f"features-{number}", panels, words))
        blocks += [Folded(f"{name}: the weights as a table", inspection.table(w, name)) for name, w in panels.items()]
    head = ("learning rate", "hidden size", "sigmoid", "tanh", "sigmoid − tanh")
    caption = f"Test accuracy by the activation of the features: {SHARE.in_words}. Difference: seed by seed"
    reach = tuple(f"{name}, {SOLVED} or more" for name in ("sigmoid", "tanh"))
    return [Table(caption, (*head, *reach), tuple(rows)), *blocks]


def probes(records: Runs) -> list[Block]:
    """Return the part probes: formulae without resets, the effect of operations, and the automaton of one unit."""
    here = of_part(records, "probes")
    groups = runs.grouped(here, lambda r: (runs.setting(r, "training.learning_rate"), r.config["cell"]["hidden_size"]))
    rows = []
    for (rate, size), some in sorted(groups.items()):
        for model, every in runs.by_model(some).items():
            lengths = [inspection.longest(record, "without_resets", SOLVED) for record in every]
            counts = [inspection.inspected(record, "without_resets") for record in every]
            means = [sum(one["right"]) / sum(one["sequences"]) for one in counts]
            line = (f"{rate:g}", str(size), model, results.parameters(every), mean_accuracy(every), share(every))
            rows.append((*line, SHARE.interval(summarise(means)), f"{statistics.median(lengths):g}, {max(lengths)}"))
    head = ("learning rate", "units", "model", "parameters", "test accuracy", f"{SOLVED} or more")
    longer = ("XOR and XNOR alone", f"gates at {SOLVED}: median, most")
    caption = (
        f"The test, and 1,000 formulae of 11 to 250 gates that never reset: {SHARE.in_words}. The last column is the "
        f"number of gates up to which formulae that never reset have an accuracy of {SOLVED}"
    )
    return [Table(caption, (*head, *longer), tuple(rows)), *interventions(here), *one_unit(here)]


def interventions(records: Runs) -> list[Block]:
    """Return what forbidding each operation at each token costs the runs of MuFuRU that solve the task."""
    seven = [record for record in records if runs.model(record) == "MuFuRU"]
    solving = [r for r in runs.where(seven, cell__hidden_size=SIZE) if (runs.metric(r) or 0) >= SOLVED - NOISE]
    weights = inspection.mean(solving, TOKENS)
    if weights is None:
        return []
    every = [inspection.inspected(record, "interventions") for record in solving]
    lost = {
        (token, op): statistics.fmean(one["accuracy"] - one["without"][row][column] for one in every)
        for row, token in enumerate(every[0]["tokens"])
        for column, op in enumerate(every[0]["ops"])
    }
    ops = weights.operations
    points = {op: [(weights.row(token)[op], lost[token, op]) for token in TOKENS] for op in ops}
    caption = (
        "Test accuracy lost when an operation is forbidden where a token is read, and nowhere else; in brackets its "
        f"mean weight there: means of {count(len(solving), 'run')} with {SIZE} units that solve the task, at both rates"
    )
    rows = tuple(
        (token, *(f"{SHARE.signed(lost[token, op])} ({weights.row(token)[op]:.2f})" for op in ops)) for token in TOKENS
    )
    alt = f"Scatter plot of accuracy lost against mean weight, for each of {', '.join(ops)}; {BELOW}"
    words = "Test accuracy lost without an operation at a token, against its mean weight there."
    return [Picture("effects", lambda: plots.effects(points), alt, words), Table(caption, ("token", *ops), rows)]


def one_unit(records: Runs) -> list[Block]:
    """Return the automaton of the best MuFuRU with one unit by validation accuracy."""
    single = [r for r in runs.where(records, cell__hidden_size=1) if runs.model(r) == "MuFuRU"]
    best = inspection.chosen(single)
    if best is None:
        return []
    facts = inspection.inspected(best, "automaton")
    caption = (
        f"A whole MuFuRU with one unit (seed {runs.setting(best, 'seed')}, test accuracy "
        f"{SHARE.value(runs.metric(best) or 0)}): the state after a value and a gate, against the state before. Dots "
        f"are the states after a value and at most one gate; the formula is true {facts['true']} the dotted lines."
    )
    alt = "Ten panels, one for each gate, with the next state of the unit for the values 0 and 1"
    return [Picture("automaton", lambda: plots.automaton(facts, TOKENS), alt, caption)]
