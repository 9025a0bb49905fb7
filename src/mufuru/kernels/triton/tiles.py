"""One step of a layer of any width, tile by tile: some sequences by some units, or by some cells of the controller.

What the tiles of a step exchange lies in memory: `seen`, what the products read of the state, twice, since one step
reads it while it writes the next one's; `product`, the state behind the reset gate; and the controller's states. A tile
reads its own part of `state`, and of the gradients carried from step to step, and nobody else's.
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
    long,
    pull_back,
    read,
    sigmoid,
    softmax,
    span,
    write,
)


@triton.jit
def products(
    left, left_row, down, there, weight, weight_row, depth, inside, hidden,
    COUNT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """COUNT tiles: rows of `left`, (rows, depth), times rows of `weight`, (rows, depth), `hidden` rows apart."""
    beside = tl.arange(0, BLOCK_N)
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (tl.full((down.shape[0], BLOCK_N), 0.0, tl.float32),)
    for k in range(0, depth, BLOCK_K):
        deep = k + tl.arange(0, BLOCK_K)
        within = deep < depth
        a = tl.load(at(left, left_row, down, depth, deep), mask=there[:, None] & within[None, :], other=0.0)
        more = ()
        for j in tl.static_range(COUNT):
            from_w = across(weight, weight_row + j * hidden, beside, depth, deep)
            b = tl.load(from_w, mask=within[:, None] & inside[None, :], other=0.0)
            more = more + (dot(a, b, sums[j], PRECISION),)
        sums = more
    return sums


@triton.jit
def returned(
    total, left, left_row, down, live, left_width, left_at, weight, weight_row, depth, weight_width, columns, inside,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of gradients: `total`, and rows of `left`, from a column on, times `depth` rows of `weight`."""
    rows = tl.arange(0, BLOCK_K)
    for k in range(0, depth, BLOCK_K):
        within = k + rows < depth
        from_left = at(left, left_row, down, left_width, left_at + k + rows)
        a = tl.load(from_left, mask=live[:, None] & within[None, :], other=0.0)
        from_w = at(weight, long(weight_row) + k, rows, weight_width, columns)
        b = tl.load(from_w, mask=within[:, None] & inside[None, :], other=0.0)
        total = dot(a, b, total, PRECISION)
    return total


@triton.jit
def here_of(resets, row, down, live):
    """(rows, 1): where a step begins with the initial state."""
    return (tl.load(resets + row + down, mask=live, other=0) != 0)[:, None]


@triton.jit
def following(i, steps, batch, start, down, offsets, REVERSE: tl.constexpr):
    """First row of the step that is next, and which sequences it has: none after the last."""
    ahead = i + 1 < steps
    other = tl.where(ahead, i + 1, i)
    step = steps - 1 - other if REVERSE else other
    first, alive = span(step, batch, offsets)
    return first + start, (start + down) < tl.where(ahead, alive, 0)


