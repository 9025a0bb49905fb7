"""The cost of a model on paper: multiplications, parameters, bytes, and the traffic of data-parallel training."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT = 4
"""Bytes of a float32."""
TRAINING = 3
"""Products of a training step by those of a forward pass: the backward pass has gradients of inputs and of weights."""
OPTIMISER = 4
"""Numbers kept per parameter in training: the weight, its gradient, and the two averages of Adam."""


@dataclass(frozen=True)
class Cost:
    """A layer at one shape; with words, a language model that embeds them and predicts the next of them."""

    inputs: int = 200
    units: int = 200
    layers: int = 1
    steps: int = 35
    batch: int = 20
    words: int = 0
    operations: int = 7

    @property
    def tokens(self) -> int:
        """Steps of all sequences of a batch."""
        return self.steps * self.batch

    @property
    def widths(self) -> list[int]:
        """Inputs of each layer, and its own state."""
        return [self.units + (self.units if layer else self.inputs) for layer in range(self.layers)]

    @property
    def multiplications(self) -> int:
        """Multiplications by weights for one token, forward: feature, reset gate, and all logits but one."""
        recurrent = sum((self.operations + 1) * self.units * width for width in self.widths)
        return recurrent + self.words * self.units

    @property
    def parameters(self) -> int:
        """Weights and two biases for feature, reset gate and each operation; embedding and softmax of the words."""
        recurrent = sum((self.operations + 2) * self.units * (width + 2) for width in self.widths)
        return recurrent + self.words * (self.inputs + self.units + 1)

    @property
    def saved_bytes(self) -> int:
        """Bytes that the layers keep of a batch for the backward pass: by token and unit the feature, the reset gate,
        all weights of operations but one, and the state."""
        per_step = FLOAT * (self.operations + 2) * self.units * self.layers
        return per_step * self.tokens + FLOAT * self.units * self.layers * self.batch

    @property
    def model_bytes(self) -> int:
        """Bytes of weights, gradients and optimiser."""
        return OPTIMISER * FLOAT * self.parameters

    def sent_bytes(self, ranks: int) -> float:
        """Bytes that a rank sends in an update: a ring adds up the gradients, then hands out the sums."""
        return 2 * (ranks - 1) / ranks * FLOAT * self.parameters

    def compute_seconds(self, rate: float) -> float:
        """Seconds of an update's products at a rate of multiplications per second."""
        return TRAINING * self.multiplications * self.tokens / rate

    def speedup(self, ranks: int, rate: float, bandwidth: float) -> float:
        """Updates per second by those of one rank, where the batch is shared out and nothing overlaps; bandwidth in
        bytes per second."""
        alone = self.compute_seconds(rate)
        return alone / (alone / ranks + self.sent_bytes(ranks) / bandwidth)

    def most_ranks(self, rate: float, bandwidth: float) -> int:
        """Ranks up to which the batch is shared at half of the ideal speed or more; 1 if two are too many."""
        return int(1 + self.tokens / self.tokens_to_pay(rate, bandwidth))

    def tokens_to_pay(self, rate: float, bandwidth: float) -> float:
        """Tokens per rank and update at which sending, among many ranks, takes as long as computing."""
        sending = 2 * FLOAT * self.parameters / bandwidth
        return sending * rate / (TRAINING * self.multiplications)
