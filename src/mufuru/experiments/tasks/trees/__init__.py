"""Learn to name the sentiment of a phrase from its parse tree: units that compose the states of two phrases."""

from mufuru.experiments.tasks.trees.config import PRESETS, TreebankConfig, TreeCellConfig, TreesConfig
from mufuru.experiments.tasks.trees.model import restore
from mufuru.experiments.tasks.trees.task import TreesTask

__all__ = ["PRESETS", "TreeCellConfig", "TreebankConfig", "TreesConfig", "TreesTask", "restore"]
