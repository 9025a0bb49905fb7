"""The reports on language models and sentiment: their numbers against the same worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from published_records import classifiers, language_models, lm_record, moved, without
from report_records import PAPER, made

from mufuru.experiments.record import Record
from mufuru.experiments.report import claims, inspection, plots, results, runs
from mufuru.experiments.report.experiment import Report
from mufuru.experiments.report.measure import ACCURACY, PERPLEXITY, summarise
from mufuru.experiments.report.page import MISSING, Folded, Picture, Table
from mufuru.experiments.reproduce import lm, sentiment

# Student's t of the printed table for five runs and for six
T4, T5 = 2.776445, 2.570582


def shown(report: Report, records: list[Record], name: str) -> list[Table]:
    blocks = report.blocks(runs.unique(records))[name]
    return [b.table if isinstance(b, Folded) else b for b in blocks if isinstance(b, Table | Folded)]


def texts(report: Report, records: list[Record], name: str) -> list[str]:
    return [block for block in report.blocks(runs.unique(records))[name] if isinstance(block, str)]


def row(content: Table, start: str) -> dict[str, str]:
    (found,) = [row for row in content.rows if row[0] == start]
    return dict(zip(content.head, found, strict=True))


def test_language_models_in_the_papers_setting() -> None:
    (content,) = shown(lm.EXPERIMENT, language_models(), "paper")
    assert [row[0] for row in content.rows] == ["MuFuRU", "GRU", "LSTM"]
    # the deviation of 117 to 122
    margin = T5 * math.sqrt(3.5 / 6)
    assert row(content, "MuFuRU") == {
        "model": "MuFuRU",
        "parameters": "4,000,006",
        "test perplexity": f"119.5 ({119.5 - margin:.1f}–{119.5 + margin:.1f})",
        "deviation": "1.9",
        "every run": "117.0, 118.0, 119.0, 120.0, 121.0, 122.0",
        "validation perplexity": f"124.5 ({124.5 - margin:.1f}–{124.5 + margin:.1f})",
        "minus GRU, Welch": "−3.0 (−5.4 to −0.6)",
        "the paper": "119.7",
    }
    assert (row(content, "GRU")["minus GRU, Welch"], row(content, "GRU")["the paper"]) == (MISSING, "123.0")
    assert row(content, "LSTM")["the paper"] == MISSING


def test_lean_and_keep_stand_beside_the_papers_setting() -> None:
    (lean,) = shown(lm.EXPERIMENT, language_models(), "lean")
    assert [row[0] for row in lean.rows] == ["MuFuRU", "MuFuRU (controller 50)", "GRU", "LSTM"]
    assert row(lean, "MuFuRU (controller 50)")["minus MuFuRU, Welch"] == "−2.5 (−4.8 to −0.2)"
    (keep,) = shown(lm.EXPERIMENT, language_models(), "keep")
    assert row(keep, "MuFuRU (keep at 3)")["every run"] == "115.0"
    assert row(keep, "MuFuRU (keep at 3)")["minus MuFuRU, Welch"] == "−4.5 (n/a)"
    assert {row[0] for row in keep.rows} >= {"GRU", "GRU (keep at 1)", "MuFuRU (keep at 0)"}
    # a part alone is still a table
    (alone,) = shown(lm.EXPERIMENT, without(language_models(), "paper"), "lean")
    assert [row[0] for row in alone.rows] == ["MuFuRU (controller 50)"]


def test_a_gru_with_as_many_parameters_stands_beside_both() -> None:
    larger, best = shown(lm.EXPERIMENT, language_models(), "wide")
    assert [row[0] for row in larger.rows] == ["MuFuRU", "GRU", "GRU (240 units)"]
    # 120 - 0.5 beside MuFuRU's mean, 118 + 2; well regularised 117 - 24
    assert row(larger, "GRU (240 units)")["minus MuFuRU, Welch"] == "−0.5 (n/a)"
    assert row(best, "GRU (238 units)")["minus MuFuRU, Welch"] == "+26.5 (n/a)"
    # a setting that was not run has no table
    (alone,) = shown(lm.EXPERIMENT, [r for r in language_models() if r.group != "wide" or r.config["tied"]], "wide")
    assert [row[0] for row in alone.rows] == ["MuFuRU", "GRU", "GRU (238 units)"]


def test_seeds_of_three_parts_stand_together() -> None:
    """Each of the three models has 24 less than in the paper's setting, but a seed of the larger GRU, which has 0.5."""
    records = [*language_models(), *(lm_record(job) for job in lm.LMGrid(part="best-seeds").jobs(Path()))]
    (content,) = (block for block in lm.more_seeds(records) if isinstance(block, Table))
    assert {row[0]: row[4] for row in content.rows} == {
        "MuFuRU": "93.0, 94.0, 95.0",
        "GRU (200 units)": "96.0, 97.0, 98.0",
        "GRU (238 units)": "119.5, 97.0, 98.0",
    }
    assert row(content, "GRU (200 units)")["minus MuFuRU, Welch"].startswith("+3.0 (")


