"""The language model that one writes without this package: nn.Embedding, nn.GRU, nn.Linear, cross_entropy and Adam."""

from __future__ import annotations

import time
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from mufuru.experiments.data.text import Corpus
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.task import LMTask


class PlainUpdates:
    """That model in training, update by update, with a clock between the stages."""

    def __init__(self, config: LMConfig, corpus: Corpus) -> None:
        torch.manual_seed(config.seed)
        words, size = len(corpus.vocabulary), config.cell.hidden_size
        self.embedding, self.layer, self.output = nn.Embedding(words, size), nn.GRU(size, size), nn.Linear(size, words)
        self.training = config.training
        self.parameters = [*self.embedding.parameters(), *self.layer.parameters(), *self.output.parameters()]
        betas = self.training.beta1, self.training.beta2
        self.optimizer = torch.optim.Adam(self.parameters, self.training.learning_rate, betas)
        self.windows = LMTask(config, corpus).batches("train")
        self.state: Tensor | None = None
        self.done = 0

    def update(self) -> list[float]:
        """One update; the seconds of its stages."""
        window = self.windows[self.done % len(self.windows)]
        clock = [time.perf_counter()]
        outputs, state = self.layer(self.embedding(window.inputs), self.state)
        clock.append(time.perf_counter())
        loss = cross_entropy(self.output(outputs).flatten(0, 1), window.targets.flatten())
        clock.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.backward()
        clock.append(time.perf_counter())
        if self.training.clip is not None:
            clip_grad_norm_(self.parameters, self.training.clip)
        clock.append(time.perf_counter())
        self.optimizer.step()
        clock.append(time.perf_counter())
        self.state, self.done = state.detach(), self.done + 1
        return [end - start for start, end in pairwise(clock)]