@triton.jit
def gate(
    unit, i, step, start, down, from_x, hh, bias, offsets, seen, product, batch, hidden, width,
    PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Reset gate times state, for the products of the features."""
    first, alive = span(step, batch, offsets)
    live = (start + down) < alive
    units = unit + tl.arange(0, BLOCK_H)
    inside = units < hidden
    mask = live[:, None] & inside[None, :]
    seen += (i % 2) * long(batch) * hidden
    sums = products(
        seen, start, down, live, hh, long(hidden) + unit, hidden, inside, hidden, 1, BLOCK_H, BLOCK_K, PRECISION
    )  # fmt: skip
    pre_r = sums[0] + read(from_x, first + start, down, width, hidden + units, mask)
    r = sigmoid(pre_r + bias_of(bias, 2, hidden, units, inside))
    write(product, start, down, hidden, units, mask, r * read(seen, start, down, hidden, units, mask))


@triton.jit
def control(
    cell, i, step, steps, start, down, from_x, hh, kk, bias_k, k0, offsets, resets, seen, seen_k, k_n, kept_k,
    batch, hidden, controller, width,
    RESET: tl.constexpr, CONTROLLER_ACTIVATION: tl.constexpr, REVERSE: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Cells of the recurrent controller."""
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    there = (start + down) < batch
    cells = cell + tl.arange(0, BLOCK_H)
    held = cells < controller
    mask = live[:, None] & held[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden
    seen += (i % 2) * long(batch) * hidden
    now, then = (i % 2) * long(batch) * controller, ((i + 1) % 2) * long(batch) * controller
    from_s = products(
        seen, start, down, live, hh, long(rest) + cell, hidden, held, 0, 1, BLOCK_H, BLOCK_K, PRECISION
    )  # fmt: skip
    from_k = products(
        seen_k + now, start, down, live, kk, long(cell), controller, held, 0, 1, BLOCK_H, BLOCK_K, PRECISION
    )  # fmt: skip
    pre_k = read(from_x, row, down, width, rest + cells, mask) + from_s[0] + from_k[0]
    if bias_k is not None:
        pre_k += tl.load(bias_k + cells, mask=held, other=0.0)[None, :]
    new = activate(pre_k, CONTROLLER_ACTIVATION)
    write(kept_k, row, down, controller, cells, mask, new)
    k_mask = there[:, None] & held[None, :]
    new = tl.where(live[:, None], new, read(k_n, start, down, controller, cells, k_mask))
    write(k_n, start, down, controller, cells, k_mask, new)
    if resets is not None:
        next_row, next_live = following(i, steps, batch, start, down, offsets, REVERSE)
        new = tl.where(
            here_of(resets, next_row, down, next_live), read(k0, start, down, controller, cells, k_mask), new
        )  # fmt: skip
    write(seen_k + then, start, down, controller, cells, k_mask, new)


@triton.jit
def renew(
    unit, i, step, steps, start, down, from_x, hh, op, bias, s0, offsets, state_mask, zoneout, allowed, resets,
    seen, product, state, kept_k, out, p_out, v_out, batch, hidden, controller, width,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr, REVERSE: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Features, operation weights and the new state."""
    COUNT: tl.constexpr = len(OPS)
    BLOCKS: tl.constexpr = COUNT - 1 if op is None else 0
    AHEAD: tl.constexpr = 0 if RESET == BEFORE else (2 if RESET == AFTER else 1)
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    there = (start + down) < batch
    units = unit + tl.arange(0, BLOCK_H)
    inside = units < hidden
    mask = live[:, None] & inside[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden
    now, then = (i % 2) * long(batch) * hidden, ((i + 1) % 2) * long(batch) * hidden

    if AHEAD + BLOCKS > 0:
        row_w = long(rest if RESET == BEFORE else 0) + unit
        from_s = products(
            seen + now, start, down, live, hh, row_w, hidden, inside, hidden, AHEAD + BLOCKS, BLOCK_H, BLOCK_K,
            PRECISION,
        )  # fmt: skip
    pre_v = read(from_x, row, down, width, units, mask) + bias_of(bias, 0, hidden, units, inside)
    if RESET == BEFORE:
        gated = products(
            product, start, down, live, hh, long(unit), hidden, inside, 0, 1, BLOCK_H, BLOCK_K, PRECISION
        )  # fmt: skip
        pre_v += gated[0]
    elif RESET == AFTER:
        pre_r = read(from_x, row, down, width, hidden + units, mask) + bias_of(bias, 2, hidden, units, inside)
        pre_v += sigmoid(pre_r + from_s[1]) * (from_s[0] + bias_of(bias, 1, hidden, units, inside))
    else:
        pre_v += from_s[0]
    v = activate(pre_v, ACTIVATION)
    if op is not None and COUNT > 1:
        from_k = products(
            kept_k, row, down, live, op, long(unit), controller, inside, hidden, COUNT - 1, BLOCK_H, BLOCK_K, PRECISION
        )  # fmt: skip
    logits = ()
    for j in tl.static_range(COUNT):
        logit = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32) + bias_of(bias, 3 + j, hidden, units, inside)
        if j < COUNT - 1:
            if op is None:
                logit += from_s[AHEAD + j] + read(from_x, row, down, width, rest + j * hidden + units, mask)
            else:
                logit += from_k[j]
        logits = logits + (forbid(logit, allowed, start, down, live, j, COUNT),)
    p = softmax(logits, COUNT)

    s_mask = there[:, None] & inside[None, :]
    held = read(state, start, down, hidden, units, s_mask)
    old = held
    if resets is not None:
        initial = read(s0, start, down, hidden, units, s_mask)
        old = tl.where(here_of(resets, row, down, live), initial, held)
    new = compose(old, v, p, OPS, FUNCTIONS)
    if zoneout is not None:
        share = read(zoneout, row, down, hidden, units, mask)
        new = share * old + (1.0 - share) * new
    write(out, row, down, hidden, units, mask, new)
    if v_out is not None:
        write(v_out, row, down, hidden, units, mask, v)
        for j in tl.static_range(COUNT):
            write(p_out, row, down, COUNT * hidden, j * hidden + units, mask, p[j])
    new = tl.where(live[:, None], new, held)
    write(state, start, down, hidden, units, s_mask, new)
    if resets is not None:
        next_row, next_live = following(i, steps, batch, start, down, offsets, REVERSE)
        new = tl.where(here_of(resets, next_row, down, next_live), initial, new)
    if state_mask is not None:
        new = new * read(state_mask, start, down, hidden, units, s_mask)
    write(seen + then, start, down, hidden, units, s_mask, new)


@triton.jit
def differentiate(
    carry, unit, step, start, down, gates, logits_in, inner, before, bias, offsets, zoneout, allowed,
    grad_out, grad_p, grad_v, direct, batch, hidden, width, logits_width, logits_at,
    OPS: tl.constexpr, FUNCTIONS: tl.constexpr, RESET: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """The element-wise part of the gradients of a step, from that of its states; gates give way to their gradients."""
    COUNT: tl.constexpr = len(OPS)
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    units = unit + tl.arange(0, BLOCK_H)
    inside = units < hidden
    mask = live[:, None] & inside[None, :]
    old = read(before, row, down, hidden, units, mask)
    pre_v = read(gates, row, down, width, units, mask) + bias_of(bias, 0, hidden, units, inside)
    if RESET == AFTER:
        pre_r = read(gates, row, down, width, hidden + units, mask) + bias_of(bias, 2, hidden, units, inside)
        r = sigmoid(pre_r)
        within = read(inner, row, down, hidden, units, mask) + bias_of(bias, 1, hidden, units, inside)
        pre_v += r * within
    v = activate(pre_v, ACTIVATION)
    logits = ()
    grads_p = ()
    for j in tl.static_range(COUNT):
        logit = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32) + bias_of(bias, 3 + j, hidden, units, inside)
        if j < COUNT - 1:
            logit += read(logits_in, row, down, logits_width, logits_at + j * hidden + units, mask)
        logits = logits + (forbid(logit, allowed, start, down, live, j, COUNT),)
        if grad_p is not None:
            grads_p = grads_p + (read(grad_p, row, down, COUNT * hidden, j * hidden + units, mask),)
    p = softmax(logits, COUNT)

    grad = tl.where(live[:, None], carry, 0.0)
    if grad_out is not None:
        grad += read(grad_out, row, down, hidden, units, mask)
    by_s = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32)
    if zoneout is not None:
        share = read(zoneout, row, down, hidden, units, mask)
        by_s = grad * share
        grad = grad * (1.0 - share)
    through, by_v, by_logits = decompose(grad, old, v, p, grads_p, OPS, FUNCTIONS)
    if grad_v is not None:
        by_v += read(grad_v, row, down, hidden, units, mask)
    d_v = pull_back(by_v, v, ACTIVATION)
    write(gates, row, down, width, units, mask, d_v)
    if RESET == AFTER:
        write(gates, row, down, width, hidden + units, mask, d_v * within * r * (1.0 - r))
        write(inner, row, down, hidden, units, mask, d_v * r)
    for j in tl.static_range(COUNT - 1):
        write(logits_in, row, down, logits_width, logits_at + j * hidden + units, mask, by_logits[j])
    write(direct, start, down, hidden, units, mask, by_s + through)


@triton.jit
def differentiate_gate(
    unit, step, start, down, gates, before, hh, bias, offsets, state_mask, direct, batch, hidden, width,
    PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients by the reset gate in front of the features' product."""
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    units = unit + tl.arange(0, BLOCK_H)
    inside = units < hidden
    mask = live[:, None] & inside[None, :]
    zero = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32)
    by_product = returned(
        zero, gates, row, down, live, width, 0, hh, 0, hidden, hidden, units, inside, BLOCK_K, PRECISION
    )  # fmt: skip
    seen = read(before, row, down, hidden, units, mask)
    pre_r = read(gates, row, down, width, hidden + units, mask) + bias_of(bias, 2, hidden, units, inside)
    r = sigmoid(pre_r)
    by_seen = by_product * r
    if state_mask is not None:
        factor = read(state_mask, start, down, hidden, units, mask)
        seen = seen * factor
        by_seen = by_seen * factor
    write(gates, row, down, width, hidden + units, mask, by_product * seen * r * (1.0 - r))
    sofar = read(direct, start, down, hidden, units, mask)
    write(direct, start, down, hidden, units, mask, sofar + by_seen)


@triton.jit
def differentiate_controller(
    cell, step, start, down, gates, logits_in, kept_k, op, offsets, dk, batch, hidden, controller, width, logits_width,
    COUNT: tl.constexpr, RESET: tl.constexpr, CONTROLLER_ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients by cells of the controller."""
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    cells = cell + tl.arange(0, BLOCK_H)
    held = cells < controller
    mask = live[:, None] & held[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden
    by_k = read(dk, start, down, controller, cells, mask)
    by_k = returned(
        by_k, logits_in, row, down, live, logits_width, 0, op, 0, (COUNT - 1) * hidden, controller, cells, held,
        BLOCK_K, PRECISION,
    )  # fmt: skip
    k = read(kept_k, row, down, controller, cells, mask)
    write(gates, row, down, width, rest + cells, mask, pull_back(by_k, k, CONTROLLER_ACTIVATION))


@triton.jit
def carry_back(
    unit, step, start, down, gates, inner, hh, offsets, state_mask, resets, direct, ds, ds0,
    batch, hidden, width, RESET: tl.constexpr, PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The gradient by the state that a step began with."""
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    there = (start + down) < batch
    units = unit + tl.arange(0, BLOCK_H)
    inside = units < hidden
    mask = live[:, None] & inside[None, :]
    s_mask = there[:, None] & inside[None, :]
    begin = 0 if RESET == NO_RESET else hidden
    by_seen = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32)
    by_seen = returned(
        by_seen, gates, row, down, live, width, begin, hh, long(begin), width - begin, hidden, units, inside,
        BLOCK_K, PRECISION,
    )  # fmt: skip
    if RESET == AFTER:
        by_seen = returned(
            by_seen, inner, row, down, live, hidden, 0, hh, 0, hidden, hidden, units, inside, BLOCK_K, PRECISION
        )  # fmt: skip
    if state_mask is not None:
        by_seen = by_seen * read(state_mask, start, down, hidden, units, mask)
    by_s = by_seen + read(direct, start, down, hidden, units, mask)
    if resets is not None:
        here = here_of(resets, row, down, live)
        sofar = read(ds0, start, down, hidden, units, s_mask)
        write(ds0, start, down, hidden, units, s_mask, sofar + tl.where(here & live[:, None], by_s, 0.0))
        by_s = tl.where(here, 0.0, by_s)
    carry = tl.where(live[:, None], by_s, read(ds, start, down, hidden, units, s_mask))
    write(ds, start, down, hidden, units, s_mask, carry)
    return carry


@triton.jit
def carry_controller_back(
    cell, step, start, down, gates, kk, offsets, resets, dk, dk0, batch, hidden, controller, width,
    RESET: tl.constexpr, PRECISION: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The gradient by the controller's state that a step began with."""
    first, alive = span(step, batch, offsets)
    row = first + start
    live = (start + down) < alive
    there = (start + down) < batch
    cells = cell + tl.arange(0, BLOCK_H)
    held = cells < controller
    k_mask = there[:, None] & held[None, :]
    rest = hidden if RESET == NO_RESET else 2 * hidden
    zero = tl.full((down.shape[0], BLOCK_H), 0.0, tl.float32)
    by_k = returned(
        zero, gates, row, down, live, width, rest, kk, 0, controller, controller, cells, held, BLOCK_K, PRECISION
    )  # fmt: skip
    if resets is not None:
        here = here_of(resets, row, down, live)
        sofar = read(dk0, start, down, controller, cells, k_mask)
        write(dk0, start, down, controller, cells, k_mask, sofar + tl.where(here & live[:, None], by_k, 0.0))
        by_k = tl.where(here, 0.0, by_k)
    carry = tl.where(live[:, None], by_k, read(dk, start, down, controller, cells, k_mask))
    write(dk, start, down, controller, cells, k_mask, carry)
