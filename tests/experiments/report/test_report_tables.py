"""The numbers of the report against the same numbers worked out another way."""

from __future__ import annotations

import math
import statistics

import pytest
from report_records import PAPER, experiment, made, part

from mufuru.experiments.record import Record
from mufuru.experiments.report import inspection, results, runs
from mufuru.experiments.report.page import MISSING, Folded, Table
from mufuru.experiments.reproduce import lm, logic, logic_parts, logic_runs, sentiment
from mufuru.experiments.reproduce.logic_runs import CLAIMS, SHARE
from mufuru.experiments.tasks.logic.formulae import TOKENS

# Student's t of the printed table for three runs
T2 = 4.302653


def table(name: str, place: int = 0) -> Table:
    """A table of a part of the whole experiment."""
    blocks = logic.EXPERIMENT.blocks(runs.unique(experiment()))[name]
    found = [b.table if isinstance(b, Folded) else b for b in blocks if isinstance(b, Table | Folded)]
    return found[place]


def row(content: Table, *start: str) -> tuple[str, ...]:
    (found,) = [row for row in content.rows if row[: len(start)] == start]
    return found


def interval(values: list[float]) -> tuple[float, float, float]:
    margin = T2 * statistics.stdev(values) / math.sqrt(3)
    return statistics.mean(values), statistics.mean(values) - margin, statistics.mean(values) + margin


def test_activations_of_the_features() -> None:
    found = row(table("features"), "0.001", "8")
    assert found[2:4] == ("0.690 (0.665–0.715)", "0.990 (0.965–1.000)")
    assert found[4:] == ("−0.300 (−0.300 to −0.300)", "0 % (0 %–56 %)", "67 % (21 %–94 %)")


def test_accuracy_by_size() -> None:
    content = table("sweep")
    assert content.head == ("hidden size", "MuFuRU", "GRU", "MuFuRU − GRU")
    assert [row[0] for row in content.rows] == ["4", "8", "64"]
    mean, low, high = interval([0.8, 0.79, 0.78])
    assert row(content, "8")[2] == f"{mean:.3f} ({low:.3f}–{high:.3f})"
    # 0.99 with a margin of 0.025: the interval ends at 1, as no accuracy is above
    assert row(content, "8")[1] == "0.990 (0.965–1.000)"
    assert row(content, "8")[3] == "+0.200 (+0.200 to +0.200)"


def test_runs_that_solve_and_gaps() -> None:
    assert row(table("sweep", 1), "8") == ("8", "2 of 3 (0.21–0.94)", "0 of 3 (0.00–0.56)")
    mean, low, high = interval([0.2, 0.21, 0.22])
    assert row(table("sweep", 2), "64")[2] == f"+{mean:.3f} (+{low:.3f} to +{high:.3f})"


def test_one_run_has_no_interval() -> None:
    content = logic.by_size([made(test=0.5)], "", logic_runs.mean_accuracy)
    assert content.rows == (("8", "0.500 (n/a)"),)
    assert SHARE.change(SHARE.difference([made(test=0.5)], [made(test=0.75)])) == "−0.250 (n/a)"
    assert SHARE.signed(-0.0001) == "−0.000"
    assert SHARE.signed(-1e-12) == "+0.000"


def test_open_choices() -> None:
    content = table("open")
    assert len(content.rows) == 8
    assert content.head[-3:] == ("MuFuRU", "GRU", "MuFuRU − GRU")
    mean, low, high = interval([0.8, 0.79, 0.78])
    found = row(content, "0.01", "10", "uniform ±0.1")
    assert found[3] == found[4] == f"{mean:.3f} ({low:.3f}–{high:.3f})"
    best = logic_parts.best_choice(part("open"), 64)
    assert f"; GRU {found[4]} (rate 0.01, " in best


def test_leads_are_counted() -> None:
    ahead = [
        made("open", cell, seed=s, test=t + s / 100) for cell, t in (("mufuru", 0.9), ("gru", 0.8)) for s in (0, 1)
    ]
    behind = [made("open", c, seed=s, test=t, batch=10) for c, t in (("mufuru", 0.5), ("gru", 0.9)) for s in (0, 1)]
    text = logic_parts.open_choices([*ahead, *behind])[0]
    assert "Of 2 choices, the 95 % interval of MuFuRU minus GRU is above 0 in 1, below 0 in 1 and holds 0 in 0." in str(
        text
    )


