"""Settings and presets of classifiers of sequences; files and training of all tasks that learn from a user's files."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.settings import SettingError, Training, check_default, check_held_out, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.words import NAMED_VECTORS, WordsConfig

PoolingName = Literal["last", "max", "mean", "attention"]
FEW = Training(
    updates=1000, batch_size=25, learning_rate=4e-3, beta1=0.9, clip=1.0, schedule="cosine", evaluate_every=50,
    ties="loss",
)  # fmt: skip
"""Training with as many updates for a small training set as for a large one."""


@dataclass(frozen=True)
class Files:
    """The files of training, validation and test. Paths are kept as given: a run that was started with relative paths
    is resumed in the same folder."""

    files: ClassVar[tuple[str, ...]] = ("data", "valid_data", "test_data")
    """Settings that name files of the user."""
    data: str | None = None
    """Training file; required."""
    valid_data: str | None = None
    """Validation file, to select the best weights; None to hold out a part of the data, see held_out."""
    test_data: str | None = None
    """Test file; None to hold out a part of the data, see held_out."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Fractions held out for validation and test, where no files are given."""
    split_seed: int = 0
    """Seed of the held-out split, so that runs with other seeds share the same test data."""

    def __post_init__(self) -> None:
        check_held_out(self.held_out)

    @property
    def parts(self) -> dict[str, Any]:
        """Arguments of the readers: the files beside the first, and what is held out of it."""
        return {"valid": self.valid_data, "test": self.test_data, "held_out": self.held_out, "seed": self.split_seed}


@dataclass(frozen=True)
class DataConfig(Files):
    """The labelled sequences: the Stanford Sentiment Treebank, or your own files.

    Paths are kept as given: a run that was started with relative paths is resumed in the same folder.
    """

    data: str | None = None
    """File of labelled sequences: CSV, TSV, JSON lines, .ts, fastText's lines, numbers in UCR's layout, in each line a
    label and values; or a folder of text files for each label. None for the Sentiment Treebank."""
    format: Format | None = None
    """Format of the files: csv, tsv, jsonl, numeric (a label and values), wide (the same with columns such as x_0, x_1,
    y_0, y_1 for channels), ts, fasttext, lines (a label and a text) or folder; None to guess it from names and first
    lines, and report it."""
    text_column: str | None = None
    """Name of the text column, or its number, from 1; None to guess it, and report it."""
    label_column: str | None = None
    """Name of the label column, or its number; None to guess it, and report it."""
    split_column: str | None = None
    """Name of the column with train, valid or test, or its number; None for a column named split, if there is one."""
    numeric_classes: bool = False
    """Take labels that look like numbers to predict, many different ones, as classes."""
    cut: Cut = "words"
    """Tokens of a text: words, with punctuation apart; blanks, split at white space; or characters."""
    classes: Literal[2, 5] = 2
    """Classes of the Sentiment Treebank: 2, negative and positive without the neutral phrases, or all 5."""
    phrases: bool = True
    """Train on all labelled phrases of the Sentiment Treebank, not on its whole sentences alone."""
    distinct_phrases: bool = False
    """Train on every phrase of the Sentiment Treebank once, not as often as it occurs."""
    graded: bool = False
    """Train the 2 classes of the Sentiment Treebank on all its 5 labels: the target for positive is 0.1, 0.3, 0.5, 0.7
    or 0.9, neutral phrases included."""
    data_dir: str | None = None
    """Folder with the Sentiment Treebank, as its zip or its train.txt, dev.txt and test.txt, and with named
    word vectors; None to download them once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.graded and self.classes != 2:
            raise SettingError(f"graded is for 2 classes, got {self.classes}: leave one of them out")
        if self.data is not None:
            check_default(self, _TREEBANK, "is for the Sentiment Treebank: leave it or --data out")
        else:
            check_default(self, _FILES, "is for a file of your own: name the file with --data, or leave it out")


_TREEBANK = ("classes", "phrases", "distinct_phrases", "graded")
_COLUMNS = ("text_column", "label_column", "split_column")
_FILES = ("valid_data", "test_data", "held_out", "split_seed", "format", *_COLUMNS, "numeric_classes", "cut")


@dataclass(frozen=True)
class ClassifyConfig(WordsConfig):
    """Classify sequences: the sentiment of phrases, or any labels of any sequences.

    The seed decides initial weights, dropout and the order of training; split_seed decides which data is held out.
    Numbers are standardised, each channel by its mean and deviation over the training data.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=100))
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: DataConfig = field(default_factory=DataConfig)
    max_length: int | None = None
    """Maximum steps of a sequence, the rest is not read; None for no limit."""
    bucketing: bool = True
    """Train on batches of similar length, which take fewer steps; off for random batches."""
    selection_metric: Literal["accuracy", "macro_f1", "loss"] = "accuracy"
    """Validation metric that selects the best weights: accuracy; macro_f1, in which a rare class counts as much as a
    frequent one; or loss."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the classes in the training loss: none, or balanced, in inverse proportion to their frequency."""
    calibrate: bool = False
    """After training choose the temperature of the softmax that has the lowest loss on validation, so that
    probabilities are neither overconfident nor underconfident; labels do not change."""
    pooling: PoolingName = "last"
    """Input of the classifier: the last state, or the max, the mean or an attention over the outputs of all steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "max_length")
        if self.class_weights != "none" and self.data.graded:
            raise SettingError("class_weights are for labels, and graded targets are shares: leave one of them out")
        if self.calibrate and self.training.select != "best":
            raise SettingError("calibrate is for the best weights: leave it out, or select best")
        if self.data.data is not None and self.data.data_dir is not None and self.vectors not in NAMED_VECTORS:
            names = " or ".join(NAMED_VECTORS)
            raise SettingError(f"data_dir has the Sentiment Treebank, or vectors {names}: leave it out, or name those")


PRESETS: dict[str, ClassifyConfig] = {
    # for your own file, without word vectors; first, so that it is the default with `--data` alone
    "short": ClassifyConfig(
        CellConfig(hidden_size=64),
        Training(epochs=10, batch_size=25, learning_rate=4e-3, beta1=0.9, clip=1.0, schedule="cosine", ties="loss"),
        embedding_size=64,
        min_count=2,
        pooling="max",
        embedding_dropout=0.3,
        output_dropout=0.3,
    ),
    # for series of numbers
    "series": ClassifyConfig(
        CellConfig(hidden_size=64),
        replace(FEW, updates=1500, batch_size=16, learning_rate=3e-3),
        pooling="max",
        output_dropout=0.3,
    ),
    # The paper gives units, minibatches, classifier, vectors and their tuning, validation every 200 minibatches and the
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