def test_operations_start_and_size_are_told_apart() -> None:
    """MuFuRU has 117 and more with later seeds; here keep at 0 costs 4, two operations cost 1, and 40 units bring 3."""
    records = [lm_record(job) for job in lm.LMGrid(part="operations").jobs(Path())]
    costs = [("keep_bias", 0.0, 4.0), ("ops", ["keep", "replace"], 1.0), ("hidden_size", 240, -3.0)]
    for name, value, cost in costs:
        changed = [record for record in records if record.config["cell"][name] == value]
        others = [record for record in records if record not in changed]
        records = others + moved(moved(changed, "mufuru", "perplexity", cost), "gru", "perplexity", cost)
    blocks = lm.deciding(records)
    every, changes = (block for block in blocks if isinstance(block, Table))
    assert [row[:2] for row in every.rows] == [
        ("seven operations, keep at 2", "4,000,006"),
        ("seven operations, keep at 0", "4,000,006"),
        ("two operations, keep at 2", "4,000,006"),
        ("two operations, keep at 0", "4,000,006"),
        ("nn.GRU, 200 units", "4,000,003"),
        ("nn.GRU, 240 units", "4,000,003"),
    ]
    assert [row[-1] for row in changes.rows] == [
        "not sure",
        "not sure",
        "better",
        "better",
        "not sure",
        "not sure",
        "not sure",
    ]
    # the deviation of 0 to 5 and Student's t of 10 degrees of freedom: sure alone, and not as one of seven
    margin = 2.228139 * math.sqrt(3.5 * 2 / 6)
    assert changes.rows[5][2] == f"−3.0 (−{3 + margin:.1f} to −{3 - margin:.1f})"
    models = lm.sources(records)
    assert lm.conclusion(models["seven operations, keep at 0"], models["seven operations, keep at 2"], 7) == "worse"
    few = [record for record in records if record.config["seed"] < 5]
    assert {row[-1] for row in lm.deciding(few)[-1].rows} == {"too few runs"}


def test_the_reset_gate_after_the_product() -> None:
    """It brings all models 2.5; they begin at 117, `nn.GRU` at 120."""
    records = [lm_record(job) for part in ("operations", "reset") for job in lm.LMGrid(part=part).jobs(Path())]
    every, changes = (block for block in lm.moved(records) if isinstance(block, Table))
    assert {row[0]: row[4].partition(",")[0] for row in every.rows} == {
        "seven operations, after": "114.5",
        "two operations, after": "114.5",
        "two operations, after, bias 0": "114.5",
        "seven operations, keep at 2": "117.0",
        "two operations, keep at 0": "117.0",
        "nn.GRU, 200 units": "120.0",
        "nn.GRU, 240 units": "120.0",
    }
    # six runs from 0 to 5: five comparisons leave 5.5 sure, and not 2.5
    assert [row[-1] for row in changes.rows] == ["not sure", "not sure", "better", "not sure", "better"]


def test_half_the_learning_rate() -> None:
    """It costs all models 2.5."""
    records = [lm_record(job) for part in ("operations", "rate") for job in lm.LMGrid(part=part).jobs(Path())]
    every, changes = (block for block in lm.slowed(records) if isinstance(block, Table))
    assert {row[0]: row[4].partition(",")[0] for row in every.rows} == {
        "seven operations, 0.001": "119.5",
        "two operations, 0.001": "119.5",
        "nn.GRU, 0.001": "122.5",
        "seven operations, keep at 2": "117.0",
        "two operations, keep at 0": "117.0",
        "nn.GRU, 200 units": "120.0",
    }
    assert [row[2].partition(" ")[0] for row in changes.rows] == ["+2.5", "+2.5", "+2.5", "+0.0", "−3.0"]


