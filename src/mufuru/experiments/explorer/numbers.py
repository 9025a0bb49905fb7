"""Numbers and formulas of a layer for the page: states, operation weights, the map of units by tokens, the parts of a
unit's new state."""

import re
from typing import Any

import torch
from torch import Tensor

from mufuru import Op, Trace
from mufuru.plot import similar

SCALE = 1e-4
"""Unit of states, which are sent as integers: there are many, and integers are written several times as fast."""
NOTHING = 1e-5
"""A remainder below this is rounding in single precision, for states up to 1; it grows with them."""
SHARE = 1e-3
"""Unit of the weights of leading operations, which are sent as integers."""
COMPARED = 64
"""Tokens at which units are compared, spread over the text: more would take seconds for many units."""
PLAIN = (
    (r"\\tfrac12\s*", "½ "),
    (r"\\tfrac14\s*", "¼ "),
    (r"\\odot", "⊙"),
    (r"\^2", "²"),
    (r"\\mathrm\{(.*?)\}", r"\1"),
    (r"\\(?=[a-z])", ""),
    (r"(?<=\w|\)) - ", " − "),
    (r"^-", "−"),
)
"""From the LaTeX of the table of operations to text that a page can show without a renderer."""


def in_units(states: Tensor) -> dict[str, Any]:
    """Return (steps, hidden) as whole numbers and their unit."""
    return {"scale": SCALE, "values": (states / SCALE).round().int().tolist()}


def of_trace(trace: Trace, layer: int, direction: int, unit: int) -> dict[str, Any]:
    """Return one direction of one layer, for the only sequence of the pass."""
    weights = trace.weights(layer, direction)[:, 0]
    return {
        "ops": list(trace.op_names),
        "weights": rounded(weights.mean(-1), 5),
        "map": leading(weights),
        "states": in_units(trace.outputs(layer, direction)[:, 0]),
        "unit": {"index": unit}
        | {name: rounded(values, 7) for name, values in parts(trace, layer, direction, unit).items()},
    }


def leading(weights: Tensor) -> dict[str, Any]:
    """Return for (steps, operations, hidden) the operation with the largest weight by step and unit, that weight in
    units of `scale`, and the units in an order in which neighbours are alike, as `mufuru.plot.units` draws them."""
    largest, op = weights.max(1)
    compared = weights[:: -(-len(weights) // COMPARED)].double()
    shares = (largest / SHARE).round().int().tolist()
    return {"order": similar(compared), "ops": op.tolist(), "scale": SHARE, "shares": shares}


def parts(trace: Trace, layer: int, direction: int, unit: int) -> dict[str, Tensor]:
    """Return the parts of every new state of a unit: the contributions and the rest add up to it.

    The rest is the share of the old state that zoneout mixes in; 0 without zoneout.
    """
    # of the one unit alone: `trace.contributions` has those of all
    s, v = (part(layer, direction)[:, 0, unit] for part in (trace.states, trace.features))
    p = trace.weights(layer, direction)[:, 0, :, unit]
    values = torch.stack([op(s, v) for op in trace.ops], -1)
    after = trace.outputs(layer, direction)[:, 0, unit]
    tensors = {"before": s, "features": v, "weights": p, "values": values, "contributions": p * values, "after": after}
    rest = after - tensors["contributions"].sum(-1)
    return tensors | {"rest": torch.where(rest.abs() < NOTHING * after.abs().clamp(min=1), 0.0, rest)}


def rounded(values: Tensor, digits: int) -> Any:
    """Return nested lists of rounded numbers."""
    scale = 10.0**digits
    # 0 is added for the sake of -0
    return ((values.double() * scale).round() / scale + 0.0).tolist()


def described(op: Op) -> dict[str, str]:
    """Return name, formula and meaning."""
    return {"name": op.name, "formula": plain(op.formula), "meaning": op.meaning}


def plain(latex: str) -> str:
    """Return a formula in Unicode.

    >>> plain(r"\\tfrac12 |s - v|")
    '½ |s − v|'
    """
    for pattern, text in PLAIN:
        latex = re.sub(pattern, text, latex)
    return latex.strip()
