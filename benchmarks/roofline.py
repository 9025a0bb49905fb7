"""Predict, on paper, the least time of a step on GPUs: from the makers' peak numbers and the kernel's tiles alone.

    python benchmarks/roofline.py

Nothing here is measured. A bound says what cannot be beaten; latencies inside a step are not in it, and no kernel
reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch

from mufuru.kernels.triton.plan import TILE, Chip, Layer, plan

LAUNCH = 2e-6
"""Seconds from one small launch to the next, assumed."""


@dataclass(frozen=True)
class GPU:
    """Peak numbers from the makers' data sheets, bfloat16 without sparsity."""

    name: str
    processors: int
    clock: float
    """Hz."""
    flops: float
    memory: float
    """Bytes per second of the main memory."""
    chip: Chip

    @property
    def port(self) -> float:
        """Bytes per second that one processor reads from the L2 cache: 64 per clock."""
        return 64 * self.clock


GPUS = (
    GPU("A100", 108, 1.41e9, 312e12, 2.04e12, Chip(163 * 1024)),
    GPU("H100", 132, 1.98e9, 989e12, 3.35e12, Chip(227 * 1024)),
    GPU("MI300X", 304, 2.10e9, 1307e12, 5.30e12, Chip(64 * 1024, hip=True)),
)
SIZES = ((64, 32), (64, 64), (64, 128), (64, 256), (64, 512), (64, 1024), (512, 128), (512, 1024))
"""Batch and units."""
SEVEN, GRU = 8, 3
"""Blocks of recurrent weights, units by units."""
BYTES = 2


@dataclass(frozen=True)
class Bound:
    regime: str
    intensity: float
    """Operations per byte of weights that is read from the L2 cache, infinite if the weights stay on the chip."""
    seconds: float
    """The least time of a step."""


def bound(gpu: GPU, batch: int, hidden: int, blocks: int, regime: str = "") -> Bound:
    """The bound of a forward step: arithmetic, weights from the L2 cache, rows from memory, launches."""
    how = plan(Layer(batch, hidden, 0, blocks - 1, "before", torch.bfloat16), gpu.chip)
    regime = regime or how.regime
    weights, flops = blocks * hidden * hidden * BYTES, 2 * batch * blocks * hidden * hidden
    rows = batch * (blocks + 2) * hidden * BYTES / gpu.memory
    blocks_b, blocks_h = ceil(batch / TILE["BLOCK_B"]), ceil(hidden / TILE["BLOCK_H"])
    if regime != "stepwise":
        programs = blocks_b
        turns = ceil(programs / gpu.processors)
        read = 0.0 if regime == "persistent" else turns * weights / gpu.port
        share, launches, total = min(programs / gpu.processors, 1), 0, programs * weights
    else:
        programs = blocks_b * blocks_h
        turns = ceil(programs / gpu.processors)
        read = turns * weights / blocks_h / gpu.port
        share, launches, total = min(programs / gpu.processors, 1), 2, blocks_b * weights
    intensity = float("inf") if regime == "persistent" else flops / total
    return Bound(regime, intensity, max(flops / (gpu.flops * share), read, rows) + launches * LAUNCH)


def gru(gpu: GPU, batch: int, hidden: int) -> Bound:
    """The same bound for a GRU computed step by step with one launch each, as cuDNN may."""
    found = bound(gpu, batch, hidden, GRU, "stepwise")
    return Bound("stepwise", found.intensity, found.seconds - LAUNCH)


def table() -> str:
    """Predicted microseconds per step as Markdown: seven operations, and in brackets a GRU one launch at a time."""
    names = [gpu.name for gpu in GPUS]
    lines = [
        f"| batch, units | regime ({GPUS[0].name}) | operations per byte | {' | '.join(names)} |",
        "|---|---|---:" + "|---:" * len(names) + "|",
    ]
    for batch, hidden in SIZES:
        found = [bound(gpu, batch, hidden, SEVEN) for gpu in GPUS]
        cells = " | ".join(
            f"{one.seconds * 1e6:.1f} ({gru(gpu, batch, hidden).seconds * 1e6:.1f})"
            for gpu, one in zip(GPUS, found, strict=True)
        )
        intensity = "∞" if found[0].intensity == float("inf") else f"{found[0].intensity:.0f}"
        lines.append(f"| {batch}, {hidden} | {found[0].regime} | {intensity} | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table())
