"""Learn the next values of series, with intervals."""

from mufuru.experiments.tasks.forecast.config import PRESETS, ForecastConfig
from mufuru.experiments.tasks.forecast.model import Forecaster
from mufuru.experiments.tasks.forecast.task import ForecastTask, NewSeries
from mufuru.experiments.tasks.forecast.use import ForecastReader, Predictor
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    ForecastConfig,
    ForecastTask,
    PRESETS,
    restore=Forecaster.restored,
    predictor=Predictor,
    new_data=NewSeries,
    reader=ForecastReader,
    noun="forecaster of series",
    data="series of numbers",
    pipeline=lambda config: "time-series-forecasting",
)
