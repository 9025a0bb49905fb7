"""Inside trained MuFuRUs, as their runs recorded it: operations by token, over training, word by word."""

import itertools
import statistics
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.report import plots, runs
from mufuru.experiments.report.page import MISSING, Block, Folded, Picture, Table
from mufuru.experiments.report.plots import Weights
from mufuru.experiments.report.runs import Lines, Runs
from mufuru.ops import PAPER

BELOW = "the numbers are in the next table"
MOST_LABELS = 20
"""Labels of a confusion matrix that is shown."""
NOTHING = "None of these runs recorded which operations its units use."


def mean(records: Runs, order: tuple[str, ...] = ()) -> Weights | None:
    """Return the mean over the runs with the tokens and operations of the first; None where no run has weights.

    Tokens are in the given order; others follow, in the order of the record.
    """
    every = [weights for record in records if (weights := recorded(record))]
    if not every:
        return None
    tokens = ordered(every[0], order)
    operations = ordered(every[0][tokens[0]], PAPER)
    same = [w for w in every if w.keys() == set(tokens) and all(row.keys() == set(operations) for row in w.values())]
    cells = [[[w[token][op] for w in same] for op in operations] for token in tokens]
    means = tuple(tuple(statistics.fmean(cell) for cell in row) for row in cells)
    deviations = tuple(tuple(statistics.stdev(cell) for cell in row) for row in cells) if len(same) > 1 else None
    return Weights(tokens, operations, means, deviations, len(same))


def inspected(record: Record, name: str = "operation_weights") -> Any:
    """Return what the run recorded about the trained model; empty if nothing."""
    return record.result.get("inspection", {}).get(name, {})


def recorded(record: Record) -> dict[str, dict[str, float]]:
    """Return token -> operation -> weight; tokens that were never read are left out."""
    weights = inspected(record)
    rows = zip(weights.get("tokens", ()), weights.get("weight", ()), strict=True)
    return {token: dict(zip(weights["ops"], row, strict=True)) for token, row in rows if row is not None}


