"""Which regime a call runs in, and its tiles: by shape and chip alone, so that no launch waits for a number.

The bounds between the regimes are predicted, not measured: docs/gpu.md has the arithmetic behind them.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import torch

from mufuru.ops import PAPER

Regime = Literal["persistent", "tiled", "stepwise"]
REGIMES = get_args(Regime)
PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}
"""How products in float32 multiply, by `torch.get_float32_matmul_precision()`."""
STEPWISE_BYTES = 512 * 1024
"""Weights of more bytes are read by many programs at once: one alone takes longer for them than launches take."""
PERSISTENT_UNITS = 64
"""The weights of more units do not fit on a chip."""
TILE = {"BLOCK_B": 16, "BLOCK_H": 32}
"""Sequences and units of a tile, where a layer has several."""


class Chip(NamedTuple):
    shared: int
    """Bytes of shared memory that one program may have."""
    hip: bool = False


@lru_cache
def _chip_of_device(index: int) -> Chip:
    properties: Any = torch.cuda.get_device_properties(index)
    # what NVIDIA's chips give to programs that ask for it; AMD's know no such difference
    shared = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return Chip(shared, torch.version.hip is not None)


def chip_of(device: torch.device) -> Chip:
    """The chip that a call runs on; in the interpreter, any."""
    if device.type == "cpu":
        return Chip(227 * 1024)
    return _chip_of_device(torch.cuda.current_device() if device.index is None else device.index)


class Layer(NamedTuple):
    """The sizes that the plan depends on."""

    batch: int
    hidden: int
    controller: int
    operations: int
    reset: str | None
    number: torch.dtype
    """In which products multiply."""
    trace: bool = False
    """Whether the weights of operations are returned, and may have gradients."""

    @property
    def blocks(self) -> tuple[int, int]:
        """Hidden size and controller size as powers of 2."""
        return _power(self.hidden), _power(self.controller) if self.controller else 0

    def weights(self) -> int:
        """Bytes of the recurrent weights, as tiles of powers of 2."""
        h, c = self.blocks
        gates = (1 if self.reset is None else 2) * h * h
        logits = (self.operations - 1) * h
        return (gates + (logits * c + c * c + c * h if c else logits * h)) * self.number.itemsize


class Plan(NamedTuple):
    regime: Regime
    precision: str
    """Precision of products in float32."""
    tile: dict[str, int]
    compiler: dict[str, Any]
    """Options of Triton's compiler."""


def plan(layer: Layer, chip: Chip) -> Plan:
    precision = "ieee"
    if layer.number == torch.float32 and not chip.hip:
        precision = PRECISIONS[torch.get_float32_matmul_precision()]
    regime = _forced() or _regime(layer, chip, precision)
    if regime == "persistent":
        h, c = layer.blocks
        if max(h, c) > PERSISTENT_UNITS:
            raise ValueError(
                f"MUFURU_TRITON_REGIME=persistent is for layers of up to {PERSISTENT_UNITS} units and controllers as "
                f"large, got {layer.hidden} and {layer.controller}: leave the variable away, or set it to tiled"
            )
        tile = {"BLOCK_B": 16, "BLOCK_H": h, "BLOCK_C": max(c, 16)}
        # weights in float32, and a controller's, need the registers of more warps on NVIDIA's chips
        whole = layer.number == torch.float32 and not chip.hip
        compiler = _compiler(8 if max(h, c) > 32 or whole or (c and not chip.hip) else 4, stages=1)
        roomy = whole or (layer.operations > len(PAPER) and not chip.hip)
        return Plan(regime, precision, tile, compiler | _registers(roomy))
    tile = TILE | {"BLOCK_K": _depth(layer.number)}
    compiler = _compiler(4 if chip.hip else 8, stages=2)
    roomy = not chip.hip and (regime == "tiled" or layer.number == torch.float32)
    return Plan(regime, precision, tile, compiler | _registers(roomy))


def _registers(roomy: bool) -> dict[str, int]:
    """Left alone, NVIDIA's assembler may stop at 128 or 168 registers, so that several programs fit on a processor,
    and spill."""
    return {"maxnreg": 255} if roomy else {}


def _depth(number: torch.dtype) -> int:
    """Return how much of a product's depth is in registers at a time: the largest part that does not spill."""
    return 16 if number == torch.float32 else 32


def _compiler(warps: int, stages: int) -> dict[str, Any]:
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


def _regime(layer: Layer, chip: Chip, precision: str) -> Regime:
    # AMD's chips keep the weights in registers, which hold less; on NVIDIA's more units spill in float32, beside a
    # controller, with more operations than the paper's, and with gradients of the operations' weights; and any number
    # of them in TF32, or in float32 beside a controller
    whole = layer.number == torch.float32
    rich = layer.controller > 0 or layer.operations > len(PAPER) or layer.trace
    most = 32 if chip.hip or whole or rich else PERSISTENT_UNITS
    spills = precision != "ieee" or (whole and layer.controller > 0)
    if max(layer.blocks) <= most and not spills and layer.weights() + 8 * 1024 <= chip.shared:
        return "persistent"
    return "tiled" if layer.weights() <= STEPWISE_BYTES else "stepwise"


def _forced() -> Regime | None:
    """The variable MUFURU_TRITON_REGIME, for measuring one regime beside another."""
    wanted: Any = os.environ.get("MUFURU_TRITON_REGIME")
    if wanted and wanted not in REGIMES:
        raise ValueError(f"MUFURU_TRITON_REGIME should be one of {', '.join(REGIMES)}, got {wanted!r}")
    return wanted or None


def _power(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())
