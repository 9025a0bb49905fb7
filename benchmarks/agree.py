"""Before anything is timed: do those who should compute the same do so?"""

from __future__ import annotations

from typing import Any

import engines
import peers
import torch
from shapes import CONTROLLER, GATED, SEVEN, Shape
from torch import Tensor, nn

from mufuru import MuFuRU, use_kernel

# float32 sums in another order: about 1e-6 of the largest number is what is seen
TOLERANCE = 2e-5
CHECKED_STEPS = 100
"""Longer sequences are cut to this for the check: the reference is slow."""
CHECKED_NUMBERS = 300_000
"""And to this many states: a maximum has a kink where state and feature are equal, and of millions of pairs some are so
within the rounding, so that the gradients of two right kernels take different sides."""
DRAWS = 3
"""With 300,000 pairs one in a hundred draws still has such a tie: a difference counts if every draw has one."""


def check(shape: Shape) -> dict[str, float]:
    """The largest difference of each pair, relative to the largest number; stops the program if one is too large.

    Values and gradients of the input and of all parameters; for engines, which have no gradients, values.
    """
    for draw in range(1, DRAWS + 1):
        differences = _differences(shape)
        # not "difference > TOLERANCE", which NaN would pass
        too_large = [
            f"{shape}: {pair} differ by {difference:.1e} of the largest number; {TOLERANCE:.0e} is allowed"
            for pair, difference in differences.items()
            if not difference <= TOLERANCE
        ]
        if not too_large:
            return differences
        print(f"  draw {draw}: {too_large[0]}", flush=True)
    raise SystemExit(too_large[0])


def _differences(shape: Shape) -> dict[str, float]:
    n, m = shape.input_size, shape.hidden_size
    most = max(1, CHECKED_NUMBERS // (shape.batch * m))
    x = torch.randn(min(shape.steps, CHECKED_STEPS, most), shape.batch, n)
    return _of_cells(shape, x) if shape.cell else _of_layers(n, m, x)


def _of_cells(shape: Shape, x: Tensor) -> dict[str, float]:
    cells = peers.layers(shape)
    return {
        f"native and reference, {name}": _from_reference(cells[name], x) for name in (SEVEN, GATED, CONTROLLER)
    }  # fmt: skip


def _of_layers(n: int, m: int, x: Tensor) -> dict[str, float]:
    seven = MuFuRU(n, m, kernel="native")
    custom = MuFuRU(n, m, ops=peers.WITH_CUSTOM, kernel="native")
    custom.load_state_dict(seven.state_dict())
    gru = nn.GRU(n, m)
    found = {
        "native and reference, seven ops": _from_reference(seven, x),
        "native and reference, keep + replace": _from_reference(
            MuFuRU(n, m, ops=("keep", "replace"), kernel="native"), x
        ),
        "native and reference, controller 50": _from_reference(MuFuRU(n, m, controller_size=50, kernel="native"), x),
        "custom op and built-in op": _largest(_values(custom, x), _values(seven, x)),
        "MuFuRU.from_gru and nn.GRU": _from_gru(gru, x),
        "onnxruntime and nn.GRU": _from_engine(engines.onnx_call(gru, x), gru, x),
    }
    if engines.has_openvino():
        found["OpenVINO and nn.GRU"] = _from_engine(engines.openvino_call(gru, x), gru, x)
    return found


def _values(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, gradient of the input, gradients of the parameters."""
    x = x.clone().requires_grad_()
    output = module(x)[0]
    return [output, *torch.autograd.grad(output.sum(), [x, *module.parameters()])]


def _from_reference(layer: nn.Module, x: Tensor) -> float:
    native, again = _values(layer, x), _values(layer, x)
    if not all(torch.equal(a, b) for a, b in zip(native, again, strict=True)):
        raise SystemExit("the native kernel gave other bits when it was called again")
    with use_kernel("reference"):
        return _largest(native, _values(layer, x))


def _from_gru(gru: nn.GRU, x: Tensor) -> float:
    output, d_x, *grads = _values(MuFuRU.from_gru(gru, kernel="native"), x)
    blocks = [grad.chunk(4) for grad in grads]
    as_gru = [torch.cat([reset, keep, features]) for features, reset, keep, _ in blocks]
    return _largest([output, d_x, *as_gru], _values(gru, x))


def _from_engine(call: peers.Call, gru: nn.GRU, x: Tensor) -> float:
    states: Any = call()
    return _largest([torch.from_numpy(states[0])[:, 0]], [gru(x)[0]])


def _largest(ours: list[Tensor], theirs: list[Tensor]) -> float:
    pairs = [(a.detach(), b.detach()) for a, b in zip(ours, theirs, strict=True)]
    # all are zero where a first step has no state to multiply
    differences = [(a - b).abs().max() / b.abs().max().clamp(min=1e-30) for a, b in pairs]
    # torch's max, unlike Python's, lets NaN through
    return float(torch.stack(differences).max())