def ordered(names: Iterable[str], order: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in a given order; others follow in their own order."""
    return tuple(sorted(names, key=lambda name: order.index(name) if name in order else len(order)))


def chosen(records: Runs) -> Record | None:
    """Return the run with the best validation accuracy, the first seed among equals. The test set is not used."""
    usable = [record for record in records if recorded(record)]
    return min(usable, key=lambda r: (-(runs.metric(r, "valid") or 0.0), runs.setting(r, "seed")), default=None)


def table(weights: Weights, caption: str, counts: Mapping[str, int] | None = None) -> Table:
    """Return the numbers of the heat map, with the deviation between runs where there are several, and how often each
    token was read where `counts` are given."""
    rows = []
    for index, token in enumerate(weights.tokens):
        cells = [f"{value:.2f}" for value in weights.values[index]]
        if weights.deviations:
            cells = [f"{cell} ± {d:.2f}" for cell, d in zip(cells, weights.deviations[index], strict=True)]
        times = () if counts is None else (f"{counts[token]:,}" if token in counts else MISSING,)
        rows.append((token, *times, *cells))
    first = ("token",) if counts is None else ("read", "times")
    return Table(caption, (*first, *weights.operations), tuple(rows))


def picture(name: str, panels: Mapping[str, Weights], caption: str, rows: str = "tokens") -> Picture:
    """Return one heat map for each title."""
    first = next(iter(panels.values()))
    alt = f"Heat map of {len(first.tokens)} {rows} by {len(first.operations)} operations; {BELOW}"
    return Picture(name, lambda: plots.operations(panels), alt, caption)


def use(name: str, lines: Lines, where: str) -> list[Block]:
    """Return one heat map for each title, of runs that differ in their seed alone, and their numbers as tables."""
    means = {title: weights for title, records in lines.items() if (weights := mean(records))}
    if not means:
        return [NOTHING]
    titles = {f"{t}, one run" if w.n == 1 else f"{t}, mean of {w.n} runs": w for t, w in means.items()}
    # panels share their rows: those that have others get figures of their own
    alike = len({weights.tokens for weights in means.values()}) == 1
    caption = f"Average weight of every operation, over units and {where}; the highest of each row is framed."
    blocks: list[Block] = [
        picture(name if place == 0 else f"{name}-{place + 1}", panels, caption, "kinds of tokens")
        for place, panels in enumerate([titles] if alike else [{title: w} for title, w in titles.items()])
    ]
    for title, weights in means.items():
        deviation = " and its standard deviation between runs" if weights.n > 1 else ""
        # all runs read the same data
        seen: dict[str, Any] = next((w for record in lines[title] if "counts" in (w := inspected(record))), {})
        counts = dict(zip(seen.get("tokens", ()), seen.get("counts", ()), strict=True))
        content = table(weights, f"{title}: mean weight{deviation}", counts)
        blocks.append(Folded(f"{title}: the weights as a table", content))
        if spread := _spread(weights, lines[title], title):
            blocks.append(Folded(f"{title}: the spread within a class", spread))
    return blocks


def _spread(weights: Weights, records: Runs, title: str) -> Table | None:
    """Return how much the words of one class differ; None where the runs did not record it."""
    every = [inspected(record, "classes") for record in records]
    rows = []
    for name in weights.tokens:
        if here := [classes[name]["sd"] for classes in every if name in classes]:
            rows.append((name, *(f"{statistics.fmean(sd[op] for sd in here):.2f}" for op in weights.operations)))
    caption = f"{title}: standard deviation of the weight between the tokens of a class, mean over the runs"
    return Table(caption, ("read", *weights.operations), tuple(rows)) if rows else None


def over_training(name: str, lines: Lines) -> list[Block]:
    """Return how the use of the operations changed in training; nothing if no curve recorded it."""
    held = {title: records for title, records in lines.items() if plots.operations_of(records)}
    if not held:
        return []
    every = [record for records in held.values() for record in records]
    by = plots.axis_of(every)
    alt = f"Mean weight of {', '.join(plots.operations_of(every))} by {by}, for {', '.join(held)}"
    caption = (
        "Use of the operations while it learns: mean weight over units and a part of the validation data, first "
        "layer. Mean over the seeds, and the middle half of the runs as a shade."
    )
    return [Picture(name, lambda: plots.use(held, by), alt, caption)]


def sentences_of(record: Record) -> list[dict[str, Any]]:
    """Return `[{"word", "text", "label", "tokens": [{"token", "weights", "probability"}]}]`, where the sentence was
    chosen for the word and the probability is the label's."""
    return list(inspected(record, "sentences"))


def sentences(name: str, records: Runs) -> list[Block]:
    """Return a figure and a table for each sentence of one run: the one with the best validation accuracy."""
    one = chosen([record for record in records if sentences_of(record)])
    if one is None:
        return ["None of these runs recorded sentences."]
    blocks: list[Block] = [
        f"MuFuRU with seed {runs.setting(one, 'seed')}, the run with the best validation accuracy. At each word: the "
        "weight of every operation, mean over the units, and the probability of the sentence's own label if the "
        "sentence ended there."
    ]
    for number, sentence in enumerate(sentences_of(one), 1):
        steps, label, text = sentence["tokens"], sentence["label"], sentence["text"]
        # a file of records has lost the order of the run
        ops = ordered(steps[0]["weights"], PAPER)
        alt = f"Heat map of {len(steps)} words by operations, and the probability after each; {BELOW}"
        caption = f"“{text}” ({label}; the first short sentence with “{sentence['word']}”)."
        blocks.append(Picture(f"{name}-{number}", partial(plots.sentence, steps, ops, label), alt, caption))
        rows = tuple((s["token"], *(f"{s['weights'][op]:.2f}" for op in ops), f"{s['probability']:.2f}") for s in steps)
        blocks.append(Folded("The sentence as a table", Table(f"“{text}”", ("word", *ops, str(label)), rows)))
    return blocks


def labels_of(record: Record) -> dict[str, Any]:
    """Return `{"labels", "classes": {label: {"precision", "recall", "f1", "examples"}}, "confusion"}` of the test data;
    empty where the run recorded none."""
    details: dict[str, Any] = inspected(record, "details")
    return dict(details.get("test", {}))


def labels(records: Runs) -> Table:
    """Return a table of the labels, of runs on the same data, for the run with the best validation accuracy."""
    some = [record for record in records if labels_of(record)]
    one = max(some, key=lambda record: runs.metric(record, "valid") or 0.0)
    folder = f"{one.name}, " if one.name else ""
    best = ", the run with the best validation accuracy" if len(some) > 1 else ""
    caption = f"Test data by label: {folder}{runs.model(one)} with seed {runs.setting(one, 'seed')}{best}"
    return label_table(labels_of(one), caption)


def label_table(result: Mapping[str, Any], caption: str) -> Table:
    """Return the scores of each label, and unless there are many labels the confusion matrix: how often each was
    predicted."""
    names = result["labels"] if len(result["labels"]) <= MOST_LABELS else ()
    rows = []
    for label, counts in zip(result["labels"], result["confusion"], strict=True):
        scores = result["classes"][label]
        cells = (f"{scores[name]:.3f}" for name in ("precision", "recall", "f1"))
        rows.append((label, *cells, str(scores["examples"]), *(map(str, counts) if names else ())))
    head = ("label", "precision", "recall", "F1", "examples", *(f"predicted {name}" for name in names))
    return Table(caption, head, tuple(rows))


def by_length(record: Record, name: str) -> dict[int, float]:
    """Return test accuracy by the longest length of each range that has sequences, see `task.by_length`."""
    counts = inspected(record, name)
    rows = zip(counts["longest"], counts["sequences"], counts["right"], strict=True)
    return {longest: right / sequences for longest, sequences, right in rows if sequences}


def longest(record: Record, name: str, bar: float) -> int:
    """Return the length up to which every range of lengths has this accuracy; 0 if the first has not."""
    reached = itertools.takewhile(lambda item: item[1] >= bar, by_length(record, name).items())
    return max((length for length, _ in reached), default=0)


def forecasts_of(record: Record) -> list[dict[str, Any]]:
    """Return `[{"series", "before", "truth", "naive", "quantiles": {level: values}}]`."""
    return list(inspected(record, "forecasts"))


def forecasts(name: str, records: Runs) -> list[Block]:
    """Return a figure of the forecasts of the run with the best validation MASE, and a table for each."""
    shown = [record for record in records if forecasts_of(record)]
    one = min(shown, key=lambda record: runs.metric(record, "valid", "mase") or 0.0)
    panels = forecasts_of(one)
    alt = f"Lines of {len(panels)} forecasts and the truth; {BELOW}"
    caption = (
        f"Forecasts of test values by {runs.model(one)} with seed {runs.setting(one, 'seed')}, the run with the best "
        "validation MASE, with the truth and the value of one season before."
    )
    blocks: list[Block] = [Picture(name, lambda: plots.forecasts(panels), alt, caption)]
    for place, panel in enumerate(panels, 1):
        levels = sorted(panel["quantiles"], key=float)
        columns = [panel["truth"], panel["naive"], *(panel["quantiles"][level] for level in levels)]
        rows = tuple(
            (str(step), *(f"{value:g}" for value in row)) for step, row in enumerate(zip(*columns, strict=True), 1)
        )
        head = ("step", "truth", "seasonal-naive", *(f"quantile {level}" for level in levels))
        blocks.append(
            Folded(f"{panel['series']}: forecast {place} as a table", Table(str(panel["series"]), head, rows))
        )
    return blocks
