"""Learn to predict the next word, or character, of a text: the Penn Treebank, or your own files."""

from mufuru.experiments.tasks.lm.config import PRESETS, LMConfig
from mufuru.experiments.tasks.lm.dynamic import evaluate as evaluate_dynamically
from mufuru.experiments.tasks.lm.model import LanguageModel
from mufuru.experiments.tasks.lm.task import LMTask
from mufuru.experiments.tasks.lm.use import TextModel, TextReader
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    LMConfig,
    LMTask,
    PRESETS,
    restore=LanguageModel.restored,
    reader=TextReader,
    text_model=TextModel,
    dynamic=evaluate_dynamically,
    noun="language model",
    data="the Penn Treebank",
    pipeline=lambda config: "text-generation",
)
