"""Learn to predict the next word, or character, of a text: the Penn Treebank, or your own files."""

from mufuru.experiments.tasks.lm.config import PRESETS
from mufuru.experiments.tasks.lm.dynamic import evaluate as evaluate_dynamically
from mufuru.experiments.tasks.lm.model import LanguageModel
from mufuru.experiments.tasks.lm.task import LMTask
from mufuru.experiments.tasks.lm.use import TextModel, TextReader
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card("language model", "the Penn Treebank", lambda config: "text-generation")
KIND = Kind(
    LMTask, PRESETS, CARD, model=LanguageModel, reader=TextReader, text_model=TextModel, dynamic=evaluate_dynamically
)
