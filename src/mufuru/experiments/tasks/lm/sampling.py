"""A trained model's own text: token by token, each drawn from the model's probabilities and read by it next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.lm.model import LanguageModel


@dataclass(frozen=True)
class Taste:
    """How tokens are drawn."""

    temperature: float = 1.0
    """Below 1 the likely becomes likelier; 0 takes the likeliest token."""
    top_k: int | None = None
    """Draw among so many of the likeliest tokens; None for all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise SettingError(f"temperature should be a number of at least 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(f"top_k should be at least 1, got {self.top_k}")

    def draw(self, logits: Tensor, generator: torch.Generator) -> int:
        """One of the tokens, by their logits (vocabulary,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        # double precision, and the largest at 0: a low temperature makes logits large
        logits = (logits.double() - logits.max()) / self.temperature
        if self.top_k is not None and self.top_k < len(logits):
            bound = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < bound, -torch.inf)
        return int(torch.multinomial(logits.softmax(0), 1, generator=generator))


@torch.no_grad()
def tokens(model: LanguageModel, prompt: Tensor, taste: Taste, seed: int, forbidden: list[int]) -> Iterator[int]:
    """Tokens without end, after a prompt of at least one token; the same for the same seed, none of the forbidden."""
    generator = torch.Generator().manual_seed(seed)
    step, state = prompt.unsqueeze(1), None
    while True:
        outputs, state = model(step, state)
        logits = model.output(outputs[-1, 0])
        logits[forbidden] = -torch.inf
        token = taste.draw(logits, generator)
        yield token
        step = torch.tensor([[token]])
