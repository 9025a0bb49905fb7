"""Learn to name the class of a sequence: the Stanford Sentiment Treebank, or your own files."""

from mufuru.experiments.tasks.classify.config import PRESETS, ClassifyConfig
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.classify.task import ClassifyTask, NewData
from mufuru.experiments.tasks.classify.use import Predictor, SequenceReader
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    ClassifyConfig,
    ClassifyTask,
    PRESETS,
    restore=Classifier.restored,
    predictor=Predictor,
    new_data=NewData,
    reader=SequenceReader,
    noun="classifier of sequences",
    data="the Stanford Sentiment Treebank",
    pipeline=lambda config: None if config["data"].get("format") == "numeric" else "text-classification",
)