def test_choices_are_compared_with_the_same_seed() -> None:
    mufuru, content, lstm = shown(lm.EXPERIMENT, language_models(), "choices")
    keep = ["keep's first bias 0", "keep's first bias 3"]
    assert [row[0] for row in mufuru.rows] == ["nothing", "learning rate 0.001", "batch size 10", *keep]
    assert [row[0] for row in content.rows] == [
        "nothing",
        "learning rate 0.0005",
        "learning rate 0.001",
        "learning rate 0.004",
        "batch size 5",
        "batch size 10",
        "batch size 10, learning rate 0.001",
        "batch size 40",
        "window 70",
        "clipping 1",
        "clipping none",
        "first weights default",
        "keep's first bias 1",
    ]
    assert content.caption.startswith("GRU with batches of 20, and with changes.")
    # the first seed alone, which has 122: the mean over three is 123
    assert content.rows[0][1:] == ("1", "122.0 (n/a)", MISSING, "127.0 (n/a)", MISSING)
    assert content.rows[4][1:] == ("1", "125.0 (n/a)", "+3.0 (n/a)", "130.0 (n/a)", "+3.0 (n/a)")
    # the paper's setting, of which the first seed alone is taken too
    assert content.rows[5][1:] == ("1", "120.0 (n/a)", "−2.0 (n/a)", "125.0 (n/a)", "−2.0 (n/a)")
    assert [row[0] for row in lstm.rows] == ["nothing", "batch size 10"]
    (missing,) = texts(lm.EXPERIMENT, without(language_models(), "batch20"), "choices")
    assert missing.startswith("Not run: larger batches.")
    alone = shown(lm.EXPERIMENT, without(language_models(), "paper"), "choices")
    assert [len(table.rows) for table in alone] == [4, 12]


@pytest.mark.parametrize(("by", "state"), [(0.0, "met"), (2.0, "met"), (2.1, "missed")])
def test_the_bar_of_the_best_language_model(by: float, state: str) -> None:
    records = moved(language_models(), "mufuru", "perplexity", by)
    assert texts(lm.EXPERIMENT, records, "best") == [f"MuFuRU {93 + by:.1f} (n/a): the bar of 95 is {state}."]
    assert texts(lm.EXPERIMENT, [r for r in records if r.config["cell"]["cell"] == "gru"], "best") == [
        "No run of MuFuRU is finished."
    ]


def judged(report: Report, records: list[Record]) -> dict[str, str]:
    """Verdicts by the paper's words."""
    (content,) = shown(report, records, "claims")
    return {row[0].split("“")[1].split("”")[0]: row[3] for row in content.rows}


def test_claims_on_language_models() -> None:
    assert list(judged(lm.EXPERIMENT, language_models()).values()) == ["holds"] * 4
    few = [record for record in language_models() if record.config["seed"] < 5]
    assert list(judged(lm.EXPERIMENT, few).values()) == ["holds", "holds", "holds in part", "holds in part"]
    # MuFuRU at 125.5: past its number by 5.8, and behind the GRU by 3, more than the interval's half width of 2.4
    behind = judged(lm.EXPERIMENT, moved(language_models(), "mufuru", "perplexity", 6.0))
    assert list(behind.values()) == ["holds", "does not hold", "does not hold", "does not hold"]
    near = judged(lm.EXPERIMENT, moved(language_models(), "mufuru", "perplexity", 1.8))
    assert list(near.values()) == ["holds", "holds in part", "holds in part", "holds"]
    worse = judged(lm.EXPERIMENT, moved(language_models(), "gru", "perplexity", 9.0))
    assert list(worse.values()) == ["does not hold", "holds", "holds", "holds"]


def test_claims_on_sentiment() -> None:
    whole = judged(sentiment.EXPERIMENT, classifiers())
    assert list(whole.values()) == ["does not hold", "holds", "holds in part", "holds", "holds in part"]
    lower = judged(sentiment.EXPERIMENT, moved(classifiers(), "mufuru", "accuracy", -0.004))
    assert list(lower.values())[1] == "holds in part"
    assert list(judged(sentiment.EXPERIMENT, moved(classifiers(), "mufuru", "accuracy", -0.02)).values()) == [
        "does not hold",
        "does not hold",
        "does not hold",
        "does not hold",
        "does not hold",
    ]
    assert list(judged(sentiment.EXPERIMENT, without(classifiers(), "trees")).values())[-1] == "not measured"


