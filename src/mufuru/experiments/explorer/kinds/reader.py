"""A model as the explorer sees it: a text in, the outputs of its recurrent layer, and a prediction after every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.experiments.explorer.requests import check_length, check_steps
from mufuru.experiments.tasks.cells import SequenceLayer

TOP = 10
"""Likeliest labels or words that are told of each prediction."""


@dataclass(frozen=True)
class Steps:
    """A text as a model reads it."""

    tokens: list[str]
    """One for each step, as people read them."""
    x: Tensor
    """(steps,) numbers of tokens, or (steps, channels) of numbers."""
    notes: list[str] = field(default_factory=list)
    """What the user should know, such as words that the model does not."""


@dataclass(frozen=True)
class Prediction:
    """What a model says after a step."""

    top: list[tuple[str, float]]
    """The likeliest labels or words and their probabilities, the likeliest first."""
    truth: str | None = None
    """The right label, where that is known."""
    came: float | None = None
    """The probability of what came next, where something did."""


class Reader(ABC):
    """One kind of model; `takes` says what a user types: a formula, words, characters or a series."""

    takes: str
    examples: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any, config: Any) -> None:
        self.model, self.config = model.eval(), config

    @property
    def layer(self) -> SequenceLayer:
        found: SequenceLayer = self.model.reader
        return found

    @property
    def both_ways(self) -> bool:
        """Whether the model reads from both ends, so that an output knows of what comes later."""
        return self.layer.directions == 2

    @property
    def labels(self) -> tuple[str, ...]:
        """What is predicted, where there are few of them."""
        return ()

    def read(self, text: str) -> Steps:
        """The steps of a text, or `Refused` or an error of its kind."""
        check_length(text)
        steps = self.steps(text)
        check_steps(len(steps.tokens), self.both_ways)
        return steps

    @abstractmethod
    def steps(self, text: str) -> Steps: ...

    @abstractmethod
    def outputs(self, steps: Steps) -> Tensor:
        """(steps, features): what the layer gives when it reads all of it."""

    @abstractmethod
    def predict(self, steps: Steps, outputs: Tensor) -> list[Prediction]:
        """A prediction after each step, from the steps up to it alone."""


def prefixes(rows: Tensor) -> PackedSequence:
    """All beginnings of a sequence (steps, ...), the longest first."""
    sizes = torch.arange(len(rows), 0, -1)
    return PackedSequence(rows.repeat_interleave(sizes, 0), sizes)


def ranked(probabilities: Tensor, labels: tuple[str, ...]) -> list[list[tuple[str, float]]]:
    """By step the likeliest labels of (steps, labels)."""
    values, places = probabilities.topk(min(TOP, len(labels)), 1)
    rows = zip(values.tolist(), places.tolist(), strict=True)
    return [[(labels[k], round(p, 6)) for p, k in zip(ps, ks, strict=True)] for ps, ks in rows]
