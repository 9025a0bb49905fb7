"""Settings and presets of forecasters."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from mufuru.experiments.data.series import Format
from mufuru.experiments.settings import SettingError, Training, check_fraction, check_held_out, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.files import FEW
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
