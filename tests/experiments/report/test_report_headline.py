"""The table of the first page: the paper's numbers, and ours where there are runs."""

from __future__ import annotations

from dataclasses import replace

from report_records import made

from mufuru.experiments.record import Record
from mufuru.experiments.report.experiment import forest, headline
from mufuru.experiments.report.measure import ACCURACY, PERPLEXITY, summarise
from mufuru.experiments.reproduce import EXPERIMENTS


def model(task: str, group: str, cell: str, metric: str, value: float, seed: int) -> Record:
    record = made(group, cell, seed=seed, task=task)
    return replace(record, result={**record.result, "test": {metric: value}})


def test_without_runs_it_has_the_papers_numbers() -> None:
    rows = headline(EXPERIMENTS.values(), {}).rows
    nothing = ("–", "–", "–", "– / –", "– / –")
    assert [row[1:] for row in rows] == [
        (*nothing, "no number"),
        (*nothing, "no number"),
        (*nothing, "123.0, 119.7: −3.3"),
        (*nothing, "87.3, 87.6: +0.3"),
        (*nothing, "no number"),
    ]
    assert [row[0][-1] for row in rows] == ["↑", "↑", "↓", "↑", "↑"]


def test_each_row_has_its_own_runs() -> None:
    logic = [made("sweep", test=0.9), made("sweep", size=16, test=0.1), made("solved", "gru", test=0.8)]
    lm = [model("lm", "paper", "gru", "perplexity", value, seed) for seed, value in enumerate((120.0, 122.0))]
    lm += [model("lm", "paper", "mufuru", "perplexity", value, seed) for seed, value in enumerate((118.0, 118.0))]
    lm += [model("lm", "best", "mufuru", "perplexity", 90.0, 0)]
    sentiment = [model("classify", "paper", "mufuru", "accuracy", 0.875, 0)]
    sentiment += [model("classify", "best", "gru", "accuracy", 0.885, 0)]
    rows = headline(EXPERIMENTS.values(), {"logic": logic, "lm": lm, "sentiment": sentiment}).rows
    size = f"{made('sweep').result['parameters']:,}"
    assert rows[0][1:6] == ("–", "90.00 (n/a)", "–", "– / 1", f"– / {size}")
    assert rows[1][1:6] == ("80.00 (n/a)", "–", "–", "1 / –", f"{size} / –")
    # Student's t for two runs is 12.706, and the deviation of the mean 1; Welch's has one degree of freedom too
    assert rows[2][1:5] == ("121.0 (108.3–133.7)", "118.0 (118.0–118.0)", "−3.0 (−15.7 to +9.7)", "2 / 2")
    assert rows[3][1:3] == ("–", "87.50 (n/a)")
    assert rows[4][1:3] == ("88.50 (n/a)", "–")
    drawn = forest(EXPERIMENTS.values(), {"logic": logic, "lm": lm, "sentiment": sentiment})
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["Penn Treebank: perplexity"]
    assert drawn.axes[0].get_xlim()[0] > drawn.axes[0].get_xlim()[1], "the better side is the right one"


def test_no_interval_goes_beyond_what_is_possible() -> None:
    assert ACCURACY.interval(summarise([99.0, 100.0])) == "99.50 (93.15–100.00)"
    assert PERPLEXITY.interval(summarise([119.0, 121.0])) == "120.0 (107.3–132.7)"
