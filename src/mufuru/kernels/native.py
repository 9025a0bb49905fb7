"""The native kernel on tensors: memory for `csrc/` to read and write, and the calls.

The softmax does not change when one logit is subtracted from all: the last operation is the reference, its weights are
taken off the others' beforehand, and it needs no product of its own. Biases stay as they are, since one may be -inf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mufuru.kernels import custom
from mufuru.kernels.problem import CUSTOM, Problem, native
from mufuru.kernels.run import previous_states

NO_RESET, BEFORE, AFTER = 0, 1, 2
RESETS = {None: NO_RESET, "before": BEFORE, "after": AFTER}
ACTIVATIONS = {"tanh": 0, "sigmoid": 1}


class Inputs(NamedTuple):
    """All tensors that go in."""

    x: Tensor
    s0: Tensor
    k0: Tensor | None
    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    kk: Tensor | None
    op: Tensor | None
    bias_op: Tensor | None
    batch_sizes: Tensor | None
    state_mask: Tensor | None
    zoneout: Tensor | None
    allowed: Tensor | None


N_DIFFERENTIABLE = Inputs._fields.index("bias_op") + 1
"""Of the inputs, so many have gradients."""


class Options(NamedTuple):
    """What is not a tensor."""

    codes: tuple[int, ...]
    reset: int
    activation: int
    reverse: bool
    trace: bool


class Outputs(NamedTuple):
    """What comes out, and what the backward pass needs; a tensor without elements where there is nothing."""

    output: Tensor
    s_n: Tensor
    k_n: Tensor
    p: Tensor
    v: Tensor
    gates: Tensor
    probs: Tensor
    inner: Tensor


class Gradients(NamedTuple):
    """By the inputs of the same names; without elements where there is nothing."""

    x: Tensor
    s0: Tensor
    k0: Tensor
    ih: Tensor
    hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    kk: Tensor
    op: Tensor
    bias_op: Tensor


class Shape(NamedTuple):
    """Sizes of a run and where blocks lie in a row of its gates: features, reset, then logits or controller."""

    total: int
    batch: int
    hidden: int
    controller: int
    ops: int
    rest: int
    """The column where the logits, or the controller, begin."""
    width: int

    @classmethod
    def of(cls, inputs: Inputs, options: Options) -> Shape:
        batch, hidden = inputs.s0.shape
        controller = 0 if inputs.kk is None else inputs.kk.size(0)
        rest = hidden if options.reset == NO_RESET else 2 * hidden
        width = inputs.ih.size(0) - (0 if controller else hidden)
        return cls(inputs.x.size(0), batch, hidden, controller, len(options.codes), rest, width)


class Prepared(NamedTuple):
    """What follows from the weights alone."""

    bias: Tensor | None
    logit_bias: Tensor | None
    inner_bias: Tensor | None
    packed: Tensor


def prepare(at: Shape, inputs: Inputs, options: Options, problem: Problem | None = None) -> Prepared:
    bias = logit_bias = inner_bias = None
    if inputs.bias_ih is not None and inputs.bias_hh is not None:
        bias = inputs.bias_ih + inputs.bias_hh
        if options.reset == AFTER:
            bias[: at.hidden] = inputs.bias_ih[: at.hidden]
            inner_bias = inputs.bias_hh[: at.hidden]
        logit_bias = inputs.bias_op if at.controller else bias[at.width :]
    problem = problem or _problem(at, inputs, options, 0, {})
    return Prepared(bias, logit_bias, inner_bias, problem.packed(False, inputs.hh.dtype))


def forward(inputs: Inputs, options: Options, prepared: Prepared | None = None, keep: bool = True) -> Outputs:
    """All steps; with `keep`, also what the backward pass will need."""
    inputs = contiguous(inputs)
    at = Shape.of(inputs, options)
    own = max(options.codes) >= CUSTOM
    out = empty_outputs(at, inputs.s0, options, keep or own or options.trace)
    steps, offsets = _offsets(inputs.batch_sizes, at)
    problem = _problem(at, inputs, options, steps, out._asdict())
    problem.point((prepared or prepare(at, inputs, options, problem))._asdict())
    problem.point({"offsets": offsets})
    if own:
        custom.forward(problem, options.codes, inputs.s0, inputs.k0, inputs.batch_sizes, options.reverse, at.rest, out)
    else:
        native().mufuru_forward(problem.address)
    if options.trace:
        out.v.copy_(out.gates[:, : at.hidden])
    _clear_padding(offsets, out.output, out.p, out.v)
    return out


def empty_outputs(at: Shape, like: Tensor, options: Options, keep: bool = True) -> Outputs:
    """Memory for what comes out."""
    traced = at.total if options.trace else 0
    nothing = like.new_empty(0)
    return Outputs(
        output=like.new_empty(at.total, at.hidden),
        s_n=like.new_empty(at.batch, at.hidden),
        k_n=like.new_empty(at.batch, at.controller) if at.controller else nothing,
        p=like.new_empty(traced, at.ops, at.hidden) if options.trace else nothing,
        v=like.new_empty(traced, at.hidden) if options.trace else nothing,
        gates=like.new_empty(at.total, at.width) if keep else nothing,
        probs=like.new_empty(at.total, (at.ops - 1) * at.hidden) if keep and at.controller else nothing,
        inner=like.new_empty(at.total, at.hidden) if keep and options.reset == AFTER else nothing,
    )


def backward(
    grads: tuple[Tensor | None, ...], inputs: Inputs, options: Options, saved: Outputs, needs_x: bool
) -> Gradients:
    """`grads` belong to output, s_n, k_n, p and v."""
    inputs = contiguous(inputs)
    at = Shape.of(inputs, options)
    steps, offsets = _offsets(inputs.batch_sizes, at)
    problem = _problem(at, inputs, options, steps, saved._asdict())
    problem.point({"offsets": offsets, "packed_back": problem.packed(True, inputs.hh.dtype)})
    names = ("grad_output", "grad_s_n", "grad_k_n", "grad_p", "grad_v")
    problem.point({name: None if g is None else g.contiguous() for name, g in zip(names, grads, strict=True)})
    problem.point(_workspace(at, inputs.s0, options))
    if max(options.codes) >= CUSTOM:
        states = previous_states(saved.output, inputs.s0, inputs.batch_sizes, options.reverse)
        problem.point(custom.derivatives(options.codes, states, saved.gates[:, : at.hidden]))
    nothing = inputs.s0.new_empty(0)
    found = Gradients(
        torch.empty_like(inputs.x) if needs_x else nothing,
        torch.empty_like(inputs.s0),
        *(nothing if tensor is None else torch.empty_like(tensor) for tensor in inputs[2:N_DIFFERENTIABLE]),
    )
    problem.point({f"d_{name}": tensor for name, tensor in found._asdict().items()})
    native().mufuru_backward(problem.address)
    _clear_padding(offsets, found.x)
    return found


def _clear_padding(offsets: Tensor, *packed: Tensor) -> None:
    """The kernel leaves the rows beyond the last step's as they were."""
    rows = int(offsets[-1])
    for tensor in packed:
        if tensor.size(0) > rows:
            tensor[rows:] = 0


