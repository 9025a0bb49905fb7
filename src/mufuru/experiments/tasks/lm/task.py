"""The language-model task: a text, cut into windows, in; the probability of its every token out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mufuru.experiments.data import ptb, text
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import choose
from mufuru.experiments.tasks.cells import detach
from mufuru.experiments.tasks.lm.config import DataConfig, LMConfig
from mufuru.experiments.tasks.lm.inspection import operation_weights
from mufuru.experiments.tasks.lm.model import LanguageModel, Predictions
from mufuru.experiments.tasks.task import State, Step, Totals

LARGEST = 700.0
"""A loss whose exponential is still finite."""


class Window(NamedTuple):
    """Some steps of all columns; the window after it goes on where it ends."""

    inputs: Tensor
    """(steps, batch): the tokens to read."""
    targets: Tensor
    """(steps, batch): the token after each of them."""


def cut(tokens: Tensor, first: int, batch_size: int, steps: int) -> list[Window]:
    """The windows of a stream, in order; `first` stands before its first token. The last window may be shorter.

    Token t of a stream is predicted from the t - 1 before it, the first one from `<eos>`, as if a line had just ended.
    So a stream of n tokens holds n predictions. Training reads `batch_size` columns side by side, each a stretch of the
    stream that begins without a state but with the token before it; the few tokens at the end that fill no column of
    the same length are left out. Evaluation reads the whole stream as one column: the only way in which every token is
    predicted once, from all that came before it. Then the size of a window is a matter of memory alone.
    """
    before = torch.cat((tokens.new_tensor([first]), tokens[:-1]))[: len(tokens)]
    length = len(tokens) // batch_size
    if not length:
        return []
    # time comes first, so that every window is one piece of memory
    inputs, targets = (
        stream[: batch_size * length].view(batch_size, length).T.contiguous().split(steps)
        for stream in (before, tokens)
    )
    return [Window(*pair) for pair in zip(inputs, targets, strict=True)]


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
        window: Predictions = language_model.predict(batch.inputs, batch.targets, state)
        return Step(window.loss, batch.targets.numel(), detach(window.state), penalty=window.penalty)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Loss in nats per token, perplexity, and for characters the bits that each needs."""
        loss = totals.mean("loss")
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        return metrics | ({"bits_per_character": loss / math.log(2)} if self.config.data.level == "char" else {})

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """MuFuRU's mean operation weights by class of the token it reads, over the validation text; {} for others."""
        if self.config.cell.cell != "mufuru":
            return {}
        table = operation_weights(model, self.batches("valid"), self.corpus, self.config.data.level)
        return {"operation_weights": table}


def perplexity(loss: float) -> float:
    """Perplexity of a mean loss in nats; always finite, so that JSON can hold that of a diverged run."""
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
    """The token before a text: the end of a line, `<eos>` or the character; where there is none, any token."""
    if vocabulary.end is not None:
        return vocabulary.end
    return int(vocabulary.encode(["\n"])) if "\n" in vocabulary else vocabulary.unknown_index or 0