def pair(one: list[float], other: list[float], key: str = "perplexity") -> dict[str, list[Record]]:
    """Two lines of runs with these results on the test data."""
    first = next(record for record in language_models() if record.config["cell"]["cell"] == "gru")

    def line(values: list[float]) -> list[Record]:
        return [
            replace(first, config=first.config | {"seed": seed}, result=first.result | {"test": {key: value}})
            for seed, value in enumerate(values)
        ]

    return {"A": line(one), "B": line(other)}


@pytest.mark.parametrize(
    ("one", "other", "ahead", "as_good"),
    [
        ([1.0, 1.1, 1.2] * 2, [2.0, 2.1, 2.2] * 2, "holds", "holds"),
        ([1.0, 3.0, 1.0] * 2, [2.0, 2.0, 2.0] * 2, "holds in part", "holds"),
        ([2.0, 2.0] * 3, [2.0, 2.0] * 3, "does not hold", "holds"),
        ([3.0, 1.0, 3.0] * 2, [2.0, 2.0, 2.0] * 2, "does not hold", "holds in part"),
        ([3.0, 3.1, 3.0] * 2, [2.0, 2.0, 2.1] * 2, "does not hold", "does not hold"),
        # too few pairs for a test, however clear they are
        ([1.0, 1.1, 1.2, 1.0, 1.1], [2.0, 2.1, 2.2, 2.0, 2.1], "holds in part", "holds in part"),
        ([3.0, 3.1, 3.0], [2.0, 2.0, 2.1], "does not hold", "does not hold"),
        # one run has no interval: nothing is sure
        ([1.0], [2.0], "holds in part", "holds in part"),
        ([2.0], [1.0], "does not hold", "does not hold"),
        ([], [2.0], "not measured", "not measured"),
    ],
)
def test_rules_between_two_models(one: list[float], other: list[float], ahead: str, as_good: str) -> None:
    """For perplexity less is better, and the same numbers the other way round for accuracy."""
    assert claims.ahead("A", "B", PERPLEXITY).judge(pair(one, other))[1] == ahead
    assert claims.as_good("A", "B", PERPLEXITY).judge(pair(one, other))[1] == as_good
    turned = pair([-value for value in one], [-value for value in other], "accuracy")
    assert claims.ahead("A", "B", ACCURACY).judge(turned)[1] == ahead
    assert claims.as_good("A", "B", ACCURACY).judge(turned)[1] == as_good


def test_the_runs_of_all_parts_are_one_experiment() -> None:
    assert lm.EXPERIMENT.is_one_experiment(language_models())
    assert sentiment.EXPERIMENT.is_one_experiment(classifiers())


def test_without_runs_no_claim_is_judged() -> None:
    for every in (lm.CLAIMS, sentiment.CLAIMS):
        assert {claim.judge({}).verdict for claim in every} == {"not measured"}


def test_sentiment_in_the_papers_setting() -> None:
    (content,) = shown(sentiment.EXPERIMENT, classifiers(), "paper")
    deviation = math.sqrt(sum(x * x for x in (0.4, 0.2, 0.0, 0.2, 0.4)) / 4)
    margin = T4 * deviation / math.sqrt(5)
    found = row(content, "MuFuRU")
    assert found["test accuracy, %"] == f"87.60 ({87.6 - margin:.2f}–{87.6 + margin:.2f})"
    assert found["deviation"] == f"{deviation:.2f}"
    assert found["every run"] == "88.00, 87.80, 87.60, 87.40, 87.20"
    assert [row(content, name)["the paper"] for name in ("MuFuRU", "GRU", "LSTM")] == ["87.6", "87.3", "84.9"]


def test_what_larger_vectors_are_worth() -> None:
    worth = "from 50 to 100 dimensions: +1.00 (+1.00 to +1.00)."
    assert texts(sentiment.EXPERIMENT, classifiers(), "dimensions") == [f"MuFuRU {worth} GRU {worth}"]
    (content,) = shown(sentiment.EXPERIMENT, classifiers(), "dimensions")
    assert [row[0] for row in content.rows] == ["MuFuRU (50)", "MuFuRU (100)", "GRU (50)", "GRU (100)"]
    alone = texts(sentiment.EXPERIMENT, without(classifiers(), "paper"), "dimensions")
    assert alone == ["There is one size of word vectors only."]


