"""The loops over the steps, launched in the regime of the plan. Which launches there are depends on shapes alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mufuru.kernels.triton import persistent, tiled
from mufuru.kernels.triton.prepare import Ready, plain

GATES = ("RESET", "CONTROLLER_ACTIVATION", "REVERSE", "PRECISION")
"""Options of the kernels that have no operations inside."""


class Results(NamedTuple):
    """Tensors that the forward loop writes; the final states hold the initial ones before."""

    output: Tensor
    s_n: Tensor
    k_n: Tensor | None
    states_k: Tensor | None
    p: Tensor | None
    v: Tensor | None


class Steps(NamedTuple):
    """Over all steps: what they began with, and their gates before activation, which give way to their gradients."""

    before: Tensor
    seen: Tensor
    """The part of `before` that entered the products."""
    before_k: Tensor | None
    states_k: Tensor | None
    gates: Tensor
    logits: Tensor
    """The gates themselves, or with a controller the logits alone."""
    inner: Tensor | None
    """Features inside the reset gate, if it is after the product."""
    product: Tensor | None
    """Reset gate times state, if it is before the product."""


class Carried(NamedTuple):
    """Gradients of outputs, and those that are carried from step to step."""

    output: Tensor | None
    p: Tensor | None
    v: Tensor | None
    s: Tensor
    k: Tensor | None


def forward(ready: Ready, from_x: Tensor, results: Results) -> None:
    """All steps, from their products with the inputs."""
    at, how, masks = ready.at, ready.how, ready.masks
    _, hh, kk, op, bias, bias_k = ready.weights
    inputs = (from_x, hh, kk, op, bias, bias_k, ready.s0, ready.k0, ready.offsets, *masks, *results)
    sizes = (at.steps, at.batch, at.hidden, at.controller, at.width)
    if how.regime == "persistent":
        persistent.forward[(ready.blocks,)](*inputs, *sizes, **ready.options, **how.tile, **how.compiler)
        return
    seen, seen_k = _twice(results.s_n, masks.state, ready), _twice(results.k_n, None, ready)
    product = torch.empty_like(seen[0]) if seen is not None and ready.options["RESET"] == 1 else None
    if how.regime == "tiled":
        tiled.forward[(ready.blocks,)](
            *inputs, seen, seen_k, product, *sizes, **ready.options, **how.tile, **how.compiler
        )  # fmt: skip
        return
    _forward_stepwise(ready, from_x, results, (seen, seen_k, product))


def _twice(state: Tensor | None, factor: Tensor | None, ready: Ready) -> Tensor | None:
    """Room for what products see of a state in this step and in the next, and the first of it."""
    if state is None:
        return None
    seen = state.new_empty(2, *state.shape, dtype=ready.number)
    seen[0] = state if factor is None else state * factor
    return seen


def _forward_stepwise(
    ready: Ready, from_x: Tensor, results: Results, exchanged: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> None:
    at, masks, (seen, seen_k, product) = ready.at, ready.masks, exchanged
    _, hh, kk, op, bias, bias_k = ready.weights
    output, s_n, k_n, states_k, p, v = results
    compiled = ready.how.tile | ready.how.compiler
    tiles = ready.tiles(at.hidden)
    gates, cells = tiles if product is not None else 0, ready.tiles(at.controller)
    first = {name: ready.options[name] for name in GATES}
    second = {name: value for name, value in ready.options.items() if name != "CONTROLLER_ACTIVATION"}
    sizes = (at.steps, at.batch, at.hidden, at.controller, at.width)
    for i in range(at.steps):
        if gates + cells:
            tiled.prepare_step[(ready.blocks, gates + cells)](
                from_x, hh, kk, bias, bias_k, ready.k0, ready.offsets, masks.resets, k_n, states_k, seen, seen_k,
                product, i, *sizes, gates, **first, **compiled,
            )  # fmt: skip
        tiled.renew_step[(ready.blocks, tiles)](
            from_x, hh, op, bias, ready.s0, ready.offsets, *masks, output, s_n, states_k, p, v, seen, product,
            i, *sizes, **second, **compiled,
        )  # fmt: skip


def backward(ready: Ready, steps: Steps, grads: Carried) -> None:
    """Run all steps backwards: gates become their gradients, carried gradients those of the initial states."""
    at, how, masks = ready.at, ready.how, ready.masks
    _, hh, kk, op, bias, _ = ready.weights
    logits_at = at.rest if steps.states_k is None else 0
    sizes = (at.steps, at.batch, at.hidden, at.controller, at.width, steps.logits.size(1), logits_at)
    inputs = (
        steps.gates, steps.logits, steps.inner, steps.before, steps.states_k, hh, kk, op, bias, ready.offsets, *masks,
        *grads,
    )  # fmt: skip
    if how.regime == "persistent":
        persistent.backward[(ready.blocks,)](*inputs, *sizes, **ready.options, **how.tile, **how.compiler)
        return
    # what resets lead back to the initial states
    ds0 = None if masks.resets is None else torch.zeros_like(grads.s)
    dk0 = None if masks.resets is None or grads.k is None else torch.zeros_like(grads.k)
    direct = torch.empty_like(grads.s)
    if how.regime == "tiled":
        tiled.backward[(ready.blocks,)](
            *inputs, ds0, dk0, direct, *sizes, **ready.options, **how.tile, **how.compiler
        )  # fmt: skip
    else:
        _backward_stepwise(ready, steps, grads, (ds0, dk0, direct), sizes)
    for total, part in ((grads.s, ds0), (grads.k, dk0)):
        if total is not None and part is not None:
            total += part


def _backward_stepwise(
    ready: Ready, steps: Steps, grads: Carried, exchanged: tuple[Tensor | None, ...], sizes: tuple[int, ...]
) -> None:
    at, masks, direct = ready.at, ready.masks, exchanged[-1]
    _, hh, kk, op, bias, _ = ready.weights
    compiled = ready.how.tile | ready.how.compiler
    tiles = ready.tiles(at.hidden)
    gates, cells = tiles if steps.product is not None else 0, ready.tiles(at.controller)
    ends = {name: value for name, value in ready.options.items() if name != "CONTROLLER_ACTIVATION"}
    between = {name: ready.options[name] for name in GATES}
    for i in range(at.steps + 1):
        tiled.return_step[(ready.blocks, tiles + cells)](
            steps.gates, steps.logits, steps.inner, steps.before, hh, kk, bias, ready.offsets, *masks, *grads,
            *exchanged, i, *sizes, tiles, **ends, FIRST=i == 0, LAST=i == at.steps, **compiled,
        )  # fmt: skip
        if gates + cells and i < at.steps:
            tiled.return_gates_step[(ready.blocks, gates + cells)](
                steps.gates, steps.logits, steps.before, steps.states_k, hh, kk, op, bias, ready.offsets, masks.state,
                grads.k, direct, i, *sizes[:-1], gates, COUNT=at.operations, **between, **compiled,
            )  # fmt: skip


def previous(
    ready: Ready, states: Tensor, initial: Tensor, factors: Tensor | None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The state that every step began with, and what its products saw of it."""
    at, size = ready.at, states.size(1)
    before = states.new_empty(at.rows, size)
    seen = (
        None
        if factors is None and ready.number == states.dtype
        else before.new_empty(at.rows, size, dtype=ready.number)
    )
    grid = (at.steps, -(-at.batch // 16), -(-size // 64))
    tiled.previous[grid](
        plain(states), plain(initial), ready.offsets, ready.masks.resets, factors, before, seen,
        at.steps, at.batch, size, REVERSE=ready.options["REVERSE"], BLOCK_B=16, BLOCK_H=64,
        num_warps=4, num_stages=1, enable_fp_fusion=True,
    )  # fmt: skip
    return before, before if seen is None else seen
