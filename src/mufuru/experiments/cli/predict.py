"""`mufuru predict`: the labels of sequences by a trained classifier, line by line."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mufuru.experiments.cli.usage import File, Run, Threads, check_range, parse
from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_input
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.task import Predictor

EXAMPLES = """\
  mufuru predict runs/sentiment reviews.txt
  echo "not a bad film at all" | mufuru predict runs/sentiment
  tail -f log.txt | mufuru predict runs/log --batch-size 1
  cut -f 2- Coffee_TEST.tsv | mufuru predict runs/coffee > labels.jsonl
"""


@dataclass(frozen=True)
class Predict:
    """Classify every line: a text, or for a model of numbers a row of them without its label. Each line gives a line of
    JSON with the likeliest label and the probability of each. An empty line is a text of one unknown word; a row of no
    numbers is refused. A line of any length is read to its end, unless the model has a --max-length."""

    run: Run
    """Folder of a run of `mufuru train classify`."""
    file: File = None
    """Lines to read, UTF-8; none for those of the standard input."""
    batch_size: int = 32
    """Lines read before their labels are written: 1 answers each at once, more are faster."""
    threads: Threads = 1

    def __post_init__(self) -> None:
        check_range("--batch-size", self.batch_size, 1)


def main(arguments: list[str]) -> int:
    chosen = parse(Predict, arguments, EXAMPLES)
    predictor: Predictor = load_as("predictor", chosen.run)
    for batch in batches(sequences(predictor, chosen.file), chosen.batch_size):
        for prediction in predictor.predict(batch):
            print(json.dumps(prediction._asdict(), ensure_ascii=False))
        sys.stdout.flush()
    return 0


def sequences(predictor: Predictor, file: Path | None) -> Iterator[Any]:
    """Read the sequence of every line; an error names its line."""
    lines, place = read_input(file)
    for number, line in enumerate(lines, 1):
        try:
            yield predictor.read(line.removesuffix("\n"))
        except DataError as error:
            raise DataError(f"{place}, line {number}: {error}") from None


def batches(sequences: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Group sequences; those before a mistake come too."""
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
