"""The reference's step under torch's `scan`: one loop in a graph, of any number of steps.

For graphs that the native kernel cannot be in: operations written in Python, no native library, no mufuru at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from mufuru.kernels import reference
from mufuru.kernels.run import Masks, Result, Run, fresh, packed_order, present


class _Step(NamedTuple):
    """What one step reads."""

    from_x: Tensor
    zoneout: Tensor | None = None
    resets: Tensor | None = None
    alive: Tensor | None = None
    """(batch, 1), bool: whether the sequence has the step."""


def sequence(run: Run) -> Result:
    """`reference.sequence` for graphs: the number of steps stays free."""
    places = None if run.batch_sizes is None else packed_order(run.batch_sizes, run.s0.size(0)).to(run.x.device)
    order = None if places is None else places.argsort()
    x, alive = run.x, None
    if run.batch_sizes is not None:
        alive = present(run.batch_sizes, run.s0.size(0)).unsqueeze(-1).to(run.x.device)
        # padding may be NaN, which a gradient of zero does not undo
        real = torch.arange(x.size(0), device=x.device) < run.batch_sizes.sum().to(x.device)
        x = torch.where(real.unsqueeze(-1), x, 0.0)
    from_x = linear(x, run.weights.ih, run.weights.bias_ih)
    zoneout = None if run.masks.zoneout is None else _grid(run, run.masks.zoneout, order)
    resets = None if run.masks.resets is None else _grid(run, run.masks.resets, order)
    (s, *k), (output, *traced) = _scan(run, _Step(_grid(run, from_x, order), zoneout, resets, alive))
    output, *traced = (_rows(run, tensor, places, alive) for tensor in (output, *traced))
    return Result(output, s, k[0] if k else None, *traced)


def _scan(run: Run, steps: _Step) -> Any:
    # a part of torch's compiler, which takes a second to import
    from torch._higher_order_ops.scan import scan

    masks = run.masks

    def combine(carry: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> Any:
        at = _Step(**tensors)
        s, k = carry[0], carry[1] if len(carry) == 2 else None
        if at.resets is not None:
            s, k = reference.set_back(at.resets, (s, k), (run.s0, run.k0))
        new_s, new_k, p, v = reference.step(
            run.unit, run.weights, at.from_x, s, k, Masks(masks.state, at.zoneout, masks.allowed)
        )
        new = [new_s] if new_k is None else [new_s, new_k]
        if at.alive is not None:
            new = [torch.where(at.alive, after, before) for after, before in zip(new, carry, strict=True)]
        # scan wants no tensor twice
        return tuple(new), (fresh(new_s), *((fresh(p), fresh(v)) if run.trace else ()))

    # torch before 2.13 loses the gradients of weights if the first states have none
    nothing = sum(weight.flatten()[:0].sum() for weight in run.weights if weight is not None)
    carry = (run.s0 + nothing,) if run.k0 is None else (run.s0 + nothing, run.k0 + nothing)
    tensors = {name: tensor for name, tensor in steps._asdict().items() if tensor is not None}
    return scan(combine, tuple(map(fresh, carry)), tensors, reverse=run.reverse)


def _grid(run: Run, rows: Tensor, order: Tensor | None) -> Tensor:
    """(steps, batch, ...) from packed rows."""
    rows = rows if order is None else rows.index_select(0, order)
    return rows.view(_steps(run), run.s0.size(0), *rows.shape[1:])


def _rows(run: Run, grid: Tensor, places: Tensor | None, alive: Tensor | None) -> Tensor:
    """The inverse of `_grid`, with zeros past the ends."""
    if places is None or alive is None:
        return fresh(grid.flatten(0, 1))
    alive = alive.unflatten(-1, [1] * (grid.dim() - 2))
    return torch.where(alive, grid, 0.0).flatten(0, 1).index_select(0, places)


def _steps(run: Run) -> int:
    return run.x.size(0) // run.s0.size(0) if run.batch_sizes is None else run.batch_sizes.size(0)
