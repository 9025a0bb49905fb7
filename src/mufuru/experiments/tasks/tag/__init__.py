"""Label each token of a sentence: parts of speech, names, any spans in BIO labels."""

from mufuru.experiments.tasks.tag.model import PRESETS, Tagger
from mufuru.experiments.tasks.tag.task import NewSentences, TagTask
from mufuru.experiments.tasks.tag.use import Predictor, TagReader
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card("tagger of tokens", "sentences with a label for each token", lambda config: "token-classification")
KIND = Kind(TagTask, PRESETS, CARD, model=Tagger, predictor=Predictor, new_data=NewSentences, reader=TagReader)
