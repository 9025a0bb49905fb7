"""The experiment with propositional formulae: its runs, the paper's claims, and its page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from mufuru.experiments.record import Record
from mufuru.experiments.report import claims, figures, inspection, plots, results, runs
from mufuru.experiments.report.claims import AUTHORS, WHICH_GRU
from mufuru.experiments.report.experiment import Headline, View
from mufuru.experiments.report.experiment import Part as Section
from mufuru.experiments.report.inspection import BELOW
from mufuru.experiments.report.measure import ACCURACY, NOISE, Difference, summarise, wilson
from mufuru.experiments.report.page import MISSING, Block, Folded, Picture, Table, count
from mufuru.experiments.report.results import in_words
from mufuru.experiments.report.runs import Runs, of_part
from mufuru.experiments.reproduce.grid import Experiment, Flag, Grid, Setting, with_cell, with_training
from mufuru.experiments.reproduce.logic_claims import CLAIMS, SHARE, SIZE, SOLVED, at, gap, reached, sizes, summaries
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.logic import PRESETS, LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, known_from_last
from mufuru.ops import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS: tuple[CellName, ...] = ("mufuru", "gru", "lstm", "vanilla")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SETTINGS = {"sweep": ("paper", 0), "solved": ("solved", 100)}
"""The groups of figure (a), their presets and first seeds: the paper's setting as far as it is known, and one that
learns. The second was chosen by trying others on seeds below 100: it is measured on seeds that had no part in that."""
LEARNING_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
BATCH_SIZES = (25, 50, 100)
INITIALISATIONS = ("default", "uniform", "orthogonal")
OPEN_SIZES = (8, 64)
OPEN_SEEDS = SHORT_SEEDS = 5
GATES = ("keep", "replace")
"""The operations that a GRU has."""
PROBED = {"paper": (0, (8,)), "solved": (100, (1, 2, 8))}
"""First seeds and sizes of the part probes, by preset: the seeds, and so the formulae, are those of the figures."""
Part = Literal["figures", "open", "ablation", "features", "probes"]


@dataclass(frozen=True)
class LogicGrid(Grid):
    """The runs of the experiment with propositional formulae."""

    part: Part | Literal["all"] = "all"
    """figures: every cell at every size. open: choices that the paper does not state, learning rate, batch size and
    initialisation. ablation: operations left out. features: MuFuRU with the sigmoid features of the authors' code at
    every size, in both settings of the figures. probes: every cell and the GRU of the paper, also on formulae without
    resets, with the effect of every operation."""
    cells: tuple[CellName, ...] = CELLS
    """Cells of the figures."""
    sizes: tuple[int, ...] = SIZES
    """Hidden sizes of the figures and of features."""
    seeds: int = 10
    """Runs of each setting; the open choices have at most 5."""
    short: Flag = False
    """Only GRU and MuFuRU with 8 units and few seeds: two minutes on two cores."""

    def settings(self) -> Iterator[Setting]:
        for cell in ("gru", "mufuru"):
            config = with_cell(PRESETS["short"], cell, hidden_size=8)
            yield Setting("short", f"{cell}-8", "logic", config, range(SHORT_SEEDS))
        for group, (preset, first) in SETTINGS.items():
            seeds = range(first, first + self.seeds)
            for cell, size in product(self.cells, self.sizes):
                config = with_cell(PRESETS[preset], cell, hidden_size=size)
                yield Setting(group, f"{cell}-{size}", "logic", config, seeds, "figures")
            # with the same seeds, so that sigmoid and tanh meet the same formulae
            for size in self.sizes:
                config = with_cell(PRESETS[preset], "mufuru", hidden_size=size, activation="sigmoid")
                what = f"mufuru-{size}-lr{config.training.learning_rate:g}"
                yield Setting("features", what, "logic", config, seeds)
        for what, config, seeds in probed(self.seeds):
            yield Setting("probes", what, "logic", config, seeds)
        for what, config in open_settings():
            yield Setting("open", what, "logic", config, range(min(self.seeds, OPEN_SEEDS)))
        for what, ops in ablations():
            config = with_cell(PRESETS["paper"], "mufuru", hidden_size=8, ops=ops)
            yield Setting("ablation", what, "logic", config, range(self.seeds))

    @staticmethod
    def cost(config: LogicConfig) -> float:
        """Return about how long a run takes, compared with others: the least time of an update, and the work in it."""
        training, size = config.training, config.cell.hidden_size
        updates = training.epochs * config.train_formulae / training.batch_size
        return updates * (1 + training.batch_size * (8 + size + size * size / 64) / 4000)


def probed(seeds: int) -> Iterator[tuple[str, LogicConfig, range]]:
    """Return the settings of the part probes and their seeds, by name: every cell, and the GRU of the paper, whose two
    operations start alike."""
    for preset, (first, units) in PROBED.items():
        for size in units:
            base = replace(with_cell(PRESETS[preset], hidden_size=size), probes=True)
            models: dict[str, LogicConfig] = {cell: with_cell(base, cell) for cell in CELLS}
            models["paper-gru"] = with_cell(base, ops=GATES, keep_bias=0.0)
            for model, config in models.items():
                what = f"{model}-{size}-lr{config.training.learning_rate:g}"
                yield what, config, range(first, first + seeds)


def open_settings() -> Iterator[tuple[str, LogicConfig]]:
    """Return every choice that the paper leaves open, by name."""
    cells: tuple[CellName, ...] = ("mufuru", "gru")
    for cell, size, rate, batch, start in product(cells, OPEN_SIZES, LEARNING_RATES, BATCH_SIZES, INITIALISATIONS):
        config = with_cell(PRESETS["paper"], cell, hidden_size=size, initialisation=start)
        what = f"{cell}-{size}-lr{rate:g}-batch{batch}-{start}"
        yield what, with_training(config, learning_rate=rate, batch_size=batch)


def ablations() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return all operations, all but one, and keep and replace with one more or none, by name."""
    yield "all", PAPER
    yield "keep-replace", GATES
    for op in PAPER:
        yield f"without-{op}", tuple(other for other in PAPER if other != op)
        if op not in GATES:
            yield f"only-{op}", (*GATES, op)


