"""A running average of the weights: often better than the weights themselves, which training keeps shaking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of a model's parameters, to be put in their place for a while.

    It forgets its first values quickly: after n updates the decay is at most (1 + n) / (10 + n).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        # a parameter with two names is listed once
        self.values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights after so many updates."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for name, parameter in self.model.named_parameters():
            self.values[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context the model has the averaged weights; afterwards its own, to the bit."""
        own = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        self._fill(self.values)
        try:
            yield
        finally:
            self._fill(own)

    def state(self) -> dict[str, Tensor]:
        """The state of the model with the averaged weights, complete and apart from the model's own."""
        with self.in_place():
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self.values = {name: state[name].clone() for name in self.values}

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(values[name])
