"""Learn to name the class of a sequence: the Stanford Sentiment Treebank, or files of one's own."""

from mufuru.experiments.tasks.classify.config import PRESETS, ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.model import restore
from mufuru.experiments.tasks.classify.predictor import Predictor
from mufuru.experiments.tasks.classify.task import ClassifyTask

__all__ = ["PRESETS", "ClassifyConfig", "ClassifyTask", "DataConfig", "Predictor", "restore"]
