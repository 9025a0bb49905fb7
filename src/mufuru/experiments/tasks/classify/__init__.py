"""Classify sequences: the Stanford Sentiment Treebank, or your own files."""

from mufuru.experiments.tasks.classify.config import PRESETS
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.classify.task import ClassifyTask, NewData
from mufuru.experiments.tasks.classify.use import Predictor, SequenceReader
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card(
    "classifier of sequences",
    "the Stanford Sentiment Treebank",
    lambda config: None if config["data"].get("format") == "numeric" else "text-classification",
)
KIND = Kind(ClassifyTask, PRESETS, CARD, model=Classifier, predictor=Predictor, new_data=NewData, reader=SequenceReader)
