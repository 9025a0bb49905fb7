"""Formulae: those that never reset, the effect of every operation at every token, and the automaton of one unit."""

import statistics
from collections.abc import Mapping

from mufuru.experiments.report import inspection, plots, results, runs
from mufuru.experiments.report.inspection import BELOW
from mufuru.experiments.report.measure import NOISE, summarise
from mufuru.experiments.report.page import Block, Picture, Table, count
from mufuru.experiments.report.runs import Runs, of_part
from mufuru.experiments.reproduce.logic_runs import SHARE, SIZE, SOLVED, mean_accuracy, share
from mufuru.experiments.tasks.logic.formulae import TOKENS


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
        f"The test, and 1,000 formulae of 11 to 250 gates that never reset: {SHARE.in_words}. The last column is the "
        f"number of gates up to which formulae that never reset have an accuracy of {SOLVED}"
    )
    return [Table(caption, (*head, *longer), tuple(rows)), *interventions(here), *one_unit(here)]


def _share(counts: Mapping[str, list[int]]) -> float:
    return sum(counts["right"]) / sum(counts["sequences"])


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
