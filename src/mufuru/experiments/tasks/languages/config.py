"""Settings and presets of recognisers of formal languages."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from mufuru.experiments.data import flare
from mufuru.experiments.settings import SettingError, Training, check_default, check_fraction, check_positive, choose
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.languages import tracking

ReaderName = Literal["mufuru", "gru", "lstm", "vanilla", "transformer"]
NAMES = dict.fromkeys((*flare.LANGUAGES, *tracking.LANGUAGES))


@dataclass(frozen=True)
class ReaderConfig(CellConfig):
    """The recurrent layer, or a transformer."""

    options: ClassVar = {**CellConfig.options, "transformer": ()}
    cell: ReaderName = "mufuru"  # type: ignore[assignment]
    """mufuru, gru (torch.nn.GRU), lstm (torch.nn.LSTM), vanilla (torch.nn.RNN with tanh) or transformer, which sees
    the symbols up to each, from torch's own layers."""
    initialisation: Literal["default", "uniform", "orthogonal"] = "uniform"
    """Initial weights: default, the layer's own; uniform up to initial_scale; or orthogonal recurrent weights, Xavier's
    input weights and no biases. mufuru's biases of reset gate and operations have fixed initial values; a transformer
    has Xavier's weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional:
            raise SettingError("bidirectional is not for languages, whose strings are read once: leave it out")
        if self.cell == "transformer":
            check_default(self, ("initialisation",), "is that of a recurrent layer: leave it out for a transformer")


@dataclass(frozen=True)
class LanguageConfig:
    """The strings: a language of FLaRe, or one that is drawn here; the seed decides the drawn strings."""

    language: str = "parity"
    """A language of FLaRe, such as parity or dyck-2-3; or one of states to track: count-2, count-3 and count-5 (sums
    modulo a number), s3 and a5 (word problems of groups) and brackets-5 (arithmetic modulo 5)."""
    data_dir: str | None = None
    """Folder with FLaRe; None to download it once."""
    train_strings: int = 10_000
    """Strings to train on, of a language that is drawn."""
    valid_strings: int = 1000
    """Validation strings of a language that is drawn, as long as those of training."""
    test_strings: int = 2160
    """Test strings of a language that is drawn."""
    lengths: tuple[int, int] = (3, 40)
    """Shortest and longest string of training and validation, of a language that is drawn."""
    test_lengths: tuple[int, int] = (41, 256)
    """Shortest and longest test string of a language that is drawn."""

    def __post_init__(self) -> None:
        choose("language", self.language, NAMES)
        drawn = ("train_strings", "valid_strings", "test_strings")
        check_positive(self, *drawn)
        for name in ("lengths", "test_lengths"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise SettingError(f"{name} should be two whole numbers above 0, the smaller first, got {low} {high}")
        if self.language not in tracking.LANGUAGES:
            check_default(self, (*drawn, "lengths", "test_lengths"), "is that of a drawn language, not of FLaRe's")
        elif self.data_dir is not None:
            raise SettingError(f"data_dir is the folder of FLaRe, and {self.language} is drawn: leave it out")

    @property
    def splits(self) -> dict[str, tuple[int, tuple[int, int]]]:
        """Number and lengths of the strings of each split of a drawn language."""
        return {
            "train": (self.train_strings, self.lengths),
            "valid": (self.valid_strings, self.lengths),
            "test": (self.test_strings, self.test_lengths),
        }


PROTOCOL = Training(
    epochs=1000, beta1=0.9, clip=5.0, schedule="plateau", decay=0.5, decay_patience=5, patience=10
)  # fmt: skip
"""FLaRe's: batch size and rate are drawn for each run."""


@dataclass(frozen=True)
class LanguagesConfig:
    """Learn to recognise a formal language, or the state in which a string ends, and generalise to longer strings."""

    cell: ReaderConfig = field(default_factory=ReaderConfig)
    training: Training = field(default_factory=lambda: PROTOCOL)
    data: LanguageConfig = field(default_factory=LanguageConfig)
    seed: int = 0
    """Seed of initial weights, dropout, the order of training, and the strings of a drawn language."""
    batch_tokens: int = 1024
    """Maximum symbols of a batch, padding included; strings of a batch have about the same length."""
    embedding_size: int | None = None
    """Features of a symbol; None for as many as the layer has units. A transformer has as many as units."""
    parameters: int | None = None
    """Number of parameters that the model should have: embedding_size follows from it, or the size of a transformer's
    inner layers. None for no such number."""
    dropout: float = 0.1
    """Dropout of symbols, between layers, and of the final state."""

    def __post_init__(self) -> None:
        check_positive(self, "batch_tokens", "embedding_size", "parameters")
        check_fraction(self, "dropout")
        check_default(self.training, ("batch_size",), "counts strings, and batches are filled by symbols: set "
                      "batch_tokens")  # fmt: skip
        if self.embedding_size is not None and (self.parameters is not None or self.cell.cell == "transformer"):
            raise SettingError("embedding_size follows from parameters, or from the units of a transformer: leave it "
                               "out")  # fmt: skip


PRESETS: dict[str, LanguagesConfig] = {
    # five layers and 64,000 parameters are FLaRe's
    "flare": LanguagesConfig(ReaderConfig(hidden_size=26, num_layers=5), parameters=64_000),
    # drawn languages, at rates that differ
    "tracking": LanguagesConfig(
        ReaderConfig(hidden_size=32), replace(PROTOCOL, epochs=200), LanguageConfig("count-2"), dropout=0.0
    ),
    "short": LanguagesConfig(
        ReaderConfig(hidden_size=16),
        Training(epochs=5, beta1=0.9, clip=5.0, learning_rate=5e-3),
        LanguageConfig("count-2", train_strings=2000, valid_strings=200, test_strings=216),
        dropout=0.0,
    ),
}
