"""The report on formal languages, and the probes of formulae, from records whose every number is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_records import ENVIRONMENT

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.record import Record
from mufuru.experiments.report import runs
from mufuru.experiments.report.page import Picture, Table
from mufuru.experiments.reproduce import languages, logic_parts
from mufuru.experiments.reproduce.languages import LanguagesGrid
from mufuru.experiments.reproduce.logic import LogicGrid
from mufuru.experiments.settings import to_json
from mufuru.experiments.tasks.logic.formulae import TOKENS
from mufuru.ops import PAPER

LENGTHS = {"longest": [50, 101, 500], "sequences": [100, 200, 0]}


def record(job: Job, accuracy: float, **inspection: Any) -> Record:
    scores = {"loss": 0.1, "accuracy": accuracy}
    result = {"parameters": 64_000, "seconds": 120.0, "test": scores, "valid": scores, "inspection": inspection}
    return Record(job.kind, to_json(job.config), ENVIRONMENT, result, group=job.name.partition("/")[0])


def tables(blocks: list[Any]) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]


@pytest.fixture
def flare() -> list[Record]:
    """MuFuRU solves one of two trials, and short strings in both; all else guesses."""
    found = []
    for job in LanguagesGrid(part="flare", languages=("parity", "first"), seeds=2).jobs(Path()):
        model = job.name.split("/")[1].partition("-")[2]
        solved = model == "mufuru" and job.config.seed == 1
        right = [100, 200 if solved else 100, 0] if model == "mufuru" else [50, 100, 0]
        found.append(record(job, 1.0 if solved else 0.5, lengths={**LENGTHS, "right": right}))
    return found


def test_mean_best_and_share_of_the_trials(flare: list[Record]) -> None:
    accuracy, solved, parameters, minutes = tables(languages.recognition(flare, "flare"))
    names = ("MuFuRU", "GRU of the paper", "nn.GRU", "LSTM", "tanh RNN", "transformer")
    assert accuracy.head == ("language", *names)
    assert accuracy.rows == tuple((name, "0.750, 1.000", *["0.500, 0.500"] * 5) for name in ("parity", "first"))
    # Wilson's interval of one of two, and of none
    assert solved.rows[0][1:3] == ("1 of 2 (0.09–0.91)", "0 of 2 (0.00–0.66)")
    assert parameters.rows[0][1:3] == ("64,000", "64,000")
    assert minutes.rows[1][1:3] == ("2.0", "2.0")
    (picture,) = (block for block in languages.recognition(flare, "flare") if isinstance(block, Picture))
    drawn = [axes for axes in picture.figure.axes if axes.get_visible()]
    assert {axes.get_title(loc="left") for axes in drawn} == {"parity", "first"}
    labelled = [line for line in drawn[0].lines if line.get_label() == "MuFuRU"]
    assert [list(line.get_ydata()) for line in labelled] == [[1.0, 0.75]]


def test_length_up_to_which_a_model_is_right(flare: list[Record]) -> None:
    """A range without strings is left out."""
    ours = [one for one in flare if runs.cell_of(one) == "mufuru" and not runs.is_papers_gru(one)]
    assert {languages.reach([one]) for one in ours} == {"50, 50", "101, 101"}
    assert languages.reach(ours[:2] + ours[2:]) == "75.5, 101"


def test_unfinished_parts_are_in_reports_and_not_in_documentation(flare: list[Record], tmp_path: Path) -> None:
    written = languages.EXPERIMENT.build(flare, tmp_path)
    assert "Trials with 0.99 or more" in written[0].read_text(encoding="utf-8")
    assert languages.EXPERIMENT.document(flare) == {"settings": "", "versions": ""}
    assert not languages.EXPERIMENT.whole


@pytest.fixture
def probed() -> list[Record]:
    """XNOR needs mul, whose weight is small there; nothing else matters. The unit halves its state at every token."""
    found = []
    weight = [[0.7 if op == "keep" else 0.05 for op in PAPER] for _ in TOKENS]
    without = [[0.8 if (token, op) == ("XNOR", "mul") else 1.0 for op in PAPER] for token in TOKENS]
    states = [-1.0, 0.0, 1.0]
    for job in LogicGrid(part="probes", seeds=2).jobs(Path()):
        model = job.name.split("/")[1]
        more: dict[str, Any] = {"without_resets": {"longest": [50, 250], "sequences": [10, 10], "right": [10, 8]}}
        if model.startswith("mufuru"):
            more["operation_weights"] = {"tokens": list(TOKENS), "ops": list(PAPER), "weight": weight, "entropy": 1.0}
            more["interventions"] = {"tokens": list(TOKENS), "ops": list(PAPER), "accuracy": 1.0, "without": without}
        if model.startswith("mufuru-1-"):
            following = [[-0.5, 0.0, 0.5] for _ in TOKENS]
            more["automaton"] = {"states": states, "next": following, "boundary": 0.0, "true": "above"}
        found.append(record(job, 1.0 if model.startswith("mufuru") else 0.9, **more))
    return found


def test_formulae_without_resets_and_operations_that_matter(probed: list[Record]) -> None:
    blocks = logic_parts.probes(probed)
    first, effects = tables(blocks)
    assert [row[:3] for row in first.rows[:3]] == [
        ("0.001", "8", "MuFuRU"),
        ("0.001", "8", "GRU of the paper"),
        ("0.001", "8", "GRU"),
    ]
    assert first.rows[0][4:] == ("1.000 (1.000–1.000)", "100 % (34 %–100 %)", "0.900 (0.900–0.900)", "50, 50")
    assert len(first.rows) == 4 * 5
    rows = {row[0]: dict(zip(effects.head, row, strict=True)) for row in effects.rows}
    assert rows["XNOR"]["mul"] == "+0.200 (0.05)"
    assert rows["XOR"]["mul"] == "+0.000 (0.05)"
    assert rows["XNOR"]["keep"] == "+0.000 (0.70)"
    pictures = {block.name: block for block in blocks if isinstance(block, Picture)}
    assert pictures.keys() == {"effects", "automaton"}
    assert [axes.get_title(loc="left") for axes in pictures["automaton"].figure.axes] == [*TOKENS[2:]]
    (line, *_) = pictures["automaton"].figure.axes[0].lines
    # a value and a gate: each halves the state
    assert list(line.get_ydata()) == [-0.25, 0.0, 0.25]
    drawn = {one.get_label(): one for one in pictures["effects"].figure.axes[0].lines}
    assert max(map(float, drawn["mul"].get_ydata())) == pytest.approx(0.2)


def test_the_runs_of_the_probes_are_those_of_the_figures() -> None:
    """The same formulae and first weights, so that both can be compared seed by seed."""
    every = {job.name: job.config for job in LogicGrid(seeds=1).jobs(Path())}
    probes = {name: config for name, config in every.items() if name.startswith("probes/")}
    assert len(probes) == 4 * 5
    one, other = every["probes/gru-8-lr0.001/seed-0"], every["sweep/gru-8/seed-0"]
    assert (one.cell, one.training, one.splits) == (other.cell, other.training, other.splits)
    two = probes["probes/paper-gru-1-lr0.01/seed-100"].cell
    assert (two.cell, two.ops, two.keep_bias, two.hidden_size) == ("mufuru", ("keep", "replace"), 0.0, 1)
