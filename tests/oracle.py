"""The unit in NumPy float64, written again from the paper's equations: one sequence, one step, one vector at a time.

It shares nothing with the package but the parameters' layout: rows of `weight_ih` and `weight_hh` are the blocks
feature, reset (if any), then one per operation or the recurrent controller; `bias_ih` is on the input's side, `bias_hh`
on the state's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

OPS: dict[str, Callable[[Array, Array], Array]] = {
    "keep": lambda s, v: s,
    "replace": lambda s, v: v,
    "max": lambda s, v: np.where(s > v, s, v),
    "min": lambda s, v: np.where(s > v, v, s),
    "mul": lambda s, v: s * v,
    "diff": lambda s, v: 0.5 * np.abs(s - v),
    "forget": lambda s, v: np.zeros(len(s)),
    "sqr_diff": lambda s, v: 0.25 * (s - v) ** 2,
    "negate": lambda s, v: -s,
    "add": lambda s, v: s + v,
}


@dataclass(frozen=True)
class Options:
    hidden: int
    ops: Sequence[str]
    reset: str | None = "before"
    activation: str = "tanh"
    controller: int | None = None
    controller_activation: str = "tanh"
    allowed: Sequence[bool] | None = None
    """Which operations may be used; all if `None`."""
    zoneout: float = 0.0
    """The share of the old state in every new one."""


@dataclass(frozen=True)
class Result:
    outputs: list[Array]
    """For each sequence, (steps, directions * hidden)."""
    h_n: Array
    """(layers * directions, batch, hidden)"""
    k_n: Array | None


def sigmoid(a: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-a))


def step(
    o: Options, w: Mapping[str, Array], x: Array, s: Array, k: Array | None, mask: Array | None = None
) -> tuple[Array, Array | None, Array, Array]:
    """One step of one sequence: the new s and k, and the step's p (operations, hidden) and v."""
    M, rows = o.hidden, len(w["weight_ih"])
    seen = s if mask is None else mask * s
    b_x, b_s = w.get("bias_ih", np.zeros(rows)), w.get("bias_hh", np.zeros(rows))

    def from_x(a: int, b: int) -> Array:
        return w["weight_ih"][a:b] @ x + b_x[a:b]

    def from_s(a: int, b: int, state: Array) -> Array:
        return w["weight_hh"][a:b] @ state + b_s[a:b]

    if o.reset is None:
        v, gates = from_x(0, M) + from_s(0, M, seen), M
    else:
        r, gates = sigmoid(from_x(M, 2 * M) + from_s(M, 2 * M, seen)), 2 * M
        v = from_x(0, M) + (from_s(0, M, r * seen) if o.reset == "before" else r * from_s(0, M, seen))
    v = np.tanh(v) if o.activation == "tanh" else sigmoid(v)

    logits = from_x(gates, rows) + from_s(gates, rows, seen)
    if o.controller is not None:
        assert k is not None
        k = logits + w["weight_kk"] @ k
        k = np.tanh(k) if o.controller_activation == "tanh" else np.maximum(0.0, k)
        logits = w["weight_op"] @ k + w.get("bias_op", np.zeros(M * len(o.ops)))
    p = softmax(logits.reshape(len(o.ops), M), o.allowed)

    new = sum((p[j] * OPS[name](s, v) for j, name in enumerate(o.ops)), np.zeros(M))
    return o.zoneout * s + (1 - o.zoneout) * new, k, p, v


def softmax(logits: Array, allowed: Sequence[bool] | None) -> Array:
    """Over the first dimension, separately for each unit; the operations not allowed get nothing."""
    e = np.exp(logits - logits.max(0))
    if allowed is not None:
        e = e * np.array(allowed, dtype=float)[:, None]
    return np.asarray(e / e.sum(0))


def direction(
    o: Options, w: Mapping[str, Array], xs: Array, s: Array, k: Array | None, reverse: bool, mask: Array | None = None
) -> tuple[Array, Array, Array | None]:
    """One sequence in one direction: its outputs (steps, hidden) and its last s and k."""
    outputs = np.zeros((len(xs), o.hidden))
    for t in range(len(xs) - 1, -1, -1) if reverse else range(len(xs)):
        s, k, _, _ = step(o, w, xs[t], s, k, mask)
        outputs[t] = s
    return outputs, s, k


def network(
    o: Options,
    parameters: Mapping[str, Array],
    sequences: Sequence[Array],
    h0: Array | None = None,
    k0: Array | None = None,
    layers: int = 1,
    directions: int = 1,
) -> Result:
    """All layers and directions over a batch of sequences, each of its own length, (steps, input)."""
    units, batch = layers * directions, len(sequences)
    h_n = np.zeros((units, batch, o.hidden)) if h0 is None else np.array(h0)
    k_n = np.zeros((units, batch, o.controller or 0)) if k0 is None else np.array(k0)
    outputs = [np.asarray(xs, dtype=np.float64) for xs in sequences]
    for layer in range(layers):
        for i in range(batch):
            ways = []
            for d in range(directions):
                unit, suffix = layer * directions + d, f"_l{layer}" + ("_reverse" if d else "")
                w = {name.removesuffix(suffix): p for name, p in parameters.items() if name.endswith(suffix)}
                k = None if o.controller is None else k_n[unit, i]
                ys, h_n[unit, i], k = direction(o, w, outputs[i], h_n[unit, i], k, reverse=d == 1)
                if k is not None:
                    k_n[unit, i] = k
                ways.append(ys)
            outputs[i] = np.concatenate(ways, axis=1)
    return Result(outputs, h_n, None if o.controller is None else k_n)
