"""Forecast the next values of series, with intervals."""

from mufuru.experiments.tasks.forecast.model import PRESETS, Forecaster
from mufuru.experiments.tasks.forecast.task import ForecastTask, NewSeries
from mufuru.experiments.tasks.forecast.use import ForecastReader, Predictor
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card("forecaster of series", "series of numbers", lambda config: "time-series-forecasting")
KIND = Kind(
    ForecastTask, PRESETS, CARD, model=Forecaster, predictor=Predictor, new_data=NewSeries, reader=ForecastReader
)
