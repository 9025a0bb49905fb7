"""Classify phrases by their parse trees: units compose the states of two phrases."""

from mufuru.experiments.tasks.task import Card, Kind
from mufuru.experiments.tasks.trees.model import PRESETS, TreeClassifier
from mufuru.experiments.tasks.trees.task import TreesTask

CARD = Card("classifier of the phrases of parsed sentences", "the Stanford Sentiment Treebank")
NAMES = {"mufuru": "TreeMuFuRU", "gru": "gru", "lstm": "Tree-LSTM"}
KIND = Kind(TreesTask, PRESETS, CARD, model=TreeClassifier, cell_names=NAMES)
