"""The shapes that are measured, and the bars: what we hold ourselves to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["training", "inference"]
MODES: tuple[Mode, ...] = ("training", "inference")


@dataclass(frozen=True)
class Shape:
    name: str
    steps: int
    batch: int
    input_size: int
    hidden_size: int

    def __str__(self) -> str:
        return f"{self.name} (T {self.steps}, B {self.batch}, N {self.input_size}, M {self.hidden_size})"


SHAPES = (
    Shape("logic 8", 21, 50, 12, 8),
    Shape("logic 64", 21, 50, 12, 64),
    Shape("sentiment", 20, 25, 100, 100),
    Shape("language model", 35, 20, 200, 200),
    Shape("large", 100, 64, 512, 512),
    Shape("stream", 200, 1, 128, 128),
    Shape("single step", 1, 1, 128, 128),
    Shape("long", 10_000, 1, 64, 64),
)

# the names of the peers, as tables and plot show them
SEVEN, GATED, CONTROLLER, CUSTOM = "seven ops", "keep + replace", "controller 50", "custom op"
REFERENCE, GRU, LSTM, ONNX, COMPILED, FLOOR = "reference", "nn.GRU", "nn.LSTM", "onnxruntime", "compiled loop", "floor"
PEERS = (SEVEN, GATED, CONTROLLER, CUSTOM, REFERENCE, GRU, LSTM, ONNX, COMPILED, FLOOR)
ARITHMETIC = {SEVEN: "seven ops as one product", GATED: "keep + replace as one product"}
"""Beside a peer: its multiplications alone, as one product."""


@dataclass(frozen=True)
class Bar:
    """`peer` should take at most `limit` times as long as `base`."""

    shape: str
    mode: Mode
    peer: str
    base: str
    limit: float


# what we hold ourselves to: ratios to nn.GRU, which has 3/8 of the recurrent arithmetic of seven operations
_TO_GRU = {
    # training seven, training keep + replace, inference seven
    "logic 8": (0.15, 0.12, 0.2),
    "logic 64": (0.5, 0.25, 0.6),
    "sentiment": (0.7, 0.35, 1.0),
    "language model": (0.8, 0.4, 1.2),
    "large": (1.8, 0.8, 2.0),
    "stream": (0.1, 0.07, 0.1),
    "long": (0.1, 0.07, 0.1),
}
BARS = (
    *(Bar(shape, "training", SEVEN, GRU, limits[0]) for shape, limits in _TO_GRU.items()),
    *(Bar(shape, "training", GATED, GRU, limits[1]) for shape, limits in _TO_GRU.items()),
    *(Bar(shape, "inference", SEVEN, GRU, limits[2]) for shape, limits in _TO_GRU.items()),
    *(Bar(shape, "training", SEVEN, FLOOR, 1.3) for shape in ("language model", "large")),
    *(Bar("language model", mode, CUSTOM, SEVEN, 1.5) for mode in MODES),
    *(Bar("language model", mode, CONTROLLER, GRU, 0.5) for mode in MODES),
)
