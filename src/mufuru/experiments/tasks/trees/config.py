"""Settings and presets of classifiers of parse trees."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import mufuru
from mufuru.experiments.settings import Training, check_positive
from mufuru.experiments.tasks.cells import CellOptions
from mufuru.experiments.tasks.words import WordsConfig

TreeCellName = Literal["mufuru", "gru", "lstm"]


@dataclass(frozen=True)
class TreeCellConfig(CellOptions):
    """The unit that composes two phrases."""

    options: ClassVar = {
        "mufuru": ("ops", "reset_bias", "keep_bias"),
        "gru": ("reset_bias", "keep_bias"),
        "lstm": ("keep_bias",),
    }
    cell: TreeCellName = "mufuru"
    """mufuru (TreeMuFuRU), gru (TreeMuFuRU with keep and replace alone) or lstm (the constituency Tree-LSTM)."""
    hidden_size: int = 100
    """Units of a node."""
    ops: tuple[str, ...] = mufuru.PAPER
    """Operations to choose from, for each child (mufuru only)."""
    reset_bias: float | None = None
    """Initial bias of the gates of both children (mufuru, gru); None for the default, 1."""
    keep_bias: float | None = None
    """Initial bias of what keeps a child's state: keep's logits in mufuru and gru, the forget gates in lstm; None for
    the default: 2 in mufuru and gru, random as its other biases in lstm."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden_size")
        self.check_options()


@dataclass(frozen=True)
class TreebankConfig:
    """The parse trees: the Stanford Sentiment Treebank, or your own treebank in its format. Paths are kept as given."""

    treebank: str | None = None
    """Folder with your own train.txt, dev.txt and test.txt, in each line a tree of two parts a phrase; None for the
    Sentiment Treebank."""
    classes: Literal[2, 5] = 2
    """2, negative and positive, where neutral phrases are read but not learned from, or all 5."""
    data_dir: str | None = None
    """Folder with the Sentiment Treebank, as its zip or its train.txt, dev.txt and test.txt, and with named
    word vectors; None to download them once."""


@dataclass(frozen=True)
class TreesConfig(WordsConfig):
    """Classify every phrase of a sentence by its parse tree; tested on whole sentences."""

    cell: TreeCellConfig = field(default_factory=TreeCellConfig)
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: TreebankConfig = field(default_factory=TreebankConfig)


PRESETS: dict[str, TreesConfig] = {
    # The paper has no trees. Units, minibatches, dropout and decay are those of Tai et al. (2015) for the Tree-LSTM.
    # They have vectors of 300 features, tuned at a rate of their own, and Adagrad at 0.05 with L2; here all is learned
    # by the paper's Adam, with decoupled decay of the weights. For TreeMuFuRU and Tree-LSTM alike this rate, held
    # constant, was the best of three tries on the development set.
    "paper": TreesConfig(
        TreeCellConfig(hidden_size=150),
        Training(epochs=10, batch_size=25, learning_rate=1e-3, beta1=0.0, weight_decay=1e-4, evaluate_every=200),
        vectors="glove.6B",
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
    "short": TreesConfig(
        TreeCellConfig(hidden_size=50),
        Training(epochs=2, batch_size=25, learning_rate=3e-3, beta1=0.0, schedule="cosine"),
        vectors="glove.6B",
        embedding_size=50,
        embedding_dropout=0.3,
        output_dropout=0.3,
    ),
}
