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
    cell: bool = False
    """Whether cells take the steps, one call each, instead of a layer all of them."""

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
    *(
        Shape(f"{steps} x {batch}, {units} units", steps, batch, units, units)
        for units in (256, 512)
        for steps, batch in ((1, 1), (1, 32), (1, 128), (4, 1), (4, 32), (4, 128))
    ),
    *(
        Shape(f"cell, {batch}, {units} units", 1, batch, units, units, cell=True)
        for batch, units in ((1, 128), (64, 128), (1, 256), (32, 256), (1, 512), (64, 512))
    ),
    Shape("decoder", 32, 32, 512, 512, cell=True),
)
SHORT = tuple(shape.name for shape in SHAPES if shape.steps <= 4 and shape.hidden_size > 128 and not shape.cell)
CELLS = tuple(shape.name for shape in SHAPES if shape.cell and shape.steps == 1)

# the names of the peers, as tables and plot show them
SEVEN, GATED, CONTROLLER, CUSTOM = "seven ops", "keep + replace", "controller 50", "custom op"
REFERENCE, GRU, LSTM, ONNX, COMPILED, FLOOR = "reference", "nn.GRU", "nn.LSTM", "onnxruntime", "compiled loop", "floor"
RESETS, OPENVINO, TORCHRL, EMPTY = "seven ops, resets", "OpenVINO", "TorchRL scan", "empty function"
HALF_SEVEN, HALF_GATED = "seven ops, bfloat16", "keep + replace, bfloat16"
HALF_GRU, HALF_OPENVINO = "nn.GRU, bfloat16", "OpenVINO, bfloat16"
PEERS = (
    *(SEVEN, GATED, CONTROLLER, CUSTOM, RESETS, HALF_SEVEN, HALF_GATED, REFERENCE, GRU, HALF_GRU, LSTM, ONNX),
    *(OPENVINO, HALF_OPENVINO, TORCHRL, COMPILED, EMPTY, FLOOR),
)
HALF = (HALF_SEVEN, HALF_GATED, HALF_GRU, HALF_OPENVINO)
ENGINES = (ONNX, OPENVINO, HALF_OPENVINO)
"""They have threads of their own, and no gradients."""
ARITHMETIC = {SEVEN: "seven ops as one product", GATED: "keep + replace as one product"}
"""Beside a peer: its multiplications alone, as one product."""
READING = {SEVEN: "seven ops, reading", GATED: "keep + replace, reading"}
"""Beside a peer: its weights read, once in inference."""
HALF_IN = ("language model", "large", "stream")
"""Shapes measured in bfloat16 as well."""
RESETS_IN = ("logic 64", "language model", "large")
TORCHRL_IN = ("logic 64", "sentiment", "language model")
"""Shapes for TorchRL, which compiles its scan for each of them."""
EMPTY_IN = ("logic 8", "single step", "cell, 1, 128 units")
"""Shapes so small that the call itself counts."""
CONTROLLER_SIZE = 50


def multiplications(peer: str, shape: Shape) -> int:
    """Multiplications by weights in one step of one sequence."""
    inputs, units, controller = shape.input_size + shape.hidden_size, shape.hidden_size, CONTROLLER_SIZE
    if peer == CONTROLLER:
        return 2 * units * inputs + controller * (inputs + controller) + 6 * units * controller
    of_seven = (SEVEN, CUSTOM, RESETS, HALF_SEVEN, REFERENCE, COMPILED, FLOOR, ARITHMETIC[SEVEN])
    blocks = 8 if peer in of_seven else 4 if peer == LSTM else 3
    return blocks * units * inputs


@dataclass(frozen=True)
class Bar:
    """`peer` should take at most `limit` times as long as `base`."""

    shape: str
    mode: Mode
    peer: str
    base: str
    limit: float


# what we hold ourselves to: ratios to nn.GRU, or nn.GRUCell, which has 3/8 of the arithmetic of seven operations
_TO_GRU = {
    # training seven, inference seven
    "logic 8": (0.3, 0.5),
    "logic 64": (0.5, 0.6),
    "sentiment": (0.75, 0.9),
    "language model": (1.15, 1.3),
    "large": (2.1, 2.1),
    "stream": (0.1, 0.4),
    "long": (0.1, 0.1),
    **dict.fromkeys(SHORT, (3.2, 2.2)),
    **dict.fromkeys(CELLS, (3.2, 2.0)),
    "decoder": (3.0, 2.0),
}
BARS = (
    *(Bar(shape, "training", SEVEN, GRU, limits[0]) for shape, limits in _TO_GRU.items()),
    *(Bar(shape, "inference", SEVEN, GRU, limits[1]) for shape, limits in _TO_GRU.items()),
    *(Bar(shape, "training", GATED, GRU, 1.2) for shape in (*SHORT, *CELLS, "decoder")),
    *(Bar(shape, "inference", GATED, GRU, 1.0) for shape in (*SHORT, *CELLS, "decoder")),
    *(Bar(shape, "training", SEVEN, REFERENCE, 1.0) for shape in (*SHORT, *CELLS, "decoder")),
    *(Bar(shape, "training", SEVEN, FLOOR, 1.3) for shape in ("language model", "large")),
    *(Bar(shape, mode, HALF_SEVEN, SEVEN, 0.65) for mode in MODES for shape in ("language model", "large")),
    *(Bar(shape, mode, RESETS, SEVEN, 1.05) for mode in MODES for shape in RESETS_IN),
    *(Bar("language model", mode, CUSTOM, SEVEN, 1.5) for mode in MODES),
    *(Bar("language model", mode, CONTROLLER, GRU, 0.5) for mode in MODES),
)
