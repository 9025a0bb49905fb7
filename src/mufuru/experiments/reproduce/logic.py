"""The experiment with propositional formulae: its runs, the paper's claims, and its page."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

from mufuru.experiments.record import Record
from mufuru.experiments.report import claims, figures, inspection, overview, plots, results, runs
from mufuru.experiments.report.claims import AUTHORS, WHICH_GRU
from mufuru.experiments.report.experiment import Headline, View
from mufuru.experiments.report.experiment import Part as Section
from mufuru.experiments.report.inspection import BELOW
from mufuru.experiments.report.measure import ACCURACY
from mufuru.experiments.report.page import Block, Folded, Picture, Table, count
from mufuru.experiments.report.runs import Runs, of_part
from mufuru.experiments.reproduce.grid import Experiment, Flag, Grid, Setting, with_cell, with_training
from mufuru.experiments.reproduce.logic_parts import ablation, features, open_choices, probes
from mufuru.experiments.reproduce.logic_runs import (
    CLAIMS,
    GATES,
    SETTINGS,
    SHARE,
    SIZE,
    SOLVED,
    at,
    gap,
    mean_accuracy,
    pivot,
    reached,
    side_by_side,
    sizes,
    summaries,
)
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig
from mufuru.experiments.tasks.logic.formulae import TOKENS, known_from_last
from mufuru.ops import PAPER

CELLS: tuple[CellName, ...] = ("mufuru", "gru", "lstm", "vanilla")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
LEARNING_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
BATCH_SIZES = (25, 50, 100)
INITIALISATIONS = ("default", "uniform", "orthogonal")
OPEN_SIZES = (8, 64)
OPEN_SEEDS = SHORT_SEEDS = 5
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


LEVELS = {"guessing": known_from_last(0), "last gate alone": known_from_last(1), "last two gates": known_from_last(2)}
"""Accuracies that need little or no memory."""
LEAST_ERROR = 0.5e-3
"""Half a formula of the thousand that a run is tested on."""
CURVES_AT = (8, 64)
"""Hidden sizes whose learning curves are shown, where they ran."""
MOST_PANELS = 3
"""Sizes whose use of operations is drawn over training, the largest."""
REACHED = f"Runs with a test accuracy of {SOLVED} or more and, in brackets, the 95 % interval of their share (Wilson)"


def main_runs(records: Runs) -> list[Record]:
    """Return the runs to compare with the paper: the sweep, or the short form where there is no other."""
    return of_part(records, "sweep") or of_part(records, "short")


def beside(records: Runs) -> list[Block]:
    """Return the paper's claims, measured."""
    blocks: list[Block] = [] if of_part(records, "sweep") else [EXPERIMENT.missing("sweep")]
    if shown := main_runs(records):
        where = "the short form" if shown[0].group == "short" else "the paper's setting, as far as it is known"
        caption = f"What the paper says ({AUTHORS}) and what {count(len(shown), 'run')} gave in {where}"
        blocks += [claims.table(CLAIMS, shown, caption), WHICH_GRU]
    return blocks


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
    name = f"accuracy-{part}"
    figure = Picture(name, lambda: plots.by_size(lines, names, SHARE, LEVELS, least), f"{alt}; {BELOW}", caption)
    # the short form has a single size, and no line to draw
    return [
        at_eight(here),
        *(overview.compared(name, here) if part == "short" else [figure]),
        by_size(here, f"Test accuracy: {SHARE.in_words}", mean_accuracy, "the difference, seed by seed"),
        by_size(here, REACHED, reached),
        by_size(
            here,
            f"Training accuracy minus test accuracy, run by run: {SHARE.in_words}",
            lambda some: SHARE.change(gap(some)),
        ),
    ]


short = partial(accuracy, part="short")


def sweep(records: Runs) -> list[Block]:
    return [*accuracy(records, "sweep"), *equal_parameters(of_part(records, "sweep"))]


def equal_parameters(records: Runs) -> list[Block]:
    """Return MuFuRU at each size beside the GRU whose number of parameters is nearest."""

    def apart(one: Runs, other: Runs) -> float:
        return abs(math.log(one[0].result["parameters"] / other[0].result["parameters"]))

    rows, every = [], sizes(records)
    grus = {size: some for size in every if (some := at(records, "gru", size))}
    for size in every if grus else ():
        if ours := at(records, "mufuru", size):
            other = min(grus, key=lambda units: apart(ours, grus[units]))
            # the largest MuFuRU has no GRU of its size
            if other != size and apart(ours, grus[other]) < math.log(1.5):
                pair = {size: ours, other: grus[other]}
                names = (f"{count(units, 'unit')}, {results.parameters(some)}" for units, some in pair.items())
                rows.append((*names, *side_by_side(*pair.values())))
    head = ("MuFuRU, parameters", "GRU, parameters", "MuFuRU", "GRU", "MuFuRU − GRU")
    caption = f"Test accuracy at about equal parameters: {SHARE.in_words}. Last column: the difference, seed by seed"
    return [Table(caption, head, tuple(rows))] if rows else []


def at_eight(records: Runs) -> str:
    """Describe the results at the paper's size."""
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
    caption = f"The paper's claims, tested by {count(len(here), 'run')} in this setting"
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
    shown = main_runs(records)
    return operation_weights(shown) if shown else [EXPERIMENT.missing("sweep")]


def curves(records: Runs) -> list[Block]:
    """Return learning curves at a small and a large size, and the use of operations over training."""
    if not (shown := main_runs(records)):
        return []
    used = {f"MuFuRU, {size} units": some for size in sizes(shown) if (some := at(shown, "mufuru", size))}
    largest = dict(list(used.items())[-MOST_PANELS:])
    curved = [record for record in shown if record.curve]
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
    learning = results.curve_picture("curves", rows, "accuracy", looks, caption)
    return [learning, *inspection.over_training("use", largest)]


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
        "claims": View("Compared with the paper", beside),
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
