"""The language-model task: a text in, the probability of its every token out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import nn

from mufuru.experiments.data import ptb, text
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import choose
from mufuru.experiments.tasks.cells import detach
from mufuru.experiments.tasks.lm import inspection
from mufuru.experiments.tasks.lm.batches import Window, cut
from mufuru.experiments.tasks.lm.config import DataConfig, LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel, Predictions
from mufuru.experiments.tasks.task import State, Step, Totals

LARGEST = 700.0
"""A loss whose exponential is still a number."""


class LMTask:
    """Text, model and metrics of one run."""

    metric = "perplexity"
    higher_is_better = False

    def __init__(self, config: LMConfig, corpus: Corpus | None = None) -> None:
        self.config = config
        self.corpus = load(config.data) if corpus is None else corpus
        batch_size = config.training.batch_size
        self.corpus.require(
            "train",
            batch_size,
            f"one for each of the {batch_size} columns of a batch. Give more text, or a smaller --batch-size",
        )
        first = first_token(self.corpus.vocabulary)
        self._windows = {
            "train": cut(self.corpus.train, first, batch_size, config.bptt),
            "valid": cut(self.corpus.valid, first, 1, config.evaluation_window),
            "test": cut(self.corpus.test, first, 1, config.evaluation_window),
        }

    def build(self) -> LanguageModel:
        return LanguageModel(self.config, self.corpus.vocabulary, self.corpus.fingerprint)

    def batches(self, split: str, epoch: int = 0) -> list[Window]:
        """All windows in the order of the text, the same in every epoch."""
        return choose("split", split, self._windows)

    def step(self, model: nn.Module, batch: Window, state: State) -> Step:
        language_model: Any = model
        found: Predictions = language_model.predict(batch.inputs, batch.targets, state)
        return Step(found.loss, batch.targets.numel(), detach(found.state), penalty=found.penalty)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Loss in nats per token, perplexity, and for characters the bits that each needs."""
        loss = totals.mean("loss")
        found = {"loss": loss, "perplexity": perplexity(loss)}
        return found | ({"bits_per_character": loss / math.log(2)} if self.config.data.level == "char" else {})

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """MuFuRU's mean operation weights by class of the token it reads, over the validation text; {} for others."""
        if self.config.cell.cell != "mufuru":
            return {}
        table = inspection.operation_weights(model, self.batches("valid"), self.corpus, self.config.data.level)
        return {"operation_weights": table}


def perplexity(loss: float) -> float:
    """Of a mean loss in nats; always finite, so that a run gone wrong can still be written down."""
    return math.exp(min(loss, LARGEST))


def load(data: DataConfig) -> Corpus:
    """The text that the settings name."""
    if not data.text:
        return ptb.load(None if data.data_dir is None else Path(data.data_dir))
    return text.load(
        [Path(file) for file in data.text],
        data.level,
        vocabulary_size=data.vocabulary_size,
        min_count=data.min_count,
        valid_files=[Path(file) for file in data.valid_text],
        test_files=[Path(file) for file in data.test_text],
        held_out=data.held_out,
    )


def first_token(vocabulary: Vocabulary) -> int:
    """What stands before a text: the end of a line, `<eos>` or the character; where there is none, any token."""
    if vocabulary.end is not None:
        return vocabulary.end
    return int(vocabulary.encode(["\n"])) if "\n" in vocabulary else vocabulary.unknown_index or 0
