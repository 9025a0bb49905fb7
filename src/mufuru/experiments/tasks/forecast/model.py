"""The forecaster: a recurrent layer reads a window, and a linear layer gives all values of the horizon at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.export import Dim

from mufuru.experiments.tasks.cells import SequenceLayer
from mufuru.experiments.tasks.classify.model import Standardise
from mufuru.experiments.tasks.forecast.config import ForecastConfig
from mufuru.experiments.tasks.models import Graph, Metadata, TaskModel, Tensors, exportable


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
