r"""Regularisation inside the recurrence: probabilities of dropouts, and the masks drawn for one forward pass.

All masks come from torch's generator, before any kernel runs: a seed gives the same result whichever kernel is live.
"""

import numbers
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import dropout

from mufuru.kernels import onnx
from mufuru.kernels.call import NO_MASKS, Masks, whole_numbers
from mufuru.unit import Weights


@dataclass(frozen=True)
class Noise:
    """Probabilities of the layer's dropouts; all 0 by default."""

    input_dropout: float = 0.0
    """Probability of dropping an input feature, for all steps of a sequence (variational)."""
    state_dropout: float = 0.0
    """Probability of dropping a state unit where it enters a product, for all steps of a sequence (variational)."""
    zoneout: float = 0.0
    """Probability that a unit keeps its state in a step. Evaluation mixes old and new in this proportion."""
    weight_dropout: float = 0.0
    """Probability of dropping a recurrent weight, for a whole forward pass (weight-drop)."""
    op_dropout: float = 0.0
    """Probability of dropping an operation, per sequence; the softmax is over the others, of which one always stays."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_probability(field.name, getattr(self, field.name))

    def input_mask(self, x: Tensor, batch: int, batch_sizes: Tensor | None) -> Tensor | None:
        """Return the factor on a layer's packed input."""
        if not self.input_dropout:
            return None
        mask = _keep_mask(x.new_empty(batch, x.size(-1)), self.input_dropout)
        if batch_sizes is None:
            return mask.repeat(x.size(0) // batch, 1) if batch else mask
        return torch.cat([mask[:alive] for alive in whole_numbers(batch_sizes)]) if len(batch_sizes) else mask[:0]

    def masks(self, x: Tensor, s0: Tensor, n_ops: int, training: bool) -> Masks:
        """Draw the masks of one direction of one layer."""
        if self is NO_NOISE:  # not by comparing numbers, which a compiler may take for variables
            return NO_MASKS
        if training and onnx.tracing():
            raise NotImplementedError(
                "an ONNX exporter takes most of a layer's own noise for a constant: call model.eval() before the export"
            )
        if not (self.zoneout or self.state_dropout or self.op_dropout):
            return NO_MASKS
        zoneout = None
        if self.zoneout:
            # a tensor, not a number: ONNX would have that in single precision
            share = x.new_ones(x.size(0), s0.size(1)) * torch.tensor(self.zoneout, dtype=x.dtype, device="cpu")
            zoneout = torch.bernoulli(share) if training else share
        if not training:
            return Masks(zoneout=zoneout)
        state = _keep_mask(s0.new_empty(s0.shape, dtype=x.dtype), self.state_dropout) if self.state_dropout else None
        return Masks(state, zoneout, self._allowed(s0.size(0), n_ops, s0.device) if self.op_dropout else None)

    def drop_weights(self, weights: Weights) -> Weights:
        """Apply weight-drop to all weights that multiply the recurrent state."""
        if not self.weight_dropout:
            return weights
        # contiguous: the mask would follow the strides
        kk = None if weights.kk is None else dropout(weights.kk.contiguous(), self.weight_dropout)
        return weights._replace(hh=dropout(weights.hh.contiguous(), self.weight_dropout), kk=kk)

    def _allowed(self, batch: int, n_ops: int, device: torch.device) -> Tensor:
        draw = torch.rand(batch, n_ops, device=device)
        # the operation with the luckiest draw stays, so that no sequence is left without one
        return (draw >= self.op_dropout) | (draw == draw.amax(1, keepdim=True))


def check_probability(name: str, value: float) -> None:
    if not isinstance(value, numbers.Number) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        raise ValueError(
            f"{name} should be a number in range [0, 1] representing the probability of an element being zeroed"
        )


def _keep_mask(like: Tensor, probability: float) -> Tensor:
    """Draw 0 with the given probability, otherwise the factor that keeps the mean, as `nn.Dropout` does."""
    return dropout(torch.ones_like(like), probability)


NO_NOISE = Noise()
