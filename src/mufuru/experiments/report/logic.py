"""The report on the experiment with Boolean formulae."""

from __future__ import annotations

from collections.abc import Callable

from mufuru.experiments.record import Record
from mufuru.experiments.report import claims, operation_use, paper, runs, sections, tables
from mufuru.experiments.report.experiment import Part, Report, View, of
from mufuru.experiments.report.page import Block
from mufuru.experiments.report.runs import Runs

COMMAND = "mufuru reproduce logic"
SIZES = ("cell.cell", "cell.hidden_size")
CHOICES = ("training.learning_rate", "training.batch_size", "cell.initialisation", "cell.initial_scale")

MOST_PANELS = 3
"""Sizes whose use of operations is drawn over training, the largest."""


def main(records: Runs) -> list[Record]:
    """The runs that stand beside the paper's: the sweep, or the short form where that is all there is."""
    return of(records, "sweep") or of(records, "short")


def beside(records: Runs) -> list[Block]:
    """The paper's claims, measured."""
    blocks: list[Block] = [] if of(records, "sweep") else [REPORT.missing("sweep")]
    if found := main(records):
        where = "the short form" if found[0].group == "short" else "the paper's setting, as far as it is known"
        caption = f"What the paper says ({paper.AUTHORS}) beside {tables.count(len(found), 'run')} in {where}"
        blocks.append(claims.table(found, caption))
    return blocks


def operations(records: Runs) -> list[Block]:
    found = main(records)
    return sections.operation_weights(found) if found else [REPORT.missing("sweep")]


def curves(records: Runs) -> list[Block]:
    found = main(records)
    used = {
        f"MuFuRU, {size} units": some
        for size in runs.values(found, "cell.hidden_size")
        if (some := claims.at(found, "mufuru", size))
    }
    last = dict(list(used.items())[-MOST_PANELS:])
    return [*sections.learning(found), *operation_use.over_training("use", last)] if found else []


def accuracy(part: str) -> Callable[[Runs], list[Block]]:
    """Figure and table of a part with every cell at every size."""
    return lambda records: sections.sizes(of(records, part), part)


def solved(records: Runs) -> list[Block]:
    found = of(records, "solved")
    told = [line for cell in runs.cells(found) if (line := sections.every_size(found, cell))]
    caption = f"The paper's claims beside {tables.count(len(found), 'run')} in this setting"
    return [" ".join(told), *sections.sizes(found, "solved"), claims.table(found, caption)]


REPORT = Report(
    "logic",
    "Evaluating Boolean formulae",
    ("logic",),
    sections.about,
    "sweep",
    {
        "sweep": Part("Accuracy by hidden size", f"{COMMAND} --part figures", SIZES, accuracy("sweep")),
        "short": Part("Accuracy in the short form", f"{COMMAND} --short", SIZES, accuracy("short")),
        "solved": Part("One setting for every size", f"{COMMAND} --part figures", SIZES, solved),
        "open": Part(
            "What the paper left open",
            f"{COMMAND} --part open",
            (*SIZES, *CHOICES),
            lambda records: sections.open_choices(of(records, "open")),
        ),
        "ablation": Part(
            "Fewer operations",
            f"{COMMAND} --part ablation",
            (*SIZES, "cell.ops"),
            lambda records: sections.ablation(of(records, "ablation")),
        ),
    },
    {"claims": View("Beside the paper", beside)},
    {
        "operations": View("Operations by token", operations),
        "curves": View("Learning curves", curves, documented=False),
    },
)
