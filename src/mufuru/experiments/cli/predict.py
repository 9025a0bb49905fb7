"""`mufuru predict`: predictions of a trained model for new sequences, line by line."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from mufuru.experiments.cli.usage import File, Run, Threads, check_range, parse
from mufuru.experiments.data import DataError
from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.lines import read_each
from mufuru.experiments.engine.evaluate import read_layout
from mufuru.experiments.settings import SettingError
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.task import HowToRead, Predictor
from mufuru_command import say

EXAMPLES = """\
  mufuru predict runs/sentiment reviews.txt
  echo "not a bad film at all" | mufuru predict runs/sentiment
  tail -f log.txt | mufuru predict runs/log --batch-size 1
  mufuru predict runs/coffee Coffee_TEST.tsv > labels.jsonl
  mufuru predict runs/sales sales.csv
"""


@dataclass(frozen=True)
class Predict:
    """Predict for every sequence of a file, and print a line of JSON for each: a classifier's likeliest label and the
    probability of each, a regressor's number, a tagger's label for each token, a forecaster's next values. A file is
    read as the training file was, with the same format and columns, with labels or without; other files are read line
    by line, a text in each, or a row of numbers. An empty line is a text of one unknown word; for a model of numbers it
    is refused. A line of any length is read to its end, unless the model has a --max-length."""

    run: Run
    """Folder of a run of `mufuru train classify`, `regress`, `tag` or `forecast`, or of its export."""
    file: File = None
    """File to read, UTF-8, or a folder of text files; none for the lines of the standard input."""
    format: Format | None = None
    """Format of the file; None for that of training, or by its name."""
    text_column: str | None = None
    """Column of the texts or sequences, or its number, from 1; None for that of training."""
    labels: Literal["guess", "yes", "no"] = "guess"
    """Whether rows of numbers, or lines, begin with a label, which is left out."""
    batch_size: int = 32
    """Sequences predicted at a time: 1 prints each answer at once, more are faster."""
    threads: Threads = 1

    def __post_init__(self) -> None:
        check_range("--batch-size", self.batch_size, 1)


def main(arguments: list[str]) -> int:
    chosen = parse(Predict, arguments, EXAMPLES)
    predictor: Predictor = load_as("predictor", chosen.run)
    sequences, note = opened(predictor, chosen)
    if note:
        say(note, 0)
    for batch in filter(None, batches(sequences, chosen.batch_size)):
        for prediction in predictor.predict(batch):
            print(written(prediction._asdict()))
        sys.stdout.flush()
    return 0


def written(answer: dict[str, Any]) -> str:
    """Return an answer as JSON, which has no NaN."""
    try:
        return json.dumps(answer, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise DataError(
            "the model's next answer is not a finite number: a sequence has values too far from those of "
            "training. The answers before it are written: correct it, or leave it out"
        ) from None


def opened(predictor: Predictor, chosen: Predict) -> tuple[Iterator[Any], str]:
    """Return the sequences, and a note on how they were read."""
    how = HowToRead(read_layout(chosen.run), chosen.labels, chosen.format, chosen.text_column)
    if (opener := getattr(predictor, "open", None)) is not None:
        opening: tuple[Iterator[Any], str] = opener(chosen.file, how)
        return opening
    if how != HowToRead(how.layout):
        raise SettingError("--format, --text-column and --labels are for classifiers of files: leave them out")
    return read_each(chosen.file, predictor.read), ""


def batches(sequences: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Group sequences; those before an error are yielded too."""
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
