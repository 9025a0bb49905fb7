"""`mufuru score`: how well a trained language model predicts a text, token by token."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from mufuru.experiments.cli.show import number
from mufuru.experiments.cli.usage import parse, use_threads
from mufuru.experiments.data import text
from mufuru.experiments.data.lines import read_input
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.lm.task import perplexity
from mufuru.experiments.tasks.lm.use import TextModel

EXAMPLES = """\
  mufuru score runs/lm article.txt
  mufuru score runs/lm article.txt --summary
  mufuru score runs/lm article.txt --json > scores.json
  zcat articles.gz | mufuru score runs/lm --summary
"""


@dataclass(frozen=True)
class Score:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run of `mufuru train lm`."""
    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """Text to score, UTF-8; none for standard input."""
    summary: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only the perplexity of the whole text, not every token."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""
    threads: int = 1
    """Threads to compute with."""


class Scored(NamedTuple):
    """A token of the text, and the logarithm of its probability."""

    token: str
    log_probability: float


def main(arguments: list[str]) -> int:
    description = """\
Score a text: a line for each token with the natural logarithm of the probability that the model gave it, between tabs;
then, on stderr, the perplexity. A token that the model does not know is scored as <unk>."""
    chosen = parse(Score, arguments, prog="mufuru score", description=description, examples=EXAMPLES)
    use_threads(chosen.threads, "mufuru score")
    loaded: TextModel = load_as("text_model", chosen.run)
    lines, place = read_input(chosen.file)
    words = list(text.tokens_of(lines, loaded.level, place))
    scored = map(Scored, words, loaded.log_probabilities(words))
    if chosen.json or chosen.summary:
        rows = list(scored)
        show(summarise(loaded, rows), [] if chosen.summary else rows, chosen.json)
        return 0
    print("token\tlog_probability")
    rows = []
    for row in scored:
        rows.append(row)
        print(f"{escape(row.token)}\t{row.log_probability:.6f}")
    print(sentence(summarise(loaded, rows)), file=sys.stderr)
    return 0


def summarise(loaded: TextModel, rows: list[Scored]) -> dict[str, Any]:
    loss = -math.fsum(row.log_probability for row in rows) / len(rows)
    summary = {"perplexity": perplexity(loss), "loss": loss}
    if loaded.level == "char":
        summary["bits_per_character"] = loss / math.log(2)
    return summary | {"tokens": len(rows), "unknown": sum(row.token not in loaded.vocabulary for row in rows)}


def show(summary: dict[str, Any], rows: list[Scored], as_json: bool) -> None:
    if as_json:
        print(json.dumps({**summary, **({"scores": rows} if rows else {})}, ensure_ascii=False))
    else:
        print(sentence(summary))


def sentence(summary: dict[str, Any]) -> str:
    bits = f", {summary['bits_per_character']:.4f} bits per character" if "bits_per_character" in summary else ""
    over = "1 token" if summary["tokens"] == 1 else f"{summary['tokens']} tokens"
    unknown = f"{summary['unknown']} of them unknown to the model"
    return f"perplexity {number(summary['perplexity'])}{bits} over {over}, {unknown}"


def escape(token: str) -> str:
    """A token that fits on one line between tabs: tabs and ends of lines as JSON writes them."""
    return json.dumps(token, ensure_ascii=False)[1:-1]
