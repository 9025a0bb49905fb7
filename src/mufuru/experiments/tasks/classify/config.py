"""The settings of classifiers of sequences, and those that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mufuru.experiments.data.labelled import Format
from mufuru.experiments.data.tokens import Cut
from mufuru.experiments.settings import SettingError, Training, check_held_out, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.classify.pooling import PoolingName
from mufuru.experiments.tasks.words import NAMED_VECTORS, WordsConfig


@dataclass(frozen=True)
class DataConfig:
    """The labelled sequences: the Stanford Sentiment Treebank, or files of one's own.

    Paths are kept as they were given, so that a run's settings do not tell of the machine: one that was started with
    relative paths goes on in the same folder.
    """

    data: str | None = None
    """File of labelled sequences: CSV, TSV, JSON lines, or numbers in UCR's layout, in each line a label and values;
    None for the Sentiment Treebank."""
    valid_data: str | None = None
    """File to choose the best weights on; None for a part of the data, see held_out."""
    test_data: str | None = None
    """File to test on; None for a part of the data, see held_out."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Shares of each label's sequences that are held out for validation and for the test, where no files are given."""
    split_seed: int = 0
    """Of the choice which are held out: the runs of several seeds have the same test."""
    format: Format | None = None
    """Of the files: csv, tsv, jsonl or numeric; None to go by their names and first lines, and say so."""
    text_column: str | None = None
    """Name of the column with the texts, or its place, from 1; None to guess it, and say so."""
    label_column: str | None = None
    """Name of the column with the labels, or its place; None to guess it, and say so."""
    split_column: str | None = None
    """Name of the column that says train, valid or test, or its place; None for the one called split, if there is one.
    """
    cut: Cut = "words"
    """What a text is a sequence of: words, with punctuation apart, what stands between blanks, or characters."""
    classes: Literal[2, 5] = 2
    """Of the Sentiment Treebank: 2, negative and positive without the neutral phrases, or all 5."""
    phrases: bool = True
    """Train on all labelled phrases of the Sentiment Treebank, not on its whole sentences alone."""
    distinct_phrases: bool = False
    """Train on every phrase of the Sentiment Treebank once, not as often as it occurs."""
    graded: bool = False
    """Train the 2 classes of the Sentiment Treebank on all its 5 labels: a phrase is positive by 0.1, 0.3, 0.5, 0.7 or
    0.9, and neutral ones are learned from too."""
    data_dir: str | None = None
    """Folder with the Sentiment Treebank, as its zip or its train.txt, dev.txt and test.txt, and with word vectors that
    go by a name; None to download them once."""

    def __post_init__(self) -> None:
        check_held_out(self.held_out)
        if self.classes not in (2, 5):
            raise SettingError(f"classes should be 2 or 5, got {self.classes}")
        if self.graded and self.classes != 2:
            raise SettingError(f"graded is for 2 classes, got {self.classes}: leave one of them out")
        own = self.data is not None
        for name in _TREEBANK if own else _FILES:
            if getattr(self, name) != _DEFAULTS[name]:
                what = "the Sentiment Treebank" if own else "a file of your own"
                rest = "leave it or --data out" if own else "name the file with --data, or leave it out"
                raise SettingError(f"{name} is for {what}: {rest}")


_DEFAULTS: dict[str, Any] = {name: field.default for name, field in DataConfig.__dataclass_fields__.items()}
_TREEBANK = ("classes", "phrases", "distinct_phrases", "graded")
_COLUMNS = ("text_column", "label_column", "split_column")
_FILES = ("valid_data", "test_data", "held_out", "split_seed", "format", *_COLUMNS, "cut")


@dataclass(frozen=True)
class ClassifyConfig(WordsConfig):
    """Learn to name the class of a sequence: the sentiment of a phrase, or any labels of any sequences.

    The seed decides first weights, dropout and the order of training; which data is held out is the split's own seed.
    Numbers are standardised, each channel by its mean and deviation over the training data.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=100))
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: DataConfig = field(default_factory=DataConfig)
    seed: int = 0
    """Of first weights, dropout and the order of training."""
    max_length: int | None = None
    """Most steps of a sequence, the rest is not read; None for no limit."""
    bucketing: bool = True
    """Train on batches of sequences of like length, which take fewer steps; off for batches drawn at random."""
    pooling: PoolingName = "last"
    """What the classifier sees: the last state, or of all steps' outputs their max, their mean or an attention's
    choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "max_length")
        if self.data.data is not None and self.data.data_dir is not None and self.vectors not in NAMED_VECTORS:
            names = " or ".join(NAMED_VECTORS)
            raise SettingError(f"data_dir has the Sentiment Treebank, or vectors {names}: leave it out, or name those")


PRESETS: dict[str, ClassifyConfig] = {
    # for a file of one's own, without word vectors; first, so that it is where `--data` alone starts from
    "short": ClassifyConfig(
        CellConfig(hidden_size=64),
        Training(epochs=10, batch_size=25, learning_rate=4e-3, beta1=0.9, clip=1.0, schedule="cosine"),
        embedding_size=64,
        min_count=2,
        pooling="max",
        embedding_dropout=0.3,
        output_dropout=0.3,
    ),
    # The paper gives units, minibatches, classifier, vectors and their tuning, the look every 200 minibatches and the
    # optimiser. It is silent on learning rate, dropout, when to stop, the vectors' size and case.
    "paper": ClassifyConfig(
        CellConfig(hidden_size=100),
        Training(epochs=4, batch_size=25, learning_rate=1e-3, beta1=0.0, evaluate_every=200),
        vectors="glove.6B",
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
    # chosen with the GRU on the development set; `mufuru reproduce sentiment --part search` has what was tried
    "best": ClassifyConfig(
        CellConfig(hidden_size=100, bidirectional=True),
        Training(
            epochs=4,
            batch_size=50,
            learning_rate=1e-3,
            beta1=0.9,
            clip=1.0,
            schedule="cosine",
            evaluate_every=200,
            average=0.999,
        ),
        DataConfig(distinct_phrases=True, graded=True),
        vectors="glove.6B",
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
}
