"""Learn to predict the next word, or character, of a text: the Penn Treebank, or files of one's own."""

from mufuru.experiments.tasks.lm.config import PRESETS, DataConfig, LMConfig
from mufuru.experiments.tasks.lm.model import restore
from mufuru.experiments.tasks.lm.task import LMTask

__all__ = ["PRESETS", "DataConfig", "LMConfig", "LMTask", "restore"]