def test_ablation() -> None:
    content = table("ablation")
    names = ["all seven", "without keep", "without forget", "keep and replace", "keep and replace with max"]
    assert [row[0] for row in content.rows] == names
    assert row(content, "keep and replace")[3] == "−0.250 (−0.250 to −0.250)"
    assert row(content, "all seven")[2:] == ("0 of 3 (0.00–0.56)", MISSING)
    assert logic_parts.variant(made(cell="gru")) == "GRU"
    assert logic_parts.variant(made(ops=("keep", "max"))) == "keep, max"
    assert logic_parts.variant(made(ops=(*PAPER, "add"))) == "add, diff, forget, keep, max, min, mul, replace"


def verdicts(records: list[Record]) -> dict[str, str]:
    """The verdict on each claim by the name of its judge."""
    return {claim.judge.__name__: claim.judge(records).verdict for claim in CLAIMS}


def test_claims_are_judged_by_their_rules() -> None:
    found = verdicts(part("sweep"))
    assert found == {
        "small": "holds",
        "struggles": "holds",
        "emulates": "does not hold",
        "gru_overfits": "holds",
        "never_overfits": "holds",
        "sparse": "holds",
        "multiplies": "holds",
    }


@pytest.mark.parametrize(
    ("records", "name", "verdict"),
    [
        ([made(test=1.0), made(seed=1, test=0.8)], "small", "holds in part"),
        ([made(test=0.8)], "small", "does not hold"),
        ([made(test=0.9), made(cell="gru", test=0.7)], "struggles", "does not hold"),
        (
            [made(cell="gru", size=64, test=1.0), made(cell="gru", size=64, seed=1, test=0.5)],
            "emulates",
            "holds in part",
        ),
        ([made(cell="gru", size=16, test=0.7), made(cell="gru", size=64, test=0.99)], "gru_overfits", "holds in part"),
        ([made(size=16, test=0.7), made(size=64, test=0.99)], "never_overfits", "holds in part"),
        ([made(size=4, test=0.5)], "never_overfits", "not measured"),
        ([made(seed=1)], "multiplies", "does not hold"),
    ],
)
def test_claims_that_do_not_simply_hold(records: list[Record], name: str, verdict: str) -> None:
    assert verdicts(records)[name] == verdict


def test_without_runs_no_claim_is_judged() -> None:
    assert set(verdicts([]).values()) == {"not measured"}


def test_weights() -> None:
    found = inspection.mean([made(seed=0), made(seed=1)], TOKENS)
    assert found is not None
    # the truth values come first, and AND was never read
    assert (found.tokens, found.operations, found.n) == (("0", "OR"), PAPER, 2)
    assert found.row("OR")["mul"] == pytest.approx((1 + 1 / 7) / 2)
    assert found.deviations is not None
    assert found.deviations[1][4] == pytest.approx((1 - 1 / 7) / math.sqrt(2))
    assert inspection.mean([made(cell="gru")]) is None


def test_the_run_to_look_at_is_chosen_without_the_test() -> None:
    worse, better = made(seed=0, test=1.0, train=0.8), made(seed=1, test=0.6, train=0.9)
    assert inspection.chosen([worse, better]) is better
    assert inspection.chosen([]) is None


def test_a_run_counts_once() -> None:
    records = runs.unique([made(), made(), made(seed=1), made("open")])
    assert len(records) == 3
    assert records == runs.unique([made(seed=1), made("open"), made()])


def test_settings_and_seeds() -> None:
    content = results.settings({"sweep": [made(seed=s, size=2**s) for s in range(4)], "open": [made("open")]}, "")
    assert row(content, "seed") == ("seed", "0 to 3", "0")
    assert row(content, "cell.hidden_size") == ("cell.hidden_size", "1, 2, 4, 8", "8")
    assert row(content, "training.learning_rate")[1] == "0.001"
    assert results.listed([True, None, "a"]) == "none, yes, a"
    assert results.commands([made(), made(seed=1)]) == ["mufuru reproduce logic"]


def test_every_size_says_where_it_fails() -> None:
    found = logic.every_size([made(size=8, test=0.999), made(size=16, test=0.9), made(size=4, test=0.5)], "mufuru")
    assert found == "MuFuRU from 8 units up: below 0.99 with 16 units; the lowest mean is 0.900 (n/a), with 16."
    assert "at least 0.99 at every size" in logic.every_size([made(test=0.999)], "mufuru")


def test_the_papers_numbers() -> None:
    assert lm.EXPERIMENT.numbers == {"GRU": 123.0, "MuFuRU": 119.7}
    assert sentiment.EXPERIMENT.numbers["MuFuRU"] == 87.6
