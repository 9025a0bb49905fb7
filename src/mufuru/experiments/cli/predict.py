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
from mufuru.experiments.engine import RunError, load_model, read_config
from mufuru.experiments.tasks.classify import ClassifyConfig, Predictor
from mufuru.experiments.tasks.classify.predictor import Prediction, Sequence

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


def run(arguments: list[str]) -> int:
    chosen = parse(Predict, arguments, prog="mufuru predict", description=DESCRIPTION, examples=EXAMPLES)
    if chosen.batch_size < 1:
        raise UsageError(f"--batch-size should be at least 1, got {chosen.batch_size}. See mufuru predict --help")
    use_threads(chosen.threads, "mufuru predict")
    predictor = load_predictor(chosen.run)
    for batch in batches(sequences(predictor, chosen.file), chosen.batch_size):
        write(predictor.predict(batch))
    return 0


def load_predictor(folder: Path) -> Predictor:
    """The classifier of a run, without its data; a run of another task is refused."""
    kind, config = read_config(folder)
    if not isinstance(config, ClassifyConfig):
        raise RunError(f"the run in {folder} is of the task {kind}: expected a classifier, of `mufuru train classify`")
    model: Any = load_model(folder)
    return Predictor(model, config)


def sequences(predictor: Predictor, file: Path | None) -> Iterator[Sequence]:
    """What the lines hold; a mistake is told with its line."""
    lines, place = read_input(file)
    for number, line in enumerate(lines, 1):
        try:
            yield predictor.read(line.removesuffix("\n"))
        except DataError as error:
            raise DataError(f"{place}, line {number}: {error}") from None


def batches(found: Iterator[Sequence], size: int) -> Iterator[list[Sequence]]:
    """Some sequences at a time; those before a mistake come too."""
    waiting: list[Sequence] = []
    try:
        for sequence in found:
            waiting.append(sequence)
            if len(waiting) == size:
                yield waiting
                waiting = []
    except DataError:
        yield waiting
        raise
    yield waiting


def write(predictions: list[Prediction]) -> None:
    """A line of JSON for each, on its way at once."""
    for prediction in predictions:
        print(json.dumps(prediction._asdict(), ensure_ascii=False))
    sys.stdout.flush()
