"""Dynamic evaluation of language models: what they reach when they go on learning from the text that they have read."""

from __future__ import annotations

from mufuru.experiments.report import runs
from mufuru.experiments.report.models import PERPLEXITY
from mufuru.experiments.report.page import Block
from mufuru.experiments.report.results import Lines
from mufuru.experiments.report.tables import MISSING, Table


def blocks(lines: Lines) -> list[Block]:
    """A row for each run whose dynamic evaluation was kept; never among the others."""
    rows = []
    for name, records in lines.items():
        for record in records:
            if kept := record.dynamic:
                rates = ", ".join(sorted(kept["tried"], key=float)) or MISSING
                own, learning = PERPLEXITY.value(record.result["test"]["perplexity"]), kept["metrics"]["perplexity"]
                rate = f"{kept['how']['learning_rate']:g}"
                rows.append((name, str(runs.setting(record, "seed")), own, PERPLEXITY.value(learning), rate, rates))
    if not rows:
        return []
    head = ("model", "seed", "test perplexity", "with dynamic evaluation", "learning rate", "best on validation of")
    caption = "Apart: with dynamic evaluation a model goes on learning from the test text that it has predicted"
    return [Table(caption, head, tuple(rows))]
