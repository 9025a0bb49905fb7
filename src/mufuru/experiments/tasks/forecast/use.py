"""Use of a trained forecaster: the next values of new series, or of longer ones, with intervals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mufuru.experiments.data import DataError
from mufuru.experiments.data.lines import read_input
from mufuru.experiments.data.readers import values
from mufuru.experiments.data.series import Series
from mufuru.experiments.tasks.forecast.config import ForecastConfig
from mufuru.experiments.tasks.forecast.model import Forecaster
from mufuru.experiments.tasks.forecast.task import load_alike
from mufuru.experiments.tasks.task import HowToRead

AS_TRAINED = HowToRead()


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

    def open(self, file: Path | None, how: HowToRead = AS_TRAINED) -> tuple[Iterator[Series], str]:
        """Return the series of a file, read with the columns of training, or of the lines of standard input."""
        if how != HowToRead(how.layout):
            raise DataError("a forecaster reads files as in training: leave --format, --text-column and --labels out")
        if file is None:
            return self.lines(), ""
        found = load_alike(file, self.config, self.model.columns)
        return map(self.checked, found.series), found.description

    def lines(self) -> Iterator[Series]:
        lines, place = read_input(None)
        for number, line in enumerate(lines, 1):
            try:
                yield self.read(line, str(number))
            except DataError as error:
                raise DataError(f"{place}, line {number}: {error}") from None

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
        if not sequences:
            return []
        windows = torch.stack([series.values[-self.config.steps :] for series in sequences], 1)
        levels = self.config.quantiles
        found = []
        for series, row in zip(sequences, self.model(windows).transpose(1, 2).tolist(), strict=True):
            rest = {f"{level:g}": values for level, values in zip(levels, row, strict=True) if level != 0.5}
            found.append(Forecast(series.name, row[levels.index(0.5)], rest))
        return found
