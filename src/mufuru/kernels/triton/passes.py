"""Both passes on tensors: products over all steps at once by torch, the loops over the steps by Triton.

The backward pass needs the states, and nothing else is kept for it: the gates of all steps are computed again from
them, at once, and give way to their gradients in the same memory. Gradients of the weights are products over all steps
after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from mufuru.kernels.call import Call
from mufuru.kernels.triton import launch
from mufuru.kernels.triton.launch import Carried, Results, Steps
from mufuru.kernels.triton.prepare import Ready, number_of, plain, prepare, sizes_of


class Outputs(NamedTuple):
    """Outputs, and the controller's states for the backward pass; without elements where there is nothing."""

    output: Tensor
    s_n: Tensor
    k_n: Tensor
    p: Tensor
    v: Tensor
    states_k: Tensor


def empty(call: Call) -> Outputs:
    """Memory for the outputs; for shapes alone as well, whose sizes may be unknown."""
    like, total, unit = call.s0, call.x.size(0), call.unit
    batch, size = like.size(0), unit.hidden_size
    k_n = states_k = p = v = like.new_empty(0)
    if unit.controller_size is not None:
        k_n = like.new_empty(batch, unit.controller_size)
        states_k = like.new_empty(total, unit.controller_size, dtype=number_of(call))
    if call.trace:
        p, v = like.new_empty(total, len(unit.ops), size), like.new_empty(total, size)
    return Outputs(like.new_empty(total, size), like.new_empty(batch, size), k_n, p, v, states_k)


def forward(call: Call) -> Outputs:
    """All steps."""
    rows, out = sizes_of(call).rows, empty(call)
    s_n, k_n = (None if state is None else _whole(state) for state in (call.s0, call.k0))
    for packed in (out.output, out.p, out.v, out.states_k):
        if packed.numel() and rows < packed.size(0):
            packed[rows:] = 0
    if rows and s_n is not None:
        states_k = None if k_n is None else out.states_k
        traced = (out.p, out.v) if call.trace else (None, None)
        with _on(call.s0.device):
            ready = prepare(call)
            from_x = ready.x @ ready.weights.ih.t()
            launch.forward(ready, from_x, Results(out.output, s_n, k_n, states_k, *traced))
    s_n, k_n = (empty if state is None else state.to(empty.dtype) for state, empty in ((s_n, out.s_n), (k_n, out.k_n)))
    return out._replace(s_n=s_n, k_n=k_n)


def backward(
    grads: Sequence[Tensor | None], call: Call, output: Tensor, states_k: Tensor, needs_x: bool
) -> list[Tensor | None]:
    """Gradients by the inputs that have one, from those by output, s_n, k_n, p and v."""
    of_output, of_s, of_k, of_p, of_v = grads if call.trace else (*grads[:3], None, None)
    ds, dk = (
        None if state is None else torch.zeros_like(state, dtype=torch.float32) if grad is None else _whole(grad)
        for state, grad in ((call.s0, of_s), (call.k0, of_k))
    )
    assert ds is not None
    if not sizes_of(call).rows:
        return _without_steps(call, ds, dk, needs_x)
    with _on(call.s0.device):
        ready = prepare(call)
        steps = _again(ready, output, states_k)
        launch.backward(ready, steps, Carried(plain(of_output), plain(of_p), plain(of_v), ds, dk))
        return _gradients(call, ready, steps, ds, dk, needs_x)


@contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """Launch on the device; products multiply in the dtype that they are given, also under autocast."""
    with torch.autocast(device.type, enabled=False), torch.no_grad():
        if device.type == "cpu":
            yield
        else:
            with torch.cuda.device(device):
                yield


def _whole(tensor: Tensor) -> Tensor:
    """A copy in float32."""
    return tensor.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _without_steps(call: Call, ds: Tensor, dk: Tensor | None, needs_x: bool) -> list[Tensor | None]:
    zeros = [None if weight is None else torch.zeros_like(weight) for weight in call.weights]
    states = [None if grad is None else grad.to(call.s0.dtype) for grad in (ds, dk)]
    return [torch.zeros_like(call.x) if needs_x else None, *states, *zeros]


