"""Settings and presets of language models."""

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import tyro
from torch import Tensor

from mufuru.experiments import settings
from mufuru.experiments.data.text import Level
from mufuru.experiments.settings import SettingError, Training
from mufuru.experiments.tasks.cells import CellConfig

NAMES: dict[str, Level] = {"blanks": "word", "characters": "char"}
BYTES = 256


@dataclass(frozen=True)
class DataConfig:
    """The text: the Penn Treebank, or your own files.

    Paths are kept as given: a run that was started with relative paths is resumed in the same folder.
    """

    files: ClassVar[tuple[str, ...]] = ("text", "valid_text", "test_text")
    """Settings that name files of the user."""
    text: tuple[str, ...] = ()
    """Files of UTF-8 text to train on; none for the Penn Treebank."""
    valid_text: tuple[str, ...] = ()
    """Validation files, to select the best weights; none to hold out a part of the text, see held_out."""
    test_text: tuple[str, ...] = ()
    """Test files; none to hold out a part of the text, see held_out."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Fractions of the text's end held out for validation and test, where no files are given."""
    level: Annotated[Level | None, tyro.conf.arg(aliases=["--tokenizer"])] = None
    """Tokens: words, with punctuation apart; blanks, what blanks separate, for a text that is in tokens already;
    characters; or bpe, parts of words, learned from the text by byte-pair encoding of its bytes. None for words, and
    for the Penn Treebank, which is in tokens already."""
    vocabulary_size: int | None = None
    """Maximum size of the vocabulary, <unk> and <eos> included; rarer words become <unk>. None for no limit, with bpe
    for 8192."""
    min_count: int = 1
    """Minimum count in the training text of a word in the vocabulary, with bpe of a pair to be joined."""
    data_dir: str | None = None
    """Folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt; None to download them once."""

    def __post_init__(self) -> None:
        # by either name; a run keeps the short one. Older runs have it for the Penn Treebank too
        level = NAMES.get(self.level or "", self.level)
        object.__setattr__(self, "level", (level or "words") if self.text else None if level == "word" else level)
        settings.check_positive(self, "vocabulary_size", "min_count")
        if self.level == "bpe" and self.vocabulary_size is not None and self.vocabulary_size <= BYTES:
            raise SettingError(f"vocabulary_size should be above {BYTES} with bpe, since every byte is a token, got "
                               f"{self.vocabulary_size}")  # fmt: skip
        settings.check_held_out(self.held_out)
        if self.text and self.data_dir is not None:
            raise SettingError("data_dir is the folder of the Penn Treebank, and text names other files: give one")
        if not self.text:
            # the Penn Treebank comes with its own split and vocabulary
            own = ("valid_text", "test_text", "held_out", "level", "vocabulary_size", "min_count")
            settings.check_default(self, own, "is for files of your own: name them with --text, or leave it out")

    @property
    def tokens(self) -> Level:
        """The level, also that of the Penn Treebank."""
        return self.level or "word"


@dataclass(frozen=True)
class Regularisation:
    """Dropout and penalties, all off by default and in evaluation.

    Masks come from torch's generator, so that a resumed run draws the same. MuFuRU has weight-drop, dropout of the
    state and zoneout inside; torch's layers get weight-drop by running with other weights.
    """

    embedding_dropout: float = 0.0
    """Dropout of whole words: a word loses its embedding everywhere in a window."""
    input_dropout: float = 0.0
    """Variational dropout of embedded words: one mask per window and sequence."""
    output_dropout: float = 0.0
    """Variational dropout of the softmax's input: one mask per window and sequence."""
    weight_dropout: float = 0.0
    """Dropout of recurrent weights (weight-drop): one mask per window."""
    state_dropout: float = 0.0
    """Variational dropout of the state where it enters a product (mufuru only)."""
    zoneout: float = 0.0
    """Probability that a unit keeps its state in a step (mufuru only)."""
    activation_penalty: float = 0.0
    """Activation regularisation, AR: factor of the mean square of the softmax's input."""
    temporal_penalty: float = 0.0
    """Temporal activation regularisation, TAR: factor of the mean square of the outputs' change from step to step."""

    def __post_init__(self) -> None:
        settings.check_fraction(self, "embedding_dropout", "input_dropout", "output_dropout")
        settings.check_fraction(self, "weight_dropout", "state_dropout", "zoneout")
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingError(f"{name} should be a number of at least 0, got {getattr(self, name)}")

    def penalty(self, outputs: Tensor, dropped: Tensor) -> Tensor | None:
        """Return both activation penalties, of the outputs before and after dropout, (steps, batch, features)."""
        if not (self.activation_penalty or self.temporal_penalty):
            return None
        change = outputs[1:] - outputs[:-1]
        # a single step has no change, and the mean of nothing is NaN
        temporal = change.square().sum() / max(1, change.numel())
        return self.activation_penalty * dropped.square().mean() + self.temporal_penalty * temporal


@dataclass(frozen=True)
class LMConfig:
    """Learn to predict the next word, or character, of a text.

    The state is carried from window to window and begins anew with each epoch. The seed decides initial weights
    and dropout; the order of the text is fixed.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=200))
    training: Training = field(default_factory=lambda: Training(batch_size=20))
    data: DataConfig = field(default_factory=DataConfig)
    regularisation: Regularisation = field(default_factory=Regularisation)
    seed: int = 0
    """Seed of initial weights and dropout."""
    embedding_size: int | None = None
    """Features of an embedded word; None for hidden_size."""
    tied: bool = False
    """Let the softmax use the embeddings as its weights."""
    embedding_scale: float = 0.1
    """Largest initial weight of embeddings and softmax, drawn uniformly; the softmax's biases start at 0."""
    bptt: int = 35
    """Time steps per truncated back-propagation window."""
    evaluation_window: int = 512
    """Tokens read at a time in evaluation, where validation and test are one stream each; no metric depends on it. The
    training text is evaluated in the columns and windows of training."""

    def __post_init__(self) -> None:
        settings.check_positive(self, "embedding_size", "embedding_scale", "bptt", "evaluation_window")
        if self.cell.cell != "mufuru":
            reason = f"is an option of mufuru, not of {self.cell.cell}: leave it out"
            settings.check_default(self.regularisation, ("state_dropout", "zoneout"), reason)
        if self.cell.bidirectional:
            raise SettingError("a language model cannot read ahead: leave bidirectional out")
        if self.tied and self.features != self.cell.hidden_size:
            raise SettingError(
                f"tied embeddings need an embedding_size of hidden_size, got {self.features} and "
                f"{self.cell.hidden_size}: leave embedding_size out, or do without tied (--no-tied)"
            )

    @property
    def features(self) -> int:
        return self.cell.hidden_size if self.embedding_size is None else self.embedding_size


PRESETS: dict[str, LMConfig] = {
    # The paper gives layer, units and optimiser. It is silent on learning rate, batch, window, clipping, initial
    # weights and when to stop: here a constant rate, until two epochs bring no better validation perplexity.
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
    # for a small text
    "short": LMConfig(
        CellConfig(hidden_size=100),
        Training(epochs=8, batch_size=8, learning_rate=3e-3, beta1=0.9, clip=1.0, schedule="cosine"),
        regularisation=Regularisation(input_dropout=0.2, output_dropout=0.2),
        tied=True,
        bptt=20,
    ),
}
