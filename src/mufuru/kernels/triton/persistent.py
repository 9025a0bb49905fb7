"""The regime of small layers: a program takes its sequences through all the steps, its weights and states on the chip.

Weights are read once, before the loop, and stay in registers and shared memory; per step a program reads its rows of
the products with the inputs and writes its states. Programs never meet.
"""

import triton
import triton.language as tl

from mufuru.kernels.triton.pointwise import (
    AFTER,
    BEFORE,
    NO_RESET,
    across,
    activate,
    at,
    bias_of,
    compose,
    decompose,
    dot,
    forbid,
    pull_back,
    read,
    sigmoid,
    softmax,
    span,
    write,
)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    return dot(a, b, tl.full((a.shape[0], b.shape[1]), 0.0, tl.float32), PRECISION)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward(
    from_x, hh, kk, op, bias, bias_k, s0, k0, offsets, state_mask, zoneout, allowed, resets,
    out, s_n, k_n, kept_k, p_out, v_out,
    steps, batch, hidden, controller, width,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    COUNT: tl.constexpr = len(OPS)
    number = hh.dtype.element_ty
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    units = tl.arange(0, BLOCK_H)
    inside = units < hidden
    there = ((start + down) < batch)[:, None]
    square = inside[:, None] & inside[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden

    w_v = tl.load(across(hh, 0, units, hidden, units), mask=square, other=0.0)
    if RESET != NO_RESET:
        w_r = tl.load(across(hh, hidden, units, hidden, units), mask=square, other=0.0)
    w_p = ()
    if kk is None:
        for j in tl.static_range(COUNT - 1):
            w_p = w_p + (tl.load(across(hh, rest + j * hidden, units, hidden, units), mask=square, other=0.0),)
    else:
        cells = tl.arange(0, BLOCK_C)
        held = cells < controller
        k_there = there & held[None, :]
        w_k = tl.load(across(hh, rest, cells, hidden, units), mask=inside[:, None] & held[None, :], other=0.0)
        w_kk = tl.load(across(kk, 0, cells, controller, cells), mask=held[:, None] & held[None, :], other=0.0)
        for j in tl.static_range(COUNT - 1):
            from_k = across(op, j * hidden, units, controller, cells)
            w_p = w_p + (tl.load(from_k, mask=held[:, None] & inside[None, :], other=0.0),)
        k = read(k0, start, down, controller, cells, k_there)

    s = read(s0, start, down, hidden, units, there & inside[None, :])
    for i in range(steps):
        step = steps - 1 - i if REVERSE else i
        first, alive = span(step, batch, offsets)
        row = first + start
        live = (start + down) < alive
        mask = live[:, None] & inside[None, :]
        old = s
        if kk is not None:
            old_k = k
        if resets is not None:
            here = (tl.load(resets + row + down, mask=live, other=0) != 0)[:, None]
            old = tl.where(here, read(s0, start, down, hidden, units, mask), old)
            if kk is not None:
                old_k = tl.where(here, read(k0, start, down, controller, cells, live[:, None] & held[None, :]), old_k)
        seen = old
        if state_mask is not None:
            seen = old * read(state_mask, start, down, hidden, units, mask)
        low = seen.to(number)

        pre_v = read(from_x, row, down, width, units, mask) + bias_of(bias, 0, hidden, units, inside)
        if RESET != NO_RESET:
            pre_r = read(from_x, row, down, width, hidden + units, mask) + bias_of(bias, 2, hidden, units, inside)
            r = sigmoid(pre_r + product(low, w_r, PRECISION))
        if RESET == BEFORE:
            pre_v += product((r * seen).to(number), w_v, PRECISION)
        elif RESET == AFTER:
            inner = product(low, w_v, PRECISION) + bias_of(bias, 1, hidden, units, inside)
            pre_v += r * inner
        else:
            pre_v += product(low, w_v, PRECISION)
        v = activate(pre_v, ACTIVATION)

        reading = low
        if kk is not None:
            k_mask = live[:, None] & held[None, :]
            pre_k = read(from_x, row, down, width, rest + cells, k_mask)
            if bias_k is not None:
                pre_k += tl.load(bias_k + cells, mask=held, other=0.0)[None, :]
            pre_k += product(low, w_k, PRECISION)
            pre_k += product(old_k.to(number), w_kk, PRECISION)
            new_k = activate(pre_k, CONTROLLER_ACTIVATION)
            write(kept_k, row, down, controller, cells, k_mask, new_k)
            k = tl.where(live[:, None], new_k, k)
            reading = new_k.to(number)
        logits = ()
        for j in tl.static_range(COUNT - 1):
            logit = product(reading, w_p[j], PRECISION) + bias_of(bias, 3 + j, hidden, units, inside)
            if kk is None:
                logit += read(from_x, row, down, width, rest + j * hidden + units, mask)
            logits = logits + (forbid(logit, allowed, start, down, live, j, COUNT),)
        last = tl.full((BLOCK_B, BLOCK_H), 0.0, tl.float32) + bias_of(bias, 2 + COUNT, hidden, units, inside)
        logits = logits + (forbid(last, allowed, start, down, live, COUNT - 1, COUNT),)
        p = softmax(logits, COUNT)

        new = compose(old, v, p, OPS, FUNCTIONS)
        if zoneout is not None:
            share = read(zoneout, row, down, hidden, units, mask)
            new = share * old + (1.0 - share) * new
        write(out, row, down, hidden, units, mask, new)
        if v_out is not None:
            write(v_out, row, down, hidden, units, mask, v)
            for j in tl.static_range(COUNT):
                write(p_out, row, down, COUNT * hidden, j * hidden + units, mask, p[j])
        s = tl.where(live[:, None], new, s)
    write(s_n, start, down, hidden, units, there & inside[None, :], s)
    if kk is not None:
        write(k_n, start, down, controller, cells, k_there, k)


@triton.jit(do_not_specialize=["steps", "batch"])
def backward(
    gates, logits_in, inner, before, kept_k, hh, kk, op, bias, offsets, state_mask, zoneout, allowed, resets,
    grad_out, grad_p, grad_v, ds, dk,
    steps, batch, hidden, controller, width, logits_width, logits_at,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr,
    CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """From the gates before their activation to the gradients by them, in their place."""
    COUNT: tl.constexpr = len(OPS)
    number = hh.dtype.element_ty
    start = tl.program_id(0).to(tl.int64) * BLOCK_B
    down = tl.arange(0, BLOCK_B)
    units = tl.arange(0, BLOCK_H)
    inside = units < hidden
    there = ((start + down) < batch)[:, None] & inside[None, :]
    square = inside[:, None] & inside[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden

    w_v = tl.load(at(hh, 0, units, hidden, units), mask=square, other=0.0)
    if RESET != NO_RESET:
        w_r = tl.load(at(hh, hidden, units, hidden, units), mask=square, other=0.0)
    w_p = ()
    if kk is None:
        for j in tl.static_range(COUNT - 1):
            w_p = w_p + (tl.load(at(hh, rest + j * hidden, units, hidden, units), mask=square, other=0.0),)
    else:
        cells = tl.arange(0, BLOCK_C)
        held = cells < controller
        k_there = ((start + down) < batch)[:, None] & held[None, :]
        w_k = tl.load(at(hh, rest, cells, hidden, units), mask=held[:, None] & inside[None, :], other=0.0)
        w_kk = tl.load(at(kk, 0, cells, controller, cells), mask=held[:, None] & held[None, :], other=0.0)
        for j in tl.static_range(COUNT - 1):
            from_k = at(op, j * hidden, units, controller, cells)
            w_p = w_p + (tl.load(from_k, mask=inside[:, None] & held[None, :], other=0.0),)
        carry_k = read(dk, start, down, controller, cells, k_there)
        if resets is not None:
            first_k = tl.full((BLOCK_B, BLOCK_C), 0.0, tl.float32)

    carry = read(ds, start, down, hidden, units, there)
    if resets is not None:
        first_s = tl.full((BLOCK_B, BLOCK_H), 0.0, tl.float32)
    for i in range(steps):
        step = i if REVERSE else steps - 1 - i
        first, alive = span(step, batch, offsets)
        row = first + start
        live = (start + down) < alive
        mask = live[:, None] & inside[None, :]
        old = read(before, row, down, hidden, units, mask)
        seen = old
        if state_mask is not None:
            seen = old * read(state_mask, start, down, hidden, units, mask)

        pre_v = read(gates, row, down, width, units, mask) + bias_of(bias, 0, hidden, units, inside)
        if RESET != NO_RESET:
            pre_r = read(gates, row, down, width, hidden + units, mask) + bias_of(bias, 2, hidden, units, inside)
            r = sigmoid(pre_r)
        if RESET == AFTER:
            within = read(inner, row, down, hidden, units, mask) + bias_of(bias, 1, hidden, units, inside)
            pre_v += r * within
        v = activate(pre_v, ACTIVATION)
        logits = ()
        grads_p = ()
        for j in tl.static_range(COUNT):
            logit = tl.full((BLOCK_B, BLOCK_H), 0.0, tl.float32) + bias_of(bias, 3 + j, hidden, units, inside)
            if j < COUNT - 1:
                logit += read(logits_in, row, down, logits_width, logits_at + j * hidden + units, mask)
            logits = logits + (forbid(logit, allowed, start, down, live, j, COUNT),)
            if grad_p is not None:
                grads_p = grads_p + (read(grad_p, row, down, COUNT * hidden, j * hidden + units, mask),)
        p = softmax(logits, COUNT)

        grad = tl.where(live[:, None], carry, 0.0)
        if grad_out is not None:
            grad += read(grad_out, row, down, hidden, units, mask)
        by_s = tl.full((BLOCK_B, BLOCK_H), 0.0, tl.float32)
        if zoneout is not None:
            share = read(zoneout, row, down, hidden, units, mask)
            by_s = grad * share
            grad = grad * (1.0 - share)
        through, by_v, by_logits = decompose(grad, old, v, p, grads_p, OPS, FUNCTIONS)
        by_s += through
        if grad_v is not None:
            by_v += read(grad_v, row, down, hidden, units, mask)
        d_v = pull_back(by_v, v, ACTIVATION)
        write(gates, row, down, width, units, mask, d_v)

        if RESET == BEFORE:
            by_product = product(d_v.to(number), w_v, PRECISION)
            by_seen = by_product * r
            d_r = by_product * seen * r * (1.0 - r)
        elif RESET == AFTER:
            d_r = d_v * within * r * (1.0 - r)
            d_inner = (d_v * r).to(number)
            write(inner, row, down, hidden, units, mask, d_inner)
            by_seen = product(d_inner, w_v, PRECISION)
        else:
            by_seen = product(d_v.to(number), w_v, PRECISION)
        if RESET != NO_RESET:
            write(gates, row, down, width, hidden + units, mask, d_r)
            by_seen += product(d_r.to(number), w_r, PRECISION)

        if kk is not None:
            by_k = tl.where(live[:, None], carry_k, 0.0)
        for j in tl.static_range(COUNT - 1):
            d_logit = by_logits[j].to(number)
            write(logits_in, row, down, logits_width, logits_at + j * hidden + units, mask, d_logit)
            if kk is None:
                by_seen += product(d_logit, w_p[j], PRECISION)
            else:
                by_k += product(d_logit, w_p[j], PRECISION)
        if kk is not None:
            k_mask = live[:, None] & held[None, :]
            k = read(kept_k, row, down, controller, cells, k_mask)
            d_k = pull_back(by_k, k, CONTROLLER_ACTIVATION).to(number)
            write(gates, row, down, width, rest + cells, k_mask, d_k)
            by_seen += product(d_k, w_k, PRECISION)
            by_old_k = product(d_k, w_kk, PRECISION)

        if state_mask is not None:
            # read again: to keep it would take registers that there are not
            by_seen = by_seen * read(state_mask, start, down, hidden, units, mask)
        by_s += by_seen
        if resets is not None:
            here = (tl.load(resets + row + down, mask=live, other=0) != 0)[:, None]
            first_s += tl.where(here, by_s, 0.0)
            by_s = tl.where(here, 0.0, by_s)
            if kk is not None:
                first_k += tl.where(here, by_old_k, 0.0)
                by_old_k = tl.where(here, 0.0, by_old_k)
        carry = tl.where(live[:, None], by_s, carry)
        if kk is not None:
            carry_k = tl.where(live[:, None], by_old_k, carry_k)
    if resets is not None:
        carry += first_s
        if kk is not None:
            carry_k += first_k
    write(ds, start, down, hidden, units, there, carry)
    if kk is not None:
        write(dk, start, down, controller, cells, k_there, carry_k)