GUESSING = 0.5
"""Half of all formulae are true: every gate has its negation among the gates."""
LEVELS = {"guessing": GUESSING, "last gate alone": known_from_last(1), "last two gates": known_from_last(2)}
"""Accuracies that need little or no memory."""
LEAST_ERROR = 0.5e-3
"""Half a formula of the thousand that a run is tested on."""
CURVES_AT = (8, 64)
"""Hidden sizes whose learning curves are shown, where they ran."""
MOST_PANELS = 3
"""Sizes whose use of operations is drawn over training, the largest."""
ALL, GATED = "all seven", "keep and replace"
INTERVAL = in_words(SHARE)
REACHED = f"Runs with a test accuracy of {SOLVED} or more and, in brackets, the 95 % interval of their share (Wilson)"


def main(records: Runs) -> list[Record]:
    """Return the runs to compare with the paper: the sweep, or the short form where there is no other."""
    return of_part(records, "sweep") or of_part(records, "short")


def beside(records: Runs) -> list[Block]:
    """Return the paper's claims, measured."""
    blocks: list[Block] = [] if of_part(records, "sweep") else [EXPERIMENT.missing("sweep")]
    if shown := main(records):
        where = "the short form" if shown[0].group == "short" else "the paper's setting, as far as it is known"
        caption = f"What the paper says ({AUTHORS}) beside {count(len(shown), 'run')} in {where}"
        blocks += [claims.table(CLAIMS, shown, caption), WHICH_GRU]
    return blocks


def mean_accuracy(records: Runs) -> str:
    return SHARE.interval(SHARE.summary(records))


def pivot(
    rows: Mapping[Any, Runs], head: tuple[str, ...], caption: str, entry: Callable[[Runs], str], lead: str = ""
) -> Table:
    """Return a row for each group of runs, by the row's first entries, and a column for each cell. `lead` describes one
    more column, MuFuRU minus GRU, seed by seed, which is there where both ran."""
    cells = runs.cells(record for records in rows.values() for record in records)
    leading = bool(lead) and {"mufuru", "gru"} <= set(cells)
    lines = []
    for name, records in rows.items():
        by_cell = {cell: runs.where(records, cell__cell=cell) for cell in cells}
        line = (*name, *map(entry, by_cell.values()))
        line += (SHARE.change(SHARE.difference(by_cell["mufuru"], by_cell["gru"])),) if leading else ()
        lines.append(line)
    names = (*head, *map(runs.name, cells), *(["MuFuRU − GRU"] if leading else []))
    return Table(f"{caption}. Last column: {lead}" if leading else caption, names, tuple(lines))


