"""`mufuru predict`: the labels of sequences by a trained classifier, line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mufuru.experiments.cli.usage import UsageError, parse, use_threads
from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_input
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.task import Prediction, Predictor

EXAMPLES = """\
  mufuru predict runs/sentiment reviews.txt
  echo "not a bad film at all" | mufuru predict runs/sentiment
  tail -f log.txt | mufuru predict runs/log --batch-size 1
  cut -f 2- Coffee_TEST.tsv | mufuru predict runs/coffee > labels.jsonl
"""
DESCRIPTION = """\
Name the class of every line: a text, or for a model of numbers a row of them without its label. For each line one of
JSON comes out, with the likeliest label and the probability of each. An empty line is a text of one unknown word; a row
of no numbers is refused. A line of any length is read to its end, unless the model has a --max-length."""


@dataclass(frozen=True)
class Predict:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run of `mufuru train classify`."""
    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """Lines to read, UTF-8; none for those of the standard input."""
    batch_size: int = 32
    """Lines read before their labels are written: 1 answers each at once, more are faster."""
    threads: int = 1
    """Threads to compute with."""


def main(arguments: list[str]) -> int:
    chosen = parse(Predict, arguments, prog="mufuru predict", description=DESCRIPTION, examples=EXAMPLES)
    if chosen.batch_size < 1:
        raise UsageError(f"--batch-size should be at least 1, got {chosen.batch_size}. See mufuru predict --help")
    use_threads(chosen.threads, "mufuru predict")
    predictor: Predictor = load_as("predictor", chosen.run)
    for batch in batches(sequences(predictor, chosen.file), chosen.batch_size):
        write(predictor.predict(batch))
    return 0


def sequences(predictor: Predictor, file: Path | None) -> Iterator[Any]:
    """The sequences of the lines; an error names its line."""
    lines, place = read_input(file)
    for number, line in enumerate(lines, 1):
        try:
            yield predictor.read(line.removesuffix("\n"))
        except DataError as error:
            raise DataError(f"{place}, line {number}: {error}") from None


def batches(sequences: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Some sequences at a time; those before a mistake come too."""
    waiting: list[Any] = []
    try:
        for sequence in sequences:
            waiting.append(sequence)
            if len(waiting) == size:
                yield waiting
                waiting = []
    except DataError:
        yield waiting
        raise
    yield waiting


def write(predictions: list[Prediction]) -> None:
    """Write a line of JSON for each at once."""
    for prediction in predictions:
        print(json.dumps(prediction._asdict(), ensure_ascii=False))
    sys.stdout.flush()
