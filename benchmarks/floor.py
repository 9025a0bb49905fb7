"""Time that a layer's products alone would take.

The floor is the matrix products of a layer of seven operations, by `torch.mm` into memory already there. As one
product, its multiplications wait for no earlier step: what torch needs for that many. Reading alone is what its weights
take that are used once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from shapes import Mode, Shape

BLOCKS = 8
"""Blocks in a row of gates: features, reset gate and six logits, since one of the seven is free."""
GATED_BLOCKS = 3
"""The same of keep and replace."""


WEIGHTS, GATED_WEIGHTS = 9, 4
"""Blocks of weights of seven operations, and of keep and replace: one more, which is subtracted from the others."""


class Floor:
    """As many and as large products as the layer needs; the numbers in them mean nothing."""

    def __init__(self, shape: Shape) -> None:
        rows, inputs, units = shape.steps * shape.batch, shape.input_size, shape.hidden_size
        width = BLOCKS * units
        self.x, self.states, self.reset_states, self.gates, self.d_gates = (
            torch.randn(rows, size) for size in (inputs, units, units, width, width)
        )
        self.w_ih, self.w_hh, self.w_v = (
            torch.randn(inputs, width),
            torch.randn(units, width - units),
            torch.randn(units, units),
        )
        self.w_ih_back, self.w_hh_back, self.w_v_back = (w.t().contiguous() for w in (self.w_ih, self.w_hh, self.w_v))
        self.d_x, self.d_ih, self.d_hh = (
            torch.empty(rows, inputs),
            torch.empty(width, inputs),
            torch.empty(width, units),
        )
        self.d_v, self.d_rest = self.d_gates[:, :units], self.d_gates[:, units:]
        self.out_v, self.out_s = torch.empty(shape.batch, units), torch.empty(shape.batch, units)
        self.out_rest = torch.empty(shape.batch, width - units)
        self.steps = list(zip(self.states.split(shape.batch), self.reset_states.split(shape.batch), strict=True))
        self.steps_back = list(zip(self.d_v.split(shape.batch), self.d_rest.split(shape.batch), strict=True))

    def forward(self) -> None:
        torch.mm(self.x, self.w_ih, out=self.gates)
        for s, reset_s in self.steps:
            torch.mm(s, self.w_hh, out=self.out_rest)
            torch.mm(reset_s, self.w_v, out=self.out_v)

    def training(self) -> None:
        self.forward()
        for d_v, d_rest in reversed(self.steps_back):
            torch.mm(d_v, self.w_v_back, out=self.out_v)
            torch.mm(d_rest, self.w_hh_back, out=self.out_s)
        units = self.out_s.size(1)
        torch.mm(self.d_gates, self.w_ih_back, out=self.d_x)
        torch.mm(self.d_gates.t(), self.x, out=self.d_ih)
        torch.mm(self.d_v.t(), self.reset_states, out=self.d_hh[:units])
        torch.mm(self.d_rest.t(), self.states, out=self.d_hh[units:])


def one_product(shape: Shape, mode: Mode, blocks: int) -> Callable[[], object]:
    """All multiplications of a layer as one square product."""
    inputs, units = shape.input_size, shape.hidden_size
    count = shape.steps * shape.batch * blocks * units * (inputs + units) * (3 if mode == "training" else 1)
    size = round(count ** (1 / 3))
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def reading(shape: Shape, mode: Mode, blocks: int) -> Callable[[], object]:
    """All weights of a layer, read once; three times in training, which reads them again and writes their gradients."""
    numbers = torch.randn(blocks * shape.hidden_size * (shape.input_size + shape.hidden_size))

    def read() -> None:
        for _ in range(3 if mode == "training" else 1):
            torch.sum(numbers)

    return read
