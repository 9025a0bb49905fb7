"""Growth of time with the length of the sequences and with the number of units."""

from __future__ import annotations

import measure
import peers
import shapes
import torch
from measure import Budget, Timing
from shapes import MODES, Shape

LENGTHS = tuple(Shape(f"T {steps}", steps, 8, 64, 64) for steps in (10, 30, 100, 300, 1000))
WIDTHS = tuple(Shape(f"M {units}", 20, 20, units, units) for units in (64, 128, 256, 512, 1024))
COMPARED = (shapes.SEVEN, shapes.GRU, shapes.FLOOR)


def timings(shape: Shape, threads: int, budget: Budget) -> list[Timing]:
    """Training and inference of a few peers."""
    torch.set_num_threads(threads)
    found: list[Timing] = []
    for mode in MODES:
        calls = {peer: call for peer, call in peers.build(shape, mode, threads)[0].items() if peer in COMPARED}
        found += measure.measure(calls, shape.name, mode, threads, budget)
    return found
