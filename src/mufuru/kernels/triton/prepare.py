"""A call as the loops take it: sizes, weights, masks and options.

The softmax does not change when one logit is subtracted from all: the last operation's weights are taken off the
others' beforehand, and it needs no product of its own. Biases stay as they are, since one may be -inf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mufuru.kernels.call import Call, Masks
from mufuru.kernels.triton import operations, own
from mufuru.kernels.triton.plan import Layer, Plan, chip_of, plan
from mufuru.ops import CUSTOM
from mufuru.unit import ACTIVATIONS, RESETS


class Sizes(NamedTuple):
    steps: int
    batch: int
    rows: int
    """Packed rows without padding."""
    hidden: int
    controller: int
    operations: int
    rest: int
    """The row of the weights where the logits', or the controller's, begin."""
    width: int
    """Rows of the weights, the last operation's left out."""


class Weights(NamedTuple):
    """Weights as the loops read them."""

    ih: Tensor
    hh: Tensor
    kk: Tensor | None
    op: Tensor | None
    bias: Tensor | None
    """(3 + operations, hidden), float32: features, features inside the reset gate, reset, then logits."""
    bias_k: Tensor | None


class Ready(NamedTuple):
    """The parts of a call that both passes need."""

    at: Sizes
    how: Plan
    number: torch.dtype
    """The dtype in which products multiply."""
    x: Tensor
    s0: Tensor
    k0: Tensor | None
    weights: Weights
    masks: Masks
    """Contiguous, truth values as bytes."""
    offsets: Tensor | None
    """(steps + 1,), int64: where the rows of every step begin; `None` if all steps have as many."""
    options: dict[str, Any]
    """Constants that the kernels are compiled for."""

    @property
    def blocks(self) -> int:
        """Programs that share the sequences."""
        return -(-self.at.batch // self.how.tile["BLOCK_B"])

    def tiles(self, size: int) -> int:
        """Return the number of programs that share `size` units, in the stepwise regime."""
        return -(-size // self.how.tile["BLOCK_H"])


def number_of(call: Call) -> torch.dtype:
    """The dtype in which products multiply."""
    return torch.bfloat16 if call.bfloat16 else call.x.dtype


def sizes_of(call: Call) -> Sizes:
    unit, batch = call.unit, call.s0.size(0)
    if call.batch_sizes is None:
        rows = call.x.size(0)
        steps = rows // batch if batch else 0
    else:
        # on the CPU: no waiting for a device
        steps, rows = call.batch_sizes.size(0), int(call.batch_sizes.sum())
    rest = unit.hidden_size if unit.reset is None else 2 * unit.hidden_size
    operations, controller = len(unit.ops), unit.controller_size or 0
    width = rest + (controller if unit.controller_size is not None else (operations - 1) * unit.hidden_size)
    return Sizes(steps, batch, rows, unit.hidden_size, controller, operations, rest, width)


def prepare(call: Call) -> Ready:
    at, number = sizes_of(call), number_of(call)
    layer = Layer(at.batch, at.hidden, at.controller, at.operations, call.unit.reset, number, call.trace)
    how = plan(layer, chip_of(call.x.device))
    masks = Masks(*map(_readable, call.masks))
    return Ready(
        at, how, number, call.x[: at.rows].to(number).contiguous(), call.s0.contiguous(), plain(call.k0),
        _weights(call, at, number), masks, _offsets(call), _options(call, how),
    )  # fmt: skip


def _weights(call: Call, at: Sizes, number: torch.dtype) -> Weights:
    w = call.weights
    if w.kk is None or w.op is None:
        ih, hh = (
            torch.cat([weight[: at.rest].to(number), _relative(weight[at.rest :], at.operations, number)])
            for weight in (w.ih, w.hh)
        )
        return Weights(ih, hh, None, None, *_biases(call, at))
    ih, hh, kk = (weight.to(number).contiguous() for weight in (w.ih, w.hh, w.kk))
    return Weights(ih, hh, kk, _relative(w.op, at.operations, number), *_biases(call, at))


def _relative(weight: Tensor, operations: int, number: torch.dtype) -> Tensor:
    """The operations' rows without the last one's, which is subtracted from them."""
    blocks = weight.float().unflatten(0, (operations, -1))
    relative: Tensor = (blocks[:-1] - blocks[-1:]).flatten(0, 1).to(number)
    return relative


def _biases(call: Call, at: Sizes) -> tuple[Tensor | None, Tensor | None]:
    w, size = call.weights, at.hidden
    if w.bias_ih is None or w.bias_hh is None:
        return None, None
    from_x, from_s = w.bias_ih.float(), w.bias_hh.float()
    both, nothing = from_x + from_s, from_x.new_zeros(size)
    features = [from_x[:size], from_s[:size]] if call.unit.reset == "after" else [both[:size], nothing]
    reset = nothing if call.unit.reset is None else both[size : 2 * size]
    logits = both[at.rest :] if w.bias_op is None else w.bias_op.float()
    return torch.cat([*features, reset, logits]), None if w.bias_op is None else both[at.rest :]


def _options(call: Call, how: Plan) -> dict[str, Any]:
    unit = call.unit
    made = [code for code in unit.codes if code not in operations.CODES]
    functions = [own.translation(code) for code in made]
    for translation in functions:
        if translation.reason:
            raise RuntimeError(
                f"{translation.reason}: it has changed since the graph was made, after which make it anew"
            )
    return {
        "OPS": tuple(CUSTOM + made.index(code) if code in made else code for code in unit.codes),
        "FUNCTIONS": tuple(translation.function for translation in functions),
        "RESET": RESETS[unit.reset],
        "ACTIVATION": ACTIVATIONS[unit.activation],
        "CONTROLLER_ACTIVATION": ACTIVATIONS[unit.controller_activation],
        "REVERSE": call.reverse,
        "PRECISION": how.precision,
    }


def _offsets(call: Call) -> Tensor | None:
    if call.batch_sizes is None:
        return None
    ends = call.batch_sizes.new_zeros(call.batch_sizes.size(0) + 1)
    torch.cumsum(call.batch_sizes, 0, out=ends[1:])
    if call.x.device.type == "cpu":
        return ends
    # from pinned memory: the copy is queued, and nobody waits
    return ends.pin_memory().to(call.x.device, non_blocking=True)


def plain(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _readable(mask: Tensor | None) -> Tensor | None:
    """The mask as Triton loads it: truth values as bytes."""
    mask = plain(mask)
    return mask.view(torch.uint8) if mask is not None and mask.dtype == torch.bool else mask
