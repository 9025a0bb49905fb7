"""Learn to name the sentiment of a phrase from its parse tree: units that compose the states of two phrases."""

from mufuru.experiments.tasks.task import Kind
from mufuru.experiments.tasks.trees.config import PRESETS, TreesConfig
from mufuru.experiments.tasks.trees.model import TreeClassifier
from mufuru.experiments.tasks.trees.task import TreesTask

KIND = Kind(
    TreesConfig,
    TreesTask,
    PRESETS,
    restore=TreeClassifier.restored,
    noun="classifier of the phrases of parsed sentences",
    data="the Stanford Sentiment Treebank",
    cell_names={"mufuru": "TreeMuFuRU", "gru": "gru", "lstm": "Tree-LSTM"},
)
