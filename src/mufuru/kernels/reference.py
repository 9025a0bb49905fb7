r"""The paper's equations, step by step, in plain PyTorch: the kernel all others are compared with."""

from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import linear

from mufuru.kernels.call import Call, Masks, Result
from mufuru.unit import Unit, Weights

States: TypeAlias = tuple[Tensor, Tensor | None]


def sequence(call: Call) -> Result:
    """Run all steps. The products with the inputs do not depend on the state: they are computed at once."""
    s, k = call.s0, call.k0
    sizes = call.sizes()
    starts = [0, *accumulate(sizes)]
    # padding may be NaN, which a gradient of zero does not undo
    x = call.x if call.x.size(0) == starts[-1] else call.x[: starts[-1]]
    from_x = linear(x, call.weights.ih, call.weights.bias_ih)
    steps: list[tuple[Tensor, ...]] = [()] * len(sizes)
    for t in reversed(range(len(sizes))) if call.reverse else range(len(sizes)):
        alive, rows = sizes[t], slice(starts[t], starts[t] + sizes[t])
        masks = call.masks.of(rows, alive)
        old_s, old_k = s[:alive], None if k is None else k[:alive]
        if masks.resets is not None:
            first_k = None if call.k0 is None else call.k0[:alive]
            old_s, old_k = set_back(masks.resets, (old_s, old_k), (call.s0[:alive], first_k))
        new_s, new_k, p, v = step(call.unit, call.weights, from_x[rows], old_s, old_k, masks)
        steps[t] = (new_s, p, v)
        s = torch.cat([new_s, s[alive:]])
        k = None if k is None or new_k is None else torch.cat([new_k, k[alive:]])
    if not steps:
        return _empty(call, from_x)
    output, p, v = (_with_padding(torch.cat(parts), call.x.size(0)) for parts in zip(*steps, strict=True))
    return Result(output, s, k, *((p, v) if call.trace else ()))


def step(
    unit: Unit, weights: Weights, from_x: Tensor, s: Tensor, k: Tensor | None, masks: Masks
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """One step: new state, new controller state, operation weights p and features v."""
    x_v, x_r, x_k = unit.split(from_x, dim=-1)
    w_v, w_r, w_k = unit.split(weights.hh)
    b_v, b_r, b_k = (None, None, None) if weights.bias_hh is None else unit.split(weights.bias_hh)
    seen = s if masks.state is None else s * masks.state

    if unit.reset is None:
        from_s = linear(seen, w_v, b_v)
    else:
        r = torch.sigmoid(x_r + linear(seen, w_r, b_r))
        from_s = linear(r * seen, w_v, b_v) if unit.reset == "before" else r * linear(seen, w_v, b_v)
    v = torch.tanh(x_v + from_s) if unit.activation == "tanh" else torch.sigmoid(x_v + from_s)

    logits = x_k + linear(seen, w_k, b_k)
    if k is not None and weights.kk is not None and weights.op is not None:
        activate = torch.tanh if unit.controller_activation == "tanh" else torch.relu
        k = activate(logits + linear(k, weights.kk))
        logits = linear(k, weights.op, weights.bias_op)
    logits = logits.unflatten(-1, (len(unit.ops), unit.hidden_size))
    if masks.allowed is not None:
        logits = logits.masked_fill(~masks.allowed.unsqueeze(-1), -torch.inf)
    p = logits.softmax(-2)

    composed = torch.stack([op(s, v) for op in unit.ops], -2)
    new_s = (p * composed).sum(-2)
    if masks.zoneout is not None:
        new_s = masks.zoneout * s + (1 - masks.zoneout) * new_s
    return new_s, k, p, v


def set_back(resets: Tensor, state: States, initial: States) -> States:
    """Return the state that a step starts with: the initial one where `resets`, (batch,), is true."""
    (s, k), (s0, k0), here = state, initial, resets.unsqueeze(-1)
    return torch.where(here, s0, s), None if k is None or k0 is None else torch.where(here, k0, k)


def _with_padding(rows: Tensor, total: int) -> Tensor:
    """Append zeros for the padding that may follow the rows of the last step."""
    missing = total - rows.size(0)
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows


def _empty(call: Call, from_x: Tensor) -> Result:
    """Return the result for no steps: the initial state is the final one, and all inputs have gradients, of zeros."""
    used = [call.x, *(weight for weight in call.weights if weight is not None)]
    nothing = torch.cat([tensor.flatten()[:0] for tensor in used]).sum()
    output = from_x[:, : call.unit.hidden_size] + nothing
    p = output.unsqueeze(1).expand(-1, len(call.unit.ops), -1)
    k_n = None if call.k0 is None else call.k0 + nothing
    return Result(output, call.s0 + nothing, k_n, *((p, output) if call.trace else ()))