def _workspace(at: Shape, like: Tensor, options: Options) -> dict[str, Tensor]:
    """Memory for what only the backward pass itself reads."""
    space = {"d_gates": like.new_empty(at.total, at.width), "seen_rows": like.new_empty(at.total, at.hidden)}
    if options.reset == BEFORE:
        space["reset_rows"] = like.new_empty(at.total, at.hidden)
    if options.reset == AFTER:
        space["d_inner"] = like.new_empty(at.total, at.hidden)
    if at.controller:
        space["d_probs"] = like.new_empty(at.total, (at.ops - 1) * at.hidden)
        space["k_rows"] = like.new_empty(at.total, at.controller)
    return space


def _problem(
    at: Shape, inputs: Inputs, options: Options, steps: int, tensors: dict[str, Tensor | None]
) -> Problem:  # fmt: skip
    sizes = (
        steps, at.batch, inputs.x.size(1), at.hidden, at.controller, at.ops,
        options.reset, options.activation, options.reverse, inputs.hh.dtype == torch.float64,
    )  # fmt: skip
    tensors.pop("v", None)
    tensors |= {
        "codes": _codes(options.codes), "x": inputs.x, "s0": inputs.s0, "k0": inputs.k0,
        "w_ih": inputs.ih, "w_hh": inputs.hh, "w_kk": inputs.kk, "w_op": inputs.op,
        "state_mask": inputs.state_mask, "zoneout": inputs.zoneout, "allowed": inputs.allowed,
    }  # fmt: skip
    return Problem(sizes, tensors)


def contiguous(inputs: Inputs) -> Inputs:
    tensors: Any = (tensor if tensor is None else tensor.contiguous() for tensor in inputs)
    return Inputs(*tensors)


@lru_cache(maxsize=64)
def _codes(codes: tuple[int, ...]) -> Tensor:
    return torch.tensor(custom.local_codes(codes), device="cpu")


def _offsets(batch_sizes: Tensor | None, at: Shape) -> tuple[int, Tensor]:
    """The number of steps, and where the rows of each begin."""
    if batch_sizes is None:
        return (at.total // at.batch if at.batch else 0), _even_offsets(at.total, at.batch)
    offsets = batch_sizes.new_zeros(len(batch_sizes) + 1)
    torch.cumsum(batch_sizes, 0, out=offsets[1:])
    return len(batch_sizes), offsets


@lru_cache(maxsize=64)
def _even_offsets(total: int, batch: int) -> Tensor:
    return torch.arange(0, total + 1, batch or 1, device="cpu")
