"""The regression task: sequences in, a number out; settings, model, metrics, predictions and the explorer's view."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.data import DataError, alike, targets
from mufuru.experiments.data.examples import Labelled
from mufuru.experiments.data.layout import Format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import SettingError, Training, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.classify.config import FEW, Files, PoolingName
from mufuru.experiments.tasks.classify.model import Batch, LabelledModel
from mufuru.experiments.tasks.classify.task import LabelledTask
from mufuru.experiments.tasks.classify.use import Predictor as LabelPredictor
from mufuru.experiments.tasks.classify.use import SequenceReader, batched, known_of
from mufuru.experiments.tasks.models import CFile
from mufuru.experiments.tasks.task import HowToRead, State, Step, StepPrediction, Steps, Totals, estimate, place_of
from mufuru.experiments.tasks.words import Meaning, WordsConfig


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


@dataclass(frozen=True)
class Scale(Meaning):
    """The meaning of a regressor's numbers; `labels` names the target."""

    mean: float = 0.0
    """Mean of the training targets."""
    deviation: float = 1.0
    """Standard deviation of the training targets."""
    lowest: float = 0.0
    highest: float = 0.0
    """The range of the training targets."""


class Regressor(LabelledModel):
    """Regressor of sequences: the mean of the target, then its quantiles, in the units of the data."""

    settings, metadata, result, kind = RegressConfig, Scale, "values", "regressor"
    meaning: Scale

    def __init__(self, config: RegressConfig, meaning: Scale, fingerprint: str = "") -> None:
        super().__init__(config, meaning, fingerprint, 1 + len(config.quantiles))

    def standardised(self, pooled: Tensor) -> Tensor:
        """Return (batch, 1 + quantiles) in deviations from the mean of the training targets."""
        return super().logits(pooled)

    def logits(self, pooled: Tensor) -> Tensor:
        return self.standardised(pooled) * self.meaning.deviation + self.meaning.mean

    def estimates(self, inputs: PackedSequence) -> Tensor:
        """Return (batch, 1 + quantiles) in the units of the data, in float64 as in `step`."""
        return self.standardised(self.pooled(inputs)).double() * self.meaning.deviation + self.meaning.mean

    def raw(self) -> dict[str, Any]:
        return super().raw() | {"quantiles": [f"{quantile:g}" for quantile in self.config.quantiles]}

    def c_file(self) -> CFile:
        meaning = self.meaning
        labels = *meaning.labels, *(f"quantile {level:g}" for level in self.config.quantiles)
        return CFile(labels, meaning.vocabulary, self.config.data.cut, units=(meaning.deviation, meaning.mean))


def pinball(outputs: Tensor, targets: Tensor, quantiles: tuple[float, ...]) -> Tensor:
    """Return the quantile loss of every output, (..., quantiles), for targets of (...)."""
    error = targets.unsqueeze(-1) - outputs
    levels = torch.tensor(quantiles, dtype=outputs.dtype)
    return torch.maximum(levels * error, (levels - 1) * error)


class RegressTask(LabelledTask):
    """Sequences with targets, model and metrics of one run."""

    metric = "rmse"
    higher_is_better = False
    model = Regressor
    meaning: Scale

    def __init__(self, config: RegressConfig, labelled: Labelled | None = None) -> None:
        super().__init__(config, load(config.data) if labelled is None else labelled)

    def read_meaning(self, vocabulary: Vocabulary | None) -> Scale:
        data = self.labelled
        deviation, mean = torch.std_mean(data.train.targets.double(), correction=0)
        lowest, highest = data.train.targets.aminmax()
        numbers = (float(mean), float(deviation), float(lowest), float(highest))
        return Scale(data.labels, vocabulary, data.channels, *numbers)

    def step(self, model: Any, batch: Batch, state: State) -> Step:
        outputs = model.standardised(model.pooled(batch.inputs))
        # in float64: a mean far from 0 leaves little of float32 to the differences
        wanted = ((batch.targets - self.meaning.mean) / self.meaning.deviation).to(outputs.dtype)
        loss = (outputs[:, 0] - wanted).square().sum()
        if self.config.quantiles:
            loss = loss + pinball(outputs[:, 1:], wanted, self.config.quantiles).sum()
        error = (outputs[:, 0].detach() - wanted).double() * self.meaning.deviation
        apart = wanted.double() * self.meaning.deviation
        sums = {"absolute": error.abs(), "squared": error.square(), "target": apart, "target squared": apart.square()}
        return Step(loss, len(wanted), sums={name: values.sum() for name, values in sums.items()})

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return the loss of standardised targets; MAE and RMSE in units of the data; and R², unless all targets are
        the same."""
        squared = totals.mean("squared")
        metrics = {"loss": totals.mean("loss"), "mae": totals.mean("absolute"), "rmse": squared**0.5}
        variance = totals.mean("target squared") - totals.mean("target") ** 2
        # what is left of a variance of 0 is rounding
        known = variance > 1e-9 * totals.mean("target squared")
        return metrics | ({"r2": 1 - squared / variance} if known else {})


class NewTargets(RegressTask):
    """Another file for a trained regressor: one part, "data"."""

    def __init__(self, model: Regressor, config: RegressConfig, file: Path, how: HowToRead) -> None:
        self.config, self.meaning = config, model.meaning
        columns = (how.text_column, how.label_column, None)
        data = alike.labelled(file, known_of(model, config, how), how.format, columns)
        self.take(targets.examples(list(data.examples)), data.note)


def load(data: FilesConfig) -> Labelled:
    if data.data is None:
        raise DataError("regress needs sequences and their targets: name the file with --data")
    columns: dict[str, Any] = {"text": data.text_column, "target": data.target_column, "split": data.split_column}
    return targets.load(data.data, format=data.format, cut=data.cut, **columns, **data.parts)


class Estimate(NamedTuple):
    """The expected target of a sequence, and its quantiles where the model has learnt some."""

    value: float
    quantiles: dict[str, float]


class Predictor(LabelPredictor):
    """A regressor for `mufuru predict`; no prediction depends on the others of its batch."""

    @torch.no_grad()
    def predict(self, sequences: list[Any]) -> list[Any]:
        inputs, order = batched(sequences, self.meaning, self.config)
        values = self.model.estimates(inputs)[order].tolist()
        levels = [f"{quantile:g}" for quantile in self.config.quantiles]
        # separately learnt quantiles may cross
        return [Estimate(value, dict(zip(levels, sorted(rest), strict=True))) for value, *rest in values]


class RegressReader(SequenceReader):
    """Reader of texts and series for the explorer: the estimate so far, between the lowest and the highest target of
    the training data."""

    @property
    def estimates(self) -> str:  # type: ignore[override]
        return str(self.model.meaning.labels[0])

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    def scale(self, steps: Steps) -> tuple[float, float]:
        return self.model.meaning.lowest, self.model.meaning.highest

    def predictions(self, logits: Tensor) -> list[StepPrediction]:
        scale: Scale = self.model.meaning
        ends = scale.lowest, scale.highest
        return [StepPrediction([(estimate(value, *ends), place_of(value, *ends))]) for value in logits[:, 0].tolist()]
