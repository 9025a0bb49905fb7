"""The reference's step under torch's `scan`: one loop in a graph, of any number of steps.

For graphs that the native kernel cannot be in: operations written in Python, no native library, no mufuru at all.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from mufuru.kernels import reference
from mufuru.kernels.call import OF_ROWS, Call, Result, fresh, packed_order, present


def sequence(call: Call) -> Result:
    """`reference.sequence` for graphs: the number of steps stays free."""
    places = None if call.batch_sizes is None else packed_order(call.batch_sizes, call.s0.size(0)).to(call.x.device)
    order = None if places is None else places.argsort()
    x, alive = call.x, None
    if call.batch_sizes is not None:
        alive = present(call.batch_sizes, call.s0.size(0)).unsqueeze(-1).to(call.x.device)
        # padding may be NaN, which a gradient of zero does not undo
        real = torch.arange(x.size(0), device=x.device) < call.batch_sizes.sum().to(x.device)
        x = torch.where(real.unsqueeze(-1), x, 0.0)
    from_x = linear(x, call.weights.ih, call.weights.bias_ih)
    masks = call.masks.map(lambda mask: _grid(call, mask, order), lambda mask: mask)
    steps = {"from_x": _grid(call, from_x, order), "alive": alive, **{name: getattr(masks, name) for name in OF_ROWS}}
    (s, *k), (output, *traced) = _scan(call, {name: tensor for name, tensor in steps.items() if tensor is not None})
    output, *traced = (_rows(call, tensor, places, alive) for tensor in (output, *traced))
    return Result(output, s, k[0] if k else None, *traced)


def _scan(call: Call, steps: dict[str, Tensor]) -> Any:
    """Run all steps; what each of them reads comes by name."""
    # a part of torch's compiler, which is slow to import
    from torch._higher_order_ops.scan import scan

    def combine(carry: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> Any:
        masks = call.masks._replace(**{name: tensors.get(name) for name in OF_ROWS})
        s, k = carry[0], carry[1] if len(carry) == 2 else None
        if masks.resets is not None:
            s, k = reference.set_back(masks.resets, (s, k), (call.s0, call.k0))
        new_s, new_k, p, v = reference.step(call.unit, call.weights, tensors["from_x"], s, k, masks)
        new = [new_s] if new_k is None else [new_s, new_k]
        if "alive" in tensors:  # (batch, 1): whether the sequence has the step
            new = [torch.where(tensors["alive"], after, before) for after, before in zip(new, carry, strict=True)]
        # scan refuses a tensor that is returned twice
        return tuple(new), (fresh(new_s), *((fresh(p), fresh(v)) if call.trace else ()))

    # torch before 2.13 loses the gradients of weights if the first states have none
    nothing = sum(weight.flatten()[:0].sum() for weight in call.weights if weight is not None)
    carry = (call.s0 + nothing,) if call.k0 is None else (call.s0 + nothing, call.k0 + nothing)
    return scan(combine, tuple(map(fresh, carry)), steps, reverse=call.reverse)


def _grid(call: Call, rows: Tensor, order: Tensor | None) -> Tensor:
    """(steps, batch, ...) from packed rows."""
    rows = rows if order is None else rows.index_select(0, order)
    return rows.view(_steps(call), call.s0.size(0), *rows.shape[1:])


def _rows(call: Call, grid: Tensor, places: Tensor | None, alive: Tensor | None) -> Tensor:
    """The inverse of `_grid`, with zeros past the ends."""
    if places is None or alive is None:
        return fresh(grid.flatten(0, 1))
    alive = alive.unflatten(-1, [1] * (grid.dim() - 2))
    return torch.where(alive, grid, 0.0).flatten(0, 1).index_select(0, places)


def _steps(call: Call) -> int:
    return call.x.size(0) // call.s0.size(0) if call.batch_sizes is None else call.batch_sizes.size(0)