def by_size(records: Runs, caption: str, entry: Callable[[Runs], str], lead: str = "") -> Table:
    rows = {(str(size),): runs.where(records, cell__hidden_size=size) for size in sizes(records)}
    return pivot(rows, ("hidden size",), caption, entry, lead)


def accuracy(records: Runs, part: str) -> list[Block]:
    """Return a part with every cell at every size: a sentence, a figure and tables."""
    here = of_part(records, part)
    names = {cell: runs.name(cell) for cell in runs.cells(here)}
    lines = {cell: summaries(here, cell) for cell in names}
    alt = f"Line plot of test accuracy against hidden size, a line for each of {', '.join(names.values())}"
    caption = "Test accuracy against hidden size: mean (line), its 95 % interval (bar) and every run (faint marks)."
    # where most runs are at the ceiling, the error tells them apart
    least = LEAST_ERROR if part == "solved" else None
    caption += " The axis is that of the logarithm of the error plus half a formula." if least else ""
    return [
        at_eight(here),
        Picture(
            f"accuracy-{part}", lambda: plots.by_size(lines, names, SHARE, LEVELS, least), f"{alt}; {BELOW}", caption
        ),
        by_size(here, f"Test accuracy: {INTERVAL}", mean_accuracy, "the difference, seed by seed"),
        by_size(here, REACHED, lambda some: reached(SHARE.summary(some))),
        by_size(
            here, f"Training accuracy minus test accuracy, run by run: {INTERVAL}", lambda some: SHARE.change(gap(some))
        ),
    ]


short = partial(accuracy, part="short")


def sweep(records: Runs) -> list[Block]:
    return [*accuracy(records, "sweep"), *equal_parameters(of_part(records, "sweep"))]


def equal_parameters(records: Runs) -> list[Block]:
    """Return MuFuRU at each size beside the GRU whose number of parameters is nearest."""
    every = {cell: {size: at(records, cell, size) for size in sizes(records)} for cell in ("mufuru", "gru")}
    counts = {
        cell: {size: some[0].result["parameters"] for size, some in by_units.items() if some}
        for cell, by_units in every.items()
    }
    rows = []
    for size, ours in counts["mufuru"].items():
        ratios = {other: abs(math.log(theirs / ours)) for other, theirs in counts["gru"].items()}
        other = min(ratios, key=ratios.__getitem__, default=None)
        # the largest MuFuRU has no GRU of its size
        if other is not None and other != size and ratios[other] < math.log(1.5):
            pair = every["mufuru"][size], every["gru"][other]
            one, two = (
                f"{count(units, 'unit')}, {counts[cell][units]:,}" for cell, units in (("mufuru", size), ("gru", other))
            )
            rows.append((one, two, *map(mean_accuracy, pair), SHARE.change(SHARE.difference(*pair))))
    head = ("MuFuRU, parameters", "GRU, parameters", "MuFuRU", "GRU", "MuFuRU − GRU")
    caption = f"Test accuracy at about equal parameters: {INTERVAL}. Last column: the difference, seed by seed"
    return [Table(caption, head, tuple(rows))] if rows else []


def at_eight(records: Runs) -> str:
    """Describe the results at the size of which the paper speaks."""
    every = {cell: s for cell in runs.cells(records) if (s := SHARE.summary(at(records, cell)))}
    if not every:
        return f"There are no runs with {SIZE} units, of which the paper speaks."
    parts = [f"{runs.name(c)} {SHARE.interval(s)[:-1]}; {count(s.n, 'run')})" for c, s in every.items()]
    lead = SHARE.difference(at(records, "mufuru"), at(records, "gru"))
    sentence = f"Mean test accuracy with {SIZE} units: {', '.join(parts)}."
    return sentence + (f" MuFuRU minus GRU, seed by seed: {SHARE.change(lead)}." if lead else "")


