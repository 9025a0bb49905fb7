"""The regimes of layers whose weights do not fit on the chip.

Tiled: one launch for all steps. A program takes its sequences through them and works through the tiles of a step one
after the other, with barriers where one tile reads what another wrote. Stepwise, for wide layers: a launch or two per
step, in which every tile is a separate program, so that a step's weights are read by many processors at once.
"""

import triton
import triton.language as tl

from mufuru.kernels.triton.pointwise import BEFORE, read, span, write
from mufuru.kernels.triton.tiles import (
    carry_back,
    carry_controller_back,
    control,
    differentiate,
    differentiate_controller,
    differentiate_gate,
    gate,
    renew,
)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward(
    from_x, hh, kk, op, bias, bias_k, s0, k0, offsets, state_mask, zoneout, allowed, resets,
    out, state, k_n, kept_k, p_out, v_out, seen, seen_k, product,
    steps, batch, hidden, controller, width,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    for i in range(steps):
        step = steps - 1 - i if REVERSE else i
        if RESET == BEFORE:
            for unit in range(0, hidden, BLOCK_H):
                gate(
                    unit, i, step, start, down, from_x, hh, bias, offsets, seen, product, batch, hidden, width,
                    PRECISION, BLOCK_H, BLOCK_K,
                )  # fmt: skip
        if kk is not None:
            for cell in range(0, controller, BLOCK_H):
                control(
                    cell, i, step, steps, start, down, from_x, hh, kk, bias_k, k0, offsets, resets, seen, seen_k, k_n,
                    kept_k, batch, hidden, controller, width,
                    RESET, CONTROLLER_ACTIVATION, REVERSE, PRECISION, BLOCK_H, BLOCK_K,
                )  # fmt: skip
        if RESET == BEFORE or kk is not None:
            tl.debug_barrier()
        for unit in range(0, hidden, BLOCK_H):
            renew(
                unit, i, step, steps, start, down, from_x, hh, op, bias, s0, offsets, state_mask, zoneout, allowed,
                resets, seen, product, state, kept_k, out, p_out, v_out, batch, hidden, controller, width,
                OPS, FUNCTIONS, RESET, ACTIVATION, REVERSE, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip
        tl.debug_barrier()


@triton.jit(do_not_specialize=["i", "steps", "batch"])
def prepare_step(
    from_x, hh, kk, bias, bias_k, k0, offsets, resets, k_n, kept_k, seen, seen_k, product,
    i, steps, batch, hidden, controller, width, tiles,
    RESET: tl.constexpr, CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute what the new state needs of all units: the first `tiles` programs gates, the others the controller."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    step = steps - 1 - i if REVERSE else i
    tile = tl.program_id(1)
    if RESET == BEFORE:
        if tile < tiles:
            gate(
                tile * BLOCK_H, i, step, start, down, from_x, hh, bias, offsets, seen, product, batch, hidden, width,
                PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip
    if kk is not None:
        if tile >= tiles:
            control(
                (tile - tiles) * BLOCK_H, i, step, steps, start, down, from_x, hh, kk, bias_k, k0, offsets, resets,
                seen, seen_k, k_n, kept_k, batch, hidden, controller, width,
                RESET, CONTROLLER_ACTIVATION, REVERSE, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip


@triton.jit(do_not_specialize=["i", "steps", "batch"])
def renew_step(
    from_x, hh, op, bias, s0, offsets, state_mask, zoneout, allowed, resets,
    out, state, kept_k, p_out, v_out, seen, product,
    i, steps, batch, hidden, controller, width,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    step = steps - 1 - i if REVERSE else i
    renew(
        tl.program_id(1) * BLOCK_H, i, step, steps, start, tl.arange(0, BLOCK_B), from_x, hh, op, bias, s0, offsets,
        state_mask, zoneout, allowed, resets, seen, product, state, kept_k, out, p_out, v_out,
        batch, hidden, controller, width, OPS, FUNCTIONS, RESET, ACTIVATION, REVERSE, PRECISION, BLOCK_H, BLOCK_K,
    )  # fmt: skip


@triton.jit(do_not_specialize=["steps", "batch"])
def backward(
    gates, logits_in, inner, before, kept_k, hh, kk, op, bias, offsets, state_mask, zoneout, allowed, resets,
    grad_out, grad_p, grad_v, ds, dk, ds0, dk0, direct,
    steps, batch, hidden, controller, width, logits_width, logits_at,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """From the gates before their activation to the gradients by them, in their place."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    there = ((start + down) < batch)[:, None]
    for i in range(steps):
        step = i if REVERSE else steps - 1 - i
        for unit in range(0, hidden, BLOCK_H):
            units = unit + tl.arange(0, BLOCK_H)
            carry = read(ds, start, down, hidden, units, there & (units < hidden)[None, :])
            differentiate(
                carry, unit, step, start, down, gates, logits_in, inner, before, bias, offsets, zoneout, allowed,
                grad_out, grad_p, grad_v, direct, batch, hidden, width, logits_width, logits_at,
                OPS, FUNCTIONS, RESET, ACTIVATION, BLOCK_H,
            )  # fmt: skip
        tl.debug_barrier()
        if RESET == BEFORE:
            for unit in range(0, hidden, BLOCK_H):
                differentiate_gate(
                    unit, step, start, down, gates, before, hh, bias, offsets, state_mask, direct, batch, hidden, width,
                    PRECISION, BLOCK_H, BLOCK_K,
                )  # fmt: skip
        if kk is not None:
            for cell in range(0, controller, BLOCK_H):
                differentiate_controller(
                    cell, step, start, down, gates, logits_in, kept_k, op, offsets, dk, batch, hidden, controller,
                    width, logits_width, len(OPS), RESET, CONTROLLER_ACTIVATION, PRECISION, BLOCK_H, BLOCK_K,
                )  # fmt: skip
        if RESET == BEFORE or kk is not None:
            tl.debug_barrier()
        for unit in range(0, hidden, BLOCK_H):
            carry_back(
                unit, step, start, down, gates, inner, hh, offsets, state_mask, resets, direct, ds, ds0,
                batch, hidden, width, RESET, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip
        if kk is not None:
            for cell in range(0, controller, BLOCK_H):
                carry_controller_back(
                    cell, step, start, down, gates, kk, offsets, resets, dk, dk0, batch, hidden, controller, width,
                    RESET, PRECISION, BLOCK_H, BLOCK_K,
                )  # fmt: skip
        tl.debug_barrier()


@triton.jit(do_not_specialize=["i", "steps", "batch"])
def return_step(
    gates, logits_in, inner, before, hh, kk, bias, offsets, state_mask, zoneout, allowed, resets,
    grad_out, grad_p, grad_v, ds, dk, ds0, dk0, direct,
    i, steps, batch, hidden, controller, width, logits_width, logits_at, tiles,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The end of one step's gradients and the beginning of the next one's, which needs no other tile."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    tile = tl.program_id(1)
    earlier = i - 1 if REVERSE else steps - i
    if tile < tiles:
        unit = tile * BLOCK_H
        if FIRST:
            units = unit + tl.arange(0, BLOCK_H)
            mask = ((start + down) < batch)[:, None] & (units < hidden)[None, :]
            carry = read(ds, start, down, hidden, units, mask)
        else:
            carry = carry_back(
                unit, earlier, start, down, gates, inner, hh, offsets, state_mask, resets, direct, ds, ds0,
                batch, hidden, width, RESET, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip
        if not LAST:
            step = i if REVERSE else steps - 1 - i
            differentiate(
                carry, unit, step, start, down, gates, logits_in, inner, before, bias, offsets, zoneout, allowed,
                grad_out, grad_p, grad_v, direct, batch, hidden, width, logits_width, logits_at,
                OPS, FUNCTIONS, RESET, ACTIVATION, BLOCK_H,
            )  # fmt: skip
    if kk is not None and not FIRST:
        if tile >= tiles:
            carry_controller_back(
                (tile - tiles) * BLOCK_H, earlier, start, down, gates, kk, offsets, resets, dk, dk0,
                batch, hidden, controller, width, RESET, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip


@triton.jit(do_not_specialize=["i", "steps", "batch"])
def return_gates_step(
    gates, logits_in, before, kept_k, hh, kk, op, bias, offsets, state_mask, dk, direct,
    i, steps, batch, hidden, controller, width, logits_width, tiles,
    COUNT: tl.constexpr, RESET: tl.constexpr, CONTROLLER_ACTIVATION: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients by the gates that need those of all units: the first `tiles` programs have the reset gate."""
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    tile = tl.program_id(1)
    step = i if REVERSE else steps - 1 - i
    if RESET == BEFORE:
        if tile < tiles:
            differentiate_gate(
                tile * BLOCK_H, step, start, down, gates, before, hh, bias, offsets, state_mask, direct,
                batch, hidden, width, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip
    if kk is not None:
        if tile >= tiles:
            differentiate_controller(
                (tile - tiles) * BLOCK_H, step, start, down, gates, logits_in, kept_k, op, offsets, dk,
                batch, hidden, controller, width, logits_width,
                COUNT, RESET, CONTROLLER_ACTIVATION, PRECISION, BLOCK_H, BLOCK_K,
            )  # fmt: skip


@triton.jit(do_not_specialize=["steps", "batch"])
def previous(
    states, initial, offsets, resets, factors, before, seen, steps, batch, size,
    REVERSE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The state that every step began with, and what its products saw of it: no step waits for another here."""
    step = tl.program_id(0)
    start = tl.program_id(1).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    units = tl.program_id(2) * BLOCK_H + tl.arange(0, BLOCK_H)
    first, alive = span(step, batch, offsets)
    live = (start + down) < alive
    inside = (units < size)[None, :]
    mask = live[:, None] & inside
    other = step + 1 if REVERSE else step - 1
    known = (other >= 0) & (other < steps)
    origin, others = span(tl.where(known, other, step), batch, offsets)
    kept = live & ((start + down) < tl.where(known, others, 0))
    if resets is not None:
        kept = kept & (tl.load(resets + first + start + down, mask=live, other=0) == 0)
    old = read(states, origin + start, down, size, units, kept[:, None] & inside)
    old = tl.where(kept[:, None], old, read(initial, start, down, size, units, mask))
    write(before, first + start, down, size, units, mask, old)
    if seen is not None:
        if factors is not None:
            old = old * read(factors, start, down, size, units, mask)
        write(seen, first + start, down, size, units, mask, old)
