"""Use of a trained language model: generate text, score text, and explore."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mufuru.experiments.data import text as texts
from mufuru.experiments.data.bpe import BytePairs
from mufuru.experiments.data.text import Level
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel, first_token
from mufuru.experiments.tasks.lm.task import Windows
from mufuru.experiments.tasks.task import Reader, StepPrediction, Steps, ranked
from mufuru.experiments.tasks.words import unknown_note

WINDOW = 512
"""Tokens scored at a time; no score depends on it."""


@dataclass(frozen=True)
class Sampler:
    """Settings of the draw of the next token."""

    temperature: float = 1.0
    """Below 1 sharpens the distribution; 0 is greedy."""
    top_k: int | None = None
    """Draw among this many of the likeliest tokens; None for all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise SettingError(f"temperature should be a number of at least 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(f"top_k should be at least 1, got {self.top_k}")

    def draw(self, logits: Tensor, generator: torch.Generator) -> int:
        """Draw a token by the logits (vocabulary,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        # double precision, and the largest at 0: a low temperature makes logits large
        logits = (logits.double() - logits.max()) / self.temperature
        if self.top_k is not None and self.top_k < len(logits):
            bound = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < bound, -torch.inf)
        return int(torch.multinomial(logits.softmax(0), 1, generator=generator))


class TextModel:
    """A trained model and its tokens."""

    def __init__(self, model: LanguageModel, config: LMConfig) -> None:
        self.model, self.vocabulary = model, model.vocabulary
        self.level: Level = config.data.tokens

    @torch.no_grad()
    def generate(self, prompt: Tensor, sampler: Sampler, seed: int, forbidden: list[int]) -> Iterator[int]:
        """Yield tokens without end after those of a prompt; the same for the same seed, none of the forbidden ones."""
        generator = torch.Generator().manual_seed(seed)
        step, state = torch.cat((torch.tensor([first_token(self.vocabulary)]), prompt)).unsqueeze(1), None
        while True:
            outputs, state = self.model(step, state)
            logits = self.model.output(outputs[-1, 0])
            logits[forbidden] = -torch.inf
            token = sampler.draw(logits, generator)
            yield token
            step = torch.tensor([[token]])

    @torch.no_grad()
    def log_probabilities(self, words: list[str]) -> Iterator[float]:
        """Yield the logarithm of every word's probability, given all words before it."""
        state = None
        for window in Windows(self.vocabulary.encode(words), first_token(self.vocabulary), 1, WINDOW):
            logs, state = self.model.log_probabilities(window.inputs, window.targets, state)
            yield from logs.flatten().tolist()


def cut(lines: Iterable[str], level: Level, vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of lines."""
    return vocabulary.cut(lines) if isinstance(vocabulary, BytePairs) else list(texts.cut(lines, level))


def unfinished(text: str, lines: Iterable[str], level: Level, vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a text by its lines; the last line is unfinished, unless it ends with a line break."""
    words = cut(lines, level, vocabulary)
    return words[:-1] if words and level in texts.IN_WORDS and not text.endswith("\n") else words


class TextReader(Reader):
    """Reader for the explorer: the distribution of the next word or character."""

    @property
    def takes(self) -> str:  # type: ignore[override]
        return "characters" if self.config.data.tokens == "char" else "words"

    def steps(self, text: str) -> Steps:
        """Return the steps of a text after the token that stands before every text."""
        vocabulary = self.model.vocabulary
        words = unfinished(text, text.splitlines(keepends=True), self.config.data.tokens, vocabulary)
        notes = unknown_note(word for word in words if word not in vocabulary)
        ids = torch.cat((torch.tensor([first_token(vocabulary)]), vocabulary.encode(words)))
        return Steps([vocabulary.labels[int(ids[0])], *vocabulary.labelled(words)], ids, notes)

    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        probabilities = self.model.output(outputs).softmax(1)
        came = probabilities[:-1].gather(1, steps.x[1:].unsqueeze(1)).squeeze(1).tolist()
        tops = ranked(probabilities, self.model.vocabulary.labels)
        return [StepPrediction(top, came=p) for top, p in zip(tops, [*(round(p, 6) for p in came), None], strict=True)]
