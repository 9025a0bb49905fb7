"""Settings and presets of models that label the tokens of a sentence."""

from dataclasses import dataclass, field
from typing import Literal

from mufuru.experiments.data.tagged import Format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.files import FEW, Files
from mufuru.experiments.tasks.words import WordsConfig


@dataclass(frozen=True)
class TaggedFiles(Files):
    """The files of labelled tokens. Paths are kept as given: a run that was started with relative paths is resumed in
    the same folder."""

    data: str | None = None
    """File of sentences with a label for each token: CoNLL columns, CoNLL-U, or JSON lines; required."""
    format: Format | None = None
    """Format of the files: conll, conllu or jsonl; None to guess it from the name's ending."""
    token_column: str | None = None
    """Number of the column of tokens, from 1, or name of the list of tokens in JSON lines; None for the first, for
    the second in CoNLL-U."""
    label_column: str | None = None
    """Number of the column of labels, or name of their list; None for the last, for the fourth in CoNLL-U."""
    cut: Cut = "words"
    """Tokens of a line of plain text for `predict`: words, with punctuation apart; blanks, split at white space; or
    characters."""
    data_dir: str | None = None
    """Folder with named word vectors; None to download them once."""


@dataclass(frozen=True)
class TagConfig(WordsConfig):
    """Label each token of a sentence.

    A word that is rarer than min_count is read as its signature, such as <unk-title-er>: its case, digits and ending.
    The seed decides initial weights, dropout and the order of training.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=64, bidirectional=True))
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: TaggedFiles = field(default_factory=TaggedFiles)
    bucketing: bool = True
    """Train on batches of similar length, which take fewer steps; off for random batches."""
    metric: Literal["accuracy", "span_f1"] | None = None
    """Validation metric that selects the best weights; None for span_f1, which needs seqeval, if the labels are BIO,
    else accuracy."""

    @property
    def max_length(self) -> None:
        """Every token has its label: nothing is cut."""
        return None

    @property
    def pooling(self) -> Literal["last"]:
        """A token is labelled from the output of its own step."""
        return "last"


PRESETS: dict[str, TagConfig] = {
    "short": TagConfig(
        CellConfig(hidden_size=64, bidirectional=True), FEW,
        embedding_size=64, lowercase=False, min_count=2, embedding_dropout=0.3, output_dropout=0.3,
    ),
}  # fmt: skip