def every_size(records: Runs, cell: str) -> str:
    """Describe whether the mean test accuracy is high enough at every size from eight up, with the lowest."""
    if not (every := summaries(records, cell, SIZE)):
        return ""
    low = min(every, key=lambda size: every[size].mean)
    under = [str(size) for size, summary in every.items() if not summary.reaches(SOLVED)]
    state = f"below {SOLVED} with {', '.join(under)} units" if under else f"at least {SOLVED} at every size"
    lowest = f"the lowest mean is {SHARE.interval(every[low])}, with {low}"
    return f"{runs.name(cell)} from {SIZE} units up: {state}; {lowest}."


def solved(records: Runs) -> list[Block]:
    here = of_part(records, "solved")
    sentences = [sentence for cell in runs.cells(here) if (sentence := every_size(here, cell))]
    caption = f"The paper's claims beside {count(len(here), 'run')} in this setting"
    return [" ".join(sentences), *accuracy(records, "solved"), claims.table(CLAIMS, here, caption)]


def operation_weights(records: Runs) -> list[Block]:
    """Return the heat map, and its numbers as a table."""
    mufuru = runs.where(records, cell__cell="mufuru")
    size = SIZE if at(mufuru, "mufuru") else max(sizes(mufuru), default=SIZE)
    trained = at(mufuru, "mufuru", size)
    mean, one = inspection.mean(trained, TOKENS), inspection.chosen(trained)
    if mean is None or one is None:
        return [inspection.NOTHING]
    units = count(size, "unit")
    panels = {f"mean of {mean.n} runs, {units}" if mean.n > 1 else f"one run, {units}": mean}
    caption = "Average weight of every operation at a token, over units and test formulae; the highest is framed."
    if mean.n > 1 and (single := inspection.mean([one], TOKENS)):
        panels[f"one of them, seed {runs.setting(one, 'seed')}"] = single
        caption += " The single run is the one with the best validation accuracy."
    deviation = " and its standard deviation between runs" if mean.n > 1 else ""
    table = inspection.table(mean, f"Average weight{deviation}, {units}")
    return [inspection.picture("operations", panels, caption), Folded("The weights as a table", table)]


def operations(records: Runs) -> list[Block]:
    shown = main(records)
    return operation_weights(shown) if shown else [EXPERIMENT.missing("sweep")]


def curves(records: Runs) -> list[Block]:
    """Return learning curves at a small and a large size, and the use of operations over training."""
    if not (shown := main(records)):
        return []
    used = {f"MuFuRU, {size} units": some for size in sizes(shown) if (some := at(shown, "mufuru", size))}
    largest = dict(list(used.items())[-MOST_PANELS:])
    return [*learning(shown), *inspection.over_training("use", largest)]


def learning(records: Runs) -> list[Block]:
    curved = [record for record in records if record.curve]
    chosen = [size for size in CURVES_AT if size in sizes(curved)] or sizes(curved)[:1]
    if not chosen:
        return [results.NO_CURVES]
    cells = runs.cells(curved)
    rows = {
        f"{size} units": {runs.name(cell): some for cell in cells if (some := at(curved, cell, size))}
        for size in chosen
    }
    looks = {runs.name(cell): figures.look(cell, place) for place, cell in enumerate(cells)}
    caption = (
        "Mean over the seeds, and the middle half of the runs as a shade. Validation formulae are as long as those of "
        "training, test formulae are longer."
    )
    return [results.curve_picture("curves", rows, "accuracy", looks, caption)]


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


def share(records: Runs) -> str:
    """Write the share of runs that solve the task and its 95 % interval (Wilson)."""
    if not records:
        return MISSING
    hits = sum((runs.metric(record) or 0) >= SOLVED - NOISE for record in records)
    low, high = wilson(hits, len(records))
    return f"{hits / len(records):.0%} ({low:.0%}–{high:.0%})".replace("%", " %")


def choice_table(records: Runs, size: int) -> Table:
    """Return the mean test accuracy of every cell for each choice."""
    by_choice = sorted(runs.grouped(runs.where(records, cell__hidden_size=size), choice).items())
    rows = {(f"{rate:g}", str(batch), start): some for (rate, batch, start), some in by_choice}
    head = ("learning rate", "batch size", "first values")
    return pivot(rows, head, f"Test accuracy with {size} units: {INTERVAL}", mean_accuracy, "seed by seed")


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
        words = f"Test accuracy with {size} units: {INTERVAL}. Last column: seed by seed"
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


