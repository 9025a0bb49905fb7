"""The forecaster: settings and presets, and the model. A recurrent layer reads a window, and a linear layer gives all
values of the horizon at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.export import Dim

from mufuru.experiments.data.series import Format
from mufuru.experiments.settings import SettingError, Training, check_fraction, check_held_out, check_positive
from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer
from mufuru.experiments.tasks.classify.config import FEW
from mufuru.experiments.tasks.classify.model import Standardise
from mufuru.experiments.tasks.models import Graph, Metadata, TaskModel, Tensors, exportable
from mufuru.experiments.tasks.regress.task import check_quantiles


@dataclass(frozen=True)
class SeriesConfig:
    """The series. A path is kept as given: a run that was started with a relative one is resumed in the same folder."""

    files: ClassVar[tuple[str, ...]] = ("data",)
    """Settings that name files of the user."""
    data: str | None = None
    """File of series: a table with a column for each, or with a row for each moment of each, or JSON lines with a list
    of values in each; required."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Shares of each series, at its end, for validation and then test; at least a horizon each."""
    format: Format | None = None
    """Format of the file: csv, tsv or jsonl; None to guess it from the name's ending."""
    value_columns: tuple[str, ...] = ()
    """Columns to forecast, by name or number, from 1; none for all columns of numbers that do not merely count."""
    covariate_columns: tuple[str, ...] = ()
    """Columns that are read along with the values up to the origin of a forecast, such as a temperature."""
    series_column: str | None = None
    """Column with the name of the series that a row belongs to; None where every column is a series."""

    def __post_init__(self) -> None:
        check_held_out(self.held_out)


@dataclass(frozen=True)
class ForecastConfig:
    """Forecast the next values of one or many series with one model.

    Each window is standardised by its own mean and deviation inside; forecasts and metrics are in the units of the
    data. The model learns the difference from the seasonal-naive forecast, the value of one season before. The seed
    decides initial weights, dropout and the order of training.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=32))
    training: Training = field(default_factory=lambda: Training(batch_size=32))
    data: SeriesConfig = field(default_factory=SeriesConfig)
    seed: int = 0
    """Seed of initial weights, dropout and the order of training."""
    horizon: int = 1
    """Values to forecast."""
    context: int | None = None
    """Values before the origin that a forecast is made from; None for three seasons, at least twice the horizon."""
    season: int = 1
    """Steps of a season, such as 12 for months of a year or 7 for days of a week; 1 for none."""
    stride: int = 1
    """Steps between the origins of two forecasts in validation and test."""
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Quantiles to learn, 0.5 among them: the median is the forecast, the others are its intervals."""
    output_dropout: float = 0.0
    """Dropout of the last layer's input."""

    def __post_init__(self) -> None:
        check_positive(self, "horizon", "context", "season", "stride")
        check_fraction(self, "output_dropout")
        check_quantiles(self.quantiles)
        if 0.5 not in self.quantiles:
            raise SettingError("quantiles should have 0.5 among them, the forecast itself")
        if self.steps < self.season:
            raise SettingError(f"context should be a season at least, {self.season} steps, got {self.context}")

    @property
    def steps(self) -> int:
        """Steps of a window."""
        return self.context or max(3 * self.season, 2 * self.horizon, 8)


PRESETS: dict[str, ForecastConfig] = {"short": ForecastConfig(CellConfig(hidden_size=32), replace(FEW, batch_size=32))}


@dataclass(frozen=True)
class Columns:
    """The meaning of a forecaster's inputs."""

    values: tuple[str, ...]
    """Columns of the training file that have the series."""
    covariates: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"values": list(self.values), "covariates": list(self.covariates)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["values"]), tuple(data["covariates"]))


class Standard(NamedTuple):
    """Forecasts in deviations of their windows from the mean."""

    quantiles: Tensor
    """(batch, horizon, quantiles)."""
    naive: Tensor
    """(batch, horizon): the seasonal-naive forecast."""
    mean: Tensor
    """(batch,)."""
    deviation: Tensor
    """(batch,): 1 for a window of equal values."""


class Forecaster(TaskModel):
    """Forecaster of windows, (steps, batch, 1 + covariates), each standardised by itself."""

    settings, metadata, result = ForecastConfig, Columns, "quantiles"

    def __init__(self, config: ForecastConfig, columns: Columns, fingerprint: str = "") -> None:
        super().__init__()
        self.config, self.columns = config, columns
        self.carried = Metadata(columns.to_json(), fingerprint)
        self.covariates = Standardise(len(columns.covariates)) if columns.covariates else None
        self.reader = SequenceLayer(config.cell, 1 + len(columns.covariates))
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(self.reader.output_size, config.horizon * len(config.quantiles))
        # the first forecasts are nearly the seasonal-naive ones
        nn.init.normal_(self.output.weight, std=1e-2)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (batch, horizon, quantiles) in the units of the data, rising with the quantiles."""
        standard = self.standard(inputs)
        # separately learnt quantiles may cross
        rising = standard.quantiles.sort(-1).values
        return rising * standard.deviation[:, None, None] + standard.mean[:, None, None]

    def standard(self, inputs: Tensor) -> Standard:
        config = self.config
        x, mean, deviation = self.standardised(inputs)
        _, state = self.reader(x)
        naive = x[-config.season :, :, 0][torch.arange(config.horizon) % config.season].T
        return Standard(self.quantiles(self.reader.last(state), naive), naive, mean, deviation)

    def standardised(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the layer's inputs, and mean and deviation of each window."""
        values = inputs[:, :, 0]
        mean = values.mean(0)
        deviation = (values - mean).square().mean(0).sqrt()
        # what is left of equal values is rounding
        deviation = torch.where(deviation > 1e-6 * mean.abs(), deviation, 1.0)
        x = ((values - mean) / deviation).unsqueeze(-1)
        if self.covariates is not None:
            x = torch.cat((x, self.covariates(inputs[:, :, 1:])), -1)
        return x, mean, deviation

    def quantiles(self, states: Tensor, naive: Tensor) -> Tensor:
        """Return (batch, horizon, quantiles) of the last states, (batch, hidden), beside the naive forecasts."""
        change = self.output(self.output_dropout(states))
        shifts: Tensor = change.unflatten(1, (self.config.horizon, len(self.config.quantiles)))
        return naive.unsqueeze(-1) + shifts

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Return random windows of a season, which is the least, and `steps` more."""
        generator = torch.Generator().manual_seed(seed)
        size = (self.config.season + steps, batch, 1 + len(self.columns.covariates))
        return (torch.randn(size, generator=generator),)

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        return (self(*arguments),)

    def graph(self) -> Graph:
        return Graph(exportable(self), ("inputs",), (self.result,), ({0: Dim.AUTO, 1: Dim.AUTO},))

    def raw(self) -> dict[str, Any]:
        """Return the columns, and the number of steps that a forecast is made from."""
        levels = [f"{level:g}" for level in self.config.quantiles]
        sizes = {"channels": 1 + len(self.columns.covariates), "context": self.config.steps, "max_length": None}
        return {"kind": "forecaster", "columns": self.columns.to_json(), "quantiles": levels, **sizes}
