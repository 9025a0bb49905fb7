"""Learn a label for each token of a sentence: parts of speech, names, any spans in BIO labels."""

from mufuru.experiments.tasks.tag.config import PRESETS, TagConfig
from mufuru.experiments.tasks.tag.model import Tagger
from mufuru.experiments.tasks.tag.task import NewSentences, TagTask
from mufuru.experiments.tasks.tag.use import Predictor, TagReader
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    TagConfig,
    TagTask,
    PRESETS,
    restore=Tagger.restored,
    predictor=Predictor,
    new_data=NewSentences,
    reader=TagReader,
    noun="tagger of tokens",
    data="sentences with a label for each token",
    pipeline=lambda config: "token-classification",
)
