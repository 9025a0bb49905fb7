"""Settings and presets of models that predict a number from a sequence."""

from dataclasses import dataclass, field

from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.settings import SettingError, Training, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.classify.config import PoolingName
from mufuru.experiments.tasks.files import FEW, Files
from mufuru.experiments.tasks.words import WordsConfig


@dataclass(frozen=True)
class FilesConfig(Files):
    """The files of sequences and targets. Paths are kept as given: a run that was started with relative paths is
    resumed in the same folder."""

    data: str | None = None
    """File of sequences with a number each, in CSV, TSV, JSON lines, or numbers: in each line the target, then the
    values; required."""
    format: Format | None = None
    """Format of the files, as those of labelled sequences, such as csv, jsonl, numeric or ts; None to guess it from
    names and first lines, and report it."""
    text_column: str | None = None
    """Name of the column of sequences, or its number, from 1; None to guess it, and report it."""
    target_column: str | None = None
    """Name of the column of targets, or its number; None to guess it, and report it."""
    split_column: str | None = None
    """Name of the column with train, valid or test, or its number; None for a column named split, if there is one."""
    cut: Cut = "words"
    """Tokens of a text: words, with punctuation apart; blanks, split at white space; or characters."""
    data_dir: str | None = None
    """Folder with named word vectors; None to download them once."""

    @property
    def label_column(self) -> str | None:
        """The same in the words of classifiers, whose files have the same layouts."""
        return self.target_column


@dataclass(frozen=True)
class RegressConfig(WordsConfig):
    """Predict a number from a sequence of words or numbers.

    Targets are standardised by mean and deviation of the training data inside, and metrics and predictions are in the
    units of the data. The seed decides initial weights, dropout and the order of training.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=64))
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: FilesConfig = field(default_factory=FilesConfig)
    max_length: int | None = None
    """Maximum steps of a sequence, the rest is not read; None for no limit."""
    bucketing: bool = True
    """Train on batches of similar length, which take fewer steps; off for random batches."""
    pooling: PoolingName = "last"
    """Input of the last layer: the last state, or the max, the mean or an attention over the outputs of all steps."""
    quantiles: tuple[float, ...] = ()
    """Quantiles of the target to learn beside its mean, such as 0.1 0.9: `predict` gives them too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "max_length")
        check_quantiles(self.quantiles)


def check_quantiles(quantiles: tuple[float, ...]) -> None:
    """Refuse quantiles that are none, or not in order."""
    if not all(0 < q < 1 for q in quantiles) or list(quantiles) != sorted(set(quantiles)):
        raise SettingError(
            f"quantiles should be rising numbers above 0 and below 1, got {' '.join(map(str, quantiles))}"
        )


PRESETS: dict[str, RegressConfig] = {
    "short": RegressConfig(CellConfig(hidden_size=64), FEW, embedding_size=64, min_count=2, pooling="max"),
}