def probes(records: Runs) -> list[Block]:
    """Return the part probes: formulae without resets, the effect of operations, and the automaton of one unit."""
    here = of_part(records, "probes")
    groups = runs.grouped(here, lambda r: (runs.setting(r, "training.learning_rate"), r.config["cell"]["hidden_size"]))
    rows = []
    for (rate, size), some in sorted(groups.items()):
        for model, every in runs.by_model(some).items():
            lengths = [inspection.longest(record, "without_resets", SOLVED) for record in every]
            means = [_share(inspection.inspected(record, "without_resets")) for record in every]
            line = (f"{rate:g}", str(size), model, results.parameters(every), mean_accuracy(every), share(every))
            rows.append((*line, SHARE.interval(summarise(means)), f"{statistics.median(lengths):g}, {max(lengths)}"))
    head = ("learning rate", "units", "model", "parameters", "test accuracy", f"{SOLVED} or more")
    longer = ("XOR and XNOR alone", f"gates at {SOLVED}: median, most")
    caption = (
        f"The test, and 1,000 formulae of 11 to 250 gates that never reset: {INTERVAL}. The last column is the number "
        f"of gates up to which formulae that never reset have an accuracy of {SOLVED}"
    )
    return [Table(caption, (*head, *longer), tuple(rows)), *interventions(here), *one_unit(here)]


def _share(found: Mapping[str, list[int]]) -> float:
    return sum(found["right"]) / sum(found["sequences"])


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
    found = inspection.inspected(best, "automaton")
    caption = (
        f"A whole MuFuRU with one unit (seed {runs.setting(best, 'seed')}, test accuracy "
        f"{SHARE.value(runs.metric(best) or 0)}): the state after a value and a gate, against the state before. Dots "
        f"are the states after a value and at most one gate; the formula is true {found['true']} the dotted lines."
    )
    alt = "Ten panels, one for each gate, with the next state of the unit for the values 0 and 1"
    return [Picture("automaton", lambda: plots.automaton(found, TOKENS), alt, caption)]


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
    caption = f"Test accuracy by the activation of the features: {INTERVAL}. Difference: seed by seed"
    reach = tuple(f"{name}, {SOLVED} or more" for name in ("sigmoid", "tanh"))
    return [Table(caption, (*head, *reach), tuple(rows)), *blocks]


OPEN = ("training.learning_rate", "training.batch_size", "cell.initialisation", "cell.initial_scale")
EXPERIMENT: Experiment = Experiment(
    "logic",
    "Evaluating Boolean formulae",
    ("logic",),
    SHARE,
    ("cell.cell", "cell.hidden_size"),
    "Recurrent layers learn whether a formula is true, and are tested on unseen ones of more gates.",
    "sweep",
    {
        "claims": View("Beside the paper", beside),
        "sweep": Section("Accuracy by hidden size", sweep, heading="The paper's setting", option="figures"),
        "short": Section(
            "Accuracy in the short form", short, heading="Trained on short formulae, tested on longer ones"
        ),
        "solved": Section("One setting for every size", solved, heading="One setting for every size", option="figures"),
        "open": Section("What the paper left open", open_choices, varies=OPEN),
        "ablation": Section("Fewer operations", ablation, varies=("cell.ops",)),
        "probes": Section(
            "Without resets, and without an operation", probes, varies=("training.learning_rate", "cell.ops")
        ),
        "features": Section("Sigmoid features", features, varies=("cell.activation", "training.learning_rate")),
        "operations": View("Operations by token", operations),
        "curves": View("Learning curves", curves, documented=False),
    },
    tuple(
        Headline(
            f"Boolean formulae, {SIZE} units, learning rate {rate}", ACCURACY, part, settings={"cell.hidden_size": SIZE}
        )
        for part, rate in (("sweep", 0.001), ("solved", 0.01))
    ),
    operations=operation_weights,
    grid=LogicGrid,
    example="figures --cells mufuru gru --sizes 8 64 --seeds 5",
    long=False,
    # its runs are many and their curves would be most of the records
    curve_lines=0,
)