def _again(ready: Ready, output: Tensor, states_k: Tensor) -> Steps:
    """The gates of all steps from the states, at once."""
    at, size, (ih, hh, _, op, bias, _) = ready.at, ready.at.hidden, ready.weights
    before, seen = launch.previous(ready, output, ready.s0, ready.masks.state)
    gates = ready.x @ ih.t()
    logits, before_k, kept = gates, None, None
    if ready.k0 is not None and op is not None:
        before_k, _ = launch.previous(ready, states_k, ready.k0.to(ready.number), None)
        kept = states_k[: at.rows]
        logits = kept @ op.t()
    # with a controller, the part of the gates behind the reset gate is kept, and need not be computed again
    middle = slice(size, at.width if kept is None else at.rest)
    if middle.stop > size:
        gates[:, middle].addmm_(seen, hh[middle].t())
    inner = product = None
    if ready.options["RESET"] == 2:
        inner = seen @ hh[:size].t()
    elif ready.options["RESET"] == 1:
        pre_r = gates[:, size : 2 * size].float()
        pre_r = pre_r if bias is None else pre_r + bias[2 * size : 3 * size]
        product = (pre_r.sigmoid() * seen).to(ready.number)
    if inner is None:
        gates[:, :size].addmm_(seen if product is None else product, hh[:size].t())
    return Steps(before, seen, before_k, kept, gates, logits, inner, product)


def _gradients(
    call: Call, ready: Ready, steps: Steps, ds: Tensor, dk: Tensor | None, needs_x: bool
) -> list[Tensor | None]:
    """Gradients of inputs and weights: products over all steps."""
    at, size, gates = ready.at, ready.at.hidden, steps.gates
    features = gates[:, :size] if steps.inner is None else steps.inner
    d_features = features.t() @ (steps.seen if steps.product is None else steps.product)
    d_hh = torch.cat([d_features, gates[:, size:].t() @ steps.seen])
    d_ih = gates.t() @ ready.x
    sums = gates.sum(0, dtype=torch.float32)
    sums_hh = torch.cat([features.sum(0, dtype=torch.float32), sums[size:]])
    d_kk = d_op = sums_op = None
    if steps.before_k is None or steps.states_k is None:
        d_ih, d_hh, sums, sums_hh = (
            torch.cat([grad[: at.rest], _of_all(grad[at.rest :], ready)]) for grad in (d_ih, d_hh, sums, sums_hh)
        )
    else:
        d_kk = gates[:, at.rest :].t() @ steps.before_k
        d_op = _of_all(steps.logits.t() @ steps.states_k, ready)
        sums_op = _of_all(steps.logits.sum(0, dtype=torch.float32), ready)
    biases = (sums, sums_hh) if call.weights.bias_ih is not None else (None, None)
    grads = (ds, dk, d_ih, d_hh, *biases, d_kk, d_op, sums_op if call.weights.bias_op is not None else None)
    d_x = _of_x(call, gates @ ready.weights.ih) if needs_x else None
    return [d_x, *(None if grad is None else grad.to(call.s0.dtype) for grad in grads)]


def _of_x(call: Call, grad: Tensor) -> Tensor:
    """The gradient with zeros for the padding."""
    missing = call.x.size(0) - grad.size(0)
    grad = grad.to(call.x.dtype)
    return torch.cat([grad, grad.new_zeros(missing, grad.size(1))]) if missing else grad


def _of_all(blocks: Tensor, ready: Ready) -> Tensor:
    """With the last operation's, whose weights were subtracted from the others'."""
    others = blocks.unflatten(0, (ready.at.operations - 1, ready.at.hidden)) if ready.at.operations > 1 else blocks[:0]
    last = -others.sum(0) if ready.at.operations > 1 else blocks.new_zeros(ready.at.hidden, *blocks.shape[1:])
    return torch.cat([blocks, last])
