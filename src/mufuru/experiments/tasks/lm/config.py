"""The settings of language models, and those that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mufuru.experiments.data.text import Level
from mufuru.experiments.settings import SettingError, Training, check_held_out, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.lm.regularise import Regularisation


@dataclass(frozen=True)
class DataConfig:
    """The text: the Penn Treebank, or files of one's own.

    Paths are kept as they were given, so that a run's settings do not tell of the machine: one that was started with
    relative paths goes on in the same folder.
    """

    text: tuple[str, ...] = ()
    """Files of UTF-8 text to train on; none for the Penn Treebank."""
    valid_text: tuple[str, ...] = ()
    """Files to choose the best weights on; none for a part of the text, see held_out."""
    test_text: tuple[str, ...] = ()
    """Files to test on; none for a part of the text, see held_out."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Shares of the text's end that are held out for validation and for the test, where no files are given."""
    level: Level = "word"
    """What is predicted: words, split at blanks, or characters."""
    vocabulary_size: int | None = None
    """Most words in the vocabulary, <unk> and <eos> among them; the rarer ones become <unk>. None for all."""
    min_count: int = 1
    """Fewest appearances in the training text of a word in the vocabulary."""
    data_dir: str | None = None
    """Folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt; None to download them once."""

    def __post_init__(self) -> None:
        check_positive(self, "vocabulary_size", "min_count")
        check_held_out(self.held_out)
        if self.text and self.data_dir is not None:
            raise SettingError("data_dir is the folder of the Penn Treebank, and text names other files: give one")
        if not self.text:
            self._check_treebank()

    def _check_treebank(self) -> None:
        """The Penn Treebank comes with its own split and vocabulary."""
        for name in ("valid_text", "test_text", "held_out", "level", "vocabulary_size", "min_count"):
            if getattr(self, name) != _DEFAULTS[name]:
                raise SettingError(f"{name} is for files of your own: name them with --text, or leave {name} out")


_DEFAULTS: dict[str, Any] = {name: field.default for name, field in DataConfig.__dataclass_fields__.items()}


@dataclass(frozen=True)
class LMConfig:
    """Learn to predict the next word, or character, of a text.

    The state is carried from window to window and begins anew with each epoch. The seed decides first weights and
    dropout; the order of the text is its own.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=200))
    training: Training = field(default_factory=lambda: Training(batch_size=20))
    data: DataConfig = field(default_factory=DataConfig)
    regularisation: Regularisation = field(default_factory=Regularisation)
    seed: int = 0
    """Of first weights and dropout."""
    embedding_size: int | None = None
    """Features of an embedded word; None for as many as the layer has units."""
    tied: bool = False
    """Let the softmax use the embeddings as its weights."""
    embedding_scale: float = 0.1
    """Largest first weight of embeddings and softmax, drawn uniformly; the biases of the softmax begin at 0."""
    bptt: int = 35
    """Time steps per truncated back-propagation window."""
    evaluation_window: int = 512
    """Tokens read at a time in evaluation, where validation and test are one stream each; no metric depends on it. The
    training text is measured in the columns and windows that it is trained in."""

    def __post_init__(self) -> None:
        check_positive(self, "embedding_size", "embedding_scale", "bptt", "evaluation_window")
        self.regularisation.check_cell(self.cell)
        if self.cell.bidirectional:
            raise SettingError("a language model cannot read ahead: leave bidirectional out")
        if self.tied and self.features != self.cell.hidden_size:
            raise SettingError(
                f"tied embeddings need an embedding_size of hidden_size, got {self.features} and "
                f"{self.cell.hidden_size}: leave embedding_size out, or do without tied (--no-tied)"
            )

    @property
    def features(self) -> int:
        """Of an embedded word."""
        return self.cell.hidden_size if self.embedding_size is None else self.embedding_size


PRESETS: dict[str, LMConfig] = {
    # The paper gives layer, units and optimiser. It is silent on learning rate, batch, window, clipping, first weights
    # and when to stop: here a constant rate, until two epochs bring no better validation perplexity.
    "paper": LMConfig(
        CellConfig(hidden_size=200, initialisation="uniform", initial_scale=0.1),
        Training(epochs=40, batch_size=10, learning_rate=2e-3, beta1=0.0, clip=5.0, patience=2),
    ),
    "best": LMConfig(
        CellConfig(hidden_size=200),
        Training(epochs=25, batch_size=20, learning_rate=2e-3, beta1=0.9, clip=1.0, schedule="cosine", average=0.999),
        regularisation=Regularisation(
            embedding_dropout=0.05,
            input_dropout=0.25,
            output_dropout=0.3,
            weight_dropout=0.2,
            activation_penalty=1.0,
            temporal_penalty=0.5,
        ),
        tied=True,
    ),
    # for a small text of one's own
    "short": LMConfig(
        CellConfig(hidden_size=100),
        Training(epochs=8, batch_size=8, learning_rate=3e-3, beta1=0.9, clip=1.0, schedule="cosine"),
        regularisation=Regularisation(input_dropout=0.2, output_dropout=0.2),
        tied=True,
        bptt=20,
    ),
}
