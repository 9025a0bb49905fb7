"""The settings of classifiers of parse trees, and those that have a name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import mufuru
from mufuru import ops as operations
from mufuru.experiments.settings import SettingError, Training, check_positive, choose
from mufuru.experiments.tasks.words import WordsConfig

TreeCellName = Literal["mufuru", "gru", "lstm"]

OPTIONS: dict[str, frozenset[str]] = {
    "mufuru": frozenset({"ops", "reset_bias", "keep_bias"}),
    "gru": frozenset({"reset_bias", "keep_bias"}),
    "lstm": frozenset({"keep_bias"}),
}
"""The options that not every cell has, by cell."""


@dataclass(frozen=True)
class TreeCellConfig:
    """The unit that composes two phrases."""

    cell: TreeCellName = "mufuru"
    """mufuru (TreeMuFuRU), gru (TreeMuFuRU with keep and replace alone) or lstm (the constituency Tree-LSTM)."""
    hidden_size: int = 100
    """Units of a node."""
    ops: tuple[str, ...] = mufuru.PAPER
    """Operations to choose from, for each child (mufuru only)."""
    reset_bias: float | None = None
    """First bias of the gates of both children (mufuru, gru); None for the unit's own, 1."""
    keep_bias: float | None = None
    """First bias of what keeps a child's state: keep's logits in mufuru and gru, the forget gates in lstm; None for the
    unit's own: 2 in mufuru and gru, drawn as its other biases in lstm."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden_size")
        own = choose("cell", self.cell, OPTIONS)
        for name in sorted(OPTIONS["mufuru"] - own):
            if getattr(self, name) != _DEFAULTS[name]:
                owners = " and ".join(cell for cell, options in OPTIONS.items() if name in options)
                raise SettingError(f"{name} is an option of {owners}, not of {self.cell}: leave it out")
        try:
            operations.resolve(self.ops)
        except (TypeError, ValueError) as error:
            raise SettingError(f"ops: {error}") from None
        if "keep" not in self.ops and self.keep_bias is not None:
            raise SettingError(f"keep_bias needs the operation keep, and ops is {', '.join(self.ops)}: leave it out")

    def for_cell(self, cell: TreeCellName) -> TreeCellConfig:
        """The same setting for another cell, without the options that it lacks."""
        missing = OPTIONS["mufuru"] - OPTIONS[cell]
        return dataclasses.replace(self, cell=cell, **{name: _DEFAULTS[name] for name in missing})


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(TreeCellConfig)}


@dataclass(frozen=True)
class TreebankConfig:
    """The parse trees: the Stanford Sentiment Treebank, or a treebank of one's own in its format.

    Paths are kept as they were given, so that a run's settings do not tell of the machine.
    """

    treebank: str | None = None
    """Folder with train.txt, dev.txt and test.txt of one's own, a tree of two parts a phrase in each line; None for the
    Sentiment Treebank."""
    classes: Literal[2, 5] = 2
    """2, negative and positive, where neutral phrases are read but not learned from, or all 5."""
    data_dir: str | None = None
    """Folder with the Sentiment Treebank, as its zip or its train.txt, dev.txt and test.txt, and with word vectors that
    go by a name; None to download them once."""

    def __post_init__(self) -> None:
        if self.classes not in (2, 5):
            raise SettingError(f"classes should be 2 or 5, got {self.classes}")


@dataclass(frozen=True)
class TreesConfig(WordsConfig):
    """Learn to name the sentiment of every phrase of a sentence from its parse tree; tested on whole sentences."""

    cell: TreeCellConfig = field(default_factory=TreeCellConfig)
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: TreebankConfig = field(default_factory=TreebankConfig)
    seed: int = 0
    """Of first weights, dropout and the order of training."""


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
