"""Use of a trained forecaster: the next values of series, with intervals, and the explorer's view."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_each
from mufuru.experiments.data.readers import values
from mufuru.experiments.data.series import Series
from mufuru.experiments.tasks.classify.use import one_line
from mufuru.experiments.tasks.forecast.model import ForecastConfig, Forecaster
from mufuru.experiments.tasks.forecast.task import load
from mufuru.experiments.tasks.task import TOP, HowToRead, Reader, StepPrediction, Steps, estimate, place_of, prefixes


class Forecast(NamedTuple):
    """The next values of a series, and their quantiles."""

    series: str
    forecast: list[float]
    quantiles: dict[str, list[float]]


class Predictor:
    """A forecaster for `mufuru predict`: of a file, read as that of training, each series; or each line is one."""

    def __init__(self, model: Forecaster, config: ForecastConfig) -> None:
        self.model, self.config = model.eval(), config

    def read(self, line: str, name: str = "") -> Series:
        """Return the series of a line: numbers, or a JSON list of them, or of lists with covariates."""
        return self.checked(Series(name, values(line)))

    def open(self, file: Path | None, how: HowToRead) -> tuple[Iterator[Series], str]:
        """Return the series of a file, read with the columns of training, or of the lines of standard input."""
        if how != HowToRead(how.layout):
            raise DataError("a forecaster reads files as in training: leave --format, --text-column and --labels out")
        if file is None:
            numbers = count(1)
            return read_each(None, lambda line: self.read(line, str(next(numbers)))), ""
        loaded = load(self.config.data, file, self.model.columns.values)
        return map(self.checked, loaded.series), loaded.description

    def checked(self, series: Series) -> Series:
        steps, width = series.values.shape
        name = f"the series {series.name!r}" if series.name else "the series"
        if steps < self.config.steps:
            raise DataError(f"expected at least {self.config.steps} values to forecast from, and {name} has {steps}")
        if width != 1 + len(self.model.columns.covariates):
            names = ", ".join(("a value", *self.model.columns.covariates))
            raise DataError(f"expected {names} in each step, and {name} has {width} number{'' if width == 1 else 's'}")
        return series

    @torch.no_grad()
    def predict(self, sequences: list[Any]) -> list[Any]:
        windows = torch.stack([series.values[-self.config.steps :] for series in sequences], 1)
        levels = self.config.quantiles
        forecasts = []
        for series, row in zip(sequences, self.model(windows).transpose(1, 2).tolist(), strict=True):
            rest = {f"{level:g}": values for level, values in zip(levels, row, strict=True) if level != 0.5}
            forecasts.append(Forecast(series.name, row[levels.index(0.5)], rest))
        return forecasts


class ForecastReader(Reader):
    """Reader of series for the explorer: the next values, predicted from the state after each step.

    The model standardises a whole window, so a prediction before the last step assumes that the whole window is known
    and only reading stops there; the last one is the forecast.
    """

    takes = "series"
    estimates = "next value"

    def steps(self, text: str) -> Steps:
        read, most = Predictor(self.model, self.config).read(one_line(text)).values, self.config.steps
        notes = [f"The model reads the last {most} values alone."] if len(read) > most else []
        tokens = [" ".join(f"{value:.4g}" for value in step) for step in read[-most:].tolist()]
        return Steps(tokens, read[-most:], notes)

    def embed(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.model.standardised(x)[0]
        return embedded

    def scale(self, steps: Steps) -> tuple[float, float]:
        lowest, highest = steps.x[:, 0].aminmax()
        return float(lowest), float(highest)

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        inputs, mean, deviation = self.model.standardised(steps.x.unsqueeze(1))
        x = inputs[:, 0]
        states = self.layer.last(self.layer(prefixes(x))[1]).flip(0) if self.both_ways else outputs
        now = torch.arange(len(x)).unsqueeze(1)
        before = now + 1 - self.config.season + torch.arange(self.config.horizon) % self.config.season
        # a season before the window is not known: the last value is nearest
        naive = x[:, 0][torch.where(before < 0, now, before)]
        rising = self.model.quantiles(states, naive).sort(-1).values * deviation + mean
        ends = self.scale(steps)
        return [StepPrediction([self._forecast(number, row, ends) for number, row in enumerate(rows[:TOP], 1)])
                for rows in rising.tolist()]  # fmt: skip

    def _forecast(self, number: int, row: list[float], ends: tuple[float, float]) -> tuple[str, float]:
        """Return a predicted value with its interval, and its place on the scale."""
        median = row[self.config.quantiles.index(0.5)]
        ahead = f"+{number}: " if self.config.horizon > 1 else ""
        interval = f" ({estimate(row[0], *ends)} to {estimate(row[-1], *ends)})" if len(row) > 1 else ""
        return f"{ahead}{estimate(median, *ends)}{interval}", place_of(median, *ends)
