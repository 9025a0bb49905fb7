"""Sentences walked through word by word: what one trained MuFuRU does at each, and what it believes after it."""

from __future__ import annotations

from typing import Any

from mufuru.experiments.report import paper, runs, weights
from mufuru.experiments.report.figures import sentence
from mufuru.experiments.report.page import Block, Folded, Picture
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.tables import Table


def blocks(name: str, records: Runs) -> list[Block]:
    """A figure and a table for each sentence of one run: the one with the best validation accuracy."""
    one = weights.chosen([record for record in records if recorded(record)])
    if one is None:
        return ["None of these runs recorded sentences."]
    seed = runs.setting(one, "seed")
    found: list[Block] = [
        f"MuFuRU with seed {seed}, the run with the best validation accuracy. At each word: the weight of every "
        "operation, mean over the units, and the probability of the sentence's own label if the sentence ended there."
    ]
    for number, walk in enumerate(recorded(one), 1):
        found += _sentence(f"{name}-{number}", walk)
    return found


def recorded(record: Any) -> list[dict[str, Any]]:
    """What the run's inspection holds: `[{"word", "text", "label", "tokens": [{"token", "weights", "probability"}]}]`,
    where the sentence was chosen for the word and the probability is the label's."""
    found: list[dict[str, Any]] = record.result.get("inspection", {}).get("sentences", [])
    return found


def _sentence(name: str, walk: dict[str, Any]) -> list[Block]:
    words = len(walk["tokens"])
    alt = f"Heat map of {words} words by operations, and the probability after each; the numbers are in the next table"
    caption = f"“{walk['text']}” ({walk['label']}; the first short sentence with “{walk['word']}”)."
    return [
        Picture(name, lambda: sentence.draw(walk["tokens"], operations(walk), walk["label"]), alt, caption),
        Folded("The sentence as a table", table(walk)),
    ]


def operations(walk: dict[str, Any]) -> tuple[str, ...]:
    """In the paper's order: a file of records has lost that of the run."""
    return weights.ordered(walk["tokens"][0]["weights"], paper.OPERATIONS)


def table(walk: dict[str, Any]) -> Table:
    ops = operations(walk)
    rows = tuple(
        (step["token"], *(f"{step['weights'][op]:.2f}" for op in ops), f"{step['probability']:.2f}")
        for step in walk["tokens"]
    )
    return Table(f"“{walk['text']}”", ("word", *ops, str(walk["label"])), rows)
