"""The softmax over the vocabulary and its loss, without keeping or copying the logits.

With 200 units and 10,000 words the logits are fifty times as large as what they are computed from. Here they live in
one buffer for some rows at a time, and the gradients are formed with the loss itself, so nothing but them waits for the
backward pass. On the CPU the native kernel does it, elsewhere torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mufuru.kernels import cross_entropy
from mufuru.kernels.cross_entropy import Losses

ROWS = 256
"""Predictions at a time; no result depends on it but by rounding."""


def loss_sum(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, rows: int = ROWS) -> Tensor:
    """The sum of the losses, in nats, of predicting `targets` (n,) from `hidden` (n, features).

    Differentiable once. Without gradients the sum is in double precision.
    """
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (hidden, weight, bias)):
        apply: Any = _LossSum.apply
        total: Tensor = apply(hidden, weight, bias, targets, rows)
        return total
    return -log_probabilities(hidden, weight, bias, targets, rows).sum(dtype=torch.float64)


def log_probabilities(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, rows: int = ROWS) -> Tensor:
    """(n,): the logarithm of each target's probability."""
    return log_probabilities_by(lambda h: torch.addmm(bias, h, weight.T), hidden, targets, rows)


@torch.no_grad()
def log_probabilities_by(
    output: Callable[[Tensor], Tensor], hidden: Tensor, targets: Tensor, rows: int = ROWS
) -> Tensor:
    """The same with any output layer, which gives the logits."""
    chosen = [hidden.new_empty(0)]
    for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
        logits = output(h)
        chosen.append(logits.gather(1, t.unsqueeze(1)).squeeze(1) - logits.logsumexp(1))
    return torch.cat(chosen)


class _LossSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, rows: int) -> Tensor:
        if cross_entropy.runs(hidden, weight, bias):
            losses, *gradients = cross_entropy.losses(hidden, weight, bias, targets)
        else:
            losses, *gradients = in_torch(hidden, weight, bias, targets, rows)
        ctx.save_for_backward(*gradients)
        return losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_loss * d_hidden, d_loss * d_weight, d_loss * d_bias, None, None


def in_torch(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, rows: int) -> Losses:
    """The native kernel's results, in torch."""
    d_hidden, d_weight, d_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
    logits = hidden.new_empty(min(rows, len(hidden)), len(weight))
    losses = [hidden.new_empty(0)]
    for h, t, d_h in zip(hidden.split(rows), targets.split(rows), d_hidden.split(rows), strict=True):
        # first the logits, then in their place the probabilities, then the gradient
        d_logits = torch.addmm(bias, h, weight.T, out=logits[: len(h)])
        losses.append(_to_gradient(d_logits, t))
        torch.mm(d_logits, weight, out=d_h)
        d_weight.addmm_(d_logits.T, h)
        d_bias += d_logits.sum(0)
    return Losses(torch.cat(losses), d_hidden, d_weight, d_bias)


def _to_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """Turn logits into the gradients of the losses with respect to them, in place; return the losses."""
    rows = torch.arange(len(targets))
    chosen = logits[rows, targets]
    # one exponential for both uses: it is what this function spends its time on
    top = logits.amax(1, keepdim=True)
    totals = logits.sub_(top).exp_().sum(1, keepdim=True)
    logits.div_(totals)
    logits[rows, targets] -= 1
    return (top + totals.log()).squeeze(1) - chosen