def test_trees_and_best() -> None:
    content = shown(sentiment.EXPERIMENT, classifiers(), "trees")[0]
    assert row(content, "TreeMuFuRU")["minus Tree-LSTM, seed by seed"] == "+1.50 (+1.50 to +1.50)"
    assert row(content, "Tree-LSTM")["the paper"] == "88.0"
    assert [row[0] for row in content.rows] == ["TreeMuFuRU", "TreeMuFuRU (100 units)", "Tree-LSTM"]
    # 88.1 to the last bit but one counts as 88.1
    assert "the bar of 88.1 is met." in texts(sentiment.EXPERIMENT, classifiers(), "best")[0]


def test_sentiment_choices_have_a_table_for_each_cell() -> None:
    mufuru, gru = shown(sentiment.EXPERIMENT, classifiers(), "choices")
    assert mufuru.caption.startswith("MuFuRU")
    assert gru.caption.startswith("GRU")
    names = ["nothing", "learning rate 0.0005", "learning rate 0.002"]
    names += [f"dropout of words {p}, of the last state {p}" for p in ("0", "0.3")]
    assert [row[0] for row in gru.rows] == names
    assert {row[1] for row in gru.rows} == {"3"}


def test_what_was_tried_for_the_best_setting() -> None:
    (content,) = shown(sentiment.EXPERIMENT, classifiers(), "search")
    names = ["nothing", "graded labels no", "pooling max", "dropout of words 0.7", "weight decay 0.1"]
    assert [row[0] for row in content.rows] == names
    # the first seed alone, which has 87.5 in the best setting
    assert content.rows[1][1:4] == ("1", "87.00 (n/a)", "−0.50 (n/a)")
    (missing,) = texts(sentiment.EXPERIMENT, without(classifiers(), "best"), "search")
    assert "--part best" in missing


def test_the_log_of_what_did_not_help() -> None:
    (content,) = shown(lm.EXPERIMENT, language_models(), "negative")
    # in these records the parts keep and lean are for the better, all choices for the worse
    assert [row[0] for row in content.rows] == [*["MuFuRU, batches of 20"] * 4, *["GRU, batches of 20"] * 11]
    # beside MuFuRU's 119, 120 and 121: the same with a controller
    assert content.rows[3][1:] == ("controller of 50", "3", "+0.0 (−2.3 to +2.3)", "+0.0 (−2.3 to +2.3)")
    assert content.rows[4][1:] == ("learning rate 0.0005", "1", "+3.0 (n/a)", "+3.0 (n/a)")
    worse = [r if r.group != "lean" else moved([r], "mufuru", "perplexity", 3.0)[0] for r in language_models()]
    worse = [replace(r, result=r.result | {"valid": r.result["test"]}) for r in worse]
    (content,) = shown(lm.EXPERIMENT, worse, "negative")
    assert content.rows[0] == ("MuFuRU", "controller of 50", "3", "+2.0 (−0.3 to +4.3)", "+2.0 (−0.3 to +4.3)")
    assert shown(lm.EXPERIMENT, without(language_models(), "choices", "batch20"), "negative") == []


def test_operations_by_kind() -> None:
    table = shown(lm.EXPERIMENT, language_models(), "use")[0]
    assert [row[0] for row in table.rows][:3] == ["content words", "function words", "<eos>"]
    assert table.rows[1][:4] == ("function words", "2,000", "0.10 ± 0.00", "0.40 ± 0.00")
    spread = shown(sentiment.EXPERIMENT, classifiers(), "operations")[1]
    # 0.01 to 0.05 over the seeds
    assert spread.rows[0] == ("negation", *["0.03"] * 7)
    none = inspection.use("x", {"GRU": [r for r in classifiers() if r.config["cell"]["cell"] == "gru"]}, "")
    assert none == ["None of these runs recorded which operations its units use."]


def test_operations_come_in_the_order_of_the_settings() -> None:
    """A record has them by the alphabet, and every figure should give each the same colour."""
    record = next(r for r in classifiers() if r.config["cell"]["cell"] == "mufuru")
    used = [line | {"operations": dict.fromkeys(sorted([*PAPER, "own"]), 0.1)} for line in record.curve]
    assert plots.operations_of([replace(record, curve=used)]) == [*PAPER, "own"]
    (picture,) = inspection.over_training("use", {"A": [replace(record, curve=used)]})
    assert isinstance(picture, Picture)
    assert "keep, replace, max" in picture.alt


