"""Predict a number from a sequence, such as a price from a description or a rate from a series."""

from mufuru.experiments.tasks.regress.task import PRESETS, NewTargets, Predictor, Regressor, RegressReader, RegressTask
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card("regressor of sequences", "sequences with a number each")
KIND = Kind(RegressTask, PRESETS, CARD, model=Regressor, predictor=Predictor, new_data=NewTargets, reader=RegressReader)
