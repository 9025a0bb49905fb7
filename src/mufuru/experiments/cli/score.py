"""`mufuru score`: how well a trained language model predicts a text, token by token."""

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

from mufuru.experiments.cli import number
from mufuru.experiments.cli.usage import AsJson, File, Flag, Run, Threads, parse
from mufuru.experiments.data import text
from mufuru.experiments.data.lines import read_input
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.lm.task import comparable, perplexity
from mufuru.experiments.tasks.lm.use import TextModel, cut

EXAMPLES = """\
  mufuru score runs/lm article.txt
  mufuru score runs/lm article.txt --summary
  mufuru score runs/lm article.txt --json > scores.json
  zcat articles.gz | mufuru score runs/lm --summary
"""
Scores = list[tuple[str, float]]
"""Tokens of the text, and the logarithms of their probabilities."""


@dataclass(frozen=True)
class Score:
    """Score a text: a line for each token with the natural logarithm of the probability that the model gave it,
    separated by a tab; then, on stderr, the perplexity. A token that the model does not know is scored as <unk>."""

    run: Run
    """Folder of a run of `mufuru train lm`."""
    file: File = None
    """Text to score, UTF-8; none for standard input."""
    summary: Flag = False
    """Only the perplexity of the whole text, not every token."""
    json: AsJson = False
    threads: Threads = 1


def main(arguments: list[str]) -> int:
    chosen = parse(Score, arguments, EXAMPLES)
    loaded: TextModel = load_as("text_model", chosen.run)
    lines, place = read_input(chosen.file)
    read = list(text.with_text(lines, loaded.level, place))
    words = cut(read, loaded.level, loaded.vocabulary)
    labels = loaded.vocabulary.labelled(words)
    as_lines = not chosen.json and not chosen.summary
    if as_lines:
        print("token\tlog_probability")
    scores: Scores = []
    for token, log in zip(labels, loaded.log_probabilities(words), strict=True):
        scores.append((token, log))
        if as_lines:
            # tabs and ends of lines as JSON writes them
            print(f"{json.dumps(token, ensure_ascii=False)[1:-1]}\t{log:.6f}")
    summary = summarise(loaded, scores, read) | {"unknown": sum(word not in loaded.vocabulary for word in words)}
    if chosen.json:
        print(json.dumps(summary | ({} if chosen.summary else {"scores": scores}), ensure_ascii=False))
    else:
        print(sentence(summary), file=sys.stderr if as_lines else sys.stdout)
    return 0


def summarise(loaded: TextModel, scores: Scores, lines: list[str]) -> dict[str, Any]:
    total = -math.fsum(log for _, log in scores)
    loss = total / len(scores)
    summary = {"perplexity": perplexity(loss), "loss": loss}
    words, size = sum(len(line.split()) + 1 for line in lines), sum(len(line.encode()) for line in lines)
    summary |= comparable(total, words, size)
    if loaded.level == "char":
        summary["bits_per_character"] = loss / math.log(2)
    return summary | {"tokens": len(scores)}


def sentence(summary: dict[str, Any]) -> str:
    bits = f", {summary['bits_per_character']:.4f} bits per character" if "bits_per_character" in summary else ""
    if "bits_per_byte" in summary:
        bits += f", {number(summary['perplexity_per_word'])} per word, {summary['bits_per_byte']:.4f} bits per byte"
    over = "1 token" if summary["tokens"] == 1 else f"{summary['tokens']} tokens"
    unknown = f"{summary['unknown']} of them unknown to the model"
    return f"perplexity {number(summary['perplexity'])}{bits} over {over}, {unknown}"