def test_panels_with_other_rows_get_figures_of_their_own() -> None:
    mufuru = [record for record in classifiers() if record.config["cell"]["cell"] == "mufuru"][:1]
    words = [record for record in language_models() if record.config["cell"]["cell"] == "mufuru"][:1]
    found = [b.name for b in inspection.use("x", {"A": mufuru, "B": words}, "") if isinstance(b, Picture)]
    assert found == ["x", "x-2"]


def test_sentences_are_those_of_the_run_with_the_best_validation() -> None:
    mufuru = [r for r in classifiers() if r.group == "paper" and r.config["cell"]["cell"] == "mufuru"]
    blocks = inspection.sentences("s", mufuru)
    assert str(blocks[0]).startswith("MuFuRU with seed 0,")
    pictures = [block for block in blocks if isinstance(block, Picture)]
    assert [picture.caption for picture in pictures] == [
        "“not a bad film .” (positive; the first short sentence with “not”).",
        "“long , but very funny .” (positive; the first short sentence with “but”).",
    ]
    table = shown(sentiment.EXPERIMENT, classifiers(), "sentences")[0]
    assert table.head[-1] == "positive"
    assert table.rows[0] == ("not", "0.40", *["0.10"] * 6, "0.10")
    assert inspection.sentences("s", [made("", "gru")]) == ["None of these runs recorded sentences."]


def test_how_numbers_are_written() -> None:
    assert PERPLEXITY.interval(None) == ACCURACY.change(None) == ACCURACY.deviation(summarise([1.0])) == MISSING
    assert PERPLEXITY.change(summarise([-0.01])) == "−0.0 (n/a)"
    assert ACCURACY.change(summarise([-0.5, -0.5])) == "−0.50 (−0.50 to −0.50)"
    assert PERPLEXITY.better(95.0 + 1e-12, 95.0)
    assert not ACCURACY.better(88.09, 88.1)


def test_models_have_names() -> None:
    found = runs.by_model([*language_models(), *classifiers()])
    controllers = ["MuFuRU (controller 50)", "MuFuRU (controller 50 with relu)"]
    assert list(found) == ["MuFuRU", "TreeMuFuRU", *controllers, "GRU of the paper", "GRU", "LSTM", "Tree-LSTM"]


def test_two_operations_are_the_papers_gru_with_its_reset_gate_alone() -> None:
    made = [lm_record(job) for job in lm.LMGrid(part="reset", seeds=1).jobs(Path())]
    assert list(runs.by_model(made)) == ["MuFuRU"]
    assert "GRU of the paper" in runs.by_model(r for r in language_models() if r.group == "operations")


def test_names_hold_no_option_that_the_cell_lacks() -> None:
    made = [lm_record(job) for job in lm.LMGrid(part="operations", seeds=1).jobs(Path())]
    names = list(runs.by_settings(made))
    assert names[-2:] == [
        "GRU, hidden size 200, keep bias none, embedding size none",
        "GRU, hidden size 240, keep bias none, embedding size 200",
    ]
    assert "MuFuRU, hidden size 200, keep bias 2, ops keep replace, embedding size none" in names


def test_settings_that_are_newer_than_a_record_have_their_defaults() -> None:
    new, other = [r for r in language_models() if r.group == "paper" and r.config["cell"]["cell"] == "gru"][:2]
    training = {name: value for name, value in other.config["training"].items() if name not in ("smoothing", "ties")}
    old = replace(other, config=other.config | {"training": training})
    assert runs.varying([new, old]) == ["training.smoothing", "training.ties", "seed"]
    assert runs.varying(runs.unique([new, old])) == ["seed"]
    unknown = replace(old, config=old.config | {"colour": "red"})
    assert runs.unique([unknown]) == [unknown]


def test_changes_of_unnamed_settings_go_by_their_own_names() -> None:
    base: list[Any] = [r for r in language_models() if r.group == "paper" and r.config["cell"]["cell"] == "gru"][:1]
    other = replace(base[0], config=base[0].config | {"tied": True, "bptt": 7})
    assert list(results.changes(base, [other], lm.CHOICES)) == ["nothing", "window 7, tied yes"]
